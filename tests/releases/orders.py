"""The kinds of orders: every kind of call and task, on every wire, each followed to the end that it must have."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from tests.releases.account import Order
from tests.releases.buyers import (
    COLOUR,
    NAME,
    NOTHING_RAN,
    POLL_SECONDS,
    SIZE,
    Buyer,
    Kind,
    Place,
    Wrong,
    expect,
    expect_all,
    insist,
    texts,
)
from tests.upstreams.site import VERSION as RELEASED
from tests.upstreams.site import Reply, User, answered
from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import VERSION as DRAFT
from tests.wires.draft.messages import answer_to, call_params, is_response
from tests.wires.draft.transport import EventDecoder, HttpError, Message, ProtocolError, RpcError
from tests.wires.draft.under_way import UnderWay, under_way
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
LEAVING: Final = "The server is about to restart and cannot wait for the answer; call again"
"""The result of a call that waited in a replica when it was replaced (docs/run/upgrading.md)."""

PARTS: Final = 5
UNITS: Final = 60
STOCK: Final = 105
"""More tasks than a page of `tasks/list` has."""

MORE: Final = 300
"""More tools than a page of `tools/list` has; see `tests/releases/tools.py`."""

BOUGHT: Final = frozenset({"look up", "pay"})
BUILT: Final = frozenset(f"part {part}" for part in range(PARTS))
KINDS: Final[dict[str, Kind]] = {}
PlaceT = TypeVar("PlaceT", bound=Place)


def kind(
    name: str,
    *steps: str,
    early: frozenset[str] = frozenset(),
    hasty: int = 1,
    asks: bool = True,
) -> Callable[[PlaceT], PlaceT]:
    """Make a function a kind of orders with these side effects."""

    def register(place: PlaceT) -> PlaceT:
        KINDS[name] = Kind(name, place, frozenset(steps), early, hasty, asks)
        return place

    return register


def call(tool: str, order: Order, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of an order's call."""
    return {"name": tool, "arguments": {"order": order.call, **arguments}}


def bought(buyer: Buyer, order: Order) -> list[str]:
    """Return the texts of the result of `buy`."""
    return [f"pay of {order.call}", f"{NAME}, {SIZE}, {COLOUR}, {buyer.receipt(order)}"]


def built(buyer: Buyer, order: Order, parts: int = PARTS) -> list[str]:
    """Return the texts of the result of `build`."""
    return [*(f"part {part} of {order.call}" for part in range(parts)), buyer.receipt(order)]


# 2026-07-28, calls.


@kind("call", "quote", asks=False)
async def plain_call(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order) as user:
        versions = (await user.send("server/discover")).result["supportedVersions"]
        expect(versions, [RELEASED, LEGACY, BEFORE_TASKS])
        reply = await user.complete("tools/call", call("quote", order))
    expect(texts(reply.result), [buyer.receipt(order)])


@kind("asked call", *BOUGHT)
async def asked_call(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order) as user:
        reply = await user.complete("tools/call", call("buy", order), buyer.answers(order))
    expect(texts(reply.result), bought(buyer, order))


@kind("prompt")
async def prompt(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order) as user:
        reply = await user.complete("prompts/get", call("letter", order), buyer.answers(order))
    expect([message["content"]["text"] for message in reply.result["messages"]], [f"{NAME}, {order.call}"])


@kind("shed call", *(f"unit {unit}" for unit in range(UNITS)), hasty=3, asks=False)
async def shed_call(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order) as user:
        reply = await user.complete("tools/call", call("count", order, units=UNITS))
    expect(texts(reply.result), [buyer.receipt(order)])


@kind("charge", "charge", hasty=2)
async def charge(buyer: Buyer, order: Order) -> None:
    """Send the same answer twice at once, and once more: a client that hears nothing does that."""
    async with buyer.modern(order) as user:
        asked = await user.send("tools/call", call("charge", order))
        retry = {**call("charge", order), **await user.retry(asked, buyer.answers(order))}
        replies = await asyncio.gather(*(used_once(user, order, retry) for _ in range(2)))
        replies += [await used_once(user, order, retry)]
    expect([texts(reply.result) for reply in replies], [[f"{NAME}, {buyer.receipt(order)}"]] * 3)


async def used_once(user: User, order: Order, params: Mapping[str, Any]) -> Reply:
    """Send an answer that counts once, again while the first one that was sent still runs."""
    while True:
        reply = await user.send("tools/call", params)
        if reply.response.get("error", {}).get("code") != NOTHING_RAN:
            return reply
        order.again += 1
        await asyncio.sleep(POLL_SECONDS)


@kind("call of another server", "order")
async def upstream_call(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order) as user:
        reply = await user.complete("tools/call", call("behind__order_more", order), buyer.answers(order))
    expect(texts(reply.result), [f"{NAME}, {SIZE}, {order.call}"])


@kind("list")
async def tool_list(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order) as user:
        page = (await user.send("tools/list")).result
        names = [tool["name"] for tool in page["tools"]]
        while "nextCursor" in page:
            await buyer.think()
            page = (await user.send("tools/list", {"cursor": page["nextCursor"]})).result
            names += [tool["name"] for tool in page["tools"]]
    ours = ["quote", "buy", "charge", "count", "build", "ship", "hold", "announce"]
    expect_all(names, [*ours, *(f"more_{number}" for number in range(MORE)), "behind__order_more"])


# 2026-07-28, tasks and streams.


@kind("task", *BUILT)
async def task(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order, tasks=True) as user:
        task_id = await user.task("build", call("build", order, parts=PARTS)["arguments"])
        await buyer.think()
        ended = await follow(buyer, user, order, task_id)
    expect(texts(ended["result"]), built(buyer, order))


@kind("asked task", *BOUGHT)
async def asked_task(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order, tasks=True) as user:
        ended = await follow(buyer, user, order, await user.task("buy", call("buy", order)["arguments"]))
    expect(texts(ended["result"]), bought(buyer, order))


@kind("call, then task", "pack", "send")
async def shipped(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order, tasks=True) as user:
        created = await user.complete("tools/call", call("ship", order), buyer.answers(order))
        expect(created.result["resultType"], "task")
        ended = await follow(buyer, user, order, created.result["taskId"])
    expect(
        texts(ended["result"]),
        [f"pack of {order.call}", f"send of {order.call}", f"{NAME}, {SIZE}, {buyer.receipt(order)}"],
    )


@kind("task of another server", "order")
async def upstream_task(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order, tasks=True) as user:
        ended = await follow(buyer, user, order, await user.task("behind__order_more", call("", order)["arguments"]))
    expect(texts(ended["result"]), [f"{NAME}, {SIZE}, {order.call}"])


@kind("cancelled task", "cancelled", asks=False)
async def cancelled_task(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order, tasks=True) as user:
        task_id = await user.task("hold", call("hold", order)["arguments"])
        await buyer.market.until_noted(order.call, "leg")
        expect((await user.send("tasks/cancel", {"taskId": task_id})).result["resultType"], "complete")
        changed, replica = order.answers[-1]
        expect((await user.send("tasks/get", {"taskId": task_id})).result["status"], "cancelled")
    seen = await buyer.market.until_noted(order.call, "step", "cancelled")
    order.news.append((seen.at - changed, replica, seen.process))


@kind("watched task", *BOUGHT)
async def watched_task(buyer: Buyer, order: Order) -> None:
    """Follow a task by nothing but what streams say."""
    async with buyer.modern(order, tasks=True) as user:
        task_id = await user.task("buy", call("buy", order)["arguments"])
        given: set[str] = set()
        while True:
            async with contextlib.aclosing(listen(user, order, taskIds=[task_id])) as messages:
                expect((await anext(messages))["method"], ACKNOWLEDGED)
                replica = order.answers[-1][1]
                async for message in messages:
                    state = message["params"]
                    if state["status"] in ENDED:
                        seen = time.time()
                        expect(texts(state["result"]), bought(buyer, order))
                        changed = await buyer.market.until_noted(order.call, "step", "pay")
                        order.news.append((seen - changed.at, changed.process, replica))
                        return
                    await answer_open(buyer, user, order, state, given)


@kind("news", asks=False)
async def news(buyer: Buyer, order: Order) -> None:
    """Listen to a resource, and announce that it has changed. The news must arrive, unless the replica stops now."""
    async with buyer.modern(order) as user:
        while True:
            async with contextlib.aclosing(listen(user, order, resourceSubscriptions=["news://today"])) as messages:
                expect((await anext(messages))["method"], ACKNOWLEDGED)
                listening = order.answers[-1][1]
                announced = await user.send("tools/call", call("announce", order))
                expect(texts(announced.result), [buyer.receipt(order)])
                async for message in messages:
                    expect(message["method"], "notifications/resources/updated")
                    return
            order.end_early(listening)


async def follow(buyer: Buyer, user: User, order: Order, task_id: str) -> dict[str, Any]:
    """Poll a task and answer its questions, until it has ended well."""
    given: set[str] = set()
    while True:
        state = (await user.send("tasks/get", {"taskId": task_id})).result
        if state["status"] in ENDED:
            expect((state["status"], state.get("error")), ("completed", None))
            return state
        await answer_open(buyer, user, order, state, given)
        await asyncio.sleep(POLL_SECONDS)


async def answer_open(buyer: Buyer, user: User, order: Order, state: Mapping[str, Any], given: set[str]) -> None:
    """Answer the questions of a task that are open, one by one, each once."""
    for key, question in state.get("inputRequests", {}).items():
        if key not in given:
            given.add(key)
            responses = await answered({key: question}, buyer.answers(order))
            update = await user.send("tasks/update", {"taskId": state["taskId"], "inputResponses": responses})
            expect(update.result["resultType"], "complete")


async def listen(user: User, order: Order, **wanted: Any) -> AsyncGenerator[Message, None]:
    """Yield the messages of a subscription; a replica that goes ends it with a result."""
    body, headers = user.request("subscriptions/listen", {"notifications": wanted})
    ended = False
    async with user.http.stream("POST", user.urls[0], content=body, headers=headers) as response:
        expect(response.status_code, 200)
        decoder = EventDecoder()
        async for chunk in response.aiter_raw():
            for data in decoder.feed(chunk):
                message = json.loads(data)
                if is_response(message):
                    expect(message["result"]["resultType"], "complete")
                    ended = True
                else:
                    yield message
    if not ended:
        raise Wrong("the stream broke")


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
