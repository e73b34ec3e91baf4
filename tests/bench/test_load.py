"""The benchmark's load distinguishes right answers from wrong ones, however they arrive."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.load import Exchange, LoadError, Measurement, measure
from tests.bench.answering import response, server

pytestmark = pytest.mark.slow


def expect(body: bytes) -> Callable[[bytes], str | None]:
    return lambda given: None if given == body else f"not {body!r} but {given!r}"


def load(port: int, *plans: list[Exchange]) -> Measurement:
    return measure(port, plans, warmup_seconds=0.02, seconds=0.1, server_cpu=lambda: 0.0)


def test_right_answers_are_counted_with_their_latencies() -> None:
    with server(lambda _: [response(b"fine")]) as port:
        measured = load(port, [Exchange(b"ping", expect(b"fine"))], [Exchange(b"ping", expect(b"fine"))])
    assert measured.wrong == []
    assert len(measured.latencies_ns) > 0
    assert min(measured.latencies_ns) > 0
    assert measured.last_bodies == [b"fine", b"fine"]


def test_one_wrong_answer_among_right_ones_is_found() -> None:
    with server(lambda number: [response(b"fail" if number == 3 else b"fine")]) as port:
        measured = load(port, [Exchange(b"ping", expect(b"fine"))])
    assert measured.wrong == ["not b'fine' but b'fail'"]


def test_an_answer_to_another_request_is_wrong() -> None:
    with server(lambda _: [response(b"one!")]) as port:
        measured = load(port, [Exchange(b"1..?", expect(b"one!")), Exchange(b"2..?", expect(b"two!"))])
    assert set(measured.wrong) == {"not b'two!' but b'one!'"}


def test_an_error_status_is_wrong_whatever_the_body() -> None:
    with server(lambda number: [response(b"fine", "503 Service Unavailable" if number == 2 else "200 OK")]) as port:
        measured = load(port, [Exchange(b"ping", expect(b"fine"))])
    assert measured.wrong == ["HTTP/1.1 503 Service Unavailable: b'fine'"]


def test_an_answer_in_pieces_is_put_together() -> None:
    whole = response(b"fine")
    with server(lambda _: [whole[:7], whole[7:-2], whole[-2:]]) as port:
        measured = load(port, [Exchange(b"ping", expect(b"fine"))])
    assert measured.wrong == []
    assert measured.last_bodies == [b"fine"]


def test_the_varying_part_may_change_but_nothing_around_it() -> None:
    bodies = [b"<%02d>" % number if number != 5 else b"[05]" for number in range(100)]
    with server(lambda number: [response(bodies[number % 100])]) as port:
        exchange = Exchange(
            b"ping",
            lambda body: None if body[:1] == b"<" and body[-1:] == b">" else f"odd: {body!r}",
            lambda body: body[1:3],
        )
        measured = load(port, [exchange])
    assert set(measured.wrong) == {"odd: b'[05]'"}


def test_a_closed_connection_ends_the_measurement() -> None:
    with server(lambda number: [response(b"fine")] if number < 3 else []) as port, pytest.raises(LoadError):
        load(port, [Exchange(b"ping", expect(b"fine"))])


def test_a_quantile_is_a_latency_that_was_measured() -> None:
    measured = Measurement(latencies_ns=[number * 1_000_000 for number in range(1, 1001)])
    assert [measured.latency_ms(quantile) for quantile in (0.0, 0.5, 0.99, 0.999, 1.0)] == [1, 501, 991, 1000, 1000]


def test_an_answer_in_chunks_is_put_together() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"4\r\nfine\r\n0\r\n\r\n"
    with server(lambda _: [head, body[:6], body[6:]]) as port:
        measured = load(port, [Exchange(b"ping", expect(body))])
    assert measured.wrong == []
    assert measured.last_bodies == [body]
