"""Pure: the one table of the methods that clients may call, and what there is to know of each.

Handlers, the endpoint, headers, metrics, traces and the audit log read it. A method that it does not have cannot be
served: `gateway.wires.handlers` compares it with the handlers of each version as a process starts.
What a server sends is not in it: those methods belong to what sends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.protocol.versions import BEFORE_TASKS, DRAFT, INITIALIZE, LEGACY, RELEASED

NOTIFICATION_PREFIX: Final = "notifications/"
"""How the names of all notifications begin, and of nothing else."""

_SESSIONS: Final = (LEGACY, BEFORE_TASKS, DRAFT)
_EVERYWHERE: Final = (RELEASED, *_SESSIONS)


@dataclass(frozen=True, slots=True)
class Method:
    """A method that clients may call.

    Attributes:
        name: as the member `method` has it.
        versions: the protocol versions that have it.
        target: the parameter that names what the request is about, "" if none does.
        runs_function: whether an author's function answers it: each request is a leg of a call.
        never_refused: whether load is no reason to refuse it, as clients that see 503 there try an older version.
        waits_elsewhere: whether it waits for the store or for news, and takes no place of those who compute meanwhile.
        needs_tasks: whether only a deployment with a task store has it.
        needs_identity: the versions that have it only where callers say who they are.
    """

    name: str
    versions: tuple[str, ...]
    target: str = ""
    runs_function: bool = False
    never_refused: bool = False
    waits_elsewhere: bool = False
    needs_tasks: bool = False
    needs_identity: tuple[str, ...] = ()

    @property
    def is_notification(self) -> bool:
        """Whether it has no response."""
        return self.name.startswith(NOTIFICATION_PREFIX)


def _call(name: str, target: str) -> Method:
    return Method(name, _EVERYWHERE, target, runs_function=True)


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
        Method("completion/complete", _EVERYWHERE),
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
"""All methods, by name. A notification that is not here is accepted, and means nothing."""

TARGETS: Final[Mapping[str, str]] = {method.name: method.target for method in METHODS.values() if method.target}
"""The parameter that names what a request is about, by method."""

NAMED_METHODS: Final[Mapping[str, str]] = {
    name: target for name, target in TARGETS.items() if RELEASED in METHODS[name].versions
}
"""The methods that need an `Mcp-Name` header, with the parameter it repeats (2026-07-28 "Streamable HTTP")."""


def requests_of(version: str, *, has_tasks: bool, has_identity: bool) -> frozenset[str]:
    """Return the names of the requests that a version takes.

    Args:
        version: the protocol version.
        has_tasks: whether the deployment has a task store.
        has_identity: whether callers say who they are.
    """
    return frozenset(
        method.name
        for method in METHODS.values()
        if version in method.versions
        and not method.is_notification
        and (has_tasks or not method.needs_tasks)
        and (has_identity or version not in method.needs_identity)
    )
