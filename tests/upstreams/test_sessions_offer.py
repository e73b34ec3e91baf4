"""Sessions and programs offer what stateless upstreams offer, through two replicas and a worker, on every wire.

Each test looks at what the server itself has received.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest

from loadtest.cluster import ClusterError, wait_until
from tests.storage.servers import Server
from tests.upstreams.servers.featured import Featured, Session
from tests.upstreams.site import META, Site, User, entry
from tests.upstreams.wires import RELEASED, WIRES, speaking
from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import call_params
from tests.wires.draft.under_way import under_way
from tests.wires.legacy.speaking import LEGACY, speak, text_of
from tests.workers.conftest import durable_server

OPTIONS: dict[str, Any] = {
    "task": {"*_as_task": "required", "work_sooner": {"after_seconds": 0.3}, "work_at_will": "optional"},
    "timeout_seconds": 20,
}
UPSTREAMS = ("http", "pipe")
every_wire = pytest.mark.parametrize("wire", WIRES)
every_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)
SOON_SECONDS = 2.5
"""Longer than a request waits for room among the connections of an upstream."""
Notices: TypeAlias = list[dict[str, Any]]

_MARKS = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Featured]:
    with Featured() as server:
        yield server


@pytest.fixture(scope="module")
def store() -> Iterator[Server]:
    """A store that no worker of another site looks into."""
    with durable_server() as store:
        yield store


@pytest.fixture(scope="module")
def site(server: Featured, store: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    own: dict[str, Any] = {"scope": "caller", "max_connections": 2, "idle_seconds": 1, **OPTIONS}
    upstreams = {
        "http": entry(server.url, **OPTIONS),
        "pipe": server.program(**OPTIONS),
        "few-http": entry(server.url, **own),
        "few-pipe": server.program(**own),
    }
    settings = {"GATEWAY_TASK_LEASE_SECONDS": "1"}
    with Site(tmp_path_factory.mktemp("offer"), upstreams, store, settings) as site:
        site.wait_listed(*UPSTREAMS)
        yield site


@pytest.fixture
def mark() -> str:
    """A text that no other call has."""
    return f"mark-{next(_MARKS)}"


@contextlib.asynccontextmanager
async def older(wire: str, site: Site) -> AsyncIterator[DraftClient]:
    async with site.client("ada") as client:
        if wire == LEGACY:
            await speak(client)
        else:
            await client.initialize()
        yield client


async def told(wire: str, site: Site, tool: str, mark: str) -> tuple[dict[str, Any], Notices]:
    """Call a tool, and return its result and what came before that."""
    meta, arguments = {"progressToken": "mine"}, {"mark": mark}
    if wire == RELEASED:
        async with site.user() as user:
            reply = await user.call(tool, arguments, _meta={**meta, f"{META}/logLevel": "debug"})
            return reply.result, reply.notices
    async with older(wire, site) as client:
        answer = await client.complete("tools/call", call_params(tool, arguments, meta=meta))
        return answer.result, list(answer.notices)


@every_upstream
@every_wire
async def test_prompts_templates_and_completions_are_those_of_the_server(
    site: Site, server: Featured, wire: str, upstream: str
) -> None:
    before = len(server.received)
    async with speaking(wire, site, "ada") as call:
        for _ in site.replicas:
            for kind, name in (("prompts", f"{upstream}__greeting"), ("tools", f"{upstream}__report")):
                assert name in {each["name"] for each in (await call(f"{kind}/list", {}))[kind]}
            listed = await call("resources/templates/list", {})
            assert f"{upstream}+item://{{id}}" in {each["uriTemplate"] for each in listed["resourceTemplates"]}
            said = await call("prompts/get", {"name": f"{upstream}__greeting", "arguments": {"name": "Ada"}})
            assert said["messages"][0]["content"]["text"] == "Hello, Ada!"
            for own in ("note://today", "item://7"):
                read = await call("resources/read", {"uri": f"{upstream}+{own}"})
                assert read["contents"] == [{"uri": f"{upstream}+{own}", "text": f"at {own}"}]
            for ref in (
                {"type": "ref/prompt", "name": f"{upstream}__greeting"},
                {"type": "ref/resource", "uri": f"{upstream}+item://{{id}}"},
            ):
                completed = await call("completion/complete", {"ref": ref, "argument": {"name": "id", "value": "A"}})
                assert completed["completion"]["values"] == ["Ada"]
    refs = [params["ref"] for params in server.params("completion/complete", before)]
    prompt, template = {"type": "ref/prompt", "name": "greeting"}, {"type": "ref/resource", "uri": "item://{id}"}
    assert refs == [prompt, template, prompt, template]


@every_upstream
@every_wire
async def test_progress_and_logs_of_a_call_reach_its_client(
    site: Site, server: Featured, mark: str, wire: str, upstream: str
) -> None:
    result, notices = await told(wire, site, f"{upstream}__report", mark)
    assert text_of(result) == f"done {mark}"
    assert _of_call(notices) == [("mine", 1, 2, "half"), ("warning", "said")]
    (session,) = server.calls("report", mark)
    levels = [each["params"]["level"] for name, each in server.received if _is_level_of(name, each, session)]
    assert levels[-1] in {"debug", "info"}, "the most curious call decides"


@every_upstream
@every_wire
async def test_a_tool_that_the_server_runs_as_a_task_is_a_tool(
    site: Site, server: Featured, mark: str, wire: str, upstream: str
) -> None:
    server.open(mark)
    result, notices = await told(wire, site, f"{upstream}__study", mark)
    assert text_of(result) == f"studied {mark}"
    assert _of_call(notices) == [("mine", 1, 2, "half"), ("warning", "said")]
    assert len(server.calls("study", mark)) == 1
    assert [params for params in server.params("tasks/result") if params["taskId"] == mark]


@pytest.mark.parametrize("name", ["http__work", "http__study", "pipe__work", "pipe__study"])
@every_wire
async def test_a_call_that_its_client_cancels_is_cancelled_at_the_server(
    site: Site, server: Featured, mark: str, wire: str, name: str
) -> None:
    params = call_params(name, {"mark": mark})
    if wire == RELEASED:
        async with site.user() as user:
            call = asyncio.create_task(user.send("tools/call", params))
            await asyncio.to_thread(server.wait_begun, mark)
            call.cancel()
            await asyncio.wait([call])
    else:
        async with older(wire, site) as client, under_way(client, "tools/call", params):
            await asyncio.to_thread(server.wait_begun, mark)
            await client.cancel_request(client.sent("tools/call")[-1]["id"])  # at the other replica
    await asyncio.to_thread(server.wait_cancelled, mark)
    assert len(server.calls(name.partition("__")[2], mark)) == 1


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_changed_list_is_announced_by_both_replicas(site: Site, server: Featured, mark: str, kind: str) -> None:
    new = {"name": mark, "uri": f"new://{mark}", "inputSchema": {"type": "object"}}
    await asyncio.to_thread(wait_until, partial(_all_listen, server, 5), "the streams of both replicas")
    async with site.user() as user, contextlib.AsyncExitStack() as stack:
        heard = [
            await stack.enter_async_context(user.listening(url, **{f"{kind}ListChanged": True})) for url in site.urls
        ]
        await asyncio.to_thread(server.change, kind, new)
        for each in heard:
            await each.wait_for(f"notifications/{kind}/list_changed")
        for upstream in UPSTREAMS:
            name = f"{upstream}+new://{mark}" if kind == "resources" else f"{upstream}__{mark}"
            await _until_listed(user, kind, name)


@every_upstream
async def test_a_resource_that_changes_is_announced_until_nobody_listens(
    site: Site, server: Featured, mark: str, upstream: str
) -> None:
    uri = f"item://{mark}"

    def followed(session: Session) -> bool:
        return uri in session.uris

    async with site.user() as user:
        async with contextlib.AsyncExitStack() as stack:
            wanted = [f"{upstream}+{uri}"]
            heard = [
                await stack.enter_async_context(user.listening(url, resourceSubscriptions=wanted)) for url in site.urls
            ]
            await asyncio.to_thread(wait_until, lambda: _count(server, followed) == 2, "both subscriptions")
            await asyncio.to_thread(server.announce, "resources/updated", followed, uri=uri)
            for each in heard:
                (updated,) = await each.wait_for("notifications/resources/updated")
                assert updated["params"]["uri"] == wanted[0]
        await asyncio.to_thread(wait_until, lambda: _count(server, followed) == 0, "the end of the subscriptions")


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != RELEASED])
async def test_older_clients_are_promised_no_changes(site: Site, wire: str) -> None:
    async with older(wire, site) as client:
        offered = client.server["capabilities"]
    assert {"tools", "prompts", "resources", "completions", "logging"} <= offered.keys()
    assert not any(offered[kind].get(name) for kind in offered for name in ("listChanged", "subscribe"))


# In tasks of the gateway, which a worker runs.


@pytest.mark.parametrize(
    "name", [f"{each}__{tool}" for each in UPSTREAMS for tool in ("work_as_task", "study_as_task")]
)
@every_wire
async def test_a_task_runs_in_a_session_of_the_worker(
    site: Site, server: Featured, mark: str, wire: str, name: str
) -> None:
    arguments = {"mark": mark}
    if wire == RELEASED:
        async with site.user() as user:
            task_id = await user.task(name, arguments)
            await asyncio.to_thread(server.wait_begun, mark)
            server.open(mark)
            result = (await user.finish(task_id))["result"]
    else:
        async with older(wire, site) as client:
            task_id = (await client.create_task(name, arguments))["taskId"]
            await asyncio.to_thread(server.wait_begun, mark)
            server.open(mark)
            result = (await client.task_result(task_id)).result
    assert text_of(result) in {f"done {mark}", f"studied {mark}"}
    (session,) = server.calls(name.partition("__")[2], mark)
    in_replicas = {each for tool in ("work", "report", "study") for each in _sessions_of(server, tool)}
    assert session not in in_replicas


@every_upstream
async def test_a_call_that_is_done_soon_is_a_result_and_another_becomes_a_task(
    site: Site, server: Featured, mark: str, upstream: str
) -> None:
    async with site.user() as user:
        server.open(f"{mark}-quick")
        assert (await user.call(f"{upstream}__work_sooner", {"mark": f"{mark}-quick"})).text == f"done {mark}-quick"
        slow = await user.send("tools/call", call_params(f"{upstream}__work_sooner", {"mark": mark}))
        assert slow.result["resultType"] == "task"
        server.open(mark)
        assert text_of((await user.finish(slow.result["taskId"]))["result"]) == f"done {mark}"
    assert len(server.calls("work_sooner", mark)) == 1


@pytest.mark.parametrize("tool", ["work_as_task", "study_as_task"])
@every_upstream
async def test_a_task_that_is_cancelled_is_cancelled_at_the_server(
    site: Site, server: Featured, mark: str, upstream: str, tool: str
) -> None:
    async with site.user() as user:
        task_id = await user.task(f"{upstream}__{tool}", {"mark": mark})
        await asyncio.to_thread(server.wait_begun, mark)
        await user.send("tasks/cancel", {"taskId": task_id})
        await asyncio.to_thread(server.wait_cancelled, mark)
        assert (await user.finish(task_id))["status"] == "cancelled"
    assert len(server.calls(tool, mark)) == 1


@pytest.mark.parametrize("tool", ["work_as_task", "study_as_task"])
@every_upstream
async def test_a_worker_that_is_killed_leaves_a_task_that_may_have_acted_and_is_not_run_again(
    site: Site, server: Featured, mark: str, upstream: str, tool: str
) -> None:
    async with site.user() as user:
        task_id = await user.task(f"{upstream}__{tool}", {"mark": mark})
        await asyncio.to_thread(server.wait_begun, mark)
        worker = site.worker("w1")
        await asyncio.to_thread(worker.kill)
        await asyncio.to_thread(worker.restart)
        task = await user.finish(task_id)
    assert "It may have acted" in str(task)
    assert len(server.calls(tool, mark)) == 1


@every_upstream
async def test_a_worker_that_drains_lets_a_task_end(site: Site, server: Featured, mark: str, upstream: str) -> None:
    async with site.user() as user:
        task_id = await user.task(f"{upstream}__work_as_task", {"mark": mark})
        await asyncio.to_thread(server.wait_begun, mark)
        worker = site.worker("w1")
        draining = asyncio.create_task(asyncio.to_thread(worker.terminate))
        try:
            server.open(mark)
            assert text_of((await user.finish(task_id))["result"]) == f"done {mark}"
        finally:
            await draining
            await asyncio.to_thread(worker.restart)
    assert len(server.calls("work_as_task", mark)) == 1


@every_upstream
async def test_tasks_of_more_callers_than_a_worker_has_connections_wait_for_one(
    site: Site, server: Featured, mark: str, upstream: str
) -> None:
    marks = {name: f"{mark}-{name}" for name in ("ada", "bob", "eve")}
    async with contextlib.AsyncExitStack() as stack:
        tasks = {}
        for name, own in marks.items():
            user = await stack.enter_async_context(site.user(name))
            tasks[name] = user, await user.task(f"few-{upstream}__work_as_task", {"mark": own})
        began = [marks[name] for name in marks if await _begins(server, marks[name])]
        assert len(began) == 2
        for own in marks.values():
            server.open(own)
        results = [text_of((await user.finish(task_id))["result"]) for user, task_id in tasks.values()]
    assert results == [f"done {own}" for own in marks.values()]
    sessions = [server.calls("work_as_task", own) for own in marks.values()]
    assert [len(each) for each in sessions] == [1, 1, 1], "nothing ran twice"
    assert len({name for (name,) in sessions}) == 3, "nobody used the session of another one"
    await asyncio.to_thread(
        wait_until, lambda: not {name for (name,) in sessions} & set(server.sessions), "their end, as they are idle"
    )


async def _begins(server: Featured, mark: str) -> bool:
    """Return whether a call begins soon."""
    with contextlib.suppress(ClusterError):
        await asyncio.to_thread(wait_until, lambda: mark in server.begun, "the call", SOON_SECONDS)
        return True
    return False


def _of_call(notices: Notices) -> list[tuple[Any, ...]]:
    names = {"progress": ("progressToken", "progress", "total", "message"), "message": ("level", "data")}
    kinds = [(notice["method"].rpartition("/")[2], notice["params"]) for notice in notices]
    return [tuple(params.get(name) for name in names[kind]) for kind, params in kinds]


def _is_level_of(name: str, message: Any, session: str) -> bool:
    return name == session and message.get("method") == "logging/setLevel"


def _sessions_of(server: Featured, tool: str) -> set[str]:
    return {
        session
        for session, message in list(server.received)
        if message.get("method") == "tools/call" and message["params"]["name"] == tool
    }


def _count(server: Featured, wanted: Any) -> int:
    return sum(wanted(session) for session in list(server.sessions.values()))


def _all_listen(server: Featured, count: int) -> bool:
    return sum(session.aside is not None for session in list(server.sessions.values())) >= count


async def _until_listed(user: User, kind: str, name: str) -> None:
    async with asyncio.timeout(user.seconds):
        while name not in await user.names(kind):
            pass  # each look is a request
