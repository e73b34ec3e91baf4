"""Each JSON request of the proposals is sent as it is written, and answered as they say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from tests.proposals.examples import NAMES
from tests.wires.draft import plays
from tests.wires.draft.client import DraftClient
from tests.wires.draft.deployment import Deployment
from tests.wires.draft.messages import FIRST_FORM_TASK, TERMINAL, Result
from tests.wires.draft.transport import Message
from tests.wires.draft.written import Example, Said, call, say, text_of

pytestmark = pytest.mark.slow

TASK: Final = "786512e2-9e0d-44bd-8f29-789f320fe840"
"""The task of most examples. Its client has chosen the id, so it is the same here."""

COMPLETED_TASK: Final = "abc123-def456-ghi789"
PAGE: Final = 100
AT_ONCE: Final = 10
"""How many tasks are created side by side."""

Play = Callable[[Deployment, DraftClient, str], Awaitable[None]]
"""Plays an example to its end, given the replicas, a client of a new user, and a name that nobody uses."""


def first_form(task_id: str, keep_alive: float = 60_000) -> dict[str, Any]:
    """Return the parameters that make a task of a request."""
    return {"_meta": {FIRST_FORM_TASK: {"taskId": task_id, "keepAlive": keep_alive}}}


async def told(client: DraftClient, request_id: int, method: str, params: Result) -> Said:
    """Send a request that an example leaves out, under the id that the example's answer has."""
    return await say(client, {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


async def start(client: DraftClient, task_id: str, tool: str, **arguments: Any) -> None:
    """Make a task of a call, and leave as soon as it is there."""
    async with client.asking("tools/call", call(tool, **arguments) | first_form(task_id)) as (_, exchange):
        created = await anext(exchange.messages)
    assert created["method"] == "notifications/tasks/created"


async def until(client: DraftClient, task_id: str, status: str) -> None:
    assert (await client.poll(task_id, lambda task: task["status"] == status))["status"] == status


async def play_get_weather(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    await plays.get_weather(user)


async def play_update_work_item(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    await plays.update_work_item(user)


async def play_echo_task(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    await plays.echo_task(user)


async def play_input_requests(_fleet: Deployment, user: DraftClient, name: str) -> None:
    example = Example("mrtr_input_requests")
    wanted = call("ask", call=name, kinds=["github_login", "capital_of_france"])
    example.compare("input requests", await user.request("tools/call", wanted))
    answered = await user.request("tools/call", wanted | example.object("input responses"))
    assert text_of(answered) == "github_login: octocat, capital_of_france: The capital of France is Paris."
    example.check_complete()


async def play_missing_information(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("mrtr_missing_information")
    await example.send(user, "ephemeral: a retry without what is needed is asked again")
    task_id = example.live[plays.ECHO_ID] = (await user.create_task("echo"))["taskId"]
    await until(user, task_id, "input_required")
    await example.send(user, "persistent: an answer without what is needed is acknowledged")
    await until(user, task_id, "input_required")
    example.check_complete()


async def play_task_progress(fleet: Deployment, user: DraftClient, name: str) -> None:
    example = Example("task_progress")
    steps = [[6, 7, "Reticulating splines..."]]
    task = await user.create_task("climb", {"gate": name, "told": steps}, ttl=30_000)
    example.live["bdc2fd8b-442e-40ff-abdb-f33986513750"] = task["taskId"]
    fleet.open(f"{name}-0")
    example.compare("a task with its progress", await user.poll(task["taskId"], lambda task: "progress" in task))
    fleet.open(name)
    example.check_complete()


async def play_create(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("tasks_create", {TASK: TASK})
    said = await example.send_call(user, "a request becomes a task", "weather", {"city": "New York"})
    assert "notifications/tasks/created" in [message["method"] for message in said.before]
    assert text_of(said.response["result"]).startswith("Current weather in New York")
    assert (await user.list_tasks())["tasks"][0]["taskId"] == TASK

    example.live[TASK] = "another"
    metadata = example.object("the metadata of such a request")
    await user.request("tools/call", call("weather", city="Paris") | {"_meta": metadata})
    assert {task["taskId"] for task in await user.all_tasks()} == {TASK, "another"}
    example.check_complete()


async def play_created_notification(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("tasks_created_notification", {TASK: TASK})
    said = await told(user, 1, "tools/call", call("weather", city="New York") | first_form(TASK))
    created = said.before[0]
    example.compare("a task was created", created)
    example.compare("a task was created, as in the data types", created)
    example.compare("the metadata of whatever belongs to a task", created["params"]["_meta"])
    example.compare("the metadata of whatever belongs to a task", said.response["result"]["_meta"])
    example.check_complete()


async def play_get(fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("tasks_get", {TASK: TASK})
    worker = fleet.worker("w1")
    worker.pause()
    try:
        await start(user, TASK, "weather", city="New York")
        await example.send(user, "the state of a task")
    finally:
        worker.resume()
    await until(user, TASK, "completed")
    example.check_complete()


async def play_result(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("tasks_result", {TASK: TASK})
    await user.request("tools/call", call("weather", city="New York") | first_form(TASK))
    await example.send(user, "the result of a completed task")
    example.check_complete()


async def play_list(fleet: Deployment, user: DraftClient, name: str) -> None:
    """Those that are kept the shortest are listed first: a page of others, then the example's page, then one more."""
    await create(user, PAGE, ttl=500_000)
    await user.request("tools/call", call("weather", city="New York") | first_form(COMPLETED_TASK, 600_000))
    await create(user, PAGE - 2, ttl=700_000)
    for task_id in (TASK, f"{TASK}-2"):
        await start(user, task_id, "wait", gate=name)
        await until(user, task_id, "working")

    example = Example("tasks_list", {TASK: TASK, COMPLETED_TASK: COMPLETED_TASK})
    first_page = await user.list_tasks()
    example.live["optional-cursor-value"] = first_page["nextCursor"]
    said = await example.send(user, "a page of a list")
    assert len(said.response["result"]["tasks"]) == PAGE
    fleet.open(name)
    example.check_complete()


async def create(user: DraftClient, count: int, *, ttl: float) -> None:
    """Create tasks that end at once."""
    places = asyncio.Semaphore(AT_ONCE)

    async def create_one() -> None:
        async with places:
            await user.create_task("weather", {"city": "New York"}, ttl=ttl)

    await asyncio.gather(*(create_one() for _ in range(count)))


async def play_delete(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("tasks_delete", {TASK: TASK})
    await user.request("tools/call", call("weather", city="New York") | first_form(TASK))
    await example.send(user, "a task is deleted")
    assert await user.all_tasks() == []
    example.check_complete()


async def play_errors(fleet: Deployment, user: DraftClient, name: str) -> None:
    example = Example("tasks_errors", {TASK: TASK})

    async def compare(step: str, request_id: int, method: str, params: Result) -> Message:
        response = (await told(user, request_id, method, params)).response
        example.compare(step, response)
        message: Message = response["error"]
        return message

    unknown = await compare("task not found", 70, "tasks/get", {"taskId": TASK})
    assert unknown["message"] == "Failed to retrieve task: Task not found"

    await user.request("tools/call", call("weather", city="New York") | first_form("short-lived", 1))
    while await user.all_tasks():  # noqa: ASYNC110 - the store's clock has no other hands
        await asyncio.sleep(0.02)
    assert await compare("task expired", 71, "tasks/get", {"taskId": "short-lived"}) == unknown

    await start(user, TASK, "wait", gate=name)
    await until(user, TASK, "working")
    early = await compare("result requested for incomplete task", 72, "tasks/result", {"taskId": TASK})
    assert early["message"] == "Cannot retrieve result: Task status is 'working', not 'completed'"
    taken = await compare("duplicate task ID", 73, "tools/call", call("weather", city="Paris") | first_form(TASK))
    assert taken["message"] == f"Task ID already exists: {TASK}"
    fleet.open(name)
    example.check_complete()


async def play_failed(_fleet: Deployment, user: DraftClient, _name: str) -> None:
    example = Example("tasks_failed", {TASK: TASK})
    await start(user, TASK, "refuse")
    await user.poll(TASK, lambda task: task["status"] in TERMINAL)
    said = await told(user, 4, "tasks/get", {"taskId": TASK})
    example.compare("a task with an execution error", said.response)
    assert said.response["result"]["error"] == "Tool execution failed: API rate limit exceeded"
    example.check_complete()


PLAYS: Final[dict[str, Play]] = {
    "mrtr_echo_task": play_echo_task,
    "mrtr_get_weather": play_get_weather,
    "mrtr_input_requests": play_input_requests,
    "mrtr_missing_information": play_missing_information,
    "mrtr_update_work_item": play_update_work_item,
    "task_progress": play_task_progress,
    "tasks_create": play_create,
    "tasks_created_notification": play_created_notification,
    "tasks_delete": play_delete,
    "tasks_errors": play_errors,
    "tasks_failed": play_failed,
    "tasks_get": play_get,
    "tasks_list": play_list,
    "tasks_result": play_result,
}

TOLD_IN_WORDS: Final = {
    "mrtr_load_shedding": "tests/wires/draft/test_rounds.py::test_use_case_2_load_shedding",
    "mrtr_rolling_upgrade": "tests/wires/draft/test_rounds.py::test_use_case_1_rolling_upgrades",
}
"""Examples without a message, and the tests that cover them."""

OF_OTHER_TOOLS: Final = {
    "modes_capabilities": "tests/wires/draft/test_modes.py",
    "modes_immediate": "tests/wires/draft/test_modes.py",
    "modes_task": "tests/wires/draft/test_modes.py",
    "streaming_events": "tests/wires/draft/test_streaming.py",
    "streaming_resume": "tests/wires/draft/test_streaming.py",
}
"""Examples that call another `get_weather` than those above, and the tests that play them with a tool like it."""


@pytest.mark.parametrize("example_name", PLAYS)
async def test_a_request_is_answered_as_its_example_is(
    fleet: Deployment, user: DraftClient, name: str, example_name: str
) -> None:
    await PLAYS[example_name](fleet, user, name)


def test_each_example_is_played_here_or_elsewhere() -> None:
    assert sorted([*PLAYS, *TOLD_IN_WORDS, *OF_OTHER_TOOLS]) == NAMES


@pytest.mark.parametrize("example_name", TOLD_IN_WORDS)
def test_an_example_in_words_has_nothing_to_send(example_name: str) -> None:
    Example(example_name).check_complete()
