#!/bin/sh
# Usage: pin.sh (no arguments), from the top of the repository
# Writes every constraints and lock file anew: the newest versions that pyproject.toml and the peers' requirements allow,
# as they resolve together in fresh virtual environments. Review the difference, run `make ci`, commit.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# freeze OUTPUT CONSTRAINTS PIP-ARGUMENT…
freeze() {
    output=$1 constraints=$2
    shift 2
    rm -rf "$scratch/venv"
    sh scripts/venv.sh "$scratch/venv" "$constraints" "$@"
    {
        echo "# Written by scripts/pin.sh: the exact versions that everyone installs. Do not edit by hand."
        "$scratch/venv/bin/python" -m pip --disable-pip-version-check freeze --all --exclude-editable --exclude pip
    } >"$scratch/pins"
    cp "$scratch/pins" "$output"
    echo "wrote $output" >&2
}

freeze constraints.txt /dev/null --editable '.[test,loadtest]'
# What a peer shares with us it gets in our version, so that a comparison compares servers and not releases.
for peer in bench/peers/sdk bench/peers/fastmcp tests/peers/fastmcp tests/peers/fuzz tests/peers/node; do
    freeze "$peer/constraints.txt" constraints.txt --requirement "$peer/requirements.txt"
done

# Except the client of the generation before ours.
grep -v '^mcp' constraints.txt >"$scratch/without-mcp"
freeze tests/peers/mcp1/constraints.txt "$scratch/without-mcp" --requirement tests/peers/mcp1/requirements.txt

# package.json names exact versions: raise them there first. What they need in turn is taken as new as they allow; the
# lock has versions and digests only, so that every machine asks the registry that it is configured for.
sh scripts/node.sh "$scratch/node" tests/peers/node --renew
cp "$scratch/node/package-lock.json" tests/peers/node/package-lock.json
echo "wrote tests/peers/node/package-lock.json" >&2
