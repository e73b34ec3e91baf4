"""Replicas and workers as real processes, with their logs and metrics."""

from __future__ import annotations

import http.client
import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtest.cluster.common import HOST, STOP_SECONDS, ClusterError, LoggedProcess, port_of, reserve_port, wait_until

READY_SECONDS = 1.0
"""How long one look at `/readyz` may take."""

WRITTEN_SECONDS = 0.05
"""Five times as long as a process holds lines back to write several at once."""

MOST_LOOKS = 10
"""How often to look at a log that keeps growing."""

_BACKLOG = 1024
_METRIC = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_AS_WRITTEN = re.compile(r"[ !#-\[\]-~]+")
"""Characters that JSON does not escape."""

_DEFAULTS = {"GATEWAY_LOG_FORMAT": "json", "GATEWAY_METRICS_PORT": "0"}


class GatewayProcess(LoggedProcess):
    """A process of the gateway: it logs one JSON object per line, and serves metrics on a free port.

    Args:
        name: its name in logs.
        environ: the settings it starts with; changes take effect at the next start.
        log_path: where its output goes.
        options: further options of its command line.
        module: the module that `python -m` runs.

    Attributes:
        python: the interpreter that runs it; that of another environment runs another release.
    """

    def __init__(
        self, name: str, environ: Mapping[str, str], log_path: Path, *options: str, module: str = "gateway"
    ) -> None:
        super().__init__(name, {**_DEFAULTS, **environ}, log_path)
        self.options = options
        self.module = module
        self.python = sys.executable

    def log_lines(self) -> list[dict[str, Any]]:
        """Return the log records so far; a line that is not JSON becomes a message.

        The process writes lines shortly after their events, so this waits until no more come, or for a while.
        """
        return _records(self._written_text())

    def logged(self, message: str | None = None, /, **fields: object) -> list[dict[str, Any]]:
        """Return the log records so far that have this message, if one is given, and these fields."""
        lines = _records(self._written_text(), message)
        return [line for line in lines if all(line.get(name) == value for name, value in fields.items())]

    def wait_for_log(self, message: str | None = None, /, count: int = 1, **fields: object) -> list[dict[str, Any]]:
        """Wait until there are `count` such records, and return them. A busy process may write them late.

        Raises:
            ClusterError: there are fewer.
        """
        wait_until(
            lambda: len(self.logged(message, **fields)) >= count, f"{count} lines of {self.name}: {message}, {fields}"
        )
        return self.logged(message, **fields)

    def _said(self, message: str) -> list[dict[str, Any]]:
        """Return the log records with this message of the process that runs or ran last."""
        return _records(self._text_since_start(), message)

    def _written_text(self) -> str:
        size = -1
        for _ in range(MOST_LOOKS):
            if size == (size := self.log_path.stat().st_size):
                break
            time.sleep(WRITTEN_SECONDS)
        return self.log_text()

    @property
    def metrics_url(self) -> str:
        """Where it serves its metrics.

        Raises:
            ClusterError: its log does not say.
        """
        for _ in range(MOST_LOOKS):
            if started := self._said("metrics"):
                return str(started[0]["url"])
            time.sleep(WRITTEN_SECONDS)  # it may serve before it has written that it does
        raise ClusterError(f"{self.name} does not serve metrics:\n{self.log_text()}")

    def metric(self, metric: str, /, **labels: str) -> float:
        """Return the sum of one metric over all label sets that have these labels; 0 if there is none yet."""
        return sum(value for found, value in self.samples(metric) if found.items() >= labels.items())

    def samples(self, metric: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each sample of one metric."""
        return [
            (dict(_LABEL.findall(found["labels"] or "")), float(found["value"]))
            for found in _METRIC.finditer(self._metrics())
            if found["name"] == metric
        ]

    def _metrics(self) -> str:
        url = urlsplit(self.metrics_url)
        connection = http.client.HTTPConnection(url.netloc, timeout=STOP_SECONDS)
        try:
            connection.request("GET", url.path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()


class Replica(GatewayProcess):
    """One replica, at the same address over all its restarts.

    Args:
        name: its replica id.
        environ: the settings it starts with; changes take effect at the next start.
        log_path: where its output goes.
        options: further options of its command line.
        module: the module that `python -m` runs.
        hold: whether connections wait in the kernel while no process serves them. In production they are refused,
            which a balancer needs to notice.
    """

    def __init__(
        self,
        name: str,
        environ: Mapping[str, str],
        log_path: Path,
        *options: str,
        module: str = "gateway",
        hold: bool = True,
    ) -> None:
        super().__init__(name, environ, log_path, *options, module=module)
        self.hold = hold
        self.listener = self._kept.enter_context(reserve_port())
        if hold:
            self.listener.listen(_BACKLOG)
        self.address = HOST, port_of(self.listener)
        self.environ.setdefault("GATEWAY_REPLICA_URL", self.url.removesuffix("/mcp"))
        if "XDG_RUNTIME_DIR" not in self.environ:  # as if on a host of its own
            runtime = self._kept.enter_context(tempfile.TemporaryDirectory(prefix="gw-"))
            self.environ["XDG_RUNTIME_DIR"] = runtime

    @property
    def url(self) -> str:
        """The MCP endpoint."""
        host, port = self.address
        return f"http://{host}:{port}/mcp"

    def _command(self) -> Sequence[str]:
        host, port = self.address
        where = ["--fd", str(self.listener.fileno())] if self.hold else ["--host", host, "--port", str(port)]
        return [self.python, "-m", self.module, "serve", "--replica-id", self.name, *where, *self.options]

    def _inherited(self) -> Sequence[int]:
        return (self.listener.fileno(),) if self.hold else ()

    def wait_ready(self) -> None:
        """Wait until `/readyz` answers 200, or fail at once when the process ends."""
        self._wait_started(self.is_ready)

    def is_ready(self) -> bool:
        """Return whether `/readyz` answers 200 now."""
        connection = http.client.HTTPConnection(*self.address, timeout=READY_SECONDS)
        try:
            connection.request("GET", "/readyz", headers={"connection": "close"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Worker(GatewayProcess):
    """One worker."""

    def _command(self) -> Sequence[str]:
        return [self.python, "-m", self.module, "worker", "--worker-id", self.name, *self.options]

    def wait_ready(self) -> None:
        """Wait until it takes tasks, or fail at once when the process ends."""
        self._wait_started(lambda: bool(self._said("working")))

    wait_working = wait_ready


def _records(text: str, message: str | None = None) -> list[dict[str, Any]]:
    """Return the log records of a text, or those with one message."""
    if message is None:
        return [_record(line) for line in text.splitlines()]
    # Logs grow long and are read often, so only lines that may have the message are parsed.
    part = max(_AS_WRITTEN.findall(message), key=len, default="")
    records = (_record(line) for line in text.splitlines() if part in line)
    return [record for record in records if record.get("message") == message]


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        return {"message": line}
    return record if isinstance(record, dict) else {"message": line}
