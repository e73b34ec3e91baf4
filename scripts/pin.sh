#!/bin/sh
# Usage: pin.sh [--upgrade], from the top of the repository
# Writes constraints.txt and every lock list: exact versions, with the hashes of all their files, for every platform.
# Pinned versions stay unless pyproject.toml or a peer's requirements need others; with --upgrade, all become the newest
# that fit together. Review the diff, run `make ci`, commit.
set -eu
upgrade=${1:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sh scripts/venv.sh "$scratch/uv" locked/pin.txt
# uv does not read pip's settings, so pass it pip's registry and certificates.
index=${PIP_INDEX_URL:-$("$scratch/uv/bin/python" -m pip config get global.index-url 2>/dev/null || true)}
[ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$PIP_CERT}"

# lock OUTPUT PINNED UV-ARGUMENT…: writes OUTPUT, with the versions of PINNED where there are any.
lock() {
    output=$1 pinned=$2
    shift 2
    cat "$pinned" >"$scratch/list" 2>/dev/null || :
    "$scratch/uv/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate ${upgrade:+"$upgrade"} --output-file "$scratch/list" "$@"
    {
        echo "# Written by scripts/pin.sh: what is installed, and the hashes of its files. Do not edit by hand."
        cat "$scratch/list"
    } >"$output"
    echo "wrote $output" >&2
}

# The extra `compile` has the build tools.
lock locked/development.txt constraints.txt pyproject.toml --extra test --extra loadtest --extra compile
{
    echo "# Written by scripts/pin.sh: the exact versions that everyone installs. Do not edit by hand."
    sed -n 's/^\([^ #]*==[^ ;]*\).*/\1/p' locked/development.txt
} >constraints.txt
upgrade=''

lock locked/image.txt /dev/null --constraint constraints.txt pyproject.toml --extra opentelemetry
lock locked/build.txt /dev/null --constraint constraints.txt pyproject.toml --extra opentelemetry --extra compile

upgrade=${1:-}
echo uv >"$scratch/uv.txt"
lock locked/pin.txt locked/pin.txt "$scratch/uv.txt"
# A package that a peer shares with us gets our version, so that a comparison is about servers and not releases.
for peer in bench/peers/sdk bench/peers/fastmcp bench/peers/envoy tests/peers/audit tests/peers/deploy tests/peers/docs tests/peers/fastmcp tests/peers/fuzz tests/peers/node tests/peers/office-servers tests/peers/published \
    tests/peers/browser tests/peers/agents tests/peers/pydantic-ai tests/peers/openai-agents tests/peers/prose tests/peers/redis tests/peers/servers \
    tests/peers/stdio-servers tests/peers/typing; do
    lock "$peer/locked.txt" "$peer/locked.txt" --constraint constraints.txt "$peer/requirements.txt"
done

# Except for peers that need other versions: clients of the previous generation of the SDK, and a framework that does
# not accept our version of OpenTelemetry.
grep -v -e '^mcp' -e '^opentelemetry' constraints.txt >"$scratch/other-generation"
for peer in tests/peers/mcp1 tests/peers/langchain tests/peers/google-adk; do
    lock "$peer/locked.txt" "$peer/locked.txt" --constraint "$scratch/other-generation" "$peer/requirements.txt"
done
peer=tests/peers/mcp1-2025-03
grep -v -e '^pydantic' "$scratch/other-generation" >"$scratch/older-generation"
lock "$peer/locked.txt" "$peer/locked.txt" --constraint "$scratch/older-generation" "$peer/requirements.txt"

# These were measured once; newer versions are useless without new figures.
upgrade=''
lock scripts/measure_libraries.txt /dev/null scripts/measure_libraries.txt

[ -n "${1:-}" ] || exit 0
# package.json names exact versions: raise them there first. Their dependencies become as new as they allow. The lock
# has versions and digests only, so every machine uses the registry that it is configured for.
for peer in node published browser agents; do
    sh scripts/node.sh "$scratch/$peer" "tests/peers/$peer" --renew
    cp "$scratch/$peer/package-lock.json" "tests/peers/$peer/package-lock.json"
    echo "wrote tests/peers/$peer/package-lock.json" >&2
done
