"""Customers of the other wires: in sessions of 2025-11-25, and on the draft without one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import httpx

from tests.soak.customers import (
    MIND_CHANGE_SECONDS,
    MIND_CHANGES,
    NOT_TAKEN,
    OVERLOADED,
    PAUSE_SECONDS,
    REQUEST_SECONDS,
    STORE_DOWN,
    Customer,
    Refused,
    Unanswered,
    Used,
    Wrong,
)
from tests.soak.orders import PARCEL, POST, Order, answer_to, final_of
from tests.wires.draft.client import DraftClient, FinishedTask
from tests.wires.draft.messages import accept, call_params
from tests.wires.draft.transport import BrokenError, HttpError, RpcError
from tests.wires.legacy.speaking import LEGACY, speak

UNDELIVERABLE: Final = -31006
ASKS: Final = {"survey": ("name", "colour", "size"), "charge": ("name",), PARCEL: ("go",)}

T = TypeVar("T")


class DraftCustomer(Customer):
    """Orders on the draft wire, where every leg is a request of its own."""

    version = "DRAFT-2026-v1"
    kinds = ("plain", "build", "count", "survey", "charge", POST, PARCEL)

    async def _call(self, order: Order) -> None:
        task = {"ttl": round(self._market.ttl_seconds * 1000)} if order.is_task else None
        params = call_params(order.kind, order.arguments, task)
        async with self._client() as client:
            try:
                reply = await _told(client.complete("tools/call", params, answers=_answers(order)))
            except Refused:
                # A charge that is sent again by the balancer is refused while its first leg may still run.
                order.maybe = order.kind == "charge"
                order.refused = not order.maybe
            except Unanswered:
                order.unanswered += order.is_task
                order.maybe = not order.is_task
            except Used:
                if order.kind != "charge":
                    raise
                order.used = True
            else:
                if order.is_task:
                    order.task_id = reply.result["task"]["taskId"]
                else:
                    order.end_call(reply.result)

    async def _follow(self, order: Order) -> None:
        async with self._client() as client:
            if self._random.random() < MIND_CHANGES:
                order.cancelled = True
                await asyncio.sleep(self._random.uniform(0, MIND_CHANGE_SECONDS))
                with contextlib.suppress(Used):  # it has ended
                    await self._repeat(lambda: client.cancel_task(order.task_id or ""))
            order.final = await self._end(client, order)
        if order.final["result"] is not None:
            order.answers = {key: answer_to(order.name, key) for key in ASKS.get(order.kind, ())}
        await self._check(order)

    async def _check(self, order: Order) -> None:
        async with self._client() as client:
            told = await self._end(client, order)
        if told != order.final:
            order.complaints.append(f"ended as {order.final}, and is told as {told}")

    async def _end(self, client: DraftClient, order: Order) -> dict[str, Any]:
        finished = await self._repeat(lambda: self._finish(client, order))
        result = None if finished.result is None else {k: v for k, v in finished.result.items() if k != "_meta"}
        error = None if finished.error is None else {"code": finished.error.code}
        if finished.status == "cancelled":
            result = error = None
        status = finished.status if result is None else "completed"
        return final_of({"status": status, "result": result, "error": error})

    async def _finish(self, client: DraftClient, order: Order) -> FinishedTask:
        """Follow a task to its end, and answer what it asks."""
        finished = await client.finish_task(order.task_id or "", _answers(order))
        return _decided(finished)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[DraftClient]:
        async with DraftClient(
            [self._market.url],
            token=self._token,
            seconds=REQUEST_SECONDS,
            longest_poll_seconds=PAUSE_SECONDS[1],
        ) as client:
            yield client

    async def _repeat(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Send a repeatable request until it is answered."""
        while True:
            with contextlib.suppress(Unanswered, Refused):
                return await _told(ask())
            await self._pause()


class SessionCustomer(DraftCustomer):
    """Orders in sessions of 2025-11-25, where the server asks on its answers."""

    version = LEGACY

    async def _finish(self, client: DraftClient, order: Order) -> FinishedTask:
        try:
            reply = await client.task_result(order.task_id or "", answers=_answers(order))
        except RpcError as error:
            return _decided(FinishedTask(await client.get_task(order.task_id or ""), error=error))
        return FinishedTask(await client.get_task(order.task_id or ""), reply.result)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[DraftClient]:
        async with super()._client() as client:
            await self._repeat(lambda: speak(client))
            yield client


async def _told(answer: Awaitable[T]) -> T:
    """Return an answer, or raise what its customer makes of the lack of one."""
    try:
        return await answer
    except RpcError as error:
        kinds = {OVERLOADED: Refused, STORE_DOWN: Unanswered, UNDELIVERABLE: Unanswered, NOT_TAKEN: Used}
        raise kinds.get(error.code, Wrong)(str(error)) from None
    except (BrokenError, HttpError, TimeoutError, httpx.TimeoutException):
        raise Unanswered from None


def _decided(finished: FinishedTask) -> FinishedTask:
    """Return the end of a task, unless its result could not be read now."""
    if finished.error is not None and finished.error.code in (OVERLOADED, STORE_DOWN):
        raise finished.error
    return finished


def _answers(order: Order) -> dict[str, Any]:
    return {key: accept(**{key: answer_to(order.name, key)}) for key in ASKS.get(order.kind, ())}
