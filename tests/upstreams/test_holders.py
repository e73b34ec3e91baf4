"""Holders: processes that have all sessions and programs of a deployment, which the other processes use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.upstreams.held.holders import FRESH_SECONDS
from loadtest.cluster import Replica, wait_until
from tests.storage.servers import Server, own_redis
from tests.token_endpoint import TokenEndpoint
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.session import InSessions
from tests.upstreams.site import Site, User, entry
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params
from tests.wires.legacy.speaking import text_of

MEMORY = Path(__file__).parent / "servers" / "memory.py"


def answer_of(question: Any) -> dict[str, Any]:
    """Return an answer that repeats the text of the question."""
    return {"action": "accept", "content": {"sure": question["params"]["message"]}}


ANSWERS = {"elicitation/create": answer_of}


class Held(Site):
    """Edges r1 and r2, and holders, with a server in sessions, and one with a memory that is a program."""

    def __init__(
        self,
        directory: Path,
        upstreams: dict[str, Any],
        holders: tuple[str, ...] = ("h1",),
        server: Server | None = None,
        **settings: str,
    ) -> None:
        self.notes = directory / "notes"
        directory.mkdir(parents=True, exist_ok=True)
        own = {"memory": program(self.notes), "own": program(self.notes, scope="caller", max_connections=40)}
        super().__init__(directory, {**own, **upstreams}, server, settings, names=("r1", "r2", *holders))
        urls = ",".join(self[name].environ["GATEWAY_REPLICA_URL"] for name in holders)
        self.environ["GATEWAY_HOLDERS"] = urls
        for replica in self.replicas:
            replica.environ["GATEWAY_HOLDERS"] = urls

    def _make_replica(self, name: str, *options: str, **environ: str) -> Replica:
        replica = super()._make_replica(name, *options, **environ)
        if name.startswith("h"):  # each opens its own socket, as on a host of its own
            replica.listener.close()
            replica.hold = False
        return replica

    @property
    def edges(self) -> list[Replica]:
        return [self["r1"], self["r2"]]

    def at_edges(self, principal: str = "ada", **options: Any) -> User:
        """Return a client that only knows the edges."""
        return self.user(principal, urls=[edge.url for edge in self.edges], **options)

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


def program(notes: Path, **options: Any) -> dict[str, Any]:
    command = {"command": sys.executable, "args": ["-S", str(MEMORY)], "env": {"NOTES": str(notes)}}
    return {**command, "gateway": options}


def texts_of(owner: str) -> list[list[str]]:
    """Return the questions about the files of an owner, each with its answer."""
    return [[text, text] for text in (f"Delete {files} files of {owner}?" for files in (3, 300))]


@dataclass
class Checking(InSessions):
    """Refuses the credentials in `revoked`."""

    revoked: set[str | None] = field(default_factory=set)

    async def handle(self, exchange: Exchange) -> None:
        if exchange.header("authorization") in self.revoked:
            exchange.reply(401)
        else:
            await super().handle(exchange)


@pytest.fixture(scope="module")
def server() -> Iterator[Checking]:
    with Checking() as server:
        yield server


@pytest.fixture(scope="module")
def site(server: Checking, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    upstreams = {"held": entry(server.url, scope="caller")}
    with Held(tmp_path_factory.mktemp("held"), upstreams) as site:
        site.wait_listed("memory")
        yield site


async def test_all_edges_use_one_program_with_one_memory(site: Held) -> None:
    async with site.at_edges() as user:
        assert "memory__remember" in await user.names()
        pids = {(await user.call("memory__about")).said for _ in range(4)}
        for text in ("a", "b", "c"):
            said = (await user.call("memory__remember", {"text": text})).said
    assert len(pids) == 1
    assert said == ["a", "b", "c"]


@pytest.mark.parametrize("wire", WIRES)
async def test_questions_of_a_program_are_answered_over_edges(site: Held, wire: str) -> None:
    async with speaking(wire, site, "ada", urls=[edge.url for edge in site.edges]) as call:
        result = await call("tools/call", call_params("own__delete", {"owner": wire}), ANSWERS)
    assert json.loads(text_of(result)) == texts_of(wire)
    assert [line for line in site.noted() if line.startswith(wire)] == [f"{wire} 3", f"{wire} 300"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("on", ["call", "session"])
async def test_questions_in_sessions_are_answered_over_edges(site: Held, wire: str, on: str) -> None:
    async with speaking(wire, site, "ada", urls=[edge.url for edge in site.edges]) as call:
        result = await call("tools/call", call_params("held__delete", {"on": on}), ANSWERS)
    expected = [[files, answer_of({"params": {"message": f"Delete {files} files?"}})] for files in (3, 300)]
    assert json.loads(text_of(result)) == expected


async def test_a_caller_has_one_session_and_another_caller_another(site: Held, server: Checking) -> None:
    before = set(server.open)
    async with site.at_edges("carol") as carol, site.at_edges("dan") as dan:
        for user in (carol, dan):
            assert [(await user.call("held__count")).text.split(": ")[1] for _ in range(4)] == ["1", "2", "3", "4"]
    assert len(set(server.open) - before) == 2


async def test_a_change_of_a_list_is_heard_at_each_edge(site: Held) -> None:
    async with site.at_edges() as user:
        before = [_readings(edge) for edge in site.edges]
        await user.call("memory__change")
        for edge, readings in zip(site.edges, before, strict=True):
            await asyncio.to_thread(
                wait_until, partial(_reads_more, edge, readings), f"the lists are read again at {edge.name}"
            )


def _readings(replica: Replica) -> float:
    return replica.metric("gateway_upstream_list_refreshes_total", upstream="memory")


def _reads_more(replica: Replica, readings: float) -> bool:
    return _readings(replica) > readings


async def test_one_leg_has_one_line_of_audit_and_one_count(site: Held) -> None:
    def counted() -> float:
        return site.metric("gateway_upstream_requests_total", upstream="own", method="tools/call")

    def legs() -> list[dict[str, Any]]:
        lines = [line for replica in site.replicas for line in replica.logged("leg finished", subject="erin")]
        return [line for line in lines if line.get("method") == "tools/call"]

    before = counted()
    async with site.at_edges("erin") as user:
        await user.call("own__delete", {"owner": "erin"}, ANSWERS)
    wait_until(lambda: len(legs()) >= 3, "three lines of audit")
    assert len(legs()) == 3, "two that asked, and one with the result"
    assert counted() == before + 1


async def asked(user: User, owner: str, **arguments: Any) -> tuple[dict[str, Any], Any]:
    """Begin a call, and return its parameters and the reply with its question."""
    params = {"name": "own__delete", "arguments": {"owner": owner, **arguments}}
    reply = await user.send("tools/call", params)
    assert reply.result["resultType"] == "input_required", reply
    return params, reply


async def answered(user: User, params: dict[str, Any], reply: Any) -> Any:
    """Answer the question of a reply, and return the next reply."""
    return await user.send("tools/call", {**params, **await user.retry(reply, ANSWERS)})


async def to_its_end(user: User, params: dict[str, Any], reply: Any) -> Any:
    """Answer all further questions, and return the last reply."""
    while reply.response.get("result", {}).get("resultType") == "input_required":
        reply = await answered(user, params, reply)
    return reply


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Held]:
    """Processes that a test may end."""
    with Held(tmp_path, {}, GATEWAY_DRAIN_SECONDS="8", GATEWAY_MAX_CHILDREN="42") as site:
        site.wait_listed("memory")
        yield site


async def test_edges_may_end_between_legs_and_after_they_have_sent_the_answers(alone: Held) -> None:
    gate = alone.notes.with_name("gate")
    r1, r2 = alone.edges
    async with alone.user("ada", urls=[r1.url]) as first, alone.user("ada", urls=[r2.url]) as second:
        params, reply = await asked(first, "ada", gate=str(gate))
        answering = asyncio.create_task(answered(first, params, reply))
        await asyncio.to_thread(wait_until, lambda: alone.noted() == ["ada 3"], "the answer came")
        r1.kill()
        with pytest.raises(httpx.HTTPError):
            await answering
        gate.touch()
        again = await answered(second, params, reply)
        assert (await to_its_end(second, params, again)).said == texts_of("ada")
    assert alone.noted() == ["ada 3", "ada 300"]


async def test_rolling_the_edges_loses_no_call_and_no_program(alone: Held) -> None:
    async def pid(user: User) -> Any:
        return (await user.call("memory__about")).said

    async with contextlib.AsyncExitStack() as stack:
        users = [await stack.enter_async_context(alone.at_edges(f"user-{number}")) for number in range(4)]
        before = await pid(users[0])
        calls = [(user, *await asked(user, f"owner-{number}")) for number, user in enumerate(users * 5)]
        for edge in alone.edges:
            await asyncio.to_thread(edge.terminate)
            await asyncio.to_thread(edge.restart)
            calls = [(user, params, await answered(user, params, reply)) for user, params, reply in calls]
        assert [reply.said for *_, reply in calls] == [texts_of(f"owner-{number}") for number in range(20)]
        assert await pid(users[0]) == before


async def test_a_call_is_lost_with_its_holder_and_new_ones_begin(alone: Held) -> None:
    holder = alone["h1"]
    async with alone.at_edges() as user:
        params, reply = await asked(user, "ada")
        holder.kill()
        refused = await user.send("tools/call", {"name": "memory__about", "arguments": {}})
        assert refused.status == 503, "no holder takes it"
        assert "retry-after" in refused.headers
        await asyncio.to_thread(holder.restart)
        lost = await answered(user, params, reply)
        assert lost.result["isError"]
        assert "has been lost" in lost.text
        assert "Reference:" in lost.text
        assert (await user.call("own__delete", {"owner": "bob"}, ANSWERS)).said == texts_of("bob")
    assert alone.noted() == ["bob 3", "bob 300"]


async def test_a_holder_that_is_stopped_for_a_while_costs_no_call(alone: Held) -> None:
    holder = alone["h1"]
    async with alone.at_edges() as user:
        params, reply = await asked(user, "ada")
        holder.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(FRESH_SECONDS)  # it has answered a moment ago
            continued, begun = await asyncio.gather(
                answered(user, params, reply), user.send("tools/call", {"name": "memory__about", "arguments": {}})
            )
        finally:
            holder.signal(signal.SIGCONT)
        assert [continued.status, begun.status] == [503, 503], (continued, begun)
        assert (await to_its_end(user, params, reply)).said == texts_of("ada")
    assert alone.noted() == ["ada 3", "ada 300"]


async def test_a_holder_that_drains_serves_the_calls_that_it_holds(alone: Held) -> None:
    holder = alone["h1"]
    async with alone.at_edges() as user:
        calls = [await asked(user, f"owner-{number}") for number in range(4)]
        holder.signal(signal.SIGTERM)
        holder.wait_for_log("leaving")
        refused = asyncio.create_task(user.send("tools/call", {"name": "memory__about", "arguments": {}}))
        ended = [(await to_its_end(user, *call)).said for call in calls]
        assert ended == [texts_of(f"owner-{number}") for number in range(4)]
        assert (await refused).status == 503
    assert await asyncio.to_thread(holder.wait) == 0, "all that it held has ended"


async def test_a_draining_holder_does_not_wait_for_its_users_for_ever(alone: Held) -> None:
    holder = alone["h1"]
    async with alone.at_edges() as user:
        params, reply = await asked(user, "ada")
        assert await asyncio.to_thread(holder.terminate) == 1
        await asyncio.to_thread(holder.restart)
        lost = await answered(user, params, reply)
    assert "has been lost" in lost.text


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    """A store whose tasks no other worker takes."""
    with own_redis() as server:
        yield server


@pytest.fixture(scope="module")
def with_tasks(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    folder = tmp_path_factory.mktemp("tasks")
    upstreams = {"tasks": program(folder / "notes", scope="caller", task="required", timeout_seconds=30)}
    with Held(folder, upstreams, server=redis, GATEWAY_TASK_LEASE_SECONDS="3") as site:
        yield site


async def test_a_task_asks_through_the_holder(with_tasks: Held) -> None:
    async with with_tasks.at_edges() as user:
        task = await user.task("tasks__delete", {"owner": "task"})
        ended = await user.finish(task, ANSWERS)
    assert json.loads(text_of(ended["result"])) == texts_of("task")
    assert [line for line in with_tasks.noted() if line.startswith("task ")] == ["task 3", "task 300"]


async def test_a_worker_that_takes_over_joins_the_call(with_tasks: Held) -> None:
    gate = with_tasks.notes.with_name("taken-over")
    async with with_tasks.at_edges("carol") as user:
        task = await user.task("tasks__work", {"owner": "once", "gate": str(gate)})
        await asyncio.to_thread(wait_until, lambda: "begun once" in with_tasks.noted(), "the call runs")
        with_tasks.worker("w1").kill()
        with_tasks.worker("w1").restart()
        gate.touch()
        ended = await user.finish(task)
    assert json.loads(text_of(ended["result"])) == "worked"
    assert [line for line in with_tasks.noted() if "once" in line] == ["begun once", "ended once"]


async def test_a_worker_that_takes_over_brings_the_same_answers(with_tasks: Held) -> None:
    gate = with_tasks.notes.with_name("answered")
    async with with_tasks.at_edges("dan") as user:
        task = await user.task("tasks__delete", {"owner": "dan", "gate": str(gate)})
        questions = await user.asked_in_task(task)
        responses = {key: answer_of(question) for key, question in questions.items()}
        await user.send("tasks/update", {"taskId": task, "inputResponses": responses})
        await asyncio.to_thread(wait_until, lambda: "dan 3" in with_tasks.noted(), "the answer came")
        with_tasks.worker("w1").kill()
        with_tasks.worker("w1").restart()
        gate.touch()
        ended = await user.finish(task, ANSWERS)
    assert json.loads(text_of(ended["result"])) == texts_of("dan")
    assert [line for line in with_tasks.noted() if line.startswith("dan ")] == ["dan 3", "dan 300"]


async def test_without_holders_a_task_is_told_which_setting_lets_it_ask(with_tasks: Held) -> None:
    async with with_tasks.at_edges("erin") as user:
        with with_tasks.worked_by("w2", GATEWAY_HOLDERS=""):
            task = await user.task("tasks__delete", {"owner": "erin"})
            ended = await user.finish(task)
    assert "GATEWAY_HOLDERS" in json.dumps(ended)


OBJECT = {"python": "tests.upstreams.servers.sdk2:server"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def two(server: Checking, endpoint: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    exchange = {"kind": "token_exchange", "audience": "orders"}
    upstreams = {
        "object": {**OBJECT, "gateway": {}},
        "sessions": {**OBJECT, "gateway": {"era": "session"}},
        "orders": entry(server.url, credentials=exchange, scope="caller"),
        "each": entry(server.url, scope="call"),
    }
    with Held(tmp_path_factory.mktemp("two"), upstreams, ("h1", "h2"), None, **endpoint.environ) as site:
        site.wait_listed("memory")
        yield site


async def test_streams_of_changes_end_quietly_with_their_readers(two: Held) -> None:
    two["r2"].kill()
    await asyncio.to_thread(two["r2"].restart)
    await asyncio.to_thread(two.wait_listed, "memory")
    assert not [line for name in ("h1", "h2") for line in two[name].logged("request failed")]


async def test_each_connection_is_at_one_of_two_holders(two: Held) -> None:
    pids: dict[str, set[int]] = {}
    for name in (f"user-{number}" for number in range(6)):
        async with two.at_edges(name) as user:
            pids[name] = {(await user.call("own__about")).said for _ in range(2)}
    assert all(len(each) == 1 for each in pids.values()), "each user has one program"
    children = {replica.name: replica.metric("gateway_children") for replica in two.replicas}
    assert children["r1"] == children["r2"] == 0
    assert children["h1"] + children["h2"] == 1 + 1 + 6, "one is that of all callers, and one the gateway's own"


async def test_holders_themselves_use_each_others_connections(two: Held) -> None:
    async with two.user("ada") as user:  # which turns to all replicas, holders too
        assert len({(await user.call("memory__about")).said for _ in range(8)}) == 1


@pytest.mark.parametrize("name", ["object", "sessions"])
async def test_objects_are_served_by_holders_alone(two: Held, name: str) -> None:
    def answer(question: Any) -> dict[str, Any]:
        (member,) = question["params"]["requestedSchema"]["properties"]
        return {"action": "accept", "content": {member: f"my {member}"}}

    async with two.at_edges() as user:
        said = (await user.call(f"{name}__resolved_twice", {}, {"elicitation/create": answer})).text
        assert said == "my name likes my colour"
        assert (await user.call(f"{name}__echo", {"text": "here"})).text == "here"
    log = two.logged_text()
    assert all(edge.metric("gateway_upstream_requests_total", upstream=name) == 0 for edge in two.edges), log[-2000:]


async def test_a_session_of_token_exchange_gets_the_exchanged_token_and_nobody_the_callers_own(
    two: Held, server: Checking, endpoint: TokenEndpoint
) -> None:
    server.exchanges.clear()
    async with two.at_edges("canary") as user:
        assert (await user.call("orders__delete", {"on": "call"}, ANSWERS)).said
    seen = {exchange.header("authorization") for exchange in server.exchanges} - {None, ""}
    assert seen
    assert all(str(each).startswith("Bearer issued-") for each in seen)
    assert user.token in {form["subject_token"] for form in endpoint.forms}
    assert user.token not in two.logged_text()
    assert "issued-" not in two.logged_text()


async def test_a_token_that_was_revoked_is_renewed_for_the_holder(two: Held, server: Checking) -> None:
    async with two.user("revoked", urls=[two["r1"].url]) as user:
        assert (await user.call("orders__echo", {"text": "before"})).text == "before"
        server.revoked = {exchange.header("authorization") for exchange in server.exchanges}
        server.exchanges.clear()
        try:
            assert (await user.call("orders__echo", {"text": "after"})).text == "after"
        finally:
            server.revoked = set()


async def test_a_session_of_one_call_is_opened_at_the_next_holder_if_one_is_away(two: Held) -> None:
    two["h1"].kill()
    try:
        async with two.at_edges() as user:
            said = [await user.call("each__echo", {"text": str(number)}) for number in range(6)]
    finally:
        await asyncio.to_thread(two["h1"].restart)
    assert [reply.text for reply in said] == [str(number) for number in range(6)]


async def test_resources_and_completions_come_through_a_holder(site: Held) -> None:
    async with site.at_edges() as user:
        (uri, *_) = await user.names("resources")
        read = (await user.send("resources/read", {"uri": uri})).result
        assert read["contents"][0]["uri"] == uri
        assert await user.names("prompts")


async def test_a_replica_without_holders_serves_the_calls_that_wait_in_it_while_it_drains(tmp_path: Path) -> None:
    site = Held(tmp_path, {}, ("h1", "h2"), GATEWAY_DRAIN_SECONDS="8")
    for replica in site.replicas:
        replica.environ["GATEWAY_HOLDERS"] = ""
    with site:
        one, other = site["h1"], site["h2"]
        assert await asyncio.to_thread(
            one.wait_for_log, "each replica has its own connections to an upstream", upstream="memory"
        )
        async with site.user("ada", urls=[one.url]) as here, site.user("ada", urls=[other.url]) as there:
            params, reply = await asked(here, "ada")
            one.signal(signal.SIGTERM)
            one.wait_for_log("leaving")
            assert (await to_its_end(there, params, reply)).said == texts_of("ada")
        assert await asyncio.to_thread(one.wait) == 0
