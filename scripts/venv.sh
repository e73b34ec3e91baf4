#!/bin/sh
# Usage: venv.sh FOLDER CONSTRAINTS PIP-ARGUMENT…
# Makes the virtual environment FOLDER if it does not work yet, and installs what the pip arguments name into it,
# in exactly the versions of the file CONSTRAINTS. PYTHON chooses the interpreter; without it the first of the
# supported ones is taken. A missing program costs one line and exit 2.
set -eu
folder=$1 constraints=$2
shift 2
here=$(dirname "$0")

# True for an interpreter that runs and is new enough.
supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

choose_python() {
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
        if supported "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 3.11 or newer is missing: install it and run make again, or name one: make PYTHON=…" >&2
    exit 2
}

if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(choose_python)
    # Debian ships the standard library's venv without ensurepip, in a package of its own.
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        sh "$here/need.sh" "python$version-venv" "Python's venv module"
    fi
    echo "Making $folder with $("$python" --version)." >&2
    "$python" -m venv --clear "$folder"
fi

pip() {
    "$folder/bin/python" -m pip --quiet --quiet --disable-pip-version-check --no-input "$@"
}

# The build backend comes first, pinned like everything else: pip's isolated builds would ignore the constraints.
pip install --constraint "$constraints" --upgrade setuptools
pip install --constraint "$constraints" --no-build-isolation "$@"
