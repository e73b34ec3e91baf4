"""Lines are read however they are cut, and one that is too long costs neither memory nor the lines after it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.upstream.json_lines import SKIP_FACTOR, JsonLines, Line, LineTooLong, answered_by, notice_of


def read(pieces: list[bytes], limit: int = 1000) -> list[Line]:
    lines = JsonLines(limit)
    return [line for piece in pieces for line in lines.feed(piece)]


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert [line.start for line in read(pieces)] == lines


@pytest.mark.parametrize("step", [1, 7, 3000])
def test_of_a_line_that_is_too_long_only_the_ends_are_kept(step: int) -> None:
    text = b"{" + b"x" * 1998 + b"}\n" + b"next\n"
    long, following = read([text[start : start + step] for start in range(0, len(text), step)])
    assert long.skipped
    assert (long.start[:2], long.end[-2:]) == (b"{x", b"x}")
    assert len(long.start) < 1000
    assert len(long.end) < 1000
    assert following == Line(b"next")


def test_a_line_of_just_the_limit_is_whole() -> None:
    assert read([b"x" * 1000 + b"\n"]) == [Line(b"x" * 1000)]
    assert read([b"x" * 1001 + b"\n"])[0].skipped


def test_a_line_without_an_end_is_given_up() -> None:
    with pytest.raises(LineTooLong):
        read([b"x" * 100] * (10 * SKIP_FACTOR + 1))
    assert read([b"x" * 100] * (10 * SKIP_FACTOR)) == []


@pytest.mark.parametrize(
    ("start", "end", "number"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x', b"}}", 7),
        (b'  {"jsonrpc": "2.0", "id": 7, "error": {"x', b"}}", 7),
        (b'{"result":{"x', b'"}]},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result": {"x', b'"}]}, "jsonrpc": "2.0", "id": 7}\r', 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"x', b"}}", None),
        (b'{"params":{"jsonrpc":"2.0","id":7,"result":', b"}}", None),
        (b'{"params":{"x', b'{},"jsonrpc":"2.0","id":7}}', None),
        (b'{"jsonrpc":"2.0","id":"7","result":{"x', b"}}", None),
        (b"noise", b"noise", None),
    ],
)
def test_the_request_is_known_if_its_id_stands_first_or_last(start: bytes, end: bytes, number: int | None) -> None:
    assert answered_by(Line(start, end, "it is skipped")) == number
    assert answered_by(Line(start + end)) == number


@pytest.mark.parametrize(
    ("start", "method"),
    [
        (b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"x', "notifications/progress"),
        (b' { "method" : "notifications/message", "params": {"x', "notifications/message"),
        (b'{"method":"sampling/createMessage","params":{"x', None),
        (b'{"result":{"method":"notifications/progress","x', None),
        (b'{"method":"notifications/progress', None),
    ],
)
def test_a_notification_is_known_if_its_method_stands_first(start: bytes, method: str | None) -> None:
    assert notice_of(start) == method


def test_a_line_is_skipped_from_then_on_and_the_next_one_is_whole() -> None:
    lines = JsonLines(1000)
    assert list(lines.feed(b"{" + b"x" * 600)) == []
    assert (lines.unfinished, lines.start[:2]) == (601, b"{x")
    lines.skip("nobody wants it")
    assert lines.unfinished < 600
    skipped, following = lines.feed(b"y" * 900 + b"}\nnext\n")
    assert (skipped.start[:2], skipped.end[-2:], skipped.skipped) == (b"{x", b"y}", "nobody wants it")
    assert following == Line(b"next")
