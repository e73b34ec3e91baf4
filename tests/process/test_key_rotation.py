"""Seal keys that are replaced while a process serves: legs in flight, lists, logs and metrics."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Context, tool
from gateway.process.app import GatewayApp
from gateway.process.replica import build
from gateway.process.services import watch_key_file
from gateway.runtime.file_watcher import FileWatcher
from gateway.sealing import base64url
from gateway.sealing.keyring import KeyRing
from gateway.settings.model import Settings
from gateway.wires.catalogue import PAGE_SIZE
from loadtest.cluster import new_key
from tests.asgi import Client, make_app
from tests.integration.raw import Answer, accept, request, tool_call

OLD, NEW = new_key(), new_key()
GATES: list[Gate] = []


class Gate:
    """A gate where legs stop: a leg that arrives sets `runs`, and continues when the gate is `open`."""

    def __init__(self) -> None:
        self.runs = asyncio.Event()
        self.open = asyncio.Event()


class Who(BaseModel):
    name: str


@tool
async def greet(ctx: Context) -> str:
    """Ask who is there, at the pace of the test."""
    for gate in GATES:
        gate.runs.set()
        await gate.open.wait()
    who = await ctx.elicit("who", "Who are you?", Who)
    again = await ctx.elicit("again", "Who?", Who)
    return f"{who.name} {again.name}"


def ring(*keys: str) -> KeyRing:
    return KeyRing.parse(",".join(keys))


def key_id(key: str) -> str:
    return ring(key).sealing_key.key_id.hex()


def sealed_with(token: str) -> str:
    label, _, body = token.partition(".")
    assert label in {"s1", "c1"}
    return base64url.decode(body)[:4].hex()


def app_with(*keys: str, **settings: Any) -> GatewayApp:
    return make_app(__name__, seal_keys=",".join(keys), **settings)


def metric(app: GatewayApp, name: str, **labels: str) -> float | None:
    return app._services.telemetry.registry.get_sample_value(name, labels)


async def leg(app: GatewayApp, state: str | None = None, key: str = "who", name: str = "Ada") -> Answer:
    brought = {} if state is None else {"requestState": state, "inputResponses": answer(key, name)}
    return await Client(app).post(tool_call("greet", **brought))


def answer(key: str, name: str) -> dict[str, Any]:
    return {key: accept(name=name)["who"]}


async def leg_in_flight(app: GatewayApp, state: str | None = None) -> asyncio.Task[Answer]:
    """Start a leg, and return when its function runs."""
    gate = Gate()
    GATES.append(gate)
    task = asyncio.create_task(leg(app, state))
    await gate.runs.wait()
    return task


def let_go() -> None:
    """Let the legs in flight continue."""
    while GATES:
        GATES.pop().open.set()


@pytest.fixture(autouse=True)
def _open_gates() -> None:
    GATES.clear()


async def test_legs_that_begin_later_use_the_new_keys() -> None:
    app = app_with(OLD)
    first = (await leg(app)).state
    app._services.keys.replace(ring(NEW, OLD))
    second = (await leg(app, first)).state
    assert [sealed_with(first), sealed_with(second)] == [key_id(OLD), key_id(NEW)]
    assert (await leg(app, second, "again", "Grace")).text == "Ada Grace"
    assert metric(app, "gateway_states_opened_total", key_id=key_id(OLD)) == 1
    assert metric(app, "gateway_states_opened_total", key_id=key_id(NEW)) == 1


async def test_a_leg_seals_with_the_keys_it_began_with() -> None:
    app = app_with(OLD)
    running = await leg_in_flight(app)
    app._services.keys.replace(ring(NEW, OLD))
    let_go()
    state = (await running).state
    assert sealed_with(state) == key_id(OLD)
    assert sealed_with((await leg(app, state)).state) == key_id(NEW)


async def test_a_leg_that_opened_with_a_key_continues_after_the_key_is_removed() -> None:
    app = app_with(OLD)
    running = await leg_in_flight(app, (await leg(app)).state)
    app._services.keys.replace(ring(NEW))
    let_go()
    assert sealed_with((await running).state) == key_id(OLD)


async def test_state_of_a_removed_key_is_refused() -> None:
    app = app_with(OLD)
    state = (await leg(app)).state
    app._services.keys.replace(ring(NEW))
    refused = await leg(app, state)
    assert refused.error == (400, -32602)
    assert refused.message["error"]["data"] == {"reason": "invalid_request_state"}
    assert metric(app, "gateway_state_rejections_total", reason="unknown_key") == 1


async def test_cursors_change_with_the_keys_and_no_client_is_notified_of_changed_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f"@tool\nasync def tool_{n}() -> str:\n    '''Do nothing.'''\n    return ''\n" for n in range(PAGE_SIZE + 1)
    ]
    (tmp_path / "many_tools.py").write_text("from gateway import tool\n" + "".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    app = make_app("many_tools", seal_keys=OLD)
    announced: list[str] = []
    monkeypatch.setattr(app._services.changes, "announce", announced.append)

    async def page(cursor: str | None = None) -> Answer:
        params = {} if cursor is None else {"cursor": cursor}
        return await Client(app).post(request("tools/list", params))

    first = (await page()).result["nextCursor"]
    app._services.keys.replace(ring(NEW, OLD))
    second = (await page()).result["nextCursor"]
    assert [sealed_with(first), sealed_with(second)] == [key_id(OLD), key_id(NEW)]
    assert (await page(first)).result["tools"] == (await page(second)).result["tools"]
    app._services.keys.replace(ring(NEW))
    assert (await page(first)).error == (400, -32602)
    await page(second)
    app._services.wires.serve(app._services.registry)
    assert sealed_with((await page()).result["nextCursor"]) == key_id(NEW)
    assert announced == []


async def test_operators_see_which_keys_a_replica_holds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.tokens.key_holder")
    app = app_with(OLD)
    assert metric(app, "gateway_seal_keys", key_id=key_id(OLD), role="seals") == 1
    app._services.keys.replace(ring(NEW, OLD))
    assert metric(app, "gateway_seal_keys", key_id=key_id(NEW), role="seals") == 1
    assert metric(app, "gateway_seal_keys", key_id=key_id(OLD), role="opens") == 1
    assert metric(app, "gateway_seal_keys", key_id=key_id(OLD), role="seals") is None
    app._services.keys.replace(ring(NEW, OLD))
    (record,) = caplog.records
    assert record.getMessage() == "seal keys replaced"
    assert vars(record)["key_ids"] == f"{key_id(NEW)}, {key_id(OLD)}"
    assert OLD not in str(vars(record))


def app_with_file(path: Path) -> tuple[GatewayApp, FileWatcher[KeyRing]]:
    settings = Settings.load(
        {"GATEWAY_SEAL_KEYS_FILE": str(path), "GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none"}, tools=(__name__,)
    )
    app = GatewayApp(build(settings))
    (watcher,) = watch_key_file(app._services.settings, app._services.keys)
    return app, watcher


async def test_a_file_of_keys_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(OLD)
    app, watcher = app_with_file(path)
    for text, seals in [(f"{OLD}\n{NEW}\n", OLD), (f"{NEW},{OLD}", NEW), (NEW, NEW)]:
        await asyncio.to_thread(path.write_text, text)
        await watcher.look()
        await watcher.look()
        assert sealed_with((await leg(app)).state) == key_id(seals)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no key"),
        (b"hunter2", "key 1 of 1 is neither"),
        (f"{NEW},hunter2".encode(), "key 2 of 2 is neither"),
        (f"{NEW},{NEW}".encode(), "are the same"),
        (b"\xff\xfehunter2", "is not UTF-8 text"),
    ],
    ids=["empty", "not a key", "one not a key", "twice the same", "not text"],
)
async def test_a_broken_file_leaves_the_keys_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(OLD)
    app, watcher = app_with_file(path)
    await asyncio.to_thread(path.write_bytes, content)
    for _ in range(4):
        await watcher.look()
    assert sealed_with((await leg(app)).state) == key_id(OLD)
    (record,) = (record for record in caplog.records if record.name == "gateway.runtime.file_watcher")
    assert vars(record)["reason"].startswith("GATEWAY_SEAL_KEYS_FILE")
    assert reason in vars(record)["reason"]
    assert "hunter2" not in caplog.text
    assert NEW not in caplog.text


def test_keys_in_the_environment_are_not_watched() -> None:
    assert list(watch_key_file(app_with(OLD)._services.settings, app_with(OLD)._services.keys)) == []
