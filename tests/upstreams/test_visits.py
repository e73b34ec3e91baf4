"""Upstreams that send their user to URLs before they act: every era of upstream, for clients of every wire."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import wait_until
from tests.storage.servers import Server, own_redis
from tests.upstreams.servers.earlier import Earlier
from tests.upstreams.servers.recording import Recording, visit
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import CAPABILITIES, Site, entry
from tests.upstreams.test_programs import program
from tests.upstreams.wires import RELEASED, WIRES, speaking
from tests.wires.draft.messages import Refusal, call_params
from tests.wires.legacy.speaking import LEGACY, text_of

GONE = {"action": "accept"}
FORMS_ONLY: Mapping[str, Any] = {**CAPABILITIES, "elicitation": {"form": {}}}
HTTP = ("stateless", "sessionless", "session")
_numbers = itertools.count()
every_wire = pytest.mark.parametrize("wire", WIRES)
every_era = pytest.mark.parametrize("era", HTTP)


class Visitor:
    """A user who visits each URL, and answers to each in turn as given, by default that it was accepted."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, question: Mapping[str, Any]) -> Any:
        self.asked.append(dict(question["params"]))
        return self.answers[len(self.asked) - 1] if self.answers else GONE

    @property
    def urls(self) -> list[str]:
        return [params["url"] for params in self.asked]

    @property
    def as_answers(self) -> dict[str, Any]:
        return {"elicitation/create": self, "name": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.fixture(scope="module")
def stateless() -> Iterator[Recording]:
    with Recording() as server:
        yield server


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    """A store of its own: the worker of other tests does not know these tools."""
    with own_redis() as server:
        yield server


@pytest.fixture(scope="module")
def visits(
    stateless: Recording, redis: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, Mapping[str, Any]]]:
    """Two replicas and a worker, with a server of each era behind them."""
    with Earlier() as sessionless, InSessions() as session:
        servers = {"stateless": stateless, "sessionless": sessionless, "session": session}
        upstreams = {name: entry(server.url) for name, server in servers.items()}
        upstreams |= {f"task-{name}": entry(server.url, task="optional") for name, server in servers.items()}
        upstreams["shared"] = entry(session.url, scope="shared")
        upstreams |= {"program": program("quiet"), "refusing": entry(session.url, ask={"sign_*": "refuse"})}
        with Site(tmp_path_factory.mktemp("visits"), upstreams, redis) as site:
            site.wait_listed()
            yield site, servers


@pytest.fixture
def site(visits: tuple[Site, Mapping[str, Any]], stateless: Recording) -> Site:
    stateless.clear()
    return visits[0]


def sent(server: Any) -> list[dict[str, Any]]:
    """Return the parameters of the calls that reached a server."""
    if isinstance(server, Recording):
        return [call.params for call in server.of("sign_in")]
    return [each["params"] for each in server.messages if each.get("method") == "tools/call"]


def times(number: int) -> dict[str, Any]:
    """Return the arguments of a call that no other test makes."""
    return {"times": number, "test": next(_numbers)}


@every_era
@every_wire
async def test_the_user_visits_each_url_and_then_the_tool_runs(
    site: Site, visits: tuple[Site, Mapping[str, Any]], wire: str, era: str
) -> None:
    arguments, visitor = times(2), Visitor()
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params(f"{era}__sign_in", arguments), visitor.as_answers)
    assert not result.get("isError"), result
    assert visitor.urls == [visit(1)["url"], visit(2)["url"]]
    assert [params["message"] for params in visitor.asked] == [visit(1)["message"], visit(2)["message"]]
    made = [params for params in sent(visits[1][era]) if params["arguments"] == arguments]
    assert len(made) == 3
    assert all(params.keys() <= {"name", "arguments", "_meta"} for params in made)


@every_wire
async def test_no_client_sees_the_id_of_the_upstream(site: Site, wire: str) -> None:
    """Another upstream may have the same. Clients of 2025-11-25 get one of the gateway's own for each question."""
    first, second = Visitor(), Visitor()
    async with speaking(wire, site, "ada") as call:
        for upstream, visitor in (("session", first), ("sessionless", second)):
            await call("tools/call", call_params(f"{upstream}__sign_in", times(2)), visitor.as_answers)
    ids = [params.get("elicitationId") for params in (*first.asked, *second.asked)]
    assert len(ids) == 4
    assert len(set(ids)) == 4 if wire == LEGACY else ids == [None] * 4
    assert visit(1)["elicitationId"] not in ids


@every_wire
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_does_not_accept_ends_the_call_before_the_tool_runs(
    site: Site, visits: tuple[Site, Mapping[str, Any]], wire: str, action: str
) -> None:
    arguments, visitor = times(2), Visitor(GONE, {"action": action})
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params("session__sign_in", arguments), visitor.as_answers)
    assert result["isError"]
    assert text_of(result).endswith("which was not accepted. It refused the request, so it should not have acted.")
    assert len([params for params in sent(visits[1]["session"]) if params["arguments"] == arguments]) == 2


@every_wire
async def test_a_tool_that_never_lets_its_user_through_is_called_four_times(
    site: Site, visits: tuple[Site, Mapping[str, Any]], wire: str
) -> None:
    arguments, visitor = times(9), Visitor()
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params("sessionless__sign_in", arguments), visitor.as_answers)
    assert result["isError"]
    assert "after 3 visits were accepted" in text_of(result)
    assert len(visitor.asked) == 3
    assert len([params for params in sent(visits[1]["sessionless"]) if params["arguments"] == arguments]) == 4


@every_wire
async def test_a_program_sends_its_user_away_too(site: Site, tmp_path: Path, wire: str) -> None:
    file = tmp_path / "signed"

    def go(_question: Mapping[str, Any]) -> dict[str, Any]:
        file.touch()
        return GONE

    async with speaking(wire, site, "ada") as call:
        params = call_params("program__sign_in", {"file": str(file)})
        result = await call("tools/call", params, {"elicitation/create": go})
    assert text_of(result) == '"signed in"'


@every_era
@every_wire
async def test_the_worker_of_a_task_asks_and_calls_again(
    site: Site, visits: tuple[Site, Mapping[str, Any]], wire: str, era: str
) -> None:
    arguments, visitor, tool = times(2), Visitor(), f"task-{era}__sign_in"
    if wire == RELEASED:
        async with site.user() as user:
            result = (await user.finish(await user.task(tool, arguments), visitor.as_answers))["result"]
    else:
        async with site.client("ada") as client:
            if wire == LEGACY:
                client.transport.headers["MCP-Protocol-Version"] = LEGACY
            await client.initialize(*([LEGACY] if wire == LEGACY else []))
            created = await client.create_task(tool, arguments, answers=visitor.as_answers)
            if wire == LEGACY:
                result = (await client.task_result(created["taskId"], answers=visitor.as_answers)).result
            else:
                result = (await client.finish_task(created["taskId"], visitor.as_answers)).result or {}
    assert not result.get("isError"), result
    assert visitor.urls == [visit(1)["url"], visit(2)["url"]]
    assert len([params for params in sent(visits[1][era]) if params["arguments"] == arguments]) == 3


async def test_a_task_whose_user_declines_ends(site: Site, visits: tuple[Site, Mapping[str, Any]]) -> None:
    arguments = times(1)
    async with site.user() as user:
        task = await user.finish(
            await user.task("task-session__sign_in", arguments), Visitor({"action": "decline"}).as_answers
        )
    assert "which was not accepted" in json.dumps(task)
    assert len([params for params in sent(visits[1]["session"]) if params["arguments"] == arguments]) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_client_that_cannot_open_urls_is_told_so(site: Site, wire: str) -> None:
    if wire == RELEASED:
        async with site.user(capabilities=FORMS_ONLY) as user:
            reply = await user.send("tools/call", call_params("session__sign_in", times(1)))
        assert reply.error["code"] == -32021
        assert reply.error["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}
        return
    async with site.client("ada", capabilities=FORMS_ONLY) as client:
        if wire == LEGACY:
            client.transport.headers["MCP-Protocol-Version"] = LEGACY
        await client.initialize(*([LEGACY] if wire == LEGACY else []))
        result = (await client.complete("tools/call", call_params("session__sign_in", times(1)))).result
    assert result["isError"]
    assert "elicitation.url" in text_of(result)


@every_wire
async def test_an_operator_can_refuse_to_send_users_away(
    site: Site, visits: tuple[Site, Mapping[str, Any]], wire: str
) -> None:
    arguments = times(1)
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params("refusing__sign_in", arguments))
    assert result["isError"]
    assert "the option \"ask\" of the upstream 'refusing'" in text_of(result)
    assert len([params for params in sent(visits[1]["session"]) if params["arguments"] == arguments]) == 1


@every_wire
async def test_prompts_and_resources_send_their_user_away_like_tools(
    site: Site, stateless: Recording, wire: str
) -> None:
    async with speaking(wire, site, "ada") as call:
        for method, params in (
            ("prompts/get", {"name": "stateless__signing", "arguments": {}}),
            ("resources/read", {"uri": "stateless+note://signing"}),
        ):
            visitor = Visitor()
            await call(method, params, visitor.as_answers)
            assert visitor.urls == [visit(1)["url"]]
    assert stateless.noted == ["signed in"] * 2


async def test_an_answer_that_is_an_error_ends_the_call_of_an_older_client(site: Site) -> None:
    async with speaking(LEGACY, site, "ada") as call:
        visitor = Visitor(Refusal(-1, "no browser"))
        result = await call("tools/call", call_params("session__sign_in", times(1)), visitor.as_answers)
    assert result["isError"]
    assert "no browser" in text_of(result)


async def test_news_that_a_visit_is_over_are_counted_and_go_to_nobody(
    site: Site, visits: tuple[Site, Mapping[str, Any]]
) -> None:
    """One session is that of the lists as well, which are heard there."""
    visitor = Visitor()

    def dropped(upstream: str) -> float:
        return site.metric("gateway_upstream_dropped_total", upstream=upstream, what="notification")

    async with speaking(LEGACY, site, "ada") as call:
        for upstream in ("session", "shared"):
            before = dropped(upstream)

            def go(question: Mapping[str, Any], upstream: str = upstream, before: float = before) -> Any:
                visits[1]["session"].send("elicitation/complete", elicitationId="e1")
                wait_until(lambda: dropped(upstream) > before, f"the count of {upstream}")
                return visitor(question)

            params = call_params(f"{upstream}__sign_in", times(1))
            await call("tools/call", params, {"elicitation/create": lambda asked, go=go: asyncio.to_thread(go, asked)})
    assert len(visitor.asked) == 2


async def test_a_replica_that_is_killed_while_the_user_is_away_loses_nothing(site: Site) -> None:
    arguments = times(1)
    first, second = site.replicas
    async with site.user(urls=[first.url, second.url]) as user:
        asked = await user.send("tools/call", call_params("stateless__sign_in", arguments))
        assert asked.url == first.url
        first.kill()
        try:
            more = await user.retry(asked, Visitor().as_answers)
            reply = await user.send("tools/call", {**call_params("stateless__sign_in", arguments), **more})
        finally:
            first.restart()
    assert reply.said == {"answers": {}, "state": None}
