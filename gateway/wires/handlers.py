"""Checks that a version has a handler for each of its methods in the method table, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.protocol.method_table import requests_of
from gateway.wires.methods import Handler


def checked_handlers(
    version: str, handlers: Mapping[str, Handler], *, has_tasks: bool, has_identity: bool
) -> Mapping[str, Handler]:
    """Return the handlers of a version, by method, or raise `ValueError` if they do not match the method table."""
    wanted = requests_of(version, has_tasks=has_tasks, has_identity=has_identity)
    if unknown := sorted(handlers.keys() - wanted):
        raise ValueError(f"The method table does not list these methods for {version}: {', '.join(unknown)}")
    if missing := sorted(wanted - handlers.keys()):
        raise ValueError(f"{version} has no handlers for these methods: {', '.join(missing)}")
    return handlers
