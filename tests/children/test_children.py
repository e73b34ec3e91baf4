"""Child processes run as their commands say, and leave no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gateway.children.children import ChildFailure, ChildProcess, Children, NoRoomForChild, Program
from gateway.children.watcher import MARK
from gateway.process.upstreams import children_shared_by_callers
from gateway.upstreams.bulkhead import Bulkhead
from tests.children.running import (
    HOPPERS,
    LEADERLESS,
    STUBBORN,
    alive,
    is_locked,
    marker,
    none_alive,
    python,
    some_alive,
)
from tests.waiting import until

ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"
REPORT = """
import json, os, sys
print(json.dumps({
    "arguments": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "session": os.getsid(0),
    "group": os.getpgid(0), "parent": os.getppid(), "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
}))
"""


@pytest.fixture
async def children() -> AsyncIterator[Children]:
    children = Children(3)
    yield children
    await children.aclose()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def watcher_of(child: ChildProcess) -> int:
    return parent_of(child.pid)


def seen_of(pid: int) -> tuple[bytes, dict[str, str]]:
    """Return the variables of a process, and where its descriptors lead."""
    place = Path("/proc") / str(pid)
    opened = {number.name: str(number.readlink()) for number in (place / "fd").iterdir()}
    return (place / "environ").read_bytes(), opened


async def test_a_program_has_its_arguments_its_variables_its_folder_and_a_group_of_its_own(
    children: Children, tmp_path: Path
) -> None:
    env = {
        "LC_ALL": "C.UTF-8",
        "ODD": "ä\udcff\n",
        "LARGE": "x" * 100_000,
        **{f"L{n}": "y" * 100_000 for n in range(9)},
    }
    child = await children.start(Program([sys.executable, "-c", REPORT, "one", "two words"], env, cwd=str(tmp_path)))
    said = json.loads(await child.stdout.read())
    assert said["arguments"] == ["one", "two words"]
    assert said["env"] == {**env, MARK: "1"}
    assert said["cwd"] == str(tmp_path)
    assert said["session"] == said["group"] == child.pid
    assert said["parent"] != os.getpid()
    assert said["descriptors"] == [0, 1, 2, 3]  # the last one is the folder that it lists
    await child.exited.wait()
    assert child.exit_code == 0


async def test_the_watcher_has_no_variable_and_no_descriptor_but_its_own(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_JWT_SECRET", "not for the watcher")
    kept = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept, True)
    watcher = watcher_of(await children.start(python(ECHO)))
    os.close(kept)
    await until(lambda: len(seen_of(watcher)[1]) == 5)  # it closes the pipes of the child
    variables, opened = seen_of(watcher)
    assert b"GATEWAY" not in variables
    assert opened.pop("0").startswith("socket:")
    assert (opened.pop("1"), opened.pop("2")) == ("/dev/null", "/dev/null")
    assert all(each.startswith("pipe:") for each in opened.values())


async def test_a_program_may_end_by_itself_when_it_is_stopped(children: Children) -> None:
    child = await children.start(python(ECHO))
    child.stdin.write(b"hello\n")
    assert await child.stdout.readline() == b"HELLO\n"
    began = time.monotonic()
    await child.stop()
    assert time.monotonic() - began < 1.5
    assert child.exit_code == 0


async def test_a_program_that_keeps_running_gets_sigterm(children: Children) -> None:
    mark = marker()
    child = await children.start(python("import time\ntime.sleep(60)", mark))
    await some_alive(mark, 1)
    await child.stop()
    assert child.exit_code == -signal.SIGTERM
    assert not alive(mark)


async def test_stopping_ends_everything_that_a_program_has_started(children: Children) -> None:
    mark, other = marker(), marker()
    child, neighbour = await children.start(python(STUBBORN, mark)), await children.start(python(STUBBORN, other))
    await some_alive(mark, 3)
    await some_alive(other, 3)
    await child.stop()
    assert child.exit_code == -signal.SIGKILL
    assert not alive(mark)
    assert len(alive(other)) == 3
    assert not neighbour.exited.is_set()


async def test_what_a_program_leaves_behind_is_ended(children: Children) -> None:
    mark = marker()
    leaves = (
        "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]])"
    )
    child = await children.start(python(f"{leaves}\nsys.exit(3)", mark))
    await child.exited.wait()
    assert child.exit_code == 3
    await none_alive(mark, 5)


async def test_only_so_many_programs_run(children: Children) -> None:
    running = [await children.start(python(ECHO)) for _ in range(3)]
    with pytest.raises(ChildFailure, match="3 child processes run already, and GATEWAY_MAX_CHILDREN"):
        await children.start(python(ECHO))
    await running[0].stop()
    await children.start(python(ECHO))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Program(["npx"], {"PATH": "/no"}), "No such file or directory; npx is in no folder of PATH: write its whole"),
        (Program(["~/bin/x"], {"PATH": "/bin"}), "No such file or directory; write the whole path, as ~ is not"),
        (Program(["sh --key s3cret"], {"PATH": "/bin"}), "No such file or directory; put the arguments of the"),
        (Program(["/no/such"], {}), "No such file or directory; /no/such is not a program$"),
        (Program(["/dev/null"], {}), "Permission denied; /dev/null is not a program$"),
        (Program(["sh"], {"PATH": "/bin"}, cwd="/no/such/folder"), "No such file or directory$"),
        (Program(["sh", "x" * 200_000], {"PATH": "/bin"}), "Argument list too long"),
    ],
)
async def test_a_program_that_cannot_be_run_harms_no_other(children: Children, command: Program, reason: str) -> None:
    child = await children.start(python(ECHO))
    for _ in range(3):  # it takes no room
        with pytest.raises(ChildFailure, match=reason):
            await children.start(command)
    child.stdin.write(b"hello\n")
    assert await child.stdout.readline() == b"HELLO\n"


async def test_an_owner_of_many_children_leaves_room_for_those_of_others() -> None:
    children = children_shared_by_callers(4)
    try:
        held = [await children.start(python(ECHO), "ada") for _ in range(3)]
        with pytest.raises(NoRoomForChild):
            await children.start(python(ECHO), "ada")
        await (await children.start(python(ECHO), "bob")).stop()
        everybody = await children.start(python(ECHO))
        await everybody.stop()
        for _ in range(2):
            with pytest.raises(ChildFailure, match="No such file"):
                await children.start(Program(["no-such-program"], {"PATH": "/bin"}), "bob")
        waiting = asyncio.create_task(children.start(python(ECHO), "ada"))
        await held[0].stop()
        await waiting
    finally:
        await children.aclose()


async def test_children_of_everybody_do_not_count_when_owners_share_the_room() -> None:
    children = children_shared_by_callers(8)
    try:
        common = [await children.start(python(ECHO)) for _ in range(4)]
        for _ in range(3):
            await children.start(python(ECHO), "ada")
        with pytest.raises(NoRoomForChild):
            await children.start(python(ECHO), "ada")
        await children.start(python(ECHO), "bob")
        await common[0].stop()
        await children.start(python(ECHO))
        assert children.common == 4
    finally:
        await children.aclose()


async def test_an_unused_child_ends_if_another_owner_needs_its_room() -> None:
    children = Children(4, Bulkhead(4, None, lambda _count: None))

    class Pool:
        """Has one unused child."""

        def __init__(self, child: ChildProcess) -> None:
            self.child = child
            self.asked: list[tuple[object, int]] = []

        def make_room(self, caller: object, held_by: Callable[[Any], int]) -> bool:
            self.asked.append((caller, held_by("ada")))
            self.stopping = asyncio.create_task(self.child.stop())
            return True

    try:
        pool = Pool(await children.start(python(ECHO), "ada"))
        children.lenders.add(pool)
        for _ in range(2):
            await children.start(python(ECHO), "ada")
        assert pool.asked == []
        await children.start(python(ECHO), "bob")
        await children.start(python(ECHO), "bob")
        assert pool.asked == [("bob", 3)]
        await pool.stopping
    finally:
        await children.aclose()


async def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    mark, children = marker(), Children(20)
    await children.start(python(ECHO))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for pauses in range(12):
        starting = asyncio.create_task(children.start(python(ECHO, mark)))
        for _ in range(pauses):
            await asyncio.sleep(0)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await starting).stop()
    await none_alive(mark, 5)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # noqa: PTH208
    await children.aclose()


@pytest.mark.parametrize("dies", ["watcher", "guard"])
async def test_if_the_watcher_or_its_guard_dies_nothing_is_left_and_another_one_starts(
    children: Children, dies: str
) -> None:
    mark = marker()
    child = await children.start(python(STUBBORN, mark))
    await some_alive(mark, 3)
    watcher = watcher_of(child)
    assert (children.running, children.watchers_lost) == (1, 0)
    os.kill(watcher if dies == "watcher" else parent_of(watcher), signal.SIGKILL)
    async with asyncio.timeout(5):
        await child.exited.wait()
    assert await none_alive(mark, 5) < 5
    await child.stop()
    another = await children.start(python(ECHO))
    assert watcher_of(another) != watcher
    assert (children.running, children.watchers_lost) == (1, 1)
    another.stdin.write(b"hello\n")
    assert await another.stdout.readline() == b"HELLO\n"


async def test_closing_ends_all(children: Children) -> None:
    mark = marker()
    for _ in range(3):
        await children.start(python(STUBBORN, mark))
    await some_alive(mark, 9)
    await children.aclose()
    assert not alive(mark)


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("with_watcher", [False, True])
async def test_nothing_is_alive_5_seconds_after_the_end_of_its_process(
    ended_by: signal.Signals, with_watcher: bool
) -> None:
    mark = marker()
    program = """
import asyncio, sys
from gateway.children.children import Children
from tests.children.running import STUBBORN, python

async def main():
    children = Children(2)
    for _ in range(2):
        child = await children.start(python(STUBBORN, sys.argv[1]))
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, mark),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert gateway.stdout is not None
    watcher = parent_of(int(await gateway.stdout.readline()))
    await some_alive(mark, 1 + 6)
    gateway.send_signal(ended_by)
    if with_watcher:
        os.kill(watcher, signal.SIGKILL)
    await gateway.wait()
    assert await none_alive(mark, 5) < 5


@pytest.mark.parametrize("sessions", ["once", "always"])
@pytest.mark.parametrize("end", ["stop", "kill of the watcher"])
async def test_processes_that_start_another_one_and_end_all_the_time_are_ended(
    children: Children, tmp_path: Path, end: str, sessions: str
) -> None:
    mark, lock = marker(), tmp_path / "lock"
    neighbour = await children.start(python(STUBBORN, mark))
    child = await children.start(python(HOPPERS, str(lock), sessions))
    for _ in range(5):
        assert await child.stdout.readline() == b"running\n"
    await some_alive(mark, 3)
    async with asyncio.timeout(5):
        if end == "stop":
            await child.stop()
        else:
            os.kill(watcher_of(child), signal.SIGKILL)
        await until(lambda: not is_locked(lock))
    if end == "stop":
        assert len(alive(mark)) == 3
        assert not neighbour.exited.is_set()


@pytest.mark.parametrize("whose", ["program", "daemon"])
@pytest.mark.parametrize("end", ["stop", "end of the watcher", "kill of the watcher"])
async def test_processes_whose_first_thread_has_ended_are_ended(
    children: Children, tmp_path: Path, end: str, whose: str
) -> None:
    lock = tmp_path / "lock"
    child = await children.start(python(LEADERLESS, str(lock), whose))
    assert await child.stdout.readline() == b"running\n"
    assert is_locked(lock)
    async with asyncio.timeout(8):
        if end == "stop":
            await child.stop()
            assert children.running == 0
        elif end == "end of the watcher":
            await children.aclose()
        else:
            os.kill(watcher_of(child), signal.SIGKILL)
        await until(lambda: not is_locked(lock))


@pytest.mark.parametrize("sessions", ["once", "always"])
async def test_they_do_not_outlive_their_gateway_process(tmp_path: Path, sessions: str) -> None:
    lock = tmp_path / "lock"
    program = """
import asyncio, sys
from gateway.children.children import Children
from tests.children.running import HOPPERS, python

async def main():
    child = await Children(1).start(python(HOPPERS, *sys.argv[1:]))
    for _ in range(5):
        await child.stdout.readline()
    print("running", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
    gateway = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(lock), sessions),
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert gateway.stdout is not None
    assert await gateway.stdout.readline() == b"running\n"
    async with asyncio.timeout(5):
        gateway.kill()
        await gateway.wait()
        await until(lambda: not is_locked(lock))


@pytest.mark.parametrize("make_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_the_pipes_of_a_child_are_closed_once_on_each_loop(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """uvloop closes a descriptor, then its file: by then, another thread may have opened one of the same number."""

    async def start_and_stop() -> None:
        children = Children(1)
        await (await children.start(python(ECHO))).stop()
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        for _ in range(3):
            child = await children.start(python(ECHO))
            files = [pipe.get_extra_info("pipe") for pipe in child._pipes]
            await child.stop()
            assert [file.closefd for file in files] == [make_loop is asyncio.new_event_loop] * 3
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # noqa: PTH208
        await children.aclose()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(start_and_stop())
