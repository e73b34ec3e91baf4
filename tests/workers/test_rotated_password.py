"""The password of Redis changes while replicas and workers run tasks, and nobody notices."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtest.cluster import wait_until
from tests.storage.servers import Server
from tests.workers.site import Site

pytestmark = pytest.mark.slow

CHANGED = "task store has another URL"


class Tasks:
    """Creates one task after another, each to its end."""

    def __init__(self, site: Site) -> None:
        self.done = 0
        self.problem = ""
        self._site = site
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Tasks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._site.text(self._site.create("say", text="x"))
                self.done += 1
        except Exception as error:  # noqa: BLE001 - whatever it is, a task was lost
            self.problem = repr(error)

    def wait_for(self, further: int) -> None:
        goal = self.done + further
        wait_until(lambda: self.done >= goal or bool(self.problem), f"{further} tasks")
        assert not self.problem


@pytest.mark.setting("redis_url")
def test_a_password_is_rotated_without_a_gap(server: Server, start_site: Callable[..., Site], tmp_path: Path) -> None:
    file = tmp_path / "redis-url"

    def use(password: str) -> None:
        file.write_text(f"redis://gateway:{password}@127.0.0.1:{server.port}\n")

    server.ask("ACL", "SETUSER", "gateway", "on", ">old", "~*", "&*", "+@all")
    use("old")
    site = start_site(GATEWAY_REDIS_URL="", GATEWAY_REDIS_URL_FILE=str(file))
    worker = site.worker("w1")
    with Tasks(site) as tasks:
        tasks.wait_for(3)
        server.ask("ACL", "SETUSER", "gateway", ">new")
        use("new")
        for process in (site.replicas[0], worker):
            process.signal(signal.SIGHUP)
        for process in (site.replicas[0], worker):
            process.wait_for_log(CHANGED)
        tasks.wait_for(3)
        server.ask("ACL", "SETUSER", "gateway", "<old")
        tasks.wait_for(3)
    for process in (site.replicas[0], worker):
        assert process.logged("task store is not available") == []
        assert process.metric("gateway_redis_errors_total") == 0
        assert "old@" not in process.log_text()
    server.ask("CLIENT", "KILL", "USER", "gateway")
    with Tasks(site) as tasks:
        tasks.wait_for(3)


def test_without_a_signal_the_file_is_read_again_and_a_broken_one_changes_nothing(
    server: Server, start_site: Callable[..., Site], tmp_path: Path
) -> None:
    file = tmp_path / "redis-url"
    file.write_text(server.url)
    site = start_site(GATEWAY_REDIS_URL="", GATEWAY_REDIS_URL_FILE=str(file))
    site.worker("w1")
    file.write_text("https://user:hunter2@127.0.0.1")
    (line,) = site.replicas[0].wait_for_log("file of the Redis URL rejected; the current one is used")
    assert "hunter2" not in str(line)
    assert site.text(site.create("say", text="x"))
    file.write_text(f"redis://127.0.0.1:{server.port}")
    site.replicas[0].wait_for_log(CHANGED)
    assert site.text(site.create("say", text="x"))
