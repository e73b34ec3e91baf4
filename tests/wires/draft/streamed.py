"""Calls that list their response modes, and what their answers have in them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import is_response
from tests.wires.draft.transport import Message
from tests.wires.draft.under_way import UnderWay
from tests.wires.draft.written import call

EXAMPLE_ID = "786512e2-9e0d-44bd-8f29-789f320fe840"
"""The task of the examples of SEP-1905."""


def wishing(modes: Any, tool: str, /, *, ttl: int | None = None, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a call as a task that lists its modes; `...` for none."""
    task = {**({} if modes is ... else {"responseModes": modes}), **({} if ttl is None else {"ttl": ttl})}
    return {**call(tool, **arguments), "task": task}


def with_links(value: Any) -> Any:
    """Return a part of an example whose blocks of the type video, which no revision has, are links to resources."""
    if isinstance(value, list):
        return [with_links(element) for element in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "video":
        rest = {name: member for name, member in value.items() if name not in {"text", "url"}}
        return {**rest, "type": "resource_link", "name": value["text"], "uri": value["url"]}
    return {name: with_links(member) for name, member in value.items()}


def results(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the results of the responses among some messages."""
    return [message["result"] for message in messages if is_response(message)]


def numbers(*told: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the segments of results, in the order in which they came."""
    return [block["seqNr"] for result in told for block in result.get("partial-content", ())]


async def segment(request: UnderWay, number: int) -> Message:
    """Wait for a segment, and return the response that has it."""
    return await request.until(lambda message: is_response(message) and number in numbers(message["result"]))


async def only_task(client: DraftClient) -> str:
    """Wait until the user has a task, and return the id of the only one."""
    async with asyncio.timeout(client.seconds):
        while not (tasks := await client.all_tasks()):
            await client.wait_between_polls({})
    (task,) = tasks
    return str(task["taskId"])
