#!/bin/sh
# Usage: previous.sh FOLDER FILE
# Installs the release that FILE names: its commit in the first line, its version in the second. FOLDER/source gets the
# sources of that commit, and FOLDER/venv an environment with the versions of their own list. If FOLDER has this release
# already, nothing happens. A clone without the commit fetches it; if its origin lacks it too, one line says so.
set -eu
folder=$1
{
    read -r commit
    read -r version
} <"$2"
[ "$(cat "$folder/commit" 2>/dev/null)" != "$commit" ] || exit 0

# `build/compiled` is not part of the commit, and an archive has only the current folder.
top=$(git rev-parse --show-toplevel) || exit 2
if ! git -C "$top" cat-file -e "$commit^{tree}" 2>/dev/null &&
    ! timeout 120 git -C "$top" fetch --quiet --depth=1 origin "$commit" 2>/dev/null; then
    echo "Release $version is missing: neither this clone nor its origin has commit $commit." >&2
    exit 2
fi
rm -rf "$folder"
mkdir -p "$folder/source"
git -C "$top" archive --output "$folder/source.tar" "$commit"
tar -x -f "$folder/source.tar" -C "$folder/source"
rm "$folder/source.tar"
sh "$folder/source/scripts/venv.sh" "$folder/venv" "$folder/source/locked/build.txt" -- --editable "$folder/source"
installed=$("$folder/venv/bin/gateway" --version)
case $installed in
*" $version" | *" $version "*) ;;
*)
    echo "$2 names version $version, but commit $commit is $installed." >&2
    exit 2
    ;;
esac
echo "$commit" >"$folder/commit"
