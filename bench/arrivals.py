"""Calls that arrive whether or not earlier ones are done, and their outcomes.

A latency runs from the moment a call was meant to arrive to its last, checked byte, so delays of the load count too.
A call that is handed on resumes at once, as a client's would; a refused one is not retried.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.cases import call as request_of
from bench.clients import Answer, Client, WrongAnswer
from bench.load import nearest_rank
from bench.servers import Server

UNIT_MS = 5
"""CPU time of the tool for one call."""
PATIENCE_SECONDS = 1.0
"""A call that is done later than this after its arrival is too late to count."""


@dataclass(slots=True)
class Call:
    """One call: when it was meant to arrive, when it was done, and what happened in between."""

    arrived: float
    done: float | None = None
    refused: bool = False
    handed_on: int = 0

    @property
    def seconds(self) -> float:
        """How long it took, at most `PATIENCE_SECONDS`."""
        return PATIENCE_SECONDS if self.done is None else min(self.done - self.arrived, PATIENCE_SECONDS)

    @property
    def in_time(self) -> bool:
        """Whether it was done within `PATIENCE_SECONDS`."""
        return self.done is not None and self.done - self.arrived < PATIENCE_SECONDS


class Observed(NamedTuple):
    """The outcomes of calls in one period of time.

    Attributes:
        arrivals_per_second: calls that arrived.
        goodput: calls per second that were done, right and in time.
        refused: share of the calls that arrived.
        handed_on: how often a call that was not refused was handed on, on average.
        p50_ms, p99_ms: how long calls took that were not refused; longer ones count as `PATIENCE_SECONDS`.
    """

    arrivals_per_second: float
    goodput: float
    refused: float
    handed_on: float
    p50_ms: float
    p99_ms: float


def poisson(rate: float, begin: float, end: float, chance: random.Random) -> Iterator[float]:
    """Yield independent arrival times from `begin` to `end`, `rate` per second on average."""
    now = begin + chance.expovariate(rate)
    while now < end:
        yield now
        now += chance.expovariate(rate)


def observe(calls: Sequence[Call], begin: float, end: float) -> Observed:
    """Sum up the calls from `begin` to `end`. `calls` continue until `PATIENCE_SECONDS` later, or there are none."""
    arrived = [call for call in calls if begin <= call.arrived < end]
    accepted = [call for call in arrived if not call.refused]
    good = sum(call.in_time for call in calls if call.done is not None and begin <= call.done < end)
    milliseconds = sorted(call.seconds * 1e3 for call in accepted) or [PATIENCE_SECONDS * 1e3]
    return Observed(
        arrivals_per_second=len(arrived) / (end - begin),
        goodput=good / (end - begin),
        refused=1 - len(accepted) / max(1, len(arrived)),
        handed_on=sum(call.handed_on for call in accepted) / max(1, len(accepted)),
        p50_ms=nearest_rank(milliseconds, 0.5),
        p99_ms=nearest_rank(milliseconds, 0.99),
    )


def making(server: Server, number: int, call: Call, clock: Callable[[], float] = time.perf_counter) -> Client:
    """Make one call to its end, and record its outcome in `call`.

    Raises:
        WrongAnswer: the answer is neither its result, nor a state to resume with, nor a refusal.
    """
    params: dict[str, Any] = {}
    while True:
        arguments = {"units": 1, "unitMs": UNIT_MS}
        answer = yield request_of(server.port, number, "crunch", arguments, token=server.token, **params)
        state = read_answer(answer, number)
        if answer is not None and answer.status == 503:
            call.refused = True
            return
        if state is None:
            call.done = clock()
            return
        call.handed_on += 1
        params = {"requestState": state}


def read_answer(answer: Answer | None, number: int) -> str | None:
    """Return the state to resume with if the call was handed on; None if it is done or refused.

    Raises:
        WrongAnswer: the answer is none of these.
    """
    if answer is not None and answer.status in (200, 503):
        message = json.loads(answer.body)
        if answer.status == 503 and message.get("error", {}).get("code") == -31001:
            return None
        result = message.get("result", {})
        texts = [block.get("text") for block in result.get("content", [])]
        if message.get("id") == number:
            done = len(texts) == 1 and texts[0].startswith("Computed 1 units: 1 on ")
            if result.get("resultType") == "complete" and done and not result.get("isError"):
                return None
            if result.get("resultType") == "input_required" and not result.get("inputRequests"):
                return str(result["requestState"])
    raise WrongAnswer(f"expected the result of call {number}, got {answer}")
