"""Arrivals are random at the requested rate; a call counts only if its answer is right and in time."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest

from bench.arrivals import PATIENCE_SECONDS, Call, making, observe, poisson, read_answer
from bench.clients import Answer, WrongAnswer
from bench.servers import Server

SERVER = Server(name="ours", process=None, output=None, port=8080, token="t")  # type: ignore[arg-type]  # never started


def done(*, number: int = 7, text: str = "Computed 1 units: 1 on r1.", **more: Any) -> Answer:
    return answer({"resultType": "complete", "content": [{"type": "text", "text": text}], **more}, number=number)


def answer(result: dict[str, Any], *, number: int = 7) -> Answer:
    return Answer(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())


HANDED_ON = answer({"resultType": "input_required", "requestState": "s1.abc"})
REFUSED = Answer(503, b'{"jsonrpc":"2.0","error":{"code":-31001,"message":"The server is overloaded"}}')


def test_arrivals_come_at_the_requested_rate_and_independently() -> None:
    times = list(poisson(100.0, 5.0, 1005.0, random.Random(1)))
    gaps = [after - before for before, after in pairwise(times)]
    assert times[0] >= 5.0
    assert times[-1] < 1005.0
    assert len(times) == pytest.approx(100_000, rel=0.02)
    # Exponential gaps: the share that is shorter than half the average follows from that.
    assert sum(gap < 0.005 for gap in gaps) / len(gaps) == pytest.approx(0.393, abs=0.01)


def test_the_same_chance_gives_the_same_arrivals() -> None:
    assert list(poisson(50.0, 0.0, 3.0, random.Random(2))) == list(poisson(50.0, 0.0, 3.0, random.Random(2)))


def test_only_calls_that_are_done_in_time_are_goodput() -> None:
    calls = [
        Call(arrived=10.0, done=10.2),
        Call(arrived=10.1, done=10.1 + PATIENCE_SECONDS),  # too late
        Call(arrived=10.2, refused=True),
        Call(arrived=10.3, handed_on=2, done=10.7),
        Call(arrived=10.4),  # never done
        Call(arrived=9.8, done=10.1),  # came before, done within
        Call(arrived=11.9, done=12.1),  # came within, done after
        Call(arrived=12.5, done=12.6),  # neither
    ]
    seen = observe(calls, 10.0, 12.0)
    assert seen.arrivals_per_second == 3.0
    assert seen.goodput == 1.5
    assert seen.refused == pytest.approx(1 / 6)
    assert seen.handed_on == pytest.approx(2 / 5)


def test_latencies_are_those_of_accepted_calls_and_end_at_the_longest_wait() -> None:
    calls = [Call(arrived=float(number), done=number + 0.1) for number in range(98)]
    calls += [Call(arrived=98.0), Call(arrived=99.0, done=109.0), Call(arrived=99.5, refused=True)]
    seen = observe(calls, 0.0, 100.0)
    assert seen.p50_ms == pytest.approx(100.0)
    assert seen.p99_ms == PATIENCE_SECONDS * 1e3


def test_a_call_that_is_handed_on_resumes_with_its_state_until_it_is_done() -> None:
    call = Call(arrived=1.0)
    client = making(SERVER, 7, call, clock=lambda: 4.0)
    first = next(client)
    second = client.send(HANDED_ON)
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert b"requestState" not in first
    assert b'"requestState":"s1.abc"' in second
    with pytest.raises(StopIteration):
        client.send(done())
    assert (call.handed_on, call.done, call.refused) == (1, 4.0, False)


def test_a_refused_call_is_over() -> None:
    call = Call(arrived=1.0)
    client = making(SERVER, 7, call)
    next(client)
    with pytest.raises(StopIteration):
        client.send(REFUSED)
    assert (call.refused, call.done) == (True, None)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(done(number=8), id="another call's result"),
        pytest.param(done(text="Computed 2 units: 2 on r1."), id="another result"),
        pytest.param(done(isError=True), id="an error of the tool"),
        pytest.param(answer({"resultType": "input_required", "inputRequests": {"a": {}}}), id="a question"),
        pytest.param(Answer(503, b'{"error":{"code":-31003}}'), id="another 503"),
        pytest.param(Answer(500, b""), id="an error status"),
    ],
)
def test_everything_else_is_wrong(wrong: Answer) -> None:
    with pytest.raises(WrongAnswer):
        read_answer(wrong, 7)
