"""Each caller may keep a number of streams open."""

from __future__ import annotations

import contextlib

import pytest

from gateway.admission.streams import StreamLimiter
from gateway.errors import TooManyStreams


def test_as_many_as_allowed_and_not_one_more() -> None:
    limiter = StreamLimiter(3)
    with contextlib.ExitStack() as streams:
        for _ in range(3):
            streams.enter_context(limiter.stream("alice"))
        with pytest.raises(TooManyStreams, match="No more than 3 streams"), limiter.stream("alice"):
            pytest.fail("a fourth stream opened")
        with limiter.stream("bob"):
            assert len(limiter) == 2


def test_a_stream_that_ends_makes_room_however_it_ends() -> None:
    limiter = StreamLimiter(1)
    for _ in range(3):
        with pytest.raises(KeyError), limiter.stream("alice"):
            raise KeyError
    with limiter.stream("alice"):
        pass


def test_a_caller_without_open_streams_is_forgotten() -> None:
    limiter = StreamLimiter(2)
    with limiter.stream("alice"), limiter.stream("alice"):
        assert len(limiter) == 1
    assert len(limiter) == 0


def test_a_refused_stream_does_not_count() -> None:
    limiter = StreamLimiter(1)
    with limiter.stream("alice"):
        for _ in range(10):
            with pytest.raises(TooManyStreams), limiter.stream("alice"):
                pytest.fail("a second stream opened")
    with limiter.stream("alice"):
        pass
