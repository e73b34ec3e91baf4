"""Customers: clients that behave like real ones. They retry, use any replica, answer, and change their minds."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.soak.orders import ENDED, KINDS, PARCEL, POST, Order, answer_to, final_of, property_of
from tests.workers.site import EXTENSION, META, VERSION

REQUEST_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 40.0
"""Longer than a stream stays silent."""

PAUSE_SECONDS: Final = (0.1, 0.5)
MIND_CHANGES: Final = 0.15
"""The share of orders that are cancelled."""

JUMP_SECONDS: Final = 20
"""How far the store's clock jumps; tasks may end so much earlier."""

MIND_CHANGE_SECONDS: Final = 2.0
STORE_DOWN: Final = -31004
OVERLOADED: Final = -31001
NOT_TAKEN: Final = -32602


class Unanswered(Exception):
    """The outcome of a request is unknown; it may have taken effect."""


class Refused(Exception):
    """The request was refused with the promise that nothing ran."""


class Wrong(Exception):
    """An answer that no customer should get."""


class Used(Wrong):
    """The request is not accepted, or no longer."""


@dataclass
class Market:
    """The site that customers use.

    Attributes:
        url: the balancer.
        tokens: the users; customers share them.
        ttl_seconds: how long a task is known after its creation.
        seed: decides what each customer does.
        kinds: what all of them order, if not everything.
        orders: all orders so far.
        closed: whether customers stop placing orders.
    """

    url: str
    tokens: Sequence[str]
    ttl_seconds: float
    seed: int
    kinds: Sequence[str] = ()
    orders: list[Order] = field(default_factory=list)
    closed: bool = False


class Customer:
    """Places one order after the other on 2026-07-28, and follows each to its end.

    Args:
        number: its unique number.
        market: the site that it uses.
        http: the client that it uses.
    """

    version = VERSION
    kinds: Sequence[str] = KINDS

    def __init__(self, number: int, market: Market, http: httpx.AsyncClient) -> None:
        self._number = number
        self._market = market
        self._http = http
        self._token = market.tokens[number % len(market.tokens)]
        self._random = random.Random(f"{market.seed} {number}")
        self._ids = itertools.count(1)

    async def buy(self) -> None:
        """Place orders until the market closes."""
        while not self._market.closed:
            await self.place(self._random.choice(self._market.kinds or self.kinds))
            await self._pause()

    async def place(self, kind: str) -> Order:
        """Place one order."""
        order = self._new_order(kind)
        try:
            await self._call(order)
            if order.task_id is not None:
                await self._follow(order)
        except Wrong as wrong:
            order.complaints.append(str(wrong))
        return order

    async def check_all(self) -> None:
        """Check all ended orders again: their state must not change until their time is over."""
        for order in self._market.orders:
            if order.customer == self._number and order.final is not None and order.is_task:
                try:
                    await self._check(order)
                except Wrong as wrong:
                    if time.time() < order.ordered_at + self._market.ttl_seconds - JUMP_SECONDS:
                        order.complaints.append(str(wrong))

    async def _check(self, order: Order) -> None:
        told = final_of(await self._insist("tasks/get", {"taskId": order.task_id}))
        if told != order.final:
            order.complaints.append(f"ended as {order.final}, and is told as {told}")

    def _new_order(self, kind: str) -> Order:
        amount = self._random.randint(3, 12) if kind in ("build", "count") else 0
        name = f"{self._number}.{next(self._ids)}"
        order = Order(name, kind, amount, self._number, time.time(), self.version)
        self._market.orders.append(order)
        return order

    async def _call(self, order: Order) -> None:
        """Make a call. A call that fails at its first leg is not repeated: the next one is another order."""
        params: dict[str, Any] = {"name": order.kind, "arguments": order.arguments}
        try:
            result = await self._send("tools/call", params)
        except Refused:
            order.refused = True
            return
        except Unanswered:
            order.unanswered += order.is_task and order.kind != "ship"  # the first legs of others only ask
            order.maybe = order.kind == POST
            return
        while result["resultType"] == "input_required":
            answers = {key: answer_to(order.name, property_of(key)) for key in result.get("inputRequests", {})}
            retry = {**params, "requestState": result["requestState"], "inputResponses": _accepted(answers)}
            try:
                result = await self._next_leg(order, retry)
            except Used:
                if order.is_task:
                    raise
                order.used = True
                return
            except Unanswered:
                order.maybe = True
                return
            order.answers.update(answers)
        if not order.is_task:
            order.end_call(result)
            return
        if result["resultType"] != "task":
            raise Wrong(f"did not become a task: {result}")
        order.task_id = result["taskId"]

    async def _next_leg(self, order: Order, params: Mapping[str, Any]) -> dict[str, Any]:
        while True:
            try:
                return await self._send("tools/call", params)
            except Refused:
                pass
            except Unanswered:
                if order.kind == PARCEL:  # nobody may send again what an upstream may have done
                    raise
                order.unanswered += order.is_task
            await self._pause()

    async def _follow(self, order: Order) -> None:
        """Follow a task to its end, and check the end twice."""
        async with contextlib.AsyncExitStack() as stack:
            if order.kind == "hold" or self._random.random() < MIND_CHANGES:
                cancelling = asyncio.create_task(self._cancel_later(order))
                stack.callback(cancelling.cancel)
            else:
                cancelling = None
            order.final = final_of(await self._end_of(order))
            if cancelling is not None:
                await cancelling
        await self._check(order)

    async def _end_of(self, order: Order) -> dict[str, Any]:
        news = self._polls() if self._random.random() < 0.5 else self._listens(order)
        async with contextlib.aclosing(news):
            async for _ in news:
                task = await self._insist("tasks/get", {"taskId": order.task_id})
                if task["status"] in ENDED:
                    return task
                if task["status"] == "input_required":
                    await self._answer(order, task["inputRequests"])
        raise AssertionError  # news never end

    async def _answer(self, order: Order, asked: Mapping[str, Any]) -> None:
        """Answer some of the questions, all of them most of the time."""
        again = order.answers.keys() & {key.partition("~")[0] for key in asked}
        if again:
            raise Wrong(f"asks again for what was answered: {', '.join(sorted(again))}")
        keys = self._random.sample(list(asked), self._random.randint(1, len(asked)))
        answers = {key: answer_to(order.name, key) for key in keys}
        await self._insist("tasks/update", {"taskId": order.task_id, "inputResponses": _accepted(answers)})
        order.answers.update(answers)

    async def _cancel_later(self, order: Order) -> None:
        await asyncio.sleep(self._random.uniform(0, MIND_CHANGE_SECONDS))
        await self._insist("tasks/cancel", {"taskId": order.task_id})
        order.cancelled = True
        task = await self._insist("tasks/get", {"taskId": order.task_id})
        if task["status"] not in ENDED:
            order.complaints.append(f"is {task['status']} after its cancellation")

    async def _polls(self) -> AsyncGenerator[None, None]:
        while True:
            yield
            await self._pause()

    async def _listens(self, order: Order) -> AsyncGenerator[None, None]:
        """Yield whenever a stream begins or has a message; a customer that listens learns from nothing else."""
        params = {"notifications": {"taskIds": [order.task_id]}}
        while True:
            request = self._request("subscriptions/listen", params)
            with contextlib.suppress(httpx.TransportError, Unanswered, Refused):
                async with self._http.stream("POST", **request, timeout=SILENCE_SECONDS) as response:
                    if response.status_code != 200:
                        await response.aread()
                        _result("subscriptions/listen", response)
                    async for line in response.aiter_lines():
                        if line.startswith("data: "):
                            yield
            await self._pause()

    async def _insist(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a repeatable request until it is answered."""
        while True:
            with contextlib.suppress(Unanswered, Refused):
                return await self._send(method, params)
            await self._pause()

    async def _send(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = await self._http.post(**self._request(method, params))
        except httpx.TransportError:
            raise Unanswered from None
        return _result(method, response)

    def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}}
        meta = {f"{META}/protocolVersion": VERSION, f"{META}/clientCapabilities": capabilities}
        headers = {
            "authorization": f"Bearer {self._token}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
        }
        name = params.get("name") or params.get("taskId")
        if name:
            headers["mcp-name"] = name
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        return {"url": self._market.url, "json": body, "headers": headers}

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))


def _accepted(answers: Mapping[str, str]) -> dict[str, Any]:
    return {key: {"action": "accept", "content": {property_of(key): answer}} for key, answer in answers.items()}


def _result(method: str, response: httpx.Response) -> dict[str, Any]:
    try:
        message = response.json()
    except ValueError:
        raise Wrong(f"{method} was answered with HTTP {response.status_code}: {response.text[:200]}") from None
    if "result" in message:
        result: dict[str, Any] = message["result"]
        return result
    code = message["error"]["code"]
    if response.status_code == 503 and code == OVERLOADED:
        raise Refused
    if response.status_code in (502, 504) and code == STORE_DOWN:
        raise Unanswered
    told = f"{method} was answered with HTTP {response.status_code}: {message['error']}"
    raise Used(told) if code == NOT_TAKEN else Wrong(told)
