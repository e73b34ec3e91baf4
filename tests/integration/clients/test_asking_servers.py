"""Real servers in sessions ask their user: each answer reaches its question, by what the servers themselves note."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from loadtest.cluster import wait_until
from tests.integration.clients.asking import COMMANDS, MODULE, REPLICAS, AskingServers, deleting, has_tools, noted
from tests.integration.frameworks.known import PEERS
from tests.upstreams.site import Site
from tests.upstreams.wires import DRAFT, RELEASED, WIRES, speaking
from tests.wires.draft.messages import Refusal, call_params
from tests.wires.draft.transport import RpcError
from tests.wires.legacy.speaking import LEGACY, text_of

SECONDS: Final = float(os.environ.get("ASKING_SECONDS", "5"))
"""How long a user thinks. With 60 or more, servers of the TypeScript SDK give up by themselves."""
QUICKLY: Final = 0.05
UPSTREAMS: Final = (*(f"{name}-{transport}" for name in COMMANDS for transport in ("http", "stdio")), "python2-object")

TYPESCRIPT: Final = tuple(name for name in UPSTREAMS if name.startswith("typescript"))

every_wire = pytest.mark.parametrize("wire", WIRES)
every_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)
_numbers = itertools.count(1)


def somebody() -> str:
    """Return a name that no call has had yet."""
    return f"user-{next(_numbers)}"


def thinking(seconds: float) -> dict[str, Any]:
    """Answer each form after some time with the text of its question."""

    async def answer(question: Any) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {"action": "accept", "content": {"sure": question["params"]["message"]}}

    return {"elicitation/create": answer}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskingServers]:
    servers = AskingServers(tmp_path_factory.mktemp("asking"))
    with contextlib.ExitStack() as stack:
        servers.start(stack)
        yield servers


@pytest.fixture(scope="module")
def site(servers: AskingServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    held = {"held_seconds": max(600, 3 * SECONDS)}
    upstreams = {"python2-object": {"python": f"{MODULE}:server", "gateway": {"era": "session", **held}}}
    for name in COMMANDS:
        upstreams |= {
            f"{name}-http": servers.http(name, **held),
            f"{name}-stdio": servers.stdio(name, max_connections=16, **held),
        }
    upstreams |= {
        **{f"{name}-refusing": servers.http(name, ask={"delete": "refuse"}) for name in COMMANDS},
        "shared-http": servers.http("typescript1", scope="shared"),
        "shared-stdio": servers.stdio("typescript1", scope="shared"),
    }
    settings = {"GATEWAY_MAX_CHILDREN": "40", "TEST_DIRECTORY": str(servers.folder)}
    with Site(tmp_path_factory.mktemp("site"), upstreams, settings=settings, names=REPLICAS) as site:
        site.wait_listed()
        tools = [f"{upstream}__delete" for upstream in upstreams]
        for caller in ("ada", "eve"):
            wait_until(functools.partial(has_tools, site, caller, tools), f"the lists of {caller}")
        yield site


async def calls(
    site: Site, wire: str, tool: str, who: str, answers: Any, *, caller: str = "ada", **arguments: Any
) -> dict[str, Any]:
    """Call a tool to its end. `who` names the call in what the server notes."""
    async with speaking(wire, site, caller, seconds=3 * SECONDS + 60) as call:
        return await call("tools/call", call_params(tool, {"who": who, **arguments}), answers)


async def deletes(site: Site, wire: str, upstream: str, who: str, answers: Any, **options: Any) -> dict[str, Any]:
    """Have files deleted."""
    return await calls(site, wire, f"{upstream}__delete", who, answers, **options)


@pytest.mark.parametrize("package", ["mcp1", "fastmcp"])
async def test_objects_of_other_packages_ask_too(package: str, tmp_path: Path) -> None:
    options = {"era": "session", "scope": "caller"}
    site = Site(tmp_path, {"object": {"python": f"{MODULE}:server", "gateway": options}}, names=REPLICAS)
    for replica in site.replicas:
        replica.python = str(PEERS / f"objects-{package}/bin/python")
    with site:
        for wire in WIRES:
            who = somebody()
            assert text_of(await deletes(site, wire, "object", who, thinking(QUICKLY))) == "deleted"
            assert noted(tmp_path, who) == deleting(who)


@every_upstream
@every_wire
async def test_two_questions_get_the_answers_that_belong_to_them(
    servers: AskingServers, site: Site, wire: str, upstream: str
) -> None:
    who = somebody()
    result = await deletes(site, wire, upstream, who, thinking(QUICKLY))
    assert text_of(result) == "deleted"
    assert servers.noted(who) == deleting(who)


async def test_answers_that_take_long_reach_their_questions_too(servers: AskingServers, site: Site) -> None:
    """All users think at the same time. Servers of the TypeScript SDK would wait for a minute only."""
    calls = {somebody(): (wire, upstream) for wire in WIRES for upstream in UPSTREAMS}

    async def called(who: str, wire: str, upstream: str) -> str:
        patience = {"seconds": 3 * SECONDS} if upstream.startswith("typescript") else {}
        return text_of(await deletes(site, wire, upstream, who, thinking(SECONDS), **patience))

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(called(who, *way)) for who, way in calls.items()]
    assert {each.result() for each in running} == {"deleted"}
    for who in calls:
        assert servers.noted(who) == deleting(who)


@every_wire
@pytest.mark.parametrize("upstream", ["python1-http", "python2-http", "fastmcp-http", "python1-stdio", "python2-stdio"])
async def test_a_question_that_does_not_name_its_call_belongs_to_the_only_one(
    servers: AskingServers, site: Site, wire: str, upstream: str
) -> None:
    who = somebody()
    assert text_of(await deletes(site, wire, upstream, who, thinking(QUICKLY), aside=True)) == "deleted"
    assert servers.noted(who) == deleting(who)


@every_wire
@pytest.mark.parametrize("upstream", TYPESCRIPT)
async def test_a_question_of_typescript_that_does_not_name_its_call_belongs_to_the_only_one(
    servers: AskingServers, site: Site, wire: str, upstream: str
) -> None:
    who = somebody()
    assert text_of(await deletes(site, wire, upstream, who, thinking(QUICKLY), how="aside")) == "deleted"
    assert servers.noted(who) == deleting(who)


@pytest.mark.parametrize("wire", [RELEASED, DRAFT])
@pytest.mark.parametrize("upstream", TYPESCRIPT)
async def test_an_answer_comes_to_nothing_once_the_server_has_given_up(
    servers: AskingServers, site: Site, wire: str, upstream: str
) -> None:
    who = somebody()

    async def answer(question: Any) -> dict[str, Any]:
        await asyncio.to_thread(wait_until, lambda: servers.noted(who) != [], "the end", SECONDS + 30)
        return {"action": "accept", "content": {"sure": question["params"]["message"]}}

    patience = {} if SECONDS >= 60 else {"seconds": 0.2}
    result = await deletes(site, wire, upstream, who, {"elicitation/create": answer}, **patience)
    assert result["isError"]
    assert "timed out" in text_of(result)
    (note,) = servers.noted(who)
    assert "timed out" in note["problem"]


@every_wire
@every_upstream
async def test_several_questions_at_once_get_their_own_answers(
    servers: AskingServers, site: Site, wire: str, upstream: str
) -> None:
    who = somebody()
    assert text_of(await calls(site, wire, f"{upstream}__several", who, thinking(0))) == "deleted"
    noted = servers.noted(who)
    assert sorted(noted, key=str) == sorted(deleting(who, 3, 30, 300), key=str)


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_progress_arrives_around_a_question(servers: AskingServers, site: Site, upstream: str) -> None:
    who = somebody()
    async with site.user("ada") as user:
        await user.call(f"{upstream}__report", {"who": who}, thinking(0), _meta={"progressToken": "mine"})
    told = [[notice["params"] for notice in reply.notices] for reply in user.replies]
    steps = [
        {"progressToken": "mine", "progress": n, "total": 2, "message": m} for n, m in ((1, "before"), (2, "after"))
    ]
    assert told == [[steps[0]], [steps[1]]]
    assert servers.noted(who) == deleting(who, 3)


@every_wire
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_model_is_asked(servers: AskingServers, site: Site, wire: str, upstream: str) -> None:
    who = somebody()

    def answer(question: Any) -> dict[str, Any]:
        said = question["params"]["messages"][0]["content"]["text"]
        return {"role": "assistant", "content": {"type": "text", "text": said}, "model": "m", "stopReason": "endTurn"}

    answers = {"sampling/createMessage": answer}
    assert text_of(await calls(site, wire, f"{upstream}__sample", who, answers)) == "titled"
    titles = [f"Title {number} for {who}?" for number in (1, 2)]
    assert servers.noted(who) == [{"question": title, "action": "assistant", "sure": title} for title in titles]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_model_that_has_tools_uses_one(servers: AskingServers, site: Site, upstream: str) -> None:
    who = somebody()
    use = {"type": "tool_use", "id": "1", "name": "search", "input": {}}
    said = {"role": "assistant", "content": [use], "model": "m", "stopReason": "toolUse"}
    answers = {"sampling/createMessage": said}
    result = await calls(site, RELEASED, f"{upstream}__sample", who, answers, with_tools=True)
    assert text_of(result) == "titled"
    assert [note["sure"] for note in servers.noted(who)] == ["search", "search"]


@every_wire
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_user_is_sent_to_addresses(servers: AskingServers, site: Site, wire: str, upstream: str) -> None:
    who = somebody()
    seen = []

    def answer(question: Any) -> dict[str, Any]:
        seen.append(question["params"]["url"])
        return {"action": "accept" if seen[-1].endswith("/1") else "decline"}

    result = await calls(site, wire, f"{upstream}__visit", who, {"elicitation/create": answer})
    assert text_of(result) == "visited"
    assert seen == ["https://example.com/1", "https://example.com/2"]
    assert servers.noted(who) == [
        {"question": f"Visit 1, {who}?", "action": "accept"},
        {"question": f"Visit 2, {who}?", "action": "decline"},
    ]


@every_wire
@pytest.mark.parametrize("action", ["decline", "cancel"])
@every_upstream
async def test_a_refusal_reaches_the_server_as_one(
    servers: AskingServers, site: Site, wire: str, upstream: str, action: str
) -> None:
    who = somebody()
    result = await deletes(site, wire, upstream, who, {"elicitation/create": {"action": action}})
    assert text_of(result) == "deleted"
    assert [note["action"] for note in servers.noted(who)] == [action, action]


@pytest.mark.parametrize("wire", [LEGACY, DRAFT])
@every_upstream
async def test_an_error_of_the_client_reaches_the_server(
    servers: AskingServers, site: Site, wire: str, upstream: str
) -> None:
    who = somebody()
    answers = {"elicitation/create": Refusal(-32050, "the screen is off")}
    if upstream.startswith("python2"):  # its servers pass the error on as that of the call
        with pytest.raises(RpcError, match="the screen is off"):
            await deletes(site, wire, upstream, who, answers)
    else:
        result = await deletes(site, wire, upstream, who, answers)
        assert result["isError"]
        assert "the screen is off" in text_of(result)
    (note,) = servers.noted(who)
    assert "the screen is off" in note["problem"]


@pytest.mark.parametrize("capabilities", [{}, {"sampling": {}}], ids=["nothing", "something else"])
@every_upstream
async def test_a_client_that_cannot_be_asked_ends_the_call_in_the_words_of_the_server(
    servers: AskingServers, site: Site, upstream: str, capabilities: dict[str, Any]
) -> None:
    who = somebody()
    async with site.user("ada", capabilities=capabilities) as user:
        reply = await user.call(f"{upstream}__delete", {"who": who})
    assert reply.result["isError"]
    (note,) = servers.noted(who)
    assert note["question"] == f"Delete 3 files of {who}?"
    assert note["problem"] in reply.text


@pytest.mark.parametrize("how", ["related", "aside"])
@pytest.mark.parametrize("upstream", [name for name in UPSTREAMS if "-stdio" in name or "typescript" in name])
async def test_calls_of_one_caller_run_beside_those_that_wait_and_another_caller_beside_them(
    servers: AskingServers, site: Site, upstream: str, how: str
) -> None:
    mine, others = [somebody() for _ in range(3)], somebody()
    waiting = asyncio.Barrier(len(mine))

    async def answer(question: Any) -> dict[str, Any]:
        if "300" not in question["params"]["message"]:
            await waiting.wait()
        return {"action": "accept", "content": {"sure": question["params"]["message"]}}

    aside = {"how": how} if upstream.startswith("typescript") else {"aside": how == "aside"}
    if how == "aside" and "-http" in upstream:  # until then, nothing shows how this server asks
        await deletes(site, RELEASED, upstream, somebody(), thinking(QUICKLY), how=how)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for who in mine:
            group.create_task(deletes(site, RELEASED, upstream, who, {"elicitation/create": answer}, **aside))
        group.create_task(deletes(site, RELEASED, upstream, others, thinking(QUICKLY), caller="eve", **aside))
    for who in (*mine, others):
        assert servers.noted(who) == deleting(who)


@pytest.mark.parametrize("server", COMMANDS)
async def test_the_option_that_refuses_questions_is_named(servers: AskingServers, site: Site, server: str) -> None:
    who = somebody()
    result = await deletes(site, RELEASED, f"{server}-refusing", who, thinking(0))
    assert result["isError"]
    assert "problem" in servers.noted(who)[0]
    assert '"ask"' in text_of(result)


@pytest.mark.parametrize("upstream", ["shared-stdio", "shared-http"])
async def test_callers_who_share_a_connection_are_asked_nothing_that_names_no_call(
    servers: AskingServers, site: Site, upstream: str
) -> None:
    who = somebody()
    result = await deletes(site, RELEASED, upstream, who, thinking(0), how="aside")
    assert result["isError"]
    assert '"scope"' in text_of(result)
    (note,) = servers.noted(who)
    assert '"scope"' in note["problem"]
