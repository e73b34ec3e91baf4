#!/bin/sh
# npx runs this in place of its shell, and uvx in place of a program. It writes where it runs, what it was to run, and
# all variables; see launchers.py.
printf '\0%s\0%s\0' "$(pwd)" "$2"
exec env -0
