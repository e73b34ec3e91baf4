"""The table of methods and the handlers of all versions have the same rows, or no process starts."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import gateway
from gateway.protocol.method_table import METHODS, NOTIFICATION_PREFIX, TARGETS, requests_of
from gateway.protocol.versions import DRAFT, INITIALIZE, LEGACY, LEGACY_VERSIONS, RELEASED
from gateway.wires.assembly import Wires
from gateway.wires.dispatch import _wanted
from gateway.wires.draft.tasks import DraftTasks
from gateway.wires.handlers import checked_handlers
from gateway.wires.legacy.tasks import LegacyTasks
from gateway.wires.methods import Handler, Incoming
from gateway.wires.released.tasks import ReleasedTasks
from gateway.wires.replies import Reply
from tests.asgi import Client, make_app
from tests.integration.raw import Answer, request

VERSIONS: Final = (RELEASED, *LEGACY_VERSIONS, DRAFT)
STORE: Final[Mapping[str, Any]] = {"redis_url": "redis://127.0.0.1:1/0"}
"""Nothing listens there: handlers are made before the store is asked for anything."""

IDENTITY: Final[Mapping[str, Any]] = {"auth": "jwt", "jwt_secret": "a secret that only these tests know, 32 bytes"}
SENT_BY_SERVERS: Final = {
    "elicitation/create",
    "roots/list",
    "sampling/createMessage",
    "notifications/message",
    "notifications/progress",
    "notifications/tasks/created",
    "notifications/tasks/status",
    "notifications/resources/updated",  # read from upstreams, as is the next one
    "notifications/subscriptions/acknowledged",
    "notifications/elicitation/complete",
    "resources/updated",  # these two are notifications, and their prefix is put before them
    "subscriptions/acknowledged",
}
METHOD_LIKE: Final = re.compile(
    r"(tools|prompts|resources|completion|logging|subscriptions|tasks|server|notifications|elicitation|roots|sampling)"
    r"(/[a-z]\w*)+|initialize|ping"
)
QUOTED: Final = re.compile(f"""["']({METHOD_LIKE.pattern})["']""")


def new_wires(**settings: Any) -> Wires:
    """Put the wires of a replica together."""
    return make_app(**settings)._services.wires


wires_of = functools.cache(new_wires)
"""The wires of a replica, which no test changes."""


def handlers_of(wires: Wires, version: str) -> Mapping[str, Handler]:
    dispatcher = wires.dispatcher
    if version == RELEASED:
        return dispatcher._released._handlers
    return dispatcher._handshake.versions[version]._handlers


async def rename(_incoming: Incoming) -> Reply:
    raise NotImplementedError


@pytest.mark.parametrize("settings", [{}, STORE, IDENTITY, {**STORE, **IDENTITY}])
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_has_a_handler_for_each_of_its_methods_and_no_other(
    version: str, settings: Mapping[str, Any]
) -> None:
    handlers = handlers_of(wires_of(**settings), version)
    has_tasks, has_identity = "redis_url" in settings, "auth" in settings
    assert handlers.keys() == requests_of(version, has_tasks=has_tasks, has_identity=has_identity)
    assert has_tasks or not [method for method in handlers if method.startswith("tasks/")]


def test_every_request_of_the_table_is_served_by_a_version() -> None:
    wires = wires_of(**STORE, **IDENTITY)
    for row in METHODS.values():
        served = {version for version in VERSIONS if row.name in handlers_of(wires, version)}
        assert served == (set() if row.is_notification else set(row.versions)), row.name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handler_without_a_row_in_the_table_is_refused(version: str) -> None:
    handlers = handlers_of(wires_of(), version)
    with pytest.raises(ValueError, match="tools/rename"):
        checked_handlers(version, {**handlers, "tools/rename": rename}, has_tasks=False, has_identity=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_method_that_another_version_has_is_refused(version: str) -> None:
    foreign = min(method.name for method in METHODS.values() if version not in method.versions)
    with pytest.raises(ValueError, match=foreign):
        checked_handlers(
            version, {**handlers_of(wires_of(), version), foreign: rename}, has_tasks=False, has_identity=False
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_without_a_handler_is_refused(version: str) -> None:
    handlers = dict(handlers_of(wires_of(), version))
    for method in sorted(handlers):
        with pytest.raises(ValueError, match=f"{version} has no handlers for these methods: {method}$"):
            checked_handlers(
                version,
                {name: handler for name, handler in handlers.items() if name != method},
                has_tasks=False,
                has_identity=False,
            )


def _handlers_in(kind: type[Any], given: Mapping[str, Handler]) -> Any:
    return (lambda _self, **_options: given) if kind is LegacyTasks else property(lambda _self: given)


@pytest.mark.parametrize("kind", [ReleasedTasks, LegacyTasks, DraftTasks])
def test_a_process_with_a_handler_too_many_or_too_few_does_not_start(
    kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = {ReleasedTasks: RELEASED, LegacyTasks: LEGACY, DraftTasks: DRAFT}[kind]
    handlers = handlers_of(wires_of(**STORE), version)
    tasks = {name: handler for name, handler in handlers.items() if name.startswith("tasks/")}
    monkeypatch.setattr(kind, "handlers", _handlers_in(kind, {**tasks, "tasks/rename": rename}))
    with pytest.raises(ValueError, match="tasks/rename"):
        new_wires(**STORE)
    del tasks["tasks/get"]
    monkeypatch.setattr(kind, "handlers", _handlers_in(kind, tasks))
    with pytest.raises(ValueError, match="tasks/get"):
        new_wires(**STORE)


async def answer_of(method: str) -> Answer:
    return await Client(make_app()).post(request(method))


async def test_a_method_that_the_table_does_not_have_does_not_exist() -> None:
    assert (await answer_of("tools/rename")).error == (404, -32601)
    assert (await answer_of("tools/list")).status == 200


def test_notifications_and_nothing_else_begin_alike() -> None:
    named = {row.name for row in METHODS.values() if row.is_notification}
    assert named == {f"{NOTIFICATION_PREFIX}initialized", f"{NOTIFICATION_PREFIX}cancelled"}
    assert all(METHODS[name].never_refused for name in named)


def test_what_clients_try_first_is_never_refused_for_load() -> None:
    assert {"server/discover", INITIALIZE} == {
        row.name for row in METHODS.values() if row.never_refused and not row.is_notification
    }


def _texts(path: Path) -> Iterator[str]:
    """Yield the texts in a module, unless none in quotes is like a method."""
    source = path.read_text(encoding="utf-8")
    if QUOTED.search(source) is None:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_module_names_a_method_that_is_neither_in_the_table_nor_sent_by_servers() -> None:
    top = Path(next(iter(gateway.__path__)))
    named = {text for path in top.rglob("*.py") for text in _texts(path) if METHOD_LIKE.fullmatch(text)}
    assert named >= METHODS.keys() - {row.name for row in METHODS.values() if row.is_notification}
    assert named <= METHODS.keys() | SENT_BY_SERVERS


def test_the_audit_log_has_the_target_that_a_refused_request_names() -> None:
    for method, parameter in TARGETS.items():
        assert _wanted({"method": method, "params": {parameter: "it"}}) == (method, "it")
    assert _wanted({"method": "tools/rename", "params": {"name": "it"}}) == ("tools/rename", "")
