"""A reload of HAProxy, as for a new certificate, costs no call: real processes, and clients that never retry."""

from __future__ import annotations

import http.client
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from loadtest.cluster import wait_until
from loadtest.cluster.common import find_program
from tests.integration.raw import post_bytes
from tests.loadtest.stubs import WAIT_SECONDS, StubReplica
from tests.proxies.front import HAProxy

RELOADS = 4
READY = "Loading success"


class Master(HAProxy):
    """HAProxy with a master process, as the page starts it."""

    def _command(self) -> Sequence[str]:
        return [find_program("haproxy", package="haproxy"), "-W", "-f", str(self.path)]

    def reload(self, number: int) -> None:
        """Replace the processes, and wait until the new ones serve."""
        wait_until(self._listens_to_signals, "the master process to listen to signals")
        self.signal(signal.SIGUSR2)
        wait_until(lambda: self.log_text().count(READY) > number, "HAProxy to serve with new processes")

    def _listens_to_signals(self) -> bool:
        """Return whether a signal has its effect. The master starts itself again at each reload, and loses those."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught, blocked = (int(re.findall(rf"{name}:\t(\w+)", status)[0], 16) for name in ("SigCgt", "SigBlk"))
        return bool(caught & ~blocked & 1 << (signal.SIGUSR2 - 1))


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    with StubReplica("a") as a, StubReplica("b") as b:
        front = Master(tmp_path, [a.address, b.address])
        try:
            front.start()
            front.wait_ready()
            yield front
        finally:
            front.stop()


def one_by_one(master: Master, stop: threading.Event) -> list[int]:
    """Call on a new connection each time."""
    found = []
    while not stop.is_set():
        found.append(post_bytes(master, b"{}", {"content-type": "application/json"}).status)
    return found


def kept(master: Master, stop: threading.Event) -> list[int]:
    """Call on one connection until the server says that it closes it; then on another one."""
    found = []
    while not stop.is_set():
        with closing(http.client.HTTPConnection(urlsplit(master.url).netloc, timeout=WAIT_SECONDS)) as connection:
            connection.connect()
            while connection.sock is not None and not stop.is_set():
                connection.request("POST", "/mcp", b"{}", {"content-type": "application/json"})
                with connection.getresponse() as response:
                    response.read()
                found.append(response.status)
                stop.wait(0.02)  # as a client that has nothing to ask for a moment
    return found


@pytest.mark.parametrize("calls", [one_by_one, kept])
def test_no_call_is_lost_while_the_processes_are_replaced(
    master: Master, calls: Callable[[Master, threading.Event], list[int]]
) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(calls, master, stop) for _ in range(4)]
        try:
            for number in range(1, RELOADS + 1):
                master.reload(number)
        finally:
            stop.set()
        answers = [client.result() for client in clients]
    assert all(len(each) > RELOADS for each in answers)
    assert {status for each in answers for status in each} == {200}
