"""Pure: the client capabilities that a session remembers; on their own, since tool authors load these and no cipher."""

from __future__ import annotations

from typing import Final

FLAGS: Final = (
    "elicitation.form",
    "elicitation.url",
    "sampling",
    "sampling.tools",
    "sampling.context",
    "roots",
    "roots.listChanged",
    "tasks.responses.modes.task",
    "tasks.responses.modes.immediate",
    "tasks.responses.modes.streaming",
    "tasks",
)
"""The client capabilities that a session remembers, as paths into the client's declaration.

A flag's place is its bit in the token: add new ones at the end and never take one away.
"""
