"""The output of the children of `gateway dev` is shown completely, and never blocks the run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gateway.cli.children import EXIT_CONFIGURATION, Child, Nursery, Orders
from gateway.cli.console import Console
from loadtest.cluster import wait_until
from tests.cli.test_dev_stopping import runs
from tests.waiting import until

PATIENCE_SECONDS = 25.0
LINE = "." * 99
LINES = 3000
WRITES_MUCH = f"import os; os.write(1, b'{LINE}\\n' * {LINES} + b'the end'); os._exit({EXIT_CONFIGURATION})"


def run_once(console: Console, *command: str) -> None:
    """Run a child that ends with exit code 2, so it is not restarted."""

    async def run() -> None:
        nursery = Nursery(dict(os.environ), Orders(), 0.0, console)
        await asyncio.wait_for(nursery.keep(Child("c1", list(command))), PATIENCE_SECONDS)

    asyncio.run(run())


@contextmanager
def read_slowly(descriptor: int) -> Iterator[list[bytes]]:
    """Read like a slow terminal, up to the end."""
    pieces: list[bytes] = []

    def read() -> None:
        while piece := os.read(descriptor, 8192):
            pieces.append(piece)
            time.sleep(0.04)

    thread = threading.Thread(target=read)
    thread.start()
    yield pieces
    thread.join(PATIENCE_SECONDS)


def test_the_last_words_of_a_child_are_complete_however_slowly_they_are_read() -> None:
    reader, writer = os.pipe()
    with read_slowly(reader) as pieces, os.fdopen(writer, "w") as stream:
        console = Console(stream, stream)
        run_once(console, sys.executable, "-S", "-c", WRITES_MUCH)
        console.close(PATIENCE_SECONDS)
    os.close(reader)
    lines = b"".join(pieces).decode().splitlines()
    assert lines.count(f"[c1] {LINE}") == LINES
    assert "[c1] the end" in lines
    assert "gateway dev: c1 died with exit code 2" in lines


def test_a_child_does_not_wait_for_a_reader_that_has_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        console = Console(stream, stream)
        assert console.is_gone
        run_once(console, sys.executable, "-S", "-c", WRITES_MUCH)
        console.close()


def test_processes_of_a_child_are_stopped_with_it_and_cannot_block_the_run(tmp_path: Path) -> None:
    """One process stays in the child's group and ignores SIGTERM; another leaves the group. Both keep its stdout."""
    path = tmp_path / "output"
    script = "trap '' TERM; sleep 600 & echo stayed $!; setsid sleep 600 & echo left $!; printf 'the end'; exit 2"
    with path.open("w") as stream:
        console = Console(stream, stream)
        run_once(console, "sh", "-c", script)
        console.close()
    lines = path.read_text().splitlines()
    pids = {words[1]: int(words[2]) for words in map(str.split, lines) if len(words) == 3 and words[2].isdigit()}
    os.kill(pids["left"], signal.SIGKILL)
    wait_until(lambda: not runs(pids["stayed"]), "the end of what has stayed", PATIENCE_SECONDS)
    assert "[c1] the end" in lines


def test_orders_to_end_are_no_deaths_however_fast_they_come(tmp_path: Path) -> None:
    """Three early deaths end a run; people who click fast may order more."""

    async def run(console: Console) -> None:
        orders = Orders()
        nursery = Nursery(dict(os.environ), orders, 1.0, console)
        child = Child("c1", ["sleep", "600"])
        keeper = asyncio.create_task(nursery.keep(child))
        for _ in range(4):
            await asyncio.wait_for(child.until("ready"), PATIENCE_SECONDS)
            nursery.kill(child)
            nursery.start(child)
        await asyncio.wait_for(child.until("ready"), PATIENCE_SECONDS)
        assert not keeper.done()
        nursery.stop(child)
        await asyncio.wait_for(child.until("stopped"), PATIENCE_SECONDS)
        orders.stopping.set()
        await asyncio.wait_for(keeper, PATIENCE_SECONDS)
        assert orders.exit_code == 0

    with (tmp_path / "output").open("w") as stream, closing(Console(stream, stream)) as console:
        asyncio.run(run(console))


def test_a_child_that_is_stopped_between_two_starts_is_not_started(tmp_path: Path) -> None:
    async def run(console: Console) -> None:
        orders = Orders()
        nursery = Nursery(dict(os.environ), orders, 1.0, console)
        child = Child("c1", ["false"])
        keeper = asyncio.create_task(nursery.keep(child))
        await until(lambda: child.early_deaths != 0)
        nursery.stop(child)
        child.command = ["sleep", "600"]
        await asyncio.wait([keeper], timeout=1.0)  # longer than the pause after a first death
        assert (child.starts, child.process, child.state) == (1, None, "stopped")
        orders.stopping.set()
        await asyncio.wait_for(keeper, PATIENCE_SECONDS)

    with (tmp_path / "output").open("w") as stream, closing(Console(stream, stream)) as console:
        asyncio.run(run(console))


def test_a_file_and_a_stream_without_a_descriptor_never_count_as_gone(tmp_path: Path) -> None:
    with (tmp_path / "output").open("w") as stream:
        console = Console(stream, stream)
        assert not console.is_gone
        console.close()
    console = Console(stream, stream)  # closed
    console.say("nothing")
    assert not console.is_gone
    console.close()
