"""Clients of the benchmark talk to a server at once, each in its own order, and none gets another's answer."""

from __future__ import annotations

import math
import select
import socket
import time

import pytest

from bench.clients import Answer, Client, Pause, as_they_come, together
from bench.load import LoadError
from tests.bench.answering import response, server


def asking(questions: list[bytes], heard: list[Answer | None]) -> Client:
    for question in questions:
        answer = yield question
        heard.append(answer)


def test_each_client_hears_the_answers_to_its_own_requests_in_order() -> None:
    heard: list[list[Answer | None]] = [[], [], []]
    with server(lambda number: [response(b"%d" % number)]) as port:
        together(port, [asking([b"ping"] * 3, ears) for ears in heard])
    assert heard == [[Answer(200, b"0"), Answer(200, b"1"), Answer(200, b"2")]] * 3


def test_an_answer_in_pieces_is_put_together_and_an_error_status_reported() -> None:
    heard: list[Answer | None] = []
    whole = response(b"busy", "503 Service Unavailable")
    with server(lambda _: [whole[:7], whole[7:-2], whole[-2:]]) as port:
        together(port, [asking([b"ping"], heard)])
    assert heard == [Answer(503, b"busy")]


def asking_after(others: list[Answer | None], count: int, heard: list[Answer | None]) -> Client:
    """A client that asks once `others` has `count` answers."""
    while len(others) < count:
        yield Pause(0.001)
    yield from asking([b"ping"], heard)


def test_a_client_that_pauses_lets_others_continue_and_uses_the_connection_they_left() -> None:
    heard: list[Answer | None] = []
    with server(lambda number: [response(b"%d" % number)]) as port:
        together(port, [asking_after(heard, 1, heard), asking([b"ping"], heard)])
    assert heard == [Answer(200, b"0"), Answer(200, b"1")]


def test_clients_that_wait_at_once_have_connections_of_their_own() -> None:
    heard: list[Answer | None] = []
    with server(lambda number: [response(b"%d" % number)]) as port:
        as_they_come(port, [(0.0, asking([b"ping"], heard)), (0.0, asking([b"ping"], heard))])
    assert heard == [Answer(200, b"0"), Answer(200, b"0")]


def test_a_client_does_not_begin_before_its_time() -> None:
    began: list[float] = []

    def noting() -> Client:
        began.append(time.perf_counter())
        yield Pause(0.0)

    later = time.perf_counter() + 0.05
    with server(lambda _: [response(b"fine")]) as port:
        as_they_come(port, [(0.0, noting()), (later, noting()), (later, noting())])
    assert len(began) == 3
    assert min(began[1:]) >= later


def test_a_client_that_has_not_ended_in_time_is_abandoned() -> None:
    heard: list[Answer | None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and never answers
        until = time.perf_counter() + 0.05
        arrivals = [(0.0, asking([b"ping"], heard)), (math.inf, asking([b"ping"], heard))]
        as_they_come(listener.getsockname()[1], arrivals, until=until)
    assert heard == []


def test_a_connection_that_is_closed_before_the_answer_ends_it_all() -> None:
    with server(lambda _: []) as port, pytest.raises(LoadError, match="closed a connection"):
        together(port, [asking([b"ping"], [])])


def test_a_connection_that_is_closed_while_nobody_uses_it_is_replaced() -> None:
    heard: list[Answer | None] = []
    hung_up: list[Answer | None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serving(body: bytes) -> Client:
            while not select.select([listener], [], [], 0)[0]:
                yield Pause(0)
            link, _ = listener.accept()
            link.recv(4)
            link.sendall(response(body))
            link.close()
            for _ in range(5):  # by then the client's side has read all of it
                yield Pause(0)
            hung_up.append(None)

        def serving_twice() -> Client:
            yield from serving(b"first")
            yield from serving(b"second")

        port = listener.getsockname()[1]
        together(port, [asking([b"ping"], heard), serving_twice(), asking_after(hung_up, 1, heard)])
    assert heard == [Answer(200, b"first"), Answer(200, b"second")]
