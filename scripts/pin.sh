#!/bin/sh
# Usage: pin.sh (no arguments), from the top of the repository
# Writes every constraints file anew: the newest versions that pyproject.toml and the peers' requirements allow,
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

freeze constraints.txt /dev/null --editable '.[test]'
# What a peer shares with us it gets in our version, so that a comparison compares servers and not releases.
freeze bench/peers/sdk/constraints.txt constraints.txt --requirement bench/peers/sdk/requirements.txt
