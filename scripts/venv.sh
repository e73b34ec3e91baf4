#!/bin/sh
# Usage: venv.sh FOLDER LIST… [-- PIP-ARGUMENT…]
# Makes the virtual environment FOLDER if it does not work yet, and installs what the LISTs name into it: exactly these
# versions, and only files with these hashes. Then what the pip arguments name, and nothing that it needs: that is in the
# lists. PYTHON chooses the interpreter; without it the first of the supported ones is taken. A missing program costs one
# line and exit 2. It shows how far it is: the first time takes a minute.
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
    # Debian ships the standard library's venv without ensurepip, in a package of its own.
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

# Nothing is built but our own: a build would fetch what it needs without looking at any hash.
# shellcheck disable=SC2086  # the names of lists have no blanks
pip install --require-hashes --no-deps --only-binary :all: $lists
[ $# -eq 0 ] || pip install --no-deps --no-build-isolation "$@"
