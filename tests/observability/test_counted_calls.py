"""The counts of the calls that a replica serves: on every wire, of every kind, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import BaseModel

from gateway import Context, prompt, resource, tool
from gateway.process.app import GatewayApp
from gateway.registry.registry import Registry
from gateway.runtime.compilation import is_compiled
from gateway.runtime.version import __version__
from gateway.sealing.keyring import KeyRing
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import accept, request, tool_call

RELEASED, LEGACY, BEFORE_TASKS, DRAFT = "2026-07-28", "2025-11-25", "2025-06-18", "DRAFT-2026-v1"
OLD, NEW = new_key(), new_key()


class Who(BaseModel):
    name: str


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def greet(ctx: Context) -> str:
    """Ask who is there."""
    return (await ctx.elicit("who", "Who are you?", Who)).name


@tool
async def fail() -> str:
    """Fail."""
    raise ValueError


@prompt
async def poem() -> str:
    """Give something to say."""
    return "?"


@resource("note://today")
async def today() -> str:
    """Be there."""
    return "today"


@resource("note://{name}")
async def note(name: str) -> str:
    """Be one of many."""
    return name


ECHO = ("tools/call", {"name": "echo", "arguments": {"text": "a"}})
EVERY_KIND: Mapping[str, tuple[str, dict[str, Any]]] = {
    "echo": ECHO,
    "poem": ("prompts/get", {"name": "poem"}),
    "note://today": ("resources/read", {"uri": "note://today"}),
    "note://{name}": ("resources/read", {"uri": "note://me"}),
}


def app_with(*keys: str) -> GatewayApp:
    return make_app(__name__, seal_keys=",".join(keys or (new_key(),)))


def count(app: GatewayApp, name: str, **labels: str) -> float:
    """Return the sum of a metric over all label sets that contain these labels."""
    samples = (sample for family in app._services.telemetry.registry.collect() for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == name and sample.labels.items() >= labels.items())


def key_id(key: str) -> str:
    return KeyRing.parse(key).sealing_key.key_id.hex()


class SessionClient:
    """A client that performs the handshake."""

    def __init__(self, app: GatewayApp, version: str) -> None:
        self.app = app
        self.headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": version,
        }

    async def begin(self) -> SessionClient:
        about = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        version = self.headers["mcp-protocol-version"]
        answer = await self.ask("initialize", {"protocolVersion": version, **about})
        assert answer.result["protocolVersion"] == version
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        return self

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        headers = [HOST, *((name.encode(), value.encode()) for name, value in self.headers.items())]
        return await Client(self.app).send([body], headers)


async def test_a_leg_of_every_kind_counts_by_its_method_its_name_and_its_wire() -> None:
    app = app_with()
    for method, params in EVERY_KIND.values():
        named = params.get("name") or params["uri"]
        await Client(app).post(request(method, params), **{"mcp-name": named})
    wires = {LEGACY: LEGACY, BEFORE_TASKS: LEGACY, DRAFT: "draft"}
    for version in wires:
        client = await SessionClient(app, version).begin()
        for method, params in EVERY_KIND.values():
            assert "result" in (await client.ask(method, params)).message
    for name, (method, _) in EVERY_KIND.items():
        by_wire = {wire: count(app, "gateway_legs_total", tool=name, wire=wire) for wire in (RELEASED, LEGACY, "draft")}
        assert by_wire == {RELEASED: 1, LEGACY: 2, "draft": 1}
        assert count(app, "gateway_leg_seconds_count", tool=name, method=method) == 4
    assert count(app, "gateway_legs_total", outcome="completed") == count(app, "gateway_legs_total") == 16
    assert count(app, "gateway_call_seconds_count", method="tools/call", outcome="completed") == 4
    assert count(app, "gateway_call_seconds_count", outcome="completed") == 16
    assert count(app, "gateway_legs_in_flight") == 0


async def test_whatever_is_served_since_a_reload_counts_under_its_own_name() -> None:
    @tool
    async def newcomer() -> str:
        """Be new."""
        return "new"

    app = app_with()
    app._services.wires.serve(Registry([newcomer]))
    assert (await Client(app).post(tool_call("newcomer"))).text == "new"
    assert count(app, "gateway_legs_total", tool="newcomer") == 1
    assert count(app, "gateway_legs_total", tool="other") == 0


async def test_what_is_not_served_any_more_has_no_metrics_any_more() -> None:
    @tool
    async def leaver() -> str:
        """Leave."""
        return "gone"

    app = app_with()
    app._services.wires.serve(Registry([leaver, echo]))
    assert (await Client(app).post(tool_call("leaver"))).text == "gone"
    assert (await Client(app).post(tool_call("echo", {"text": "here"}))).text == "here"
    app._services.wires.serve(Registry([echo]))
    assert count(app, "gateway_legs_total", tool="leaver") == 0
    assert count(app, "gateway_leg_seconds_count", tool="leaver") == 0
    assert count(app, "gateway_legs_total", tool="echo") == 1


async def test_a_call_counts_once_at_its_end_with_the_time_its_user_took() -> None:
    now = 1_000_000.0
    app = app_with(OLD)
    app._services.keys.clock = lambda: now
    asking = await Client(app).post(tool_call("greet"))
    assert count(app, "gateway_call_seconds_count") == 0
    now += 120
    brought = {"requestState": asking.state, "inputResponses": accept(name="Ada")}
    assert (await Client(app).post(tool_call("greet", **brought))).text == "Ada"
    assert count(app, "gateway_call_seconds_count", method="tools/call", outcome="completed") == 1
    assert count(app, "gateway_call_seconds_sum") == 120
    assert count(app, "gateway_leg_seconds_count", tool="greet") == 2
    assert count(app, "gateway_leg_seconds_sum", tool="greet") < 120


async def test_a_failed_call_counts_as_ended_and_a_refused_state_not_as_a_call() -> None:
    app = app_with()
    await Client(app).post(tool_call("fail"))
    await Client(app).post(tool_call("greet", requestState="s1.forged"))
    assert count(app, "gateway_legs_total", outcome="failed") == 2
    assert count(app, "gateway_call_seconds_count", outcome="failed") == count(app, "gateway_call_seconds_count") == 1


async def test_sealing_and_opening_a_state_are_timed() -> None:
    app = app_with()
    state = (await Client(app).post(tool_call("greet"))).state
    assert count(app, "gateway_seal_seconds_count", operation="seal") == 1
    assert count(app, "gateway_seal_seconds_count", operation="open") == 0
    await Client(app).post(tool_call("greet", requestState=state, inputResponses=accept(name="Ada")))
    assert count(app, "gateway_seal_seconds_count", operation="open") == 1
    assert count(app, "gateway_seal_seconds_sum") > 0


async def test_sessions_count_by_the_key_that_sealed_them_whoever_holds_which_key_now() -> None:
    app = app_with(OLD)
    before = await SessionClient(app, LEGACY).begin()
    app._services.keys.replace(KeyRing.parse(f"{NEW},{OLD}"))
    after = await SessionClient(app, LEGACY).begin()
    await before.ask(*ECHO)
    for client in (after, after):
        await client.ask(*ECHO)
    sealed = {key: count(app, "gateway_sessions_sealed_total", key_id=key_id(key)) for key in (OLD, NEW)}
    opened = {key: count(app, "gateway_sessions_opened_total", key_id=key_id(key)) for key in (OLD, NEW)}
    assert (sealed, opened) == ({OLD: 1, NEW: 1}, {OLD: 1, NEW: 2})
    app._services.keys.replace(KeyRing.parse(NEW))
    assert (await before.ask(*ECHO)).status == 404
    assert count(app, "gateway_sessions_opened_total", key_id=key_id(OLD)) == 1
    assert count(app, "gateway_session_rejections_total", reason="unknown_key") == 1


def test_every_key_in_the_ring_is_shown_before_it_is_used() -> None:
    registry = app_with(OLD, NEW)._services.telemetry.registry
    for what in ("states", "sessions", "task_fields"):
        for does in ("sealed", "opened"):
            for key in (OLD, NEW):
                assert registry.get_sample_value(f"gateway_{what}_{does}_total", {"key_id": key_id(key)}) == 0


def test_the_version_and_the_process_are_shown() -> None:
    app = app_with()
    assert count(app, "gateway_build_info", version=__version__, compiled=str(is_compiled()).lower()) == 1
    assert count(app, "process_resident_memory_bytes") > 0
    assert count(app, "process_open_fds") > 0
