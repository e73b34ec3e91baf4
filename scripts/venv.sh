#!/bin/sh
# Usage: venv.sh FOLDER LIST… [-- PIP-ARGUMENT…]
# Makes the virtual environment FOLDER unless it works already, and installs the packages of the LISTs: exactly these
# versions, and only files with these hashes. Then it installs the pip arguments, without dependencies, which are in the
# lists. PYTHON sets the interpreter; by default it is the first supported one. A missing program prints one line and
# exits with 2. It shows its progress: the first time takes a minute.
set -eu
folder=$1
shift
lists=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    lists="$lists --requirement $1"
    shift
done
[ $# -eq 0 ] || shift
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
    # Debian ships the standard library's venv in a separate package, without ensurepip.
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        sh "$here/need.sh" "python$version-venv" "Python's venv module"
    fi
    echo "Making $folder with $("$python" --version)." >&2
    "$python" -m venv --clear "$folder"
fi

pip() {
    "$folder/bin/python" "$here/pip_progress.py" "$folder" "$@"
}

# Only our own package is built: a build would fetch its requirements without checking hashes.
# shellcheck disable=SC2086  # the names of lists have no spaces
pip install --require-hashes --no-deps --only-binary :all: $lists
[ $# -eq 0 ] || pip install --no-deps --no-build-isolation "$@"
