"""Upstreams on each wire: lists, calls, completion, discovery and changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gateway import prompt, resource, tool
from gateway.errors import CannotContinue, GatewayError, RpcError
from gateway.process.app import GatewayApp
from gateway.protocol.caller import Requester
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import Request
from gateway.protocol.released.requests import MAX_LISTEN_URIS
from gateway.protocol.requests import McpRequest
from gateway.protocol.versions import BEFORE_TASKS, DRAFT, LEGACY
from gateway.registry.parts import Part
from gateway.registry.registry import Registry
from gateway.wires import catalogue
from gateway.wires.methods import Incoming
from gateway.wires.released.stream_authority import URIS_AT_ONCE
from gateway.wires.replies import Listening
from tests.asgi import Client, make_app
from tests.authorities import caller
from tests.integration.raw import Answer, request, tool_call
from tests.observability.test_counted_calls import SessionClient, count
from tests.parts import LastIsSecret, Unlisted, part, relayed_prompt, relayed_resource, relayed_tool
from tests.wires.released.conftest import NO_CLIENT

SECONDS = 20


@tool
async def local(text: str = "") -> str:
    """Give the text back."""
    return text


@prompt
async def poem() -> str:
    """Write a poem."""
    return "roses"


@resource("note://today", announces_changes=True)
async def today() -> str:
    """Read today's note."""
    return ""


def app_with(*parts: Part) -> GatewayApp:
    app = make_app(__name__)
    app._services.wires.arrange(parts)
    return app


async def listed(app: GatewayApp, method: str = "tools/list") -> dict[str, Any]:
    result: dict[str, Any] = (await Client(app).post(request(method))).result
    return result


def names(result: Mapping[str, Any]) -> list[str]:
    return [entry["name"] for entry in result["tools"]]


def refusal(answer: Answer) -> tuple[int, str]:
    error = answer.message["error"]
    return error["code"], error["message"]


async def test_every_wire_lists_and_calls_the_tools_of_upstreams() -> None:
    app = app_with(part("one", "ab", finder=Unlisted("one")), part("two", "c"))
    expected = ["local", "one__a", "one__b", "two__c"]
    assert names(await listed(app)) == expected
    assert (await Client(app).post(tool_call("one__a", {"x": 1}))).text == "one one__a {'x': 1}"
    assert (await Client(app).post(tool_call("one__new"))).text == "one one__new {}"
    for version in (LEGACY, BEFORE_TASKS, DRAFT):
        client = await SessionClient(app, version).begin()
        assert names((await client.ask("tools/list", {})).result) == expected
        called = await client.ask("tools/call", {"name": "two__c", "arguments": {}})
        assert called.text == "two two__c {}"
    assert count(app, "gateway_legs_total", tool="one__a") == 1
    assert count(app, "gateway_legs_total", tool="other") == 1


@pytest.mark.parametrize("name", ["one__denied", "two__new", "three__new", "new"])
async def test_what_no_upstream_serves_is_unknown(name: str) -> None:
    app = app_with(part("one", "a", finder=Unlisted("one")), part("two", "a"))
    assert refusal(await Client(app).post(tool_call(name)))[1] == f"Unknown tool: {name}"


async def test_prompts_and_resources_without_list_entry_are_relayed() -> None:
    app = app_with(part("one", finder=Unlisted("one")))
    assert (await Client(app).post(request("prompts/get", {"name": "one__new"}))).result["messages"] == []
    read = await Client(app).post(request("resources/read", {"uri": "ONE+x://y"}))
    assert read.result["contents"] == []
    unknown = await Client(app).post(request("resources/read", {"uri": "two+x://y"}))
    assert refusal(unknown)[0] == -32602


async def test_headers_of_a_listed_relay_are_checked_before_its_upstream_hears_of_the_call() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    app = app_with(part("one", "a", tool={"inputSchema": schema}))
    message = tool_call("one__a", {"region": "eu"})
    assert refusal(await Client(app).post(message))[0] == -32020
    assert refusal(await Client(app).post(message, **{"mcp-param-region": "us"}))[0] == -32020
    assert "eu" in (await Client(app).post(message, **{"mcp-param-region": "eu"})).text


class FirstListing:
    """The first listing of an upstream."""

    def __init__(self) -> None:
        self.waited = asyncio.Event()
        self.ended = asyncio.Event()

    async def wait(self) -> object:
        self.waited.set()
        return await self.ended.wait()


async def test_a_list_waits_for_an_upstream_that_was_never_listed_and_gives_its_place_back() -> None:
    first = FirstListing()
    app = app_with(part("one", "a"), part("two", ready=first))
    listing = asyncio.create_task(listed(app))
    async with asyncio.timeout(SECONDS):
        await first.waited.wait()
        assert app._services.load.in_flight == 0
        app._services.wires.arrange([part("one", "a"), part("two", "b")])
        first.ended.set()
        result = await listing
    assert names(result) == ["local", "one__a", "two__b"]
    assert result["ttlMs"] == 60_000


async def test_a_list_without_an_upstream_that_takes_too_long_may_be_cached_for_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue, "FIRST_LISTING_SECONDS", 0.01)
    app = app_with(part("one", "a"), part("two", ready=FirstListing()))
    result = await listed(app)
    assert (names(result), result["ttlMs"]) == (["local", "one__a"], 1000)
    assert (await listed(app, "server/discover"))["ttlMs"] == 1000


async def test_calls_do_not_wait_for_the_first_listing() -> None:
    app = app_with(part("two", ready=FirstListing(), finder=Unlisted("two")))
    assert (await Client(app).post(tool_call("two__new"))).text == "two two__new {}"


class Greeting:
    """Lists for each client a tool named after a header of its request."""

    async def entries(self, kind: str, requester: Requester, /) -> Mapping[str, Any]:
        name = f"own__{requester.headers.get(b'x-name')}"
        return {name: relayed_tool("own", name)} if kind == "tools" else {}


async def test_lists_of_callers_get_what_they_need_of_the_request() -> None:
    app = app_with(part("own", lists=Greeting()))
    for name in ("ada", "bob"):
        result = (await Client(app).post(request("tools/list"), **{"x-name": name})).result
        assert names(result) == ["local", f"own__{name}"]
        assert result["cacheScope"] == "private"


async def test_discovery_and_the_handshake_declare_what_upstreams_may_have_and_join_their_instructions() -> None:
    app = app_with(part("one", instructions="Ask first.", ttl_ms=7000), part("two", "a"))
    told = await listed(app, "server/discover")
    assert set(told["capabilities"]) >= {"tools", "prompts", "resources", "completions"}
    assert told["instructions"] == "# one\n\n> Ask first."
    assert told["ttlMs"] == 7000
    for version in (LEGACY, BEFORE_TASKS, DRAFT):
        about = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        opened = (await SessionClient(app, version).ask("initialize", about)).result
        assert opened["instructions"] == "# one\n\n> Ask first."
        assert set(opened["capabilities"]) >= {"tools", "prompts", "resources", "completions"}
    assert "instructions" not in await listed(app_with(part("two")), "server/discover")


@pytest.mark.setting("server_instructions")
async def test_upstreams_instructions_follow_the_deployments_own() -> None:
    app = make_app(__name__, server_instructions="Be kind.")
    app._services.wires.arrange([part("one", instructions="Ask first.")])
    assert (await listed(app, "server/discover"))["instructions"] == "Be kind.\n\n# one\n\n> Ask first."


class Suggestions:
    """Completes with the arguments of the call, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure

    def scopes_of_values(self, *_given: Any) -> frozenset[str]:
        return frozenset()

    async def complete(self, *given: Any) -> Mapping[str, Any] | None:
        if self.failure is not None:
            raise self.failure
        kind, target, argument, value, context, requester = given
        assert isinstance(requester, Requester)
        if value == "none":
            return None
        return {"values": [kind, target, argument, value, *context], "total": 5, "extra": {"kept": True}}


async def completed(app: GatewayApp, ref: Mapping[str, str], value: str = "v") -> Answer:
    params = {"ref": ref, "argument": {"name": "a", "value": value}, "context": {"arguments": {"c": "d"}}}
    return await Client(app).post(request("completion/complete", params))


async def test_an_argument_of_an_upstream_is_completed_by_its_part() -> None:
    app = app_with(part("one", "x", completer=Suggestions(), finder=Unlisted("one")), part("two", "x"))

    async def values(**ref: str) -> Any:
        return (await completed(app, ref)).result["completion"]["values"]

    rest = ["a", "v", "c"]
    assert await values(type="ref/prompt", name="one__x") == ["prompt", "one__x", *rest]
    assert await values(type="ref/prompt", name="one__new") == ["prompt", "one__new", *rest]
    template = "one+docs-x://{name}"
    assert await values(type="ref/resource", uri=template) == ["resource", template, *rest]
    assert await values(type="ref/resource", uri="ONE+other://{a}") == ["resource", "one+other://{a}", *rest]
    whole = (await completed(app, {"type": "ref/prompt", "name": "one__x"})).result["completion"]
    assert whole["extra"] == {"kept": True}
    empty = {"values": [], "total": 0, "hasMore": False}
    assert (await completed(app, {"type": "ref/prompt", "name": "one__x"}, "none")).result["completion"] == empty
    assert (await completed(app, {"type": "ref/prompt", "name": "two__x"})).result["completion"] == empty


async def test_a_server_without_completions_does_not_have_their_method() -> None:
    assert (await completed(app_with(), {"type": "ref/prompt", "name": "poem"})).error == (404, -32601)


@pytest.mark.parametrize("name", ["one__denied", "two__new", "new"])
async def test_an_argument_of_something_unknown_is_not_completed(name: str) -> None:
    app = app_with(part("one", "x", completer=Suggestions(), finder=Unlisted("one")))
    assert refusal(await completed(app, {"type": "ref/prompt", "name": name}))[1] == f"Unknown prompt: {name}"


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (RpcError(-32001, "theirs"), -32001, "theirs"),
        (CannotContinue("The upstream is down."), -32603, "The upstream is down."),
        (GatewayError("secret"), -32603, "The completion failed"),
        (ValueError("secret"), -32603, "The completion failed"),
    ],
)
async def test_a_completion_that_fails_says_no_more_than_the_part_allows(
    failure: Exception, code: int, message: str
) -> None:
    app = app_with(part("one", "x", completer=Suggestions(failure)))
    assert refusal(await completed(app, {"type": "ref/prompt", "name": "one__x"})) == (code, message)


class Watched:
    """Notes which resources are followed."""

    def __init__(self) -> None:
        self.uris: list[str] = []
        self.calls = 0

    def watch(self, uri: str, _caller: Hashable, /) -> None:
        self.uris.append(uri)
        self.calls += 1

    def unwatch(self, uri: str, _caller: Hashable, /) -> None:
        self.uris.remove(uri)


class Stream:
    def __init__(self, messages: AsyncIterator[bytes]) -> None:
        self._messages = messages

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            message: dict[str, Any] = msgspec.json.decode(await anext(self._messages))
        return message


@contextlib.asynccontextmanager
async def listening(app: GatewayApp, *scopes: str, **wanted: Any) -> AsyncIterator[Stream]:
    """Listen; when the context is entered, the acknowledgement is read and the stream runs."""
    listen = app._services.wires.dispatcher._released._handlers["subscriptions/listen"]
    received = McpRequest(
        Request("sub", "subscriptions/listen", {"notifications": wanted}),
        meta={},
        capabilities={},
        log_level=None,
        progress_token=None,
    )
    reply = await listen(Incoming(received, Headers(()), caller("ada", *scopes), NO_CLIENT))
    assert isinstance(reply, Listening)
    messages: Any = reply.messages
    stream = Stream(messages)
    try:
        acknowledged = (await stream.next())["params"]["notifications"]
        assert acknowledged == wanted
        app._services.changes.announce_here("started")
        yield stream
    finally:
        await messages.aclose()


def announced(stream: Stream) -> asyncio.Task[dict[str, Any]]:
    """Start to read the next message, so the stream follows what it listens to."""
    return asyncio.create_task(stream.next())


async def settled() -> None:
    """Let everything run that can, and streams judge a few resources again."""
    for _ in range(20):
        await asyncio.sleep(0)


ONE, OTHER = "one+docs://a", "one+docs://b"


async def test_the_first_listener_of_a_resource_has_it_followed_and_the_last_one_ends_that() -> None:
    watched = Watched()
    app = app_with(part("one", "ab", watcher=watched), part("two", "a"))
    async with listening(app, resourceSubscriptions=[ONE, OTHER, "two+docs://a", "note://today"]) as first:
        reading = announced(first)
        await settled()
        assert sorted(watched.uris) == [ONE, OTHER]
        async with listening(app, resourceSubscriptions=["ONE+docs://a"]) as second:
            both = announced(second)
            await settled()
            assert sorted(watched.uris) == [ONE, OTHER]
            app._services.changes.announce_here(ONE)
            assert (await reading)["params"]["uri"] == ONE
            assert (await both)["params"]["uri"] == "ONE+docs://a"
        assert sorted(watched.uris) == [ONE, OTHER]
    assert watched.uris == []
    assert watched.calls == 2


async def test_a_new_watcher_of_a_part_takes_over_what_is_followed() -> None:
    old, new = Watched(), Watched()
    app = app_with(part("one", "ab", watcher=old))
    async with listening(app, resourceSubscriptions=[ONE]) as stream:
        reading = announced(stream)
        await settled()
        app._services.wires.arrange([part("one", "a", watcher=old)])
        await settled()
        assert (old.uris, old.calls) == ([ONE], 1)
        app._services.wires.arrange([part("one", "a", watcher=new)])
        await settled()
        assert (old.uris, new.uris) == ([], [ONE])
        app._services.wires.arrange([])
        await settled()
        assert new.uris == []
        app._services.wires.arrange([part("one", "a", watcher=new)])
        await settled()
        assert new.uris == [ONE]
        app._services.changes.announce_here(ONE)
        assert (await reading)["params"]["uri"] == ONE
    assert (old.uris, new.uris) == ([], [])


async def test_a_resource_that_announces_nothing_or_needs_other_scopes_is_not_followed() -> None:
    watched = Watched()
    silent = relayed_resource("one", "one+docs://silent")
    secret = relayed_resource("one", "one+docs://secret", announces_changes=True, scopes=["secret"])
    app = app_with(Part("one", "one", resources={silent.uri: silent, secret.uri: secret}, watcher=watched))
    wanted = {"resourceSubscriptions": [silent.uri, secret.uri]}
    received = McpRequest(
        Request("sub", "subscriptions/listen", {"notifications": wanted}),
        meta={},
        capabilities={},
        log_level=None,
        progress_token=None,
    )
    listen = app._services.wires.dispatcher._released._handlers["subscriptions/listen"]
    reply = await listen(Incoming(received, Headers(()), caller("ada"), NO_CLIENT))
    assert isinstance(reply, Listening)
    messages: Any = reply.messages
    acknowledged = await Stream(messages).next()
    assert acknowledged["params"]["notifications"].get("resourceSubscriptions", []) == []
    await messages.aclose()
    assert watched.calls == 0


async def test_a_stream_looks_each_resource_up_once_when_it_opens_and_once_after_a_change() -> None:
    finder = Unlisted("one", announces_changes=True)
    one = part("one", finder=finder, watcher=Watched())
    app = app_with(one, part("two", "a"))
    uris = [f"one+docs://{number}" for number in range(9)]
    async with listening(app, resourceSubscriptions=uris) as stream:
        reading = announced(stream)
        await settled()
        assert finder.asked == [("resources", uri) for uri in uris]
        app._services.wires.authorities.review()
        assert len(finder.asked) == len(uris)
        app._services.wires.arrange([one, part("two", "ab")])
        app._services.wires.authorities.review()
        app._services.changes.announce_here(uris[3])
        assert (await reading)["params"]["uri"] == uris[3]
        assert finder.asked == [("resources", uri) for uri in [*uris, *uris]]


async def test_a_stream_ends_when_a_new_list_asks_for_other_scopes() -> None:
    app = app_with(part("one", finder=Unlisted("one", announces_changes=True)))
    async with listening(app, resourceSubscriptions=[ONE]) as stream:
        reading = announced(stream)
        await settled()
        app._services.wires.arrange([part("one", finder=Unlisted("one", announces_changes=True, scopes=["secret"]))])
        assert (await reading)["result"]["resultType"] == "complete"


async def test_other_work_gets_its_turn_while_streams_look_their_resources_up() -> None:
    finder = Unlisted("one", announces_changes=True)
    app = app_with(part("one", finder=finder))
    wanted = {"resourceSubscriptions": [f"one+docs://{number}" for number in range(MAX_LISTEN_URIS)]}
    received = McpRequest(
        Request("sub", "subscriptions/listen", {"notifications": wanted}),
        meta={},
        capabilities={},
        log_level=None,
        progress_token=None,
    )
    listen = app._services.wires.dispatcher._released._handlers["subscriptions/listen"]
    callers = [caller(name) for name in ("ada", "bob", "eve")]
    opening = [asyncio.ensure_future(listen(Incoming(received, Headers(()), each, NO_CLIENT))) for each in callers]
    asked = [0]
    while not all(stream.done() for stream in opening):
        await asyncio.sleep(0)
        asked.append(len(finder.asked))
    assert asked[-1] == 3 * MAX_LISTEN_URIS
    assert max(later - earlier for earlier, later in pairwise(asked)) <= URIS_AT_ONCE


async def test_other_work_gets_its_turn_while_open_streams_are_judged_by_a_new_list() -> None:
    finder = Unlisted("one", announces_changes=True)
    one, uris = part("one", finder=finder), [f"one+docs://{number}" for number in range(MAX_LISTEN_URIS)]
    app = app_with(one)
    async with contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(listening(app, resourceSubscriptions=uris)) for _ in range(3)]
        reading = [announced(stream) for stream in streams]
        await settled()
        finder.asked.clear()
        app._services.wires.arrange([one, part("two", "a")])
        app._services.changes.announce_here(uris[0])
        asked = [len(finder.asked)]
        while not all(stream.done() for stream in reading):
            await asyncio.sleep(0)
            asked.append(len(finder.asked))
        assert [(await each)["params"]["uri"] for each in reading] == [uris[0]] * 3
        assert asked[0] == 0
        assert asked[-1] == 3 * MAX_LISTEN_URIS
        assert max(later - earlier for earlier, later in pairwise(asked)) <= URIS_AT_ONCE


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliver changes without collecting them."""
    monkeypatch.setattr("gateway.calls.changes.PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
async def test_a_stream_sends_nothing_more_if_a_new_list_asks_for_a_scope_that_is_found_last() -> None:
    app = app_with(part("one", finder=Unlisted("one", announces_changes=True)))
    uris = [f"one+docs://{number}" for number in range(9)]
    async with listening(app, resourceSubscriptions=uris, toolsListChanged=True) as stream:
        reading = announced(stream)
        await settled()
        app._services.wires.arrange([part("one", "a", finder=LastIsSecret("one", announces_changes=True))])
        for uri in uris:
            app._services.changes.announce_here(uri)
        app._services.changes.announce_here("tools")
        assert (await reading)["result"]["resultType"] == "complete"


@pytest.mark.usefixtures("at_once")
async def test_a_stream_is_judged_by_the_newest_list_if_another_one_came_meanwhile() -> None:
    first, second = (Unlisted("one", announces_changes=True) for _ in range(2))
    app = app_with(part("one", finder=first))
    uris = [f"one+docs://{number}" for number in range(9)]
    async with listening(app, resourceSubscriptions=uris) as stream:
        reading = announced(stream)
        await settled()
        app._services.wires.arrange([part("one", finder=second)])
        await asyncio.sleep(0)  # the first turn comes at once
        app._services.changes.announce_here(uris[0])
        app._services.wires.arrange([part("one", finder=LastIsSecret("one", announces_changes=True))])
        assert (await reading)["result"]["resultType"] == "complete"
        assert 0 < len(second.asked) <= URIS_AT_ONCE


@pytest.mark.usefixtures("at_once")
async def test_changes_of_a_resource_that_new_rules_deny_are_not_passed_on() -> None:
    app = app_with(part("one", finder=Unlisted("one", announces_changes=True)))
    async with listening(app, resourceSubscriptions=[ONE, OTHER]) as stream:
        reading = announced(stream)
        await settled()
        app._services.wires.arrange([part("one", finder=Unlisted("one", denied="docs://a", announces_changes=True))])
        app._services.changes.announce_here(ONE)
        app._services.changes.announce_here(OTHER)
        assert (await reading)["params"]["uri"] == OTHER


async def test_a_stream_that_ends_is_not_judged_any_further() -> None:
    finder, watched = Unlisted("one", announces_changes=True), Watched()
    one = part("one", finder=finder, watcher=watched)
    app = app_with(one)
    messages: list[asyncio.Task[dict[str, Any]]] = []
    async with listening(app, resourceSubscriptions=[f"one+docs://{number}" for number in range(9)]) as stream:
        messages.append(announced(stream))
        await settled()
        finder.asked.clear()
        app._services.wires.arrange([one, part("two", "a")])
        app._services.changes.close()
        assert (await messages[0])["result"]["resultType"] == "complete"
    judged = len(finder.asked)
    await settled()
    assert len(finder.asked) == judged < 9
    assert watched.uris == []


async def test_a_changed_list_of_an_upstream_is_announced_once_and_here_only() -> None:
    app = app_with(part("one", "a"))
    wires, elsewhere = app._services.wires, list[str]()
    app._services.changes.forward = elsewhere.append
    async with listening(app, toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True) as stream:
        reading = announced(stream)
        await settled()
        wires.arrange([part("one", "a")])
        wires.arrange([part("one", "a", instructions="New.", ttl_ms=10_000)])
        more = part("one", "a")
        wires.arrange([Part("one", "one", {**more.tools, "one__b": relayed_tool("one", "one__b")}, more.prompts)])
        assert (await reading)["method"] == "notifications/tools/list_changed"
        assert (await stream.next())["method"] == "notifications/resources/list_changed"
        poems = {"one__x": relayed_prompt("one", "one__x")}
        wires.arrange([Part("one", "one", wires.dispatcher.registry.parts[0].tools, poems)])
        assert (await stream.next())["method"] == "notifications/prompts/list_changed"
        assert elsewhere == []


async def test_a_reload_keeps_the_upstreams_and_is_announced_everywhere() -> None:
    app = app_with(part("one", "a"))
    wires, elsewhere = app._services.wires, list[str]()
    app._services.changes.forward = elsewhere.append

    @tool
    async def newcomer() -> str:
        """Be new."""
        return "new"

    wires.reload(Registry([newcomer, poem, today]))
    assert names(await listed(app)) == ["newcomer", "one__a"]
    assert elsewhere == ["tools"]
    wires.arrange([part("one", "b")])
    assert names(await listed(app)) == ["newcomer", "one__b"]
    assert elsewhere == ["tools"]


async def test_a_call_that_runs_ends_with_the_part_that_it_began_with() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        upstream = "one"

        def bind(self, *_given: Any) -> Any:
            async def run(_relaying: Any) -> dict[str, Any]:
                started.set()
                await go_on.wait()
                return {"content": [{"type": "text", "text": "done"}]}

            return run

        async def prepare_task(self, *_given: Any) -> None: ...

        async def abandon(self, *_given: Any) -> None: ...

    slow = relayed_tool("one", "one__slow")
    slow._relay = Slow()
    app = app_with(Part("one", "one", {"one__slow": slow}))
    calling = asyncio.create_task(Client(app).post(tool_call("one__slow")))
    async with asyncio.timeout(SECONDS):
        await started.wait()
        app._services.wires.arrange([])
        go_on.set()
        assert (await calling).text == "done"
    assert refusal(await Client(app).post(tool_call("one__slow")))[1] == "Unknown tool: one__slow"
