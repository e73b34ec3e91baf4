"""An event is one line of data; nothing in the data can become another field or event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.sse import CONTENT_TYPE, HEADERS, comment, event
from gateway.protocol.strict_json import decode, encode


def read_events(stream: bytes) -> list[bytes]:
    """Read a stream as a client does (HTML Standard, "Interpreting an event stream"), with data as the one field."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if not line:
            if data:
                events.append(b"\n".join(data))
            data = []
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            assert field == b"data"
            data.append(value.removeprefix(b" "))
    return events


def test_an_event_is_one_line_of_data_and_an_empty_line() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'


def test_a_comment_is_not_an_event() -> None:
    assert comment().startswith(b":")
    assert read_events(comment()) == []
    assert read_events(event(b"1") + comment() + event(b"2") + comment()) == [b"1", b"2"]


json_values = st.recursive(
    st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)


@given(st.lists(json_values, max_size=5))
def test_whatever_a_message_holds_comes_out_as_it_went_in(messages: list[Any]) -> None:
    stream = comment().join(event(encode(message)) for message in messages)
    assert [decode(data) for data in read_events(stream)] == messages


@pytest.mark.parametrize("data", [b"\n", b"\r", b"a\nb", b"a\r\nevent: x", b"a\n\ndata: b", b"a\r"])
def test_data_of_more_than_one_line_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        event(data)


def test_a_stream_is_neither_kept_nor_buffered_on_its_way() -> None:
    assert dict(HEADERS) == {
        b"content-type": b"text/event-stream",
        b"cache-control": b"no-store",
        b"x-accel-buffering": b"no",
    }
    assert CONTENT_TYPE == b"text/event-stream"
