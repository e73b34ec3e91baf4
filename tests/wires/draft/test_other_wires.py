"""A stored task is available on every wire of its owner. Each wire writes it in its own format."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import Replica
from tests.integration.raw import META_CAPABILITIES, META_VERSION, VERSION, Answer, post, request
from tests.storage.servers import Server
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import AUDIENCE, SECRET, Deployment
from tests.wires.draft.first_form import (
    ClientOf,
    call,
    leave,
    poll,
    status_of,
    until_unknown,
)
from tests.wires.draft.messages import RELATED_TASK, accept
from tests.wires.draft.transport import RpcError
from tests.wires.draft.under_way import damaged, idle, under_way, unreadable
from tests.wires.legacy.speaking import LEGACY, asked, speak

pytestmark = pytest.mark.slow

TASKS: Final = "io.modelcontextprotocol/tasks"
META: Final = {META_VERSION: VERSION, META_CAPABILITIES: {"elicitation": {}, "extensions": {TASKS: {}}}}
DAY_MS: Final = 86_400_000

PHASES: Final = ("queued", "running", "waiting", "result", "own error", "error", "cancelled", "unreadable")

STATUSES: Final = {
    "2026-07-28": "working working input_required completed completed failed cancelled failed",
    "params.task": "working working input_required completed failed failed cancelled failed",
    "2025-11-25": "working working input_required completed failed failed cancelled failed",
    "first form": "submitted working input_required completed completed failed cancelled unknown",
}
TOLD: Final = {words: dict(zip(PHASES, told.split(), strict=True)) for words, told in STATUSES.items()}
"""Words → phase of a task → its status."""


class Wire(Protocol):
    """The work of one user with tasks on one wire."""

    async def create(self, tool: str, /, **arguments: Any) -> str: ...

    async def status(self, task_id: str) -> str: ...

    async def questions(self, task_id: str) -> Mapping[str, Any]: ...

    async def answer(self, task_id: str, key: str, **content: Any) -> None: ...

    async def cancel(self, task_id: str) -> None: ...

    async def outcome(self, task_id: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Released:
    """Tasks on the wire of 2026-07-28."""

    principal: str
    replicas: list[Replica]

    def ask(self, method: str, **params: Any) -> Answer:
        """Send a request to a replica, each time to another one."""
        self.replicas.append(self.replicas.pop(0))
        message = request(method, {**params, "_meta": META})
        return post(self.replicas[0], message, token=mint(SECRET, self.principal, AUDIENCE))

    async def create(self, tool: str, /, **arguments: Any) -> str:
        return str(self.ask("tools/call", name=tool, arguments=arguments).result["taskId"])

    async def get(self, task_id: str) -> dict[str, Any]:
        return self.ask("tasks/get", taskId=task_id).result

    async def status(self, task_id: str) -> str:
        return str((await self.get(task_id))["status"])

    async def questions(self, task_id: str) -> Mapping[str, Any]:
        asked: Mapping[str, Any] = (await self.get(task_id))["inputRequests"]
        return asked

    async def answer(self, task_id: str, key: str, **content: Any) -> None:
        self.ask("tasks/update", taskId=task_id, inputResponses={key: accept(**content)})

    async def cancel(self, task_id: str) -> None:
        assert self.ask("tasks/cancel", taskId=task_id).result["resultType"] == "complete"

    async def outcome(self, task_id: str) -> Any:
        task = await self.get(task_id)
        return task.get("result") or task.get("error")


@dataclass(frozen=True, slots=True)
class Draft:
    """Tasks on the draft wire, which are ordered with `params.task`."""

    client: DraftClient

    async def create(self, tool: str, /, **arguments: Any) -> str:
        return str((await self.client.create_task(tool, arguments))["taskId"])

    async def status(self, task_id: str) -> str:
        return await status_of(self.client, task_id)

    async def questions(self, task_id: str) -> Mapping[str, Any]:
        return await self.client.pending_questions(task_id)

    async def answer(self, task_id: str, key: str, **content: Any) -> None:
        await self.client.answer_task(task_id, {key: {"result": accept(**content)}})

    async def cancel(self, task_id: str) -> None:
        assert (await self.client.cancel_task(task_id))["status"] == "cancelled"

    async def outcome(self, task_id: str) -> Any:
        try:
            return (await self.client.task_result(task_id)).result
        except RpcError as error:
            return {"code": error.code, "message": error.message}


class FirstForm(Draft):
    """Tasks on the draft wire that the client names."""

    async def create(self, tool: str, /, **arguments: Any) -> str:
        task_id = f"first-{self.client.next_id()}"
        await leave(self.client, tool, task_id, **arguments)
        return task_id


class Legacy(Draft):
    """Tasks on the wire of 2025-11-25, where they ask on the stream that waits for their result."""

    async def spoken(self) -> DraftClient:
        """Return the client, in a session."""
        if self.client.transport.headers.get("MCP-Protocol-Version") != LEGACY:
            await speak(self.client)
        return self.client

    async def create(self, tool: str, /, **arguments: Any) -> str:
        await self.spoken()
        return await super().create(tool, **arguments)

    async def status(self, task_id: str) -> str:
        await self.spoken()
        return await super().status(task_id)

    @contextlib.asynccontextmanager
    async def asking(self, task_id: str) -> AsyncIterator[Mapping[str, Any]]:
        """Wait for the result, and return its questions by their keys, which this format does not contain."""
        client = await self.spoken()
        async with under_way(client, "tasks/result", {"taskId": task_id}) as waiting:
            await asked(waiting)
            await client.get_task(task_id)  # what was sent together with the first question has come by then
            yield {KEYS[one["params"]["message"]]: one for one in waiting.messages if "id" in one}

    async def questions(self, task_id: str) -> Mapping[str, Any]:
        async with self.asking(task_id) as questions:
            return questions

    async def answer(self, task_id: str, key: str, **content: Any) -> None:
        async with self.asking(task_id) as questions:
            await self.client.respond(questions[key]["id"], {"result": accept(**content)})

    async def cancel(self, task_id: str) -> None:
        await self.spoken()
        await super().cancel(task_id)

    async def outcome(self, task_id: str) -> Any:
        await self.spoken()
        return await super().outcome(task_id)


MAKERS: Final = ("2026-07-28", "params.task", "first form", "2025-11-25")
READERS: Final = ("2026-07-28", "draft", "2025-11-25")
KEYS: Final = {"Who are you?": "form", "And who is with you?": "other_form"}
PAIRS: Final = [(maker, reader) for maker in MAKERS for reader in READERS]


def words(maker: str, reader: str) -> str:
    """Return the wire whose format a task has: the draft wire has two, and keeps the one it was created in."""
    if reader != "draft":
        return reader
    return maker if maker == "first form" else "params.task"


def speaker(wire: str, client_of: ClientOf, principal: str, replicas: Sequence[Replica]) -> Wire:
    """Return a user on one wire, who turns to these replicas in turn."""
    if wire == "2026-07-28":
        return Released(principal, list(replicas))
    client = client_of(principal, urls=[replica.url for replica in replicas])
    if wire == "2025-11-25":
        return Legacy(client)
    return FirstForm(client) if wire == "first form" else Draft(client)


async def ended(user: DraftClient, task_id: str) -> None:
    await user.poll(task_id, lambda _task: False)


@dataclass(frozen=True, slots=True)
class Sides:
    """A user on the wire where a task is made, and on the one where it is read.

    Attributes:
        words: the wire whose format the task has where it is read.
        reader: the name of the wire where it is read.
    """

    made: Wire
    read: Wire
    words: str
    reader: str


@pytest.fixture(params=PAIRS, ids=" read on ".join)
def sides(fleet: Deployment, client_of: ClientOf, name: str, request: pytest.FixtureRequest) -> Sides:
    maker, reader = request.param
    made, read = (speaker(wire, client_of, name, fleet.replicas) for wire in (maker, reader))
    return Sides(made, read, words(maker, reader), reader)


async def test_a_task_is_read_on_every_wire(
    fleet: Deployment, client_of: ClientOf, redis: Server, name: str, sides: Sides
) -> None:
    made, read, gate, user = sides.made, sides.read, f"gate-{name}", client_of(name)
    ids = {}
    with idle(fleet.worker("w1")):
        ids["queued"] = await made.create("wait", gate=gate)
        seen = {"queued": await read.status(ids["queued"])}
    fleet.wait_for_lines(f"started-{gate}")
    seen["running"] = await read.status(ids["queued"])
    fleet.open(gate)
    ids["waiting"] = await made.create("ask", call=name, kinds=["form"])
    ids["cancelled"] = await made.create("ask", call=name, kinds=["form"])
    await made.cancel(ids["cancelled"])
    await poll(user, ids["waiting"], "input_required")
    ids["result"] = await made.create("say", call=name)
    ids["own error"] = await made.create("err")
    ids["error"] = await made.create("refuse")
    for phase in ("result", "own error", "error"):
        await ended(user, ids[phase])
    for phase in ("waiting", "result", "own error", "error", "cancelled"):
        seen[phase] = await read.status(ids[phase])
    with unreadable(redis, ids["result"]):
        seen["unreadable"] = await read.status(ids["result"])
    await user.cancel_task(ids["waiting"])
    assert seen == TOLD[sides.words]
    assert (await read.outcome(ids["result"]))["content"] == [{"type": "text", "text": "done"}]
    assert (await read.outcome(ids["own error"]))["isError"] is True
    error = await read.outcome(ids["error"])
    if sides.words == "first form":
        assert error["message"] == "Cannot retrieve result: Task status is 'failed', not 'completed'"
    else:
        assert error == {"code": -32000, "message": "Tool execution failed: API rate limit exceeded"}


DAMAGE: Final = (
    ("about", "{"),
    ("about", None),
    ("about", '{"v": 99}'),
    ("phase", "paused"),
    ("phase", None),
    ("created", "x"),
    ("updated", "9" * 15),
    ("expires", "-1"),
    ("generation", None),
    ("ended", "x"),
)
"""Fields, each with a value (None for none) that makes the record of a task that has ended unreadable."""


async def test_a_damaged_record_is_shown_on_every_wire_and_leaves_other_tasks_alone(
    redis: Server, user: DraftClient, name: str, sides: Sides
) -> None:
    made, read = sides.made, sides.read
    task_id = await made.create("say", call=name)
    await ended(user, task_id)
    other = await made.create("ask", call=name, kinds=["form"])
    await poll(user, other, "input_required")
    for field, value in DAMAGE:
        with damaged(redis, task_id, field, value):
            shown = {task_id: TOLD[sides.words]["unreadable"], other: "input_required"}
            assert {each: await read.status(each) for each in shown} == shown, field
            if isinstance(read, Draft):
                assert {task["taskId"]: task["status"] for task in await read.client.all_tasks()} == shown, field
            error = await read.outcome(task_id)
            if sides.words == "first form":
                assert error["message"] == "Cannot retrieve result: Task status is 'unknown', not 'completed'", field
            else:
                assert error == {"code": -32603, "message": "The task cannot be read"}, field
            if read is not made and isinstance(read, Draft):
                assert set(await read.questions(other)) == {"form"}
    assert await read.status(task_id) == TOLD[sides.words]["result"]
    await made.answer(other, "form", name="Ada")
    await poll(user, other, "completed")


async def test_a_task_is_answered_on_every_wire(user: DraftClient, name: str, sides: Sides) -> None:
    """One question where it is read, one where the task was made; what is answered is asked nowhere any more."""
    made, read = sides.made, sides.read
    task_id = await made.create("ask", call=name, kinds=["form", "other_form"])
    await poll(user, task_id, "input_required")
    assert set(await read.questions(task_id)) == set(await made.questions(task_id)) == {"form", "other_form"}
    await read.answer(task_id, "form", name="Ada")
    assert set(await read.questions(task_id)) == set(await made.questions(task_id)) == {"other_form"}
    await made.answer(task_id, "other_form", name="Bob")
    await poll(user, task_id, "completed")
    result = await read.outcome(task_id)
    assert result["content"][0]["text"] == "form: Ada, other_form: Bob"


async def test_a_task_is_cancelled_on_every_wire(fleet: Deployment, gate: str, sides: Sides) -> None:
    made, read = sides.made, sides.read
    task_id = await made.create("wait", gate=gate)
    fleet.wait_for_lines(f"started-{gate}")
    await read.cancel(task_id)
    assert await made.status(task_id) == await read.status(task_id) == "cancelled"
    fleet.wait_for_lines(f"cancelled-{gate}")
    outcome = await read.outcome(task_id)
    if sides.words in {"params.task", "2025-11-25"}:
        assert outcome["isError"] is True
        assert outcome["_meta"] == {RELATED_TASK: {"taskId": task_id}}
    elif sides.words == "first form":
        assert outcome["message"] == "Cannot retrieve result: Task status is 'cancelled', not 'completed'"


async def test_the_request_of_a_first_form_task_is_answered_when_it_is_cancelled_on_another_wire(
    fleet: Deployment, user: DraftClient, name: str, gate: str
) -> None:
    async with call(user, "wait", name, gate=gate) as waiting:
        await waiting.created()
        await Released(name, list(fleet.replicas)).cancel(name)
        assert (await waiting.response())["result"]["isError"] is True
    assert await status_of(user, name) == "cancelled"


async def test_a_tools_own_error_is_told_as_each_wire_tells_it(
    fleet: Deployment, client_of: ClientOf, name: str
) -> None:
    told = {}
    for maker in MAKERS:
        made = speaker(maker, client_of, name, fleet.replicas)
        task_id = await made.create("err")
        await ended(client_of(name), task_id)
        told[maker] = await made.status(task_id)
        result = await made.outcome(task_id)
        assert (result["isError"], result["content"][0]["text"]) == (True, "There is no such city")
    assert told == {
        "2026-07-28": "completed",
        "params.task": "failed",
        "first form": "completed",
        "2025-11-25": "failed",
    }


async def test_a_keep_alive_task_has_a_time_to_live_elsewhere(
    fleet: Deployment, user: DraftClient, name: str, gate: str
) -> None:
    """Its maximum while it runs, then the time from its creation to its end and what it is kept from then on."""
    released = Released(name, list(fleet.replicas))
    async with call(user, "wait", "kept", 2000, gate=gate) as request:
        await request.created()
        before = await released.get("kept")
        fleet.open(gate)
        await request.response()
    after = await released.get("kept")
    assert (before["status"], before["ttlMs"]) == ("working", DAY_MS)
    assert after["status"] == "completed"
    assert 2000 <= after["ttlMs"] < DAY_MS
    await until_unknown(user, "kept")
    assert released.ask("tasks/get", taskId="kept").error == (400, -32602)


async def test_the_released_wire_answers_with_one_response_and_its_own_words(
    fleet: Deployment, user: DraftClient, name: str, gate: str
) -> None:
    released = Released(name, list(fleet.replicas))
    told = [[1, 2, "one"]]
    await leave(user, "climb", "climbing", gate=gate, told=told)
    await leave(user, "ask", "asking", call=name, kinds=["form"])
    fleet.open(f"{gate}-0")
    await user.poll("climbing", lambda task: "progressTotal" in task)
    await poll(user, "asking", "input_required")
    climbing, asking = await released.get("climbing"), await released.get("asking")
    draft_words = {"keepAlive", "pollFrequency", "progress", "progressTotal", "partial-content", "ttl", "pollInterval"}
    for task in (climbing, asking):
        assert not draft_words & set(task)
        assert task["resultType"] == "complete"
        assert not any("related-task" in key for key in task["_meta"])
    assert set(asking["inputRequests"]) == {"form"}
    asked = released.ask("tools/call", name="ask", arguments={"call": name, "kinds": ["form"]}, task={})
    assert asked.result["resultType"] == "task"
    for meta in ({"modelcontextprotocol.io/task": {"taskId": "mine"}}, {}):
        wanted = request("tools/call", {"name": "plain", "arguments": {}, "_meta": {**META, **meta}})
        wanted["params"]["task"] = {"responseModes": ["streaming"]}
        answer = post(fleet.replicas[0], wanted, token=mint(SECRET, name, AUDIENCE))
        assert answer.headers["content-type"] == "application/json"
        assert answer.result["content"] == [{"type": "text", "text": "plain"}]
    for method in ("tasks/result", "tasks/list", "tasks/delete", "tasks/input_response"):
        assert released.ask(method, taskId="climbing").error == (404, -32601)
    fleet.open(gate)
    for task_id in ("asking", str(asked.result["taskId"])):
        await user.cancel_task(task_id)
