"""Log lines for people and programs: one line per event."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from gateway.observability import logs
from gateway.observability.logs import configure_logging


@pytest.fixture
def kept_logging() -> Iterator[None]:
    """Restore Python's logging configuration."""
    names = (None, "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access")
    before = [
        (logger, logger.handlers[:], logger.level, logger.propagate, logger.disabled)
        for logger in map(logging.getLogger, names)
    ]
    yield
    for logger, handlers, level, propagate, disabled in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate
        logger.disabled = disabled


def configured(log_format: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, log_format, "r1", stream)
    return stream


@pytest.mark.usefixtures("kept_logging")
def test_a_line_for_people_has_time_level_message_and_fields() -> None:
    stream = configured("text")
    logging.getLogger("gateway.x").info("leg finished", extra={"tool": "echo", "note": "two words", "empty": ""})
    time, rest = stream.getvalue().split(" ", 1)
    assert rest == 'info    leg finished tool=echo note="two words" empty=""\n'
    assert time.endswith("Z")


@pytest.mark.usefixtures("kept_logging")
def test_nothing_that_is_logged_can_forge_a_line_for_people() -> None:
    stream = configured("text")
    logging.getLogger("gateway.x").info("one\ntwo\r", extra={"field": "a\nb\x1b[31m\u2028"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


@pytest.mark.setting("replica_id")
@pytest.mark.usefixtures("kept_logging")
def test_a_line_for_machines_is_one_json_object_with_the_exception_as_a_field() -> None:
    stream = configured("json")
    try:
        int("lost")
    except ValueError:
        logging.getLogger("gateway.x").exception("broke\n", extra={"tool": "echo", "odd": {1, 2}, "level": "forged"})
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["exception"].splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'lost'"
    del entry["exception"], entry["time"]
    assert entry == {
        "level": "error",
        "logger": "gateway.x",
        "message": "broke\n",
        "replica": "r1",
        "tool": "echo",
        "odd": "{1, 2}",
    }


@pytest.mark.usefixtures("kept_logging")
def test_a_line_for_machines_begins_with_the_same_fields_whatever_else_it_has() -> None:
    stream = configured("json")
    logging.getLogger("gateway.x").info("served", extra={"url": "http://x", "replica": "forged", "a": 1})
    assert list(json.loads(stream.getvalue())) == ["time", "level", "message", "replica", "logger", "url", "a"]
    assert json.loads(stream.getvalue())["replica"] == "r1"


@pytest.mark.usefixtures("kept_logging")
def test_a_warning_of_python_is_a_line_too() -> None:
    stream = configured("text")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = logs._log_warning  # pytest has installed its own
        warnings.warn_explicit("going\naway", DeprecationWarning, "tools.py", 7)
    _, rest = stream.getvalue().split(" ", 1)
    assert rest == 'warning Python warning category=DeprecationWarning where=tools.py:7 reason="going\\naway"\n'


@pytest.mark.usefixtures("kept_logging")
def test_people_see_the_traceback_too() -> None:
    stream = configured("text")
    try:
        int("lost")
    except ValueError:
        logging.getLogger("gateway.x").exception("broke")
    lines = stream.getvalue().splitlines()
    assert lines[0].endswith("error   broke")
    assert lines[-1] == "    ValueError: invalid literal for int() with base 10: 'lost'"
    assert all(line.startswith("    ") for line in lines[1:])


@pytest.mark.usefixtures("kept_logging")
def test_only_what_is_important_enough_is_logged() -> None:
    stream = configured("text", "warning")
    logging.getLogger("gateway.x").info("quiet")
    logging.getLogger("gateway.x").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


@pytest.mark.setting("replica_id")
@pytest.mark.usefixtures("kept_logging")
def test_uvicorns_messages_come_in_our_form_and_its_access_log_not_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    own = io.StringIO()
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(own))
    stream = configured("json")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").error("failed", extra={"color_message": "\x1b[31mfailed"})
    logging.getLogger("uvicorn.access").error("GET /")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["failed"]
    assert "color_message" not in stream.getvalue()
    assert own.getvalue() == ""
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("kept_logging")
def test_uvicorns_stages_show_at_level_debug() -> None:
    stream = configured("text", "debug")
    logging.getLogger("uvicorn.error").info("Started server process")
    assert "Started server process" in stream.getvalue()


@pytest.mark.usefixtures("kept_logging")
def test_configuring_twice_does_not_log_twice() -> None:
    configured("text")
    stream = configured("text")
    logging.getLogger("gateway.x").info("once")
    assert stream.getvalue().count("once") == 1
