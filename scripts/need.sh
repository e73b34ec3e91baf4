#!/bin/sh
# Usage: need.sh DEBIAN-PACKAGE WHAT
# Installs DEBIAN-PACKAGE if it can (as root, with apt). Otherwise it names the package in one line and exits with 2.
# Callers check first whether they need it.
set -eu
package=$1 what=$2
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing $package with apt: $what is missing." >&2
    export DEBIAN_FRONTEND=noninteractive
    if apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends "$package" </dev/null >/dev/null; then
        exit 0
    fi
fi
echo "$what is missing: install it (on Debian and Ubuntu the package is $package) and run make again." >&2
exit 2
