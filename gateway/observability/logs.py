"""Log lines: one an event, as text for people or JSON for machines, with the id of the call that it is about.

Each line begins with time, level and message; in JSON `replica` and `logger` follow. Then come the fields of the event
in the order in which they were given. Audit lines have the same form.
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
"""The id of the call of which a leg runs here; unset where none does. Each line that is logged meanwhile has it."""

LOG_SHARE: Final = 0.5
"""Of what may wait to be written: the rest is left to audit lines that go the same way."""

LEVEL_WIDTH: Final = 7
"""Of the level in a line for people, so that messages stand below each other."""

_INDENT: Final = "    "
_PLAIN_RECORD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class CallFilter(logging.Filter):
    """Lets every record pass; one of a leg gets the id of its call, unless it names one itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the field `flow`."""
        flow = FLOW.get("")
        if flow:
            vars(record).setdefault("flow", flow)
        return True


class LineHandler(logging.Handler):
    """Hands each record to a writer that never waits.

    Args:
        lines: takes the lines.

    Attributes:
        lines: as given.
    """

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
        """Write what waits, as the process ends."""
        self.lines.close()
        super().close()


def log_lines_lost() -> int:
    """Return how many log lines of this process were not written."""
    return sum(handler.lines.lost for handler in logging.getLogger().handlers if isinstance(handler, LineHandler))


class TextFormatter(logging.Formatter):
    """One line for people: `time level message key=value …`. A traceback follows it, each of its lines indented."""

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
    """One JSON object a line for machines; an exception is one field of it.

    Args:
        replica_id: told with each line.
    """

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
    """Send everything that is logged in this process, uvicorn's messages included, to one place in one form.

    Python's warnings are logged too; Python itself would write them in a form of its own.

    Uvicorn's reports of its own stages come at level debug only: the process tells people itself when it serves and
    when it leaves. Its access log is off.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        log_format: `text` or `json`.
        replica_id: the process's name.
        stream: where to; None is stderr, written by a thread of its own so that it holds nothing up.
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


def _log_warning(  # noqa: PLR0917 - as Python calls it
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a warning, instead of what `warnings.showwarning` does."""
    del file, line
    logging.getLogger("py.warnings").warning(
        "Python warning", extra={"category": category.__name__, "where": f"{filename}:{lineno}", "reason": str(message)}
    )


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Take what a log call gave as `extra`, and what filters added."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN_RECORD_FIELDS}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and text and " " not in text else json.dumps(text)


def _printable(text: str) -> str:
    """Return a text in which nothing breaks the line or moves the cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
