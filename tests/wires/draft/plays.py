"""The longer examples of the proposals, played from their first request to their last."""

from __future__ import annotations

from tests.wires.draft.client import DraftClient
from tests.wires.draft.written import Example, Said

ECHO_ID = "echo_dc792e24-01b5-4c0a-abcb-0559848ca3c5"
"""The task of the example of the echo tool."""


async def get_weather(client: DraftClient) -> list[Said]:
    """Play the call that asks once."""
    weather = Example("mrtr_get_weather")
    first = await weather.send(client, "the first leg asks")
    weather.live["foo"] = first.response["result"]["requestState"]
    said = [first, await weather.send(client, "the retry is complete")]
    weather.check_complete()
    return said


async def update_work_item(client: DraftClient) -> list[Said]:
    """Play the call whose first answer makes it ask again."""
    work_item = Example("mrtr_update_work_item")
    first = await work_item.send(client, "round 1: the first rule asks for the resolution")
    second = await work_item.send(client, "round 2: the resolution makes the second rule ask")
    work_item.live["eyJyZXNvbHV0aW9uIjoiRHVwbGljYXRlIn0..."] = second.response["result"]["requestState"]
    said = [first, second, await work_item.send(client, "final: the update is complete")]
    work_item.check_complete()
    return said


async def echo_task(client: DraftClient) -> list[Said]:
    """Play the twelve steps of the task that asks."""
    echo = Example("mrtr_echo_task")
    said = [await echo.send(client, "steps 1 and 2: the call becomes a task")]
    task_id = echo.live[ECHO_ID] = said[0].response["result"]["task"]["taskId"]
    await client.poll(task_id, lambda task: task["status"] == "input_required")
    said.append(await echo.send(client, "steps 3 and 4: polling shows that input is required"))
    said.append(await echo.send(client, "steps 5 and 6: tasks/result tells the questions"))
    said.append(await echo.send(client, "steps 7 and 8: the answers are acknowledged"))
    await client.poll(task_id, lambda _task: False)
    said.append(await echo.send(client, "steps 9 and 10: polling shows that the task is completed"))
    said.append(await echo.send(client, "steps 11 and 12: tasks/result tells the result"))
    echo.check_complete()
    return said
