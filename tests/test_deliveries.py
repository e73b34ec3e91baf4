"""Answers go to the call that waits for them, here or by one hop, and what goes nowhere is told."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.deliveries import Deliveries
from gateway.errors import InsufficientScope, RejectReason
from gateway.protocol.headers import Headers, RawHeaders
from gateway.protocol.jsonrpc import Response
from gateway.return_addresses import ReplicaAddress
from gateway.sealing.return_address import CallAddress
from gateway.waiting import WaitingCalls
from tests.authorities import ADA, authorities, nothing

HERE = ReplicaAddress("http://here", b"h" * 16)
ELSEWHERE = ReplicaAddress("http://elsewhere", b"e" * 16)
ANSWER = Response("s1.", {"action": "accept"}, None)
BODY = b"the client's own request"


class Delivered:
    """A process, and where its answers go.

    Attributes:
        handed_on: what was handed on.
        rejected: why what was not delivered.
    """

    def __init__(self, status: int = 202) -> None:
        self.waiting = WaitingCalls(HERE.boot, lambda size: b"c" * size, authorities())
        self.handed_on: list[tuple[str, bytes]] = []
        self.rejected: list[RejectReason] = []
        self._status = status
        addresses: Any = self
        self._deliveries = Deliveries(self.waiting, HERE, addresses, self._hop)

    async def _hop(self, url: str, _headers: RawHeaders, body: bytes) -> int:
        self.handed_on.append((url, body))
        return self._status

    def reject(self, reason: RejectReason) -> None:
        self.rejected.append(reason)

    async def deliver(self, replica: ReplicaAddress, *, hopped: bool = False, answer: Response = ANSWER) -> None:
        headers = Headers([(b"x-gateway-hop", b"1")] if hopped else [])
        address = CallAddress(replica.url, replica.boot, b"c" * 16, "key", 0.0)
        await self._deliveries.deliver(address, answer, headers, BODY, ADA)


@pytest.mark.parametrize("hopped", [False, True])
async def test_an_answer_for_this_process_is_delivered_once(hopped: bool) -> None:
    delivered = Delivered()
    with delivered.waiting.open(ADA, nothing) as call:
        call.expect(["key"])
        await delivered.deliver(HERE, hopped=hopped)
        assert await call.answers() == {"key": {"result": {"action": "accept"}}}
        await delivered.deliver(HERE, hopped=hopped)
    assert (delivered.handed_on, delivered.rejected) == ([], [RejectReason.LATE])


async def test_an_error_is_an_answer_too() -> None:
    delivered = Delivered()
    error = {"code": -1, "message": "no"}
    with delivered.waiting.open(ADA, nothing) as call:
        call.expect(["key"])
        await delivered.deliver(HERE, answer=Response("s1.", None, error))
        assert await call.answers() == {"key": {"error": error}}


async def test_an_answer_for_another_replica_is_handed_on_as_it_came() -> None:
    delivered = Delivered()
    await delivered.deliver(ELSEWHERE)
    assert (delivered.handed_on, delivered.rejected) == ([("http://elsewhere", BODY)], [])


@pytest.mark.parametrize("status", [0, 200, 401, 404, 429, 503])
async def test_what_the_other_replica_does_not_take_is_gone(status: int, caplog: pytest.LogCaptureFixture) -> None:
    delivered = Delivered(status)
    await delivered.deliver(ELSEWHERE)
    assert delivered.rejected == [RejectReason.GONE]
    told = [vars(record)["status"] for record in caplog.records if vars(record).get("url") == ELSEWHERE.url]
    assert told == ([status] if status else [])


async def test_what_the_other_replica_forbids_is_forbidden() -> None:
    delivered = Delivered(403)
    with pytest.raises(InsufficientScope):
        await delivered.deliver(ELSEWHERE)
    assert delivered.rejected == []


async def test_what_was_handed_on_goes_no_further() -> None:
    delivered = Delivered()
    await delivered.deliver(ELSEWHERE, hopped=True)
    assert (delivered.handed_on, delivered.rejected) == ([], [RejectReason.GONE])


@pytest.mark.parametrize("url", ["", HERE.url])
async def test_an_answer_for_a_process_that_cannot_be_there_is_gone(url: str) -> None:
    delivered = Delivered()
    await delivered.deliver(ReplicaAddress(url, ELSEWHERE.boot))
    assert (delivered.handed_on, delivered.rejected) == ([], [RejectReason.GONE])
