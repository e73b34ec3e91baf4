"""Progress and log messages of another server, as far as they are passed on."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.protocol.upstream.notices import MAX_TEXT_BYTES, read_log, read_progress


def test_progress_about_our_request_is_read() -> None:
    params = {"progressToken": 5, "progress": 1.5, "total": 3, "message": "so\x00on", "more": 1, "_meta": {}}

    assert read_progress(params, 5) == {"progress": 1.5, "total": 3, "message": "soon"}


@pytest.mark.parametrize("token", [6, "5", 5.0, True, None])
def test_progress_about_something_else_is_not(token: Any) -> None:
    assert read_progress({"progressToken": token, "progress": 1}, 5) is None


@pytest.mark.parametrize("done", [None, "1", True, float("inf"), float("nan")])
def test_progress_that_is_no_finite_number_is_not_read(done: Any) -> None:
    assert read_progress({"progressToken": 5, "progress": done}, 5) is None


def test_a_total_or_message_of_the_wrong_type_is_left_out() -> None:
    params = {"progressToken": 5, "progress": 1, "total": "3", "message": 7}

    assert read_progress(params, 5) == {"progress": 1}


def test_a_log_message_is_read_with_any_level_and_data() -> None:
    params = {"level": "chatty", "data": {"a": [1]}, "logger": "x" * 2 * MAX_TEXT_BYTES}

    assert read_log(params) == {"level": "chatty", "data": {"a": [1]}, "logger": "x" * MAX_TEXT_BYTES}
    assert read_log({"level": "info", "data": None, "logger": 7}) == {"level": "info", "data": None}


@pytest.mark.parametrize("params", [{}, {"level": "info"}, {"level": 7, "data": 1}, {"level": "x" * 33, "data": 1}])
def test_something_that_is_no_log_message_is_not_read(params: dict[str, Any]) -> None:
    assert read_log(params) is None
