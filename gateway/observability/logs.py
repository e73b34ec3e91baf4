"""Log lines: one per event, as text for people or JSON for programs, with the id of the call that it is about.

Each line begins with time, level and message. In JSON, `replica` and `logger` follow. Then come the fields of the
event, in the order in which they were passed. Audit lines have the same form.
"""

from __future__ import annotations

import json
import logging
import warnings
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from gateway.observability.line_writer import Lines, stderr_writer

FLOW: Final[ContextVar[str]] = ContextVar("flow")
"""The id of the call whose leg runs in this context, if one does. Each line that is logged in it has the id."""

LOG_SHARE: Final = 0.5
"""The share of the write queue that log lines may fill. The rest is for audit lines with the same destination."""

LEVEL_WIDTH: Final = 7
"""The width of the level in a line for people, which aligns the messages."""

_INDENT: Final = "    "
_PLAIN_RECORD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class CallFilter(logging.Filter):
    """Adds the id of the call to records that a leg logs, unless they have one. Every record passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the field `flow`."""
        flow = FLOW.get("")
        if flow:
            vars(record).setdefault("flow", flow)
        return True


class LineHandler(logging.Handler):
    """Hands each record to a writer that never waits."""

    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record."""
        try:
            self.lines.write((self.format(record) + "\n").encode("utf-8", "backslashreplace"))
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)

    def close(self) -> None:
        """Write the queued lines, as the process ends."""
        self.lines.close()
        super().close()


def log_lines_lost() -> int:
    """Return how many log lines of this process were not written."""
    return sum(handler.lines.lost for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


class TextFormatter(logging.Formatter):
    """Formats a record as one line for people: `time level message key=value …`. An indented traceback may follow."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text."""
        fields = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        line = (
            f"{_timestamp(record)} {record.levelname.lower():<{LEVEL_WIDTH}} {_printable(record.getMessage())}{fields}"
        )
        if not record.exc_info:
            return line
        traceback = self.formatException(record.exc_info).splitlines()
        return "\n".join([line, *(_INDENT + _printable(text) for text in traceback)])


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line, for programs. An exception is one of its fields."""

    def __init__(self, replica_id: str) -> None:
        super().__init__()
        self._replica_id = replica_id

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as JSON."""
        line = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "replica": self._replica_id,
            "logger": record.name,
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(level: str, log_format: str, replica_id: str, stream: TextIO | None = None) -> None:
    """Send everything that this process logs, including uvicorn's messages, to one place in one form.

    Python's warnings are logged too; by default, Python would write them in another form.

    Uvicorn's reports about its own stages appear only at level debug, because the gateway itself reports when it serves
    and when it leaves. Uvicorn's access log is off.

    The level is `debug`, `info`, `warning` or `error`, and the format `text` or `json`. If `stream` is None, a separate
    thread writes to stderr, so it blocks nothing.
    """
    handler: logging.Handler
    handler = LineHandler(Lines(stderr_writer(), share=LOG_SHARE)) if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(replica_id) if log_format == "json" else TextFormatter())
    handler.addFilter(CallFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False
    access.disabled = True
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object, **__: object
) -> None:
    """Log a warning; replaces `warnings.showwarning`."""
    logging.getLogger("py.warnings").warning(
        "Python warning", extra={"category": category.__name__, "where": f"{filename}:{lineno}", "reason": str(message)}
    )


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that a log call passed as `extra` or that filters added."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN_RECORD_FIELDS}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and " " not in text else json.dumps(text)


def _printable(text: str) -> str:
    """Return a text without characters that break the line or move the cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
