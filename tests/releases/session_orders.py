"""Every kind of call and task in sessions and on the draft wire, each followed to the end that it must have."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from tests.releases.account import Order
from tests.releases.buyers import (
    NOTHING_RAN,
    Buyer,
    Wrong,
    expect,
    expect_all,
    insist,
    texts,
)
from tests.releases.kinds import (
    BOUGHT,
    BUILT,
    LEAVING,
    PARTS,
    STOCK,
    bought,
    built,
    kind,
)
from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import VERSION as DRAFT
from tests.wires.draft.messages import answer_to, call_params, is_response
from tests.wires.draft.transport import HttpError, Message, ProtocolError, RpcError
from tests.wires.draft.under_way import UnderWay, under_way
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY

# Sessions.


@kind("session 2025-11-25", "quote", asks=False)
async def session(buyer: Buyer, order: Order, version: str = LEGACY) -> None:
    async with buyer.session(order, version) as client:
        result = await client.call_tool("quote", {"order": order.call})
    expect(texts(result), [buyer.receipt(order)])


kind("session 2025-06-18", "quote", asks=False)(partial(session, version=BEFORE_TASKS))


@kind("held call 2025-11-25", *BOUGHT, early=frozenset({"look up"}))
async def held_call(buyer: Buyer, order: Order, version: str = LEGACY) -> None:
    """Answer at any replica; if the one in which the call waits is replaced, call again."""
    async with buyer.session(order, version) as client:
        while True:
            async with under_way(client, "tools/call", call_params("buy", {"order": order.call})) as request:
                result = await hold(buyer, client, order, request)
                if not result.get("isError"):
                    expect(texts(result), bought(buyer, order))
                    return
                expect(texts(result), [LEAVING])
                order.end_early(request.headers["x-gateway-replica"])


kind("held call 2025-06-18", *BOUGHT, early=frozenset({"look up"}))(partial(held_call, version=BEFORE_TASKS))


async def hold(buyer: Buyer, client: DraftClient, order: Order, request: UnderWay) -> dict[str, Any]:
    """Answer what a call asks until it ends, and return its result."""
    seen: list[str] = []
    refused: Exception | None = None

    def is_next(message: Message) -> bool:
        return is_response(message) or ("id" in message and message["id"] not in seen)

    while not is_response(message := await request.until(is_next)):
        seen.append(message["id"])
        answer = await answer_to(message, buyer.answers(order))
        if not any(map(is_response, request.messages)):
            try:
                await client.respond(message["id"], answer)
            except (RpcError, HttpError, ProtocolError) as error:
                refused = error  # the call has just ended, and must say so
    result: dict[str, Any] = (await request.response())["result"]
    if refused and not result.get("isError"):
        raise Wrong(f"an answer was refused though its call went on: {refused}")
    return result


@kind("cancelled request", "cancelled", asks=False)
async def cancelled_request(buyer: Buyer, order: Order) -> None:
    async with (
        buyer.session(order, LEGACY) as client,
        under_way(client, "tools/call", call_params("hold", {"order": order.call})) as request,
    ):
        await buyer.market.until_noted(order.call, "leg")
        await client.cancel_request(client.sent("tools/call")[-1]["id"])
        expect([message for message in await request.end() if is_response(message)], [])
    await buyer.market.until_noted(order.call, "step", "cancelled")


@kind("session task", *BUILT)
async def session_task(buyer: Buyer, order: Order) -> None:
    async with buyer.session(order, LEGACY) as client:
        created = await client.create_task("build", {"order": order.call, "parts": PARTS})
        await buyer.think()
        reply = await insist(order, lambda: client.task_result(created["taskId"]))
        expect((await client.get_task(created["taskId"]))["status"], "completed")
    expect(texts(reply.result), built(buyer, order))


@kind("asked session task", *BOUGHT)
async def asked_session_task(buyer: Buyer, order: Order) -> None:
    """Wait for a task's result; its questions come on the same stream."""
    async with buyer.session(order, LEGACY) as client:
        created = await client.create_task("buy", {"order": order.call})
        reply = await insist(order, lambda: client.task_result(created["taskId"], answers=buyer.answers(order)))
    expect(texts(reply.result), bought(buyer, order))


@kind("task list")
async def task_list(buyer: Buyer, order: Order) -> None:
    async with buyer.session(order, LEGACY) as client:
        stock = buyer.market.stock
        async with buyer.market.stocking:
            if not stock:
                made = await asyncio.gather(*(client.create_task(f"more_{number}") for number in range(STOCK)))
                stock += [task["taskId"] for task in made]
        page = await client.list_tasks()
        listed = [task["taskId"] for task in page["tasks"]]
        while "nextCursor" in page:
            await buyer.think()
            page = await client.list_tasks(page["nextCursor"])
            listed += [task["taskId"] for task in page["tasks"]]
    expect_all(listed, stock)


# The draft.


@kind("draft rounds", *BOUGHT)
async def draft_rounds(buyer: Buyer, order: Order) -> None:
    async with buyer.draft(order) as client:
        result = await client.call_tool("buy", {"order": order.call}, answers=buyer.answers(order))
    expect(texts(result), bought(buyer, order))


@kind("draft rounds in a session", *BOUGHT)
async def draft_rounds_in_a_session(buyer: Buyer, order: Order) -> None:
    async with buyer.session(order, DRAFT) as client:
        result = await client.call_tool("buy", {"order": order.call}, answers=buyer.answers(order))
    expect(texts(result), bought(buyer, order))


@kind("draft task", *BOUGHT)
async def draft_task(buyer: Buyer, order: Order) -> None:
    async with buyer.draft(order) as client:
        created = await client.create_task("buy", {"order": order.call})
        finished = await client.finish_task(created["taskId"], buyer.answers(order))
    expect(texts(finished.result or {"content": []}), bought(buyer, order))


@kind("immediate result", asks=False)
async def immediate(buyer: Buyer, order: Order) -> None:
    async with buyer.draft(order) as client:
        done = await client.stream_tool("build", {"order": order.call, "parts": 0}, modes=["immediate", "task"])
    expect(texts(done.result or {"content": []}), built(buyer, order, parts=0))


@kind("streamed task", *BUILT, asks=False)
async def streamed(buyer: Buyer, order: Order) -> None:
    """Break the stream after the second segment, and fetch the others from any replica."""
    async with buyer.draft(order) as client:
        done = await client.stream_tool(
            "build", {"order": order.call, "parts": PARTS}, modes=["streaming"], break_after=2
        )
    expect(texts(done.result or {"content": []}), built(buyer, order))


@kind("task of the first form", *BOUGHT)
async def first_form(buyer: Buyer, order: Order) -> None:
    async with buyer.draft(order) as client:
        done = await client.call_first_form(
            "buy", {"order": order.call}, keep_alive=60_000, answers=buyer.answers(order), answer_by_polling=True
        )
        result, error = done.result, done.error
        if error is not None and error.code == NOTHING_RAN:  # its replica goes; the task stays
            order.again += 1
            finished = await client.finish_task(done.task_id, buyer.answers(order))
            result, error = finished.result, finished.error
        expect(error, None)
        expect(texts(result or {"content": []}), bought(buyer, order))
        await client.delete_task(done.task_id)
