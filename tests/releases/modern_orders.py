"""Every kind of call, task and stream of 2026-07-28, each followed to the end that it must have."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from tests.releases.account import Order
from tests.releases.buyers import (
    NAME,
    NOTHING_RAN,
    POLL_SECONDS,
    SIZE,
    Buyer,
    Wrong,
    expect,
    expect_all,
    texts,
)
from tests.releases.kinds import (
    ACKNOWLEDGED,
    BOUGHT,
    BUILT,
    COUNTED,
    ENDED,
    MORE,
    PARTS,
    UNITS,
    bought,
    built,
    call,
    kind,
)
from tests.upstreams.site import VERSION as RELEASED
from tests.upstreams.site import Reply, User, answered
from tests.wires.draft.messages import is_response
from tests.wires.draft.transport import EventDecoder, Message
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY

# Calls.


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


@kind("shed call", *COUNTED, hasty=3, asks=False)
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


# Tasks and streams.


@kind("task", *BUILT)
async def task(buyer: Buyer, order: Order) -> None:
    async with buyer.modern(order, tasks=True) as user:
        task_id = await user.task("build", call("build", order, parts=PARTS)["arguments"])
        await buyer.think()
        ended = await follow(buyer, user, order, task_id)
    expect(texts(ended["result"]), built(buyer, order))


@kind("long task", *COUNTED, hasty=2, asks=False)
async def long_task(buyer: Buyer, order: Order) -> None:
    """Compute for long enough that workers hand the task over when they are replaced."""
    async with buyer.modern(order, tasks=True) as user:
        ended = await follow(
            buyer, user, order, await user.task("count", call("count", order, units=UNITS)["arguments"])
        )
    expect(texts(ended["result"]), [buyer.receipt(order)])


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
