"""The processes of a deployment on one host, which reach each other through Unix sockets.

Processes that a server such as `uvicorn --workers` starts share one port, so no URL leads to one of them. Each listens
on a socket called by its boot id, in a folder that only its user can enter. The sockets carry the sealed messages that
replicas also post to each other's URL: the message until the end of the stream, then the reply. A request for a stream
is marked, and follows its length; then the stream follows until its end.

The folder's name is made from the key that seals, so it changes when keys rotate. A process then moves its socket, and
looks for others in the folders of all its keys: two processes that can open each other's messages find each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import stat
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from gateway.runtime.background import task_running
from gateway.tokens.hop_messages import MAX_REPLY_BYTES, LostPeer, NoReply
from gateway.tokens.key_holder import KeyHolder
from gateway.tokens.stream_receiver import StreamOutput
from gateway.tokens.stream_sender import MAX_STREAMS

SECONDS: Final = 2.0
"""How long a message and its reply may take."""

MAX_POSTS: Final = 32
"""How many messages may be in flight. More wait within their time limit."""

UNREAD_SECONDS: Final = 30.0
"""How long a process may not read a piece of a stream. Then the stream is cut off."""

_STREAM_MARK: Final = 0
"""The first byte of a request for a stream. No message begins with it, since formats are counted from 1."""

_STREAM_HEAD: Final = struct.Struct(">BI")
_NO_ANSWER: Final = "the process on this host does not answer"
_BACKLOG: Final = 1024
_PAUSE_SECONDS: Final = 0.5
_CHUNK_BYTES: Final = 65536
_FOLDER: Final = "sealed-gateway-"
_SOCKET: Final = re.compile(r"[0-9a-f]{32}")

log = logging.getLogger(__name__)

Take = Callable[[bytes], bytes | None]
"""Opens a message, and returns the reply; None if it is refused."""

Answer = Callable[[bytes, StreamOutput], Coroutine[Any, Any, bool]]
"""Opens a request for a stream, and writes the answer; False if it is refused."""


class LocalNeighbours:
    """Implements `gateway.tokens.hop_messages.Neighbours`. Use it only on the event loop.

    The keys name the folders. Without a parent, these are in `XDG_RUNTIME_DIR`, or in the folder for temporary files.
    """

    def __init__(self, keys: KeyHolder, boot: bytes, *, max_bytes: int, parent: Path | None = None) -> None:
        self._keys = keys
        self._boot = boot
        self._max_bytes = max_bytes
        self._parent = _runtime_folder() if parent is None else parent
        self._line = asyncio.Semaphore(MAX_POSTS)
        self._streams = asyncio.Semaphore(MAX_STREAMS)
        self._path: Path | None = None

    def has(self, boot: bytes) -> bool:
        """See `gateway.tokens.hop_messages.Neighbours.has`."""
        return self._find(boot) is not None

    @contextlib.asynccontextmanager
    async def stream(self, boot: bytes, message: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `gateway.tokens.hop_messages.Neighbours.stream`. Each request has a connection of its own."""
        async with self._streams:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                try:
                    path = self._find(boot)
                    if path is None:
                        raise FileNotFoundError
                    await _send(connection, path, _STREAM_HEAD.pack(_STREAM_MARK, len(message)) + message)
                except OSError as error:
                    reason = type(error).__name__
                    is_gone = isinstance(error, FileNotFoundError | ConnectionRefusedError)
                    raise LostPeer(_NO_ANSWER, may_have_acted=False, is_gone=is_gone, reason=reason) from None
                yield _pieces(connection)

    async def post(self, boot: bytes, message: bytes) -> bytes:
        """See `gateway.tokens.hop_messages.Neighbours.post`."""
        path = self._find(boot)
        try:
            async with asyncio.timeout(SECONDS), self._line:
                reply = b"" if path is None else await _exchange(path, message)
        except OSError as error:
            raise NoReply(_NO_ANSWER, reason=type(error).__name__) from None
        if not reply:
            raise NoReply("the process on this host refused the message, or has ended")
        return reply

    @contextlib.asynccontextmanager
    async def listening(self, take: Take, answer: Answer) -> AsyncIterator[None]:
        """Pass messages from other processes of this host to `take`, and requests for streams to `answer`.

        That lasts while the context is open.

        If the folder cannot be used, one line of the log says so, and no messages come.
        """
        try:
            listener = self._listen()
        except OSError as error:
            problem = (
                f"processes of this host cannot deliver answers to each other: {error.strerror or error}; set "
                "XDG_RUNTIME_DIR to a folder of this user, or GATEWAY_REPLICA_URL on each process"
            )
            log.warning(problem, extra={"folder": str(self._parent)})
            yield
            return
        self._keys.show(lambda _ids: self._move())
        try:
            with listener:
                async with task_running(self._accept(listener, take, answer)):
                    yield
        finally:
            self._leave()

    def _listen(self) -> socket.socket:
        """Open the socket of this process, or raise `OSError`. Remove those of ended ones."""
        path = self._own_path()
        _remove_stale(path.parent)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Until it listens it looks stale to others, so it gets its name only then.
            early = path.with_name(f"{path.name}.new")
            listener.bind(os.fspath(early))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            early.rename(path)
        except OSError:
            listener.close()
            raise
        self._path = path
        return listener

    def _own_path(self) -> Path:
        """Return where the socket of this process belongs, after making the folder.

        If the folder cannot be made, or others can enter it, this raises `OSError`.
        """
        folder = self._folders()[0]
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not _is_private(folder):
            raise PermissionError(f"{folder.name} is not a folder that this user alone can enter")
        return folder / self._boot.hex()

    def _folders(self) -> list[Path]:
        return [self._parent / f"{_FOLDER}{name}" for name in self._keys.folder_names]

    def _find(self, boot: bytes) -> Path | None:
        for folder in self._folders():
            path = folder / boot.hex()
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(path.lstat().st_mode) and _is_private(folder):
                    return path
        return None

    def _move(self) -> None:
        """Move the socket to the folder of the key that seals now."""
        if self._path is None:
            return
        before = self._path.parent
        try:
            path = self._own_path()
            self._path.rename(path)
        except OSError as error:
            problem = f"processes of this host no longer find this one: {error.strerror or error}"
            log.warning(problem, extra={"folder": str(self._parent)})
            return
        self._path = path
        if path.parent != before:
            _remove_if_empty(before)

    def _leave(self) -> None:
        path, self._path = self._path, None
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()
            _remove_if_empty(path.parent)

    async def _accept(self, listener: socket.socket, take: Take, answer: Answer) -> None:
        async with asyncio.TaskGroup() as serving:
            while True:
                try:
                    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError:  # too many open files
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    serving.create_task(self._serve(connection, take, answer))

    async def _serve(self, connection: socket.socket, take: Take, answer: Answer) -> None:
        with connection:
            connection.setblocking(False)
            try:
                async with asyncio.timeout(SECONDS):
                    message, is_stream = await self._read_message(connection)
                if is_stream:
                    await _answer(connection, message, answer)
                elif message:  # a process that starts connects and sends nothing
                    async with asyncio.timeout(SECONDS):
                        await asyncio.get_running_loop().sock_sendall(connection, take(message) or b"")
            except OSError:
                pass  # its sender notices
            except Exception:  # a bug must not keep other messages from being served
                log.exception("message of a process on this host not handled")

    async def _read_message(self, connection: socket.socket) -> tuple[bytes, bool]:
        """Return a message, and whether it asks for a stream."""
        received = bytearray()
        while len(received) <= self._max_bytes:
            data = await asyncio.get_running_loop().sock_recv(connection, _CHUNK_BYTES)
            if not data:
                break
            received += data
            if received[0] == _STREAM_MARK and len(received) >= _STREAM_HEAD.size:
                _, length = _STREAM_HEAD.unpack_from(received)
                if len(received) >= _STREAM_HEAD.size + length:
                    return bytes(received[_STREAM_HEAD.size :]), True
        return bytes(received), False


def _runtime_folder() -> Path:
    named = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    return named if named.is_absolute() and named.is_dir() else Path(tempfile.gettempdir())


def _is_private(folder: Path) -> bool:
    """Return whether this is a folder, not a link to one, that belongs to this user and nobody else can enter.

    If it does not exist, this raises `OSError`.
    """
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _remove_stale(folder: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for path in folder.iterdir():
        if _SOCKET.fullmatch(path.name) is None:
            continue
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # a full queue of connections is a sign of life
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink()


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


async def _exchange(path: Path, message: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        await _send(connection, path, message)
        connection.shutdown(socket.SHUT_WR)
        return await _read(connection, MAX_REPLY_BYTES)


async def _send(connection: socket.socket, path: Path, data: bytes) -> None:
    """Connect to the socket of a process, and send it something."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    await loop.sock_connect(connection, os.fspath(path))
    await loop.sock_sendall(connection, data)


async def _pieces(connection: socket.socket) -> AsyncIterator[bytes]:
    while piece := await asyncio.get_running_loop().sock_recv(connection, _CHUNK_BYTES):
        yield piece


async def _answer(connection: socket.socket, message: bytes, answer: Answer) -> None:
    """Answer a request for a stream. That ends if its sender leaves."""
    answering = asyncio.create_task(answer(message, _SocketOutput(connection)))
    leaving = asyncio.create_task(asyncio.get_running_loop().sock_recv(connection, 1))  # it sends nothing more
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = answering.done()
        answering.cancel()
        leaving.cancel()
        await asyncio.wait({answering, leaving})
    if ended:
        answering.result()


class _SocketOutput:
    """Implements `gateway.tokens.stream_receiver.StreamOutput`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def write(self, data: bytes, *, more: bool) -> None:
        del more  # the connection ends with the stream
        async with asyncio.timeout(UNREAD_SECONDS):
            await asyncio.get_running_loop().sock_sendall(self._connection, data)


async def _read(connection: socket.socket, limit: int) -> bytes:
    """Read until the end of the stream, or until there is more than the limit."""
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) <= limit:
        data = await loop.sock_recv(connection, _CHUNK_BYTES)
        if not data:
            break
        received += data
    return bytes(received)
