"""Pure: the client capabilities that a session stores. A separate module, so tool authors do not load the cipher."""

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
"""The client capabilities that a session stores, as paths into the client's declaration.

A flag's index is its bit in the token: append new ones, and never remove one.
"""
