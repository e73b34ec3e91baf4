"""Results of an upstream reach the client as they came, under names that tell the upstreams apart."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from tests.upstreams.conftest import UserOf
from tests.upstreams.servers.recording import PEOPLE, PNG, TOOLS, Recording
from tests.upstreams.site import META, Site, User, encoded
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params
from tests.wires.draft.transport import RpcError

every_wire = pytest.mark.parametrize("wire", WIRES)


@every_wire
async def test_structured_results_keep_unknown_members_and_their_meta(site: Site, principal: str, wire: str) -> None:
    async with speaking(wire, site, principal) as call:
        result = await call("tools/call", call_params("rec__structured", {"numbers": [1, 2.5]}))
    assert result["structuredContent"] == {"sum": 3.5, "unknown": [None, {"deep": 1.5}]}
    assert result["extra"] == {"member": True}
    assert result["_meta"]["example.com/kept"] == {"a": 1}
    assert result["_meta"].get(f"{META}/serverInfo", {}).get("name") != "recording"


@every_wire
async def test_every_kind_of_content_passes_and_uris_name_their_upstream(site: Site, principal: str, wire: str) -> None:
    async with speaking(wire, site, principal) as call:
        result = await call("tools/call", call_params("rec__media"))
    image, audio, embedded, link, unknown = result["content"]
    assert image == {"type": "image", "data": PNG, "mimeType": "image/png"}
    assert audio["data"] == PNG
    assert embedded["resource"]["uri"] == "rec+note://embedded"
    assert embedded["resource"]["_meta"] == {"example.com/b": 2}
    assert link == {"type": "resource_link", "uri": "rec+note://today", "name": "today"}
    assert unknown == {"type": "text", "text": '{"type":"hologram","unknown":{"kind":"kept"}}'}


@every_wire
async def test_errors_come_in_the_words_of_the_upstream(site: Site, principal: str, wire: str) -> None:
    async with speaking(wire, site, principal) as call:
        result = await call("tools/call", call_params("rec__fail"))
        assert result["isError"]
        assert result["content"][0]["text"] == "It failed, in the upstream's words"
        with pytest.raises((AssertionError, RpcError)) as raised:
            await call("tools/call", call_params("rec__rpc_error"))
    assert "An error of the upstream's own" in str(raised.value)
    assert "1234" in str(raised.value)


async def test_progress_and_logs_reach_the_client_that_wants_them(user: User, upstream: Recording) -> None:
    meta = {f"{META}/logLevel": "debug", "progressToken": 7}
    reply = await user.call("rec__progress", {"steps": 3}, _meta=meta)
    told = [notice["params"] for notice in reply.notices]
    assert [(each["progressToken"], each["progress"], each["total"], each["message"]) for each in told] == [
        (7, number, 3, f"step {number}") for number in (1, 2, 3)
    ]
    logged = (await user.call("rec__logs", {}, _meta=meta)).notices
    assert [(each["params"]["level"], each["params"]["data"]) for each in logged] == [
        ("info", {"said": "first"}),
        ("warning", "second"),
        ("info", "of a level that does not exist"),
    ]
    assert (await user.call("rec__logs", {})).notices == []


async def test_a_client_that_leaves_cancels_the_call_upstream(site: Site, principal: str, upstream: Recording) -> None:
    async with site.user(principal) as user:
        call = asyncio.create_task(user.call("rec__slow"))
        await asyncio.to_thread(upstream.wait_begun)
        call.cancel()
        await asyncio.wait([call])
    ended = await asyncio.to_thread(upstream.wait_ended, "slow")
    assert ended.ended == "cancelled"


@every_wire
async def test_prompts_resources_and_templates_are_read_under_their_own_names(
    site: Site, upstream: Recording, principal: str, wire: str
) -> None:
    async with speaking(wire, site, principal) as call:
        prompt = await call("prompts/get", {"name": "rec__greeting", "arguments": {"name": "Ada"}})
        assert prompt["messages"][0]["content"]["text"] == "Hello, Ada"
        assert prompt["messages"][1]["content"]["uri"] == "rec+note://today"
        note = await call("resources/read", {"uri": "rec+note://today"})
        assert note["contents"] == [{"uri": "rec+note://today", "mimeType": "text/plain", "text": "a note"}]
        picture = await call("resources/read", {"uri": "REC+file:///picture.png"})
        assert base64.b64decode(picture["contents"][0]["blob"]) == base64.b64decode(PNG)
        item = await call("resources/read", {"uri": "rec+item://a%2Fb?c=ü"})
        assert item["contents"][0]["text"] == "item a%2Fb?c=%C3%BC"
    assert upstream.of("item://a%2Fb?c=%C3%BC", "resources/read"), "letters beyond ASCII are percent-encoded"


@every_wire
async def test_completions_come_from_the_upstream(site: Site, upstream: Recording, principal: str, wire: str) -> None:
    async with speaking(wire, site, principal) as call:
        for ref, own in (
            ({"type": "ref/prompt", "name": "rec__greeting"}, {"type": "ref/prompt", "name": "greeting"}),
            ({"type": "ref/resource", "uri": "rec+item://{id}"}, {"type": "ref/resource", "uri": "item://{id}"}),
        ):
            argument = {"name": "name", "value": "A"}
            result = await call("completion/complete", {"ref": ref, "argument": argument})
            assert result["completion"]["values"] == [name for name in PEOPLE if name.startswith("A")]
            asked = [each for each in upstream.calls if each.method == "completion/complete"][-1]
            assert (asked.params["ref"], asked.params["argument"]) == (own, argument)


async def test_lists_show_what_the_upstream_lists_under_the_names_of_the_gateway(user: User) -> None:
    tools = {tool["name"]: tool for tool in await user.list("tools")}
    assert [name for name in tools if name.startswith("rec__")] == [f"rec__{name}" for name in TOOLS]
    assert tools["rec__structured"] == {
        "name": "rec__structured",
        "description": "The upstream's structured",
        **TOOLS["structured"][1],
    }
    assert {prompt["name"] for prompt in await user.list("prompts")} >= {"rec__greeting", "rec__asking"}
    resources = await user.names("resources")
    assert "rec+note://today" in resources
    assert "rec+file:///picture.png" in resources
    templates = [template["uriTemplate"] for template in await user.list("resourceTemplates")]
    assert "rec+item://{id}" in templates


async def test_the_upstreams_instructions_join_the_gateways(user: User) -> None:
    discovered = (await user.send("server/discover")).result
    assert "Be kind to the upstream." in discovered["instructions"]
    assert {"tools", "prompts", "resources", "completions"} <= discovered["capabilities"].keys()


async def test_annotated_parameters_are_sent_upstream_as_headers(user: User, upstream: Recording) -> None:
    params = call_params("rec__regional", {"region": "Zürich"})
    reply = await user.send("tools/call", params, **{"mcp-param-region": encoded("Zürich")})
    assert "result" in reply.response, reply
    (call,) = upstream.of("regional")
    assert call.header("mcp-param-region") == encoded("Zürich")


async def test_a_tool_that_is_not_listed_can_be_called_under_its_prefix(user: User, upstream: Recording) -> None:
    """The upstream decides what it does with the name."""
    reply = await user.send("tools/call", call_params("rec__hidden"))
    assert reply.error["message"] == "Unknown tool: hidden"
    assert len(upstream.of("hidden")) == 1
    assert (await user.send("tools/call", call_params("nobody__hidden"))).error["code"] == -32602


async def test_a_slow_upstream_takes_no_place_of_other_calls(
    site: Site, upstream: Recording, user_of: UserOf, principal: str
) -> None:
    calls = [asyncio.create_task(user_of(principal).call("rec__slow")) for _ in range(20)]
    await asyncio.to_thread(upstream.wait_begun)
    quick = await asyncio.gather(*(user_of(principal).call("rec__echo", {"text": "quick"}) for _ in range(20)))
    assert [reply.text for reply in quick] == ["quick"] * 20
    await asyncio.to_thread(upstream.open)
    assert {reply.text for reply in await asyncio.gather(*calls)} == {"finally"}


async def test_what_identifies_the_request_is_ours(user: User, upstream: Recording) -> None:
    await user.call(
        "rec__echo",
        {"text": "a"},
        _meta={
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "baggage": "secret=1",
            f"{META}/clientInfo": {"name": "the client", "version": "1"},
            "example.com/kept": 1,
        },
    )
    (call,) = upstream.of("echo")
    body = call.body.decode()
    assert "secret=1" not in body
    assert "b7ad6b7169203331" not in body
    info: dict[str, Any] = call.meta[f"{META}/clientInfo"]
    assert info["name"] != "the client"
