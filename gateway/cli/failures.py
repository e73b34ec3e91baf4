"""Why a command fails although its configuration is right."""

from __future__ import annotations


class CommandFailed(Exception):
    """A command cannot do now what it was asked to do. The message is one line for people."""
