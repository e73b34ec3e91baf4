"""Records the metrics of a deployment's processes once a second, and how much memory they use."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECONDS = 1.0
PATIENCE_SECONDS = 5.0

_PREFIX = "gateway_"
_LEFT_OUT = ("_bucket", "_created")


@dataclass(frozen=True)
class Source:
    """A process whose metrics can be read.

    Attributes:
        process: its name.
        url: where it serves its metrics.
        pid: its process id, if it runs on this machine.
    """

    process: str
    url: str
    pid: int | None = None


class Scraper(threading.Thread):
    """Reads metrics once a second until it is stopped, and writes them down.

    Args:
        path: the file to write, one JSON object per line.
        sources: returns the current processes, each time.
        now: returns the seconds since the run began.
    """

    def __init__(self, path: Path, sources: Callable[[], Iterable[Source]], now: Callable[[], float]) -> None:
        super().__init__(name="scraper", daemon=True)
        self._path = path
        self._sources = sources
        self._now = now
        self._stopping = threading.Event()

    def start(self) -> None:
        """Read the metrics for the first time, then start the thread."""
        self._path.write_text("", encoding="utf-8")
        self._look()
        super().start()

    def run(self) -> None:
        """Read the metrics until stopped, then once more."""
        while not self._stopping.wait(SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            for source in self._sources():
                # A process that stops or is paused serves no metrics.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    values = {**dict(_read(source.url)), **dict(_resources(source.pid))}
                    line = {"t": round(self._now(), 3), "process": source.process, "values": values}
                    file.write(json.dumps(line) + "\n")

    def stop(self) -> None:
        """Read the metrics one last time, and end."""
        self._stopping.set()
        self.join()


def _read(url: str) -> Iterator[tuple[str, float]]:
    with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as response:
        for line in response.read().decode().splitlines():
            series, _, value = line.rpartition(" ")
            if series.startswith(_PREFIX) and not series.partition("{")[0].endswith(_LEFT_OUT):
                yield series, float(value)


def _resources(pid: int | None) -> Iterator[tuple[str, float]]:
    """Yield the system's numbers for a process, under Prometheus names. Only Linux has them."""
    process = Path(f"/proc/{pid}")
    if process.exists():
        resident_pages = int((process / "statm").read_text().split()[1])
        yield "process_resident_memory_bytes", float(resident_pages * os.sysconf("SC_PAGE_SIZE"))
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        yield "process_cpu_seconds_total", (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        yield "process_open_fds", float(sum(1 for _ in (process / "fd").iterdir()))
