"""Notifications before the answer to a request are on one line, and match the published types."""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import mcp_types
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.notifications import (
    is_logged,
    log_message,
    progress,
)
from gateway.protocol.versions import LOG_LEVELS
from tests.protocol.notices import ids, json_values, read


@pytest.mark.parametrize("token", ["progress-test-1", "", 7, 0, 1784540000000])
def test_progress_repeats_the_token_as_it_was_given(token: str | int) -> None:
    method, params = read(progress(token, 50, 100, "half"))
    assert method == "notifications/progress"
    assert params == {"progressToken": token, "progress": 50, "total": 100, "message": "half"}
    assert type(params["progressToken"]) is type(token)


def test_what_is_not_known_of_progress_is_left_out() -> None:
    assert read(progress("t", 0.5))[1] == {"progressToken": "t", "progress": 0.5}
    assert read(progress("t", 0, 0, ""))[1] == {"progressToken": "t", "progress": 0, "total": 0, "message": ""}


@example("t", math.nan, None, None)
@example("t", 0, math.nan, None)
@example("t", 0, math.inf, None)
@example("t", 0, -math.inf, None)
@given(ids, st.integers() | st.floats(), st.none() | st.integers() | st.floats(), st.none() | st.text())
def test_progress_is_well_formed_or_refused(
    token: str | int, done: float, total: float | None, message: str | None
) -> None:
    if math.isfinite(done) and math.isfinite(total or 0):
        params = read(progress(token, done, total, message))[1]
        told = None if total is not None and total < done else total
        assert (params["progress"], params.get("total"), params.get("message")) == (done, told, message)
    else:
        with pytest.raises(ValueError, match="finite"):
            progress(token, done, total, message)


def test_a_number_beyond_every_float_is_sent_exactly() -> None:
    assert json.loads(progress("t", 10**400))["params"]["progress"] == 10**400


@given(st.sampled_from(LOG_LEVELS), json_values, st.none() | st.text())
def test_a_log_message_carries_any_json(level: str, data: Any, logger: str | None) -> None:
    method, params = read(log_message(level, data, logger))
    assert method == "notifications/message"
    expected = {"level": level, "data": data}
    assert params == (expected if logger is None else {**expected, "logger": logger})


@pytest.mark.parametrize("data", [object(), {"a": {1j}}, "\ud800"])
def test_what_has_no_json_form_is_refused(data: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        log_message("info", data)


def test_levels_are_those_of_the_published_types() -> None:
    assert get_args(mcp_types.LoggingLevel) == LOG_LEVELS


@pytest.mark.parametrize("minimum", [None, *LOG_LEVELS])
@pytest.mark.parametrize("level", LOG_LEVELS)
def test_a_message_is_logged_at_or_above_the_level_asked_for(level: str, minimum: str | None) -> None:
    wanted = minimum is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(minimum)
    assert is_logged(level, minimum) is wanted


@pytest.mark.parametrize(("level", "minimum"), [("warn", None), ("warn", "debug"), ("error", "warn"), ("", "debug")])
def test_an_unknown_level_is_refused_even_where_nothing_is_logged(level: str, minimum: str | None) -> None:
    with pytest.raises(ValueError, match="debug, info, notice, warning, error, critical, alert, emergency"):
        is_logged(level, minimum)
