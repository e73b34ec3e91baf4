"""Event streams mean the same however they are cut, and however their lines end."""

from __future__ import annotations

import itertools
import math
import time
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.counts.meters import Calls
from gateway.protocol.upstream.event_stream import MAX_DATA_LINES, EventStream, EventTooLarge

LIMIT = 64


def whole(stream: bytes) -> list[bytes]:
    """Read a stream as the HTML standard words it, line by line and all at once."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *lines, _unfinished = text.split(b"\n")
    events: list[bytes] = []
    data: list[bytes] = []
    kind = b""
    for line in lines:
        if not line:
            if b"\n".join(data) and kind in {b"", b"message"}:
                events.append(b"\n".join(data))
            data, kind = [], b""
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data.append(value)
        elif field == b"event":
            kind = value
    return events


def read(pieces: Iterable[bytes], limit: int = 1 << 20) -> list[bytes]:
    stream = EventStream(limit)
    return [event for piece in pieces for event in stream.feed(piece)]


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


FIELDS = [b"data: ", b"data:", b"data", b"event: message", b"event: other", b"event", b": comment", b":", b"id: 7"]
BYTES = [b"{}", b" ", b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xff", b"\xc3\xa9"]
PIECES = st.sampled_from([*FIELDS, *BYTES])
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)


@given(stream=STREAMS, places=st.lists(st.integers(0, 1000), max_size=12))
@example(stream=b"data: a\r\n\r\ndata: b\r\n\r\n", places=[8, 10, 18])
@example(stream=b"\xef\xbb\xbfdata: a\n\n", places=[1, 2])
def test_a_stream_means_the_same_however_it_is_cut(stream: bytes, places: list[int]) -> None:
    assert read(cut(stream, places)) == whole(stream)


@given(stream=STREAMS)
@example(stream=b"data: a\r\ndata: b\r\n\r\n")
def test_a_stream_may_arrive_byte_by_byte(stream: bytes) -> None:
    assert read(stream[at : at + 1] for at in range(len(stream))) == whole(stream)


@given(events=st.integers(0, 5), places=st.lists(st.integers(0, 1000), max_size=8))
def test_what_comes_before_a_large_event_is_read_however_it_is_cut(events: int, places: list[int]) -> None:
    stream = EventStream(LIMIT)
    pieces = cut(b"data: fine\n\n" * events + b"data: " + b"x" * 2 * LIMIT + b"\n\n", places)
    found: list[bytes] = []

    with pytest.raises(EventTooLarge):
        found.extend(event for piece in pieces for event in stream.feed(piece))

    assert found == [b"fine"] * events


@given(data=st.lists(st.binary(min_size=1, max_size=30).filter(lambda one: not {10, 13} & set(one)), max_size=5))
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_kind_of_line_end_separates_events(data: list[bytes], end: bytes) -> None:
    assert read([b"".join(b"data: " + one + end + end for one in data)]) == data


def test_the_lines_of_an_event_are_joined() -> None:
    assert read([b'data: {\ndata:"a": 1\ndata\ndata: }\n\n']) == [b'{\n"a": 1\n\n}']


def test_comments_ids_other_events_and_empty_ones_are_ignored() -> None:
    stream = b": hello\n\nid: 1\nretry: 5\ndata:\n\nevent: endpoint\ndata: /x\n\nevent: message\ndata: kept\n\n"

    assert read([stream]) == [b"kept"]


def test_an_event_that_does_not_end_is_not_an_event() -> None:
    assert read([b"data: one\n\ndata: half\n"]) == [b"one"]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * (LIMIT + 1) + b"\n\n",
        b"data: " + b"x" * 1000,
        b":" + b"x" * 1000,
        b"data: 1234567890123456789\n" * 10,
        b"data:\n" * 1000,
    ],
)
def test_an_event_or_a_line_over_the_limit_is_refused(stream: bytes, size: int) -> None:
    with pytest.raises(EventTooLarge):
        read((stream[at : at + size] for at in range(0, len(stream), size)), LIMIT)


def test_an_event_of_exactly_the_limit_is_read_and_the_next_one_too() -> None:
    event = b"x" * LIMIT

    assert read([b"data: " + event + b"\n\n"] * 3, LIMIT) == [event] * 3


def test_a_flood_of_empty_lines_takes_less_time_than_as_many_bytes_of_events() -> None:
    def calls(piece: bytes) -> int:
        """Return how many functions are called to read a piece."""
        made = Calls()
        made.start()
        list(events.feed(piece))
        made.stop()
        return made.python + made.builtin

    def seconds(piece: bytes) -> float:
        """Return the shortest time that it takes to read a piece."""
        best = math.inf
        for _ in range(3):
            began = time.process_time()
            list(events.feed(piece))
            best = min(best, time.process_time() - began)
        return best

    events = EventStream(1 << 20)
    size = 9 * 1024
    assert calls(b"\n" * size) < calls(b"data: x\n\n" * (size // 9))
    assert seconds(b"\n" * 16 * size) < 5 * seconds(b"data: x\n\n" * (16 * size // 9))
    assert list(events.feed(b"data: 1\n\n")) == [b"1"]


def held_bytes(line: bytes, count: int) -> int:
    """Return how much memory a stream holds after so many lines of one event."""
    events = EventStream(1 << 20)
    piece = line * 1000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(count // 1000):
            assert not list(events.feed(piece))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@pytest.mark.parametrize("line", [b"data:ab\n", b"data:\n", b"data\n"])
def test_an_event_of_short_lines_takes_little_more_memory_than_its_data(line: bytes) -> None:
    count = 60_000
    data = count * len(line.removeprefix(b"data").removeprefix(b":"))

    # Other work of the process adds to what is measured.
    assert any(held_bytes(line, count) < 2 * data + 1024 for _ in range(4))


@pytest.mark.parametrize("size", [7, 1000, 100_000])
def test_an_event_with_too_many_lines_is_refused_and_one_with_fewer_is_read(size: int) -> None:
    most = b"data:\n" * MAX_DATA_LINES
    pieces = [most[at : at + size] for at in range(0, len(most), size)]
    assert read([*pieces, b"\n", *pieces, b"\n"]) == [b"\n" * (MAX_DATA_LINES - 1)] * 2

    with pytest.raises(EventTooLarge, match="lines"):
        read([*pieces, b"data:\n"])


@pytest.mark.parametrize("line", [b"data: ", b"data", b": ", b"other: "])
def test_an_event_and_a_line_after_it_are_together_no_larger_than_the_limit(line: bytes) -> None:
    events = EventStream(1000)
    assert not list(events.feed(b"data: " + b"a" * 600 + b"\n" + line))
    assert events.unfinished_bytes == 601 + len(line)
    with pytest.raises(EventTooLarge):
        list(events.feed(b"b" * 600))


def test_comments_and_other_fields_are_no_lines_of_data() -> None:
    flood = [b":\nid\ndatabase: 1\n" * 1000] * 30

    assert read([b"data: a\n", *flood, *flood, b"data: b\n\n"]) == [b"a\nb"]
