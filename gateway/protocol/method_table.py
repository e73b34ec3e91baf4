"""Pure: the table of all methods that clients may call, and their properties.

Handlers, the endpoint, headers, metrics, traces and the audit log read it. A method that is not in the table cannot be
served: when a process starts, `gateway.wires.handlers` compares the table with the handlers of each version. Methods
that the server sends are not in it; the modules that send them define them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.protocol.versions import DRAFT, INITIALIZE, LEGACY, LEGACY_VERSIONS, RELEASED

NOTIFICATION_PREFIX: Final = "notifications/"
"""The prefix of all notifications, and of no other method."""

_SESSIONS: Final = (*LEGACY_VERSIONS, DRAFT)
_EVERYWHERE: Final = (RELEASED, *_SESSIONS)


@dataclass(frozen=True, slots=True)
class Method:
    """A method that clients may call.

    Attributes:
        target: the parameter that names what the request is about, or "".
        runs_function: whether an author's function answers it, so that each request is a leg of a call.
        relayed: whether an upstream may receive it and act, so that no balancer may repeat it.
        never_refused: whether it is served under any load. A client that gets 503 here would try an older version.
        waits_elsewhere: whether it only waits for the store or for news, and so takes no place among the requests
            that compute.
        needs_identity: the versions that have the method only if callers are authenticated.
    """

    name: str
    versions: tuple[str, ...]
    target: str = ""
    runs_function: bool = False
    relayed: bool = False
    never_refused: bool = False
    waits_elsewhere: bool = False
    needs_tasks: bool = False
    needs_identity: tuple[str, ...] = ()

    @property
    def is_notification(self) -> bool:
        """Whether the method is a notification, which has no response."""
        return self.name.startswith(NOTIFICATION_PREFIX)


def _call(name: str, target: str) -> Method:
    return Method(name, _EVERYWHERE, target, runs_function=True, relayed=True)


def _task(name: str, *versions: str, target: str = "taskId", needs_identity: tuple[str, ...] = ()) -> Method:
    return Method(name, versions, target, waits_elsewhere=True, needs_tasks=True, needs_identity=needs_identity)


def _notification(name: str) -> Method:
    return Method(NOTIFICATION_PREFIX + name, _SESSIONS, never_refused=True)


METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method("server/discover", (RELEASED,), never_refused=True),
        Method(INITIALIZE, _SESSIONS, never_refused=True),
        _notification("initialized"),
        _notification("cancelled"),
        Method("ping", _SESSIONS),
        Method("tools/list", _EVERYWHERE),
        _call("tools/call", "name"),
        Method("prompts/list", _EVERYWHERE),
        _call("prompts/get", "name"),
        Method("resources/list", _EVERYWHERE),
        Method("resources/templates/list", _EVERYWHERE),
        _call("resources/read", "uri"),
        Method("resources/subscribe", _SESSIONS, "uri"),
        Method("resources/unsubscribe", _SESSIONS, "uri"),
        Method("completion/complete", _EVERYWHERE, relayed=True),
        Method("logging/setLevel", _SESSIONS),
        Method("subscriptions/listen", (RELEASED,), waits_elsewhere=True),
        _task("tasks/get", RELEASED, LEGACY, DRAFT),
        _task("tasks/cancel", RELEASED, LEGACY, DRAFT),
        _task("tasks/update", RELEASED),
        _task("tasks/result", LEGACY, DRAFT),
        _task("tasks/list", LEGACY, DRAFT, target="", needs_identity=(LEGACY,)),
        _task("tasks/delete", DRAFT),
        _task("tasks/input_response", DRAFT, target=""),  # `_meta` names the task
    )
}
"""All methods, by name. Other notifications are accepted and ignored."""

TARGETS: Final[Mapping[str, str]] = {method.name: method.target for method in METHODS.values() if method.target}
"""By method: the parameter that names what a request is about."""

NAMED_METHODS: Final[Mapping[str, str]] = {
    name: target for name, target in TARGETS.items() if RELEASED in METHODS[name].versions
}
"""The methods that need an `Mcp-Name` header, with the parameter that it repeats (2026-07-28 "Streamable HTTP")."""


def requests_of(version: str, *, has_tasks: bool, has_identity: bool) -> frozenset[str]:
    """Return the names of the requests that a version accepts, with or without task store and identified callers."""
    return frozenset(
        method.name
        for method in METHODS.values()
        if version in method.versions
        and not method.is_notification
        and (has_tasks or not method.needs_tasks)
        and (has_identity or version not in method.needs_identity)
    )
