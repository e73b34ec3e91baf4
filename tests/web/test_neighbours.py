"""Processes of one host exchange messages through sockets in a folder that nobody else can enter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from gateway.sealing.keyring import KeyRing
from gateway.tokens.hop_messages import MAX_REPLY_BYTES, NoReply
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.stream_receiver import StreamOutput
from gateway.web import neighbours as module
from gateway.web.neighbours import LocalNeighbours
from loadtest.cluster import new_key

OLD, NEW = new_key(), new_key()
A, B = b"a" * 16, b"b" * 16
MAX_BYTES = 300_000


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="gw-") as folder:
        yield Path(folder)


async def refuse(message: bytes, output: StreamOutput) -> bool:
    return False


class Process:
    """A process of a host, with the messages that it got, and its reply."""

    def __init__(self, parent: Path, boot: bytes, ring: str = OLD, audience: str = "tests") -> None:
        self.keys = KeyHolder(KeyRing.parse(ring), audience, clock=lambda: 0.0, random_bytes=os.urandom)
        self.sockets = LocalNeighbours(self.keys, boot, max_bytes=MAX_BYTES, parent=parent)
        self.taken: list[bytes] = []
        self.reply: Callable[[bytes], bytes | None] = lambda message: b"re: " + message[:10]
        self.answering = refuse

    def take(self, message: bytes) -> bytes | None:
        self.taken.append(message)
        return self.reply(message)

    async def answer(self, message: bytes, output: StreamOutput) -> bool:
        self.taken.append(message)
        return await self.answering(message, output)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        async with self.sockets.listening(self.take, self.answer):
            yield self


async def test_a_message_of_any_size_gets_its_reply(parent: Path) -> None:
    here = Process(parent, A)
    async with Process(parent, B).running() as there, here.running():
        for message in (b"m", os.urandom(MAX_BYTES)):
            assert await here.sockets.post(B, message) == b"re: " + message[:10]
        there.reply = lambda _: bytes(MAX_REPLY_BYTES)
        assert await here.sockets.post(B, b"m") == bytes(MAX_REPLY_BYTES)
        assert not here.sockets.has(b"c" * 16)
    assert [len(message) for message in there.taken] == [1, MAX_BYTES, 1]


async def test_messages_at_once_get_their_own_replies(parent: Path) -> None:
    here = Process(parent, A)
    async with Process(parent, B).running() as there:
        there.reply = lambda message: message
        messages = [b"%d" % number for number in range(200)]
        assert await asyncio.gather(*(here.sockets.post(B, message) for message in messages)) == messages


async def test_what_is_refused_or_too_long_gets_no_reply(parent: Path) -> None:
    here = Process(parent, A)
    async with Process(parent, B).running() as there:
        there.reply = lambda message: None if len(message) > MAX_BYTES else b""
        for message in (b"refused", bytes(2 * MAX_BYTES)):
            with pytest.raises(NoReply):
                await here.sockets.post(B, message)
    assert max(map(len, there.taken)) < 2 * MAX_BYTES, "reading stops at the limit"


async def test_a_fault_with_one_message_keeps_no_other_from_its_reply(parent: Path) -> None:
    def fail(_message: bytes) -> bytes:
        raise RuntimeError

    here = Process(parent, A)
    async with Process(parent, B).running() as there:
        there.reply, works = fail, there.reply
        with pytest.raises(NoReply):
            await here.sockets.post(B, b"m")
        there.reply = works
        assert await here.sockets.post(B, b"m") == b"re: m"


async def test_a_silent_process_costs_no_more_than_the_limit(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.05)
    here = Process(parent, A)
    async with Process(parent, B).running() as there:
        path = only_socket(parent)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as frozen:
            frozen.bind(str(path))
            frozen.listen()
            with pytest.raises(NoReply) as caught:
                await here.sockets.post(B, b"m")
            assert caught.value.fields == {"reason": "TimeoutError"}
    assert there.taken == []


def only_socket(parent: Path) -> Path:
    (path,) = parent.glob("sealed-gateway-*/*")
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_the_folder_is_private_and_nothing_is_left_at_the_end(parent: Path) -> None:
    async with Process(parent, A).running(), Process(parent, B).running():
        (name,) = names(parent)
        folder = parent / name
        assert folder.stat().st_mode & 0o777 == 0o700
        assert names(folder) == {A.hex(), B.hex()}
        assert OLD not in folder.name
    assert names(parent) == set()


async def test_processes_of_another_deployment_are_not_found(parent: Path) -> None:
    async with Process(parent, B, NEW).running(), Process(parent, B, audience="other").running():
        assert not Process(parent, A).sockets.has(B)


async def test_processes_find_each_other_in_each_phase_of_a_rotation(parent: Path) -> None:
    rings = [OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", NEW]
    here, there = Process(parent, A), Process(parent, B)
    async with here.running(), there.running():
        for ring in rings:
            for process in (here, there):
                process.keys.replace(KeyRing.parse(ring))
                assert here.sockets.has(B)
                assert there.sockets.has(A)
                assert await here.sockets.post(B, b"m") == b"re: m"
                assert await Process(parent, b"c" * 16, ring).sockets.post(A, b"m") == b"re: m"
        assert len(names(parent)) == 1, "the folder of the old key has gone"
    assert names(parent) == set()


async def test_sockets_of_killed_processes_are_removed_and_those_of_others_stay(parent: Path) -> None:
    async with Process(parent, A).running():
        folder = only_socket(parent).parent
        stale, other = folder / B.hex(), folder / "notes"
        other.touch()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(stale))
        assert Process(parent, A).sockets.has(B)
        with pytest.raises(NoReply) as caught:
            await Process(parent, A).sockets.post(B, b"m")
        assert caught.value.fields == {"reason": "ConnectionRefusedError"}
        async with Process(parent, b"c" * 16).running():
            assert names(folder) == {A.hex(), (b"c" * 16).hex(), "notes"}


def make_readable(folder: Path) -> None:
    folder.mkdir(mode=0o755)


def make_link(folder: Path) -> None:
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)


def make_file(folder: Path) -> None:
    folder.touch(mode=0o600)


def give_away(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


@pytest.mark.parametrize("make", [make_readable, make_link, make_file, give_away])
async def test_a_folder_that_others_may_control_is_not_used(
    make: Callable[[Path], None], parent: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last one needs root, as whom CI runs."""
    process = Process(parent, A)
    if make is give_away and os.geteuid() != 0:
        make = make_readable
    make(parent / f"sealed-gateway-{process.keys.folder_names[0]}")
    async with process.running():
        assert not process.sockets.has(A)
    (record,) = caplog.records
    assert "cannot deliver answers to each other" in record.getMessage()
    assert "set XDG_RUNTIME_DIR" in record.getMessage()


async def test_a_folder_that_others_control_later_is_not_trusted(parent: Path) -> None:
    async with Process(parent, B).running():
        here = Process(parent, A)
        only_socket(parent).parent.chmod(0o755)
        assert not here.sockets.has(B)


@pytest.mark.parametrize("name", ["missing", "x" * 100], ids=["missing", "long"])
async def test_where_no_socket_can_be_there_is_one_line_and_no_more(
    name: str, parent: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = parent / name
    if name != "missing":
        place.mkdir()
    process = Process(place, A)
    async with process.running():
        assert not process.sockets.has(A)
        process.keys.replace(KeyRing.parse(NEW))
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("value", [None, "", "relative", "/nowhere/at/all"])
async def test_without_a_runtime_folder_the_one_for_temporary_files_is_used(
    value: str | None, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    if value is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    keys = KeyHolder(KeyRing.parse(OLD), "tests", clock=lambda: 0.0, random_bytes=os.urandom)
    async with LocalNeighbours(keys, A, max_bytes=1).listening(lambda _: None, refuse):
        assert only_socket(parent).name == A.hex()
