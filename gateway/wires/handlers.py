"""Checks that a version has a handler for each of its methods in the method table, and no others."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.protocol.method_table import requests_of
from gateway.wires.methods import Handler


def checked_handlers(
    version: str, handlers: Mapping[str, Handler], *, has_tasks: bool, has_identity: bool
) -> Mapping[str, Handler]:
    """Return the handlers of a version, after comparing them with the method table.

    Args:
        version: the protocol version.
        handlers: the handlers, by method.
        has_tasks: whether there is a task store.
        has_identity: whether callers are authenticated.

    Raises:
        ValueError: a handler has no row in the table for this version, or a row has no handler.
    """
    wanted = requests_of(version, has_tasks=has_tasks, has_identity=has_identity)
    if unknown := sorted(handlers.keys() - wanted):
        raise ValueError(f"The method table does not list these methods for {version}: {', '.join(unknown)}")
    if missing := sorted(wanted - handlers.keys()):
        raise ValueError(f"{version} has no handlers for these methods: {', '.join(missing)}")
    return handlers
