"""Finds processes by a word in their arguments, and the programs that tests start."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import sys
import time
import uuid
from pathlib import Path

from gateway.children.children import Program
from tests.waiting import until

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        pass  # a daemon, with a session of its own and without a parent
    else:
        os._exit(0)
elif os.fork() == 0:
    pass  # an ordinary child
print("running", flush=True)
while True:
    time.sleep(60)
"""
"""A program that ignores SIGTERM and the end of its input, as two further processes do that it starts."""

HOPPERS = """
import fcntl, os, signal, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_SH)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ends_at = time.monotonic() + 20
if os.fork():
    sys.stdin.read()
    os._exit(0)
os.setsid()
for _ in range(4):
    if os.fork() == 0:
        break
print("running", flush=True)
while time.monotonic() < ends_at:
    if os.fork():
        os._exit(0)
    if sys.argv[2] == "always":
        os.setsid()
    time.sleep(0.001)
"""
"""A program that leaves 5 processes, each of which starts another one after 1 ms and ends.

It takes a file, which is locked until all have ended, and whether they have new sessions once or always.
"""

LEADERLESS = """
import ctypes, fcntl, os, sys, threading, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_SH)
if sys.argv[2] == "daemon":
    if os.fork():
        print("running", flush=True)
        sys.stdin.read()
        os._exit(0)
    os.setsid()

def work():
    if sys.argv[2] == "program":
        print("running", flush=True)
    time.sleep(20)
    os._exit(0)

threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A program whose first thread ends, or that of a daemon which it leaves, while another thread continues.

It takes a file, which is locked until all have ended.
"""


def python(program: str, *arguments: str, **env: str) -> Program:
    """Return a command that runs a text as a program."""
    return Program([sys.executable, "-c", program, *arguments], env)


def marker() -> str:
    """Return a word that no other process has in its arguments."""
    return f"marked-{uuid.uuid4().hex}"


def alive(mark: str) -> list[int]:
    """Return the processes with a word in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def below(pid: int) -> set[int]:
    """Return the processes that a process has started, and all that these have; also those that have just ended."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_locked(file: Path) -> bool:
    """Return whether a process holds the lock of a file."""
    with file.open("w") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


async def none_alive(mark: str, seconds: float) -> float:
    """Wait until no process has the word, and return how long that took."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        await until(lambda: not alive(mark))
    return time.monotonic() - began


async def some_alive(mark: str, count: int) -> None:
    """Wait until so many processes have the word."""
    await until(lambda: len(alive(mark)) >= count)
