"""Takes over key files that change, without a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from gateway.errors import ConfigurationError
from gateway.runtime.background import in_thread, task_running

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
MAX_FILE_BYTES: Final = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One reading of the file. Two are equal if the same file held the same content, or if it failed alike.

    Attributes:
        place: the path with every symlink followed: Kubernetes swaps a whole directory by one.
        digest: SHA-256 of the content; nothing here keeps a key.
        problem: why there is no content.
    """

    place: str
    digest: bytes = b""
    problem: str = ""


class FileWatcher(Generic[T]):
    """Watches one key file.

    What it holds is taken over once two readings agree, so that a file in the middle of being written is not, and
    only if all of it can be parsed. Otherwise the log says so, once for each content, never what the content is.

    Args:
        setting: the setting that names the file, for the log.
        path: the file.
        parse: makes of its content what is taken over; raises `ConfigurationError` without the content in it.
        take: takes it over, on the event loop; the same as before is no news to it.
        poll_seconds: time between two readings.
    """

    def __init__(
        self,
        setting: str,
        path: Path,
        parse: Callable[[bytes], T],
        take: Callable[[T], None],
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._setting = setting
        self._path = path
        self._parse = parse
        self._take = take
        self._poll_seconds = poll_seconds
        self._last: _Seen | None = None
        self._settled: _Seen | None = None

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch while the context is open."""
        return task_running(self._watch())

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._poll_seconds)

    async def look(self) -> None:
        """Read the file once, and take it over if the reading before agrees."""
        seen, content = await in_thread("read-keys", self._read)
        agreed, self._last = seen == self._last, seen
        if not agreed or seen == self._settled:
            return
        self._settled = seen
        if seen.problem:
            self._refuse(seen.problem)
            return
        try:
            parsed = self._parse(content)
        except ConfigurationError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - its text may hold the content
            self._refuse(type(error).__name__)
        else:
            self._take(parsed)

    def _read(self) -> tuple[_Seen, bytes]:
        place = ""
        try:
            place = str(self._path.resolve(strict=True))
            with Path(place).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, RuntimeError) as error:  # before Python 3.13 a loop of symlinks is the latter
            reason = getattr(error, "strerror", None) or type(error).__name__
            return _Seen(place, problem=f"it cannot be read: {reason}"), b""
        if len(content) > MAX_FILE_BYTES:
            return _Seen(place, problem=f"it is larger than {MAX_FILE_BYTES} bytes"), b""
        return _Seen(place, hashlib.sha256(content).digest()), content

    def _refuse(self, reason: str) -> None:
        log.error(
            "key file refused; the keys stay as they are",
            extra={"setting": self._setting, "file": str(self._path), "reason": reason},
        )
