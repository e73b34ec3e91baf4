"""Applies changed files, such as those of keys, without a restart."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from gateway.errors import ConfigurationError
from gateway.runtime.background import in_thread, task_running
from gateway.runtime.reread import rereading

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.1
"""The pause between two readings of a file that has to be looked at now."""

MOST_READINGS: Final = 5
"""How often such a file is read if it keeps changing. Then the next polls decide."""

MAX_FILE_BYTES: Final = 1 << 20
MAX_FURTHER_BYTES: Final = 1 << 24
"""How much of a further file counts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One reading of the file. Two readings are equal if they found the same content or the same problem in one place.

    Attributes:
        place: the path with all symlinks resolved, since Kubernetes uses one to swap a whole directory.
        digest: the SHA-256 of the content and of the further files, so no key stays in memory here.
    """

    place: str
    digest: bytes = b""
    problem: str = ""


@dataclass(slots=True)
class FileWatcher(Generic[T]):
    """Watches one file, such as that of keys.

    A new content is applied once two readings agree, so a half-written file is not, and only if all of it can be
    parsed. Otherwise the log reports the problem, once for each content. It never shows the content.

    Args:
        parse: parses the content; raises a `ConfigurationError` that does not quote it.
        take: applies the parsed value, on the event loop; must accept the same value again.
        also: returns further files that the parsed value depends on. A change of one counts as a change of the file.
        refusal: what the log says of a content that cannot be used.
    """

    setting: str
    path: Path
    parse: Callable[[bytes], T]
    take: Callable[[T], None]
    poll_seconds: float = POLL_SECONDS
    _: KW_ONLY
    also: Callable[[], Iterable[Path]] = tuple
    refusal: str = "key file rejected; the current keys stay in use"
    _last: _Seen | None = field(default=None, init=False)
    _settled: _Seen | None = field(default=None, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch while the context is open."""
        with rereading(self.look_now):
            async with task_running(self._watch()):
                yield

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self.poll_seconds)

    async def look(self) -> None:
        """Read the file once, and apply it if the previous reading agrees."""
        async with self._looking:
            await self._look()

    async def look_now(self) -> None:
        """Read the file until two readings in a row agree, and apply it."""
        async with self._looking:
            self._last = None
            for _ in range(MOST_READINGS):
                if await self._look():
                    break
                await asyncio.sleep(SETTLE_SECONDS)

    async def _look(self) -> bool:
        """Read the file once, and return whether the previous reading agrees. If so, apply the file."""
        seen, content = await in_thread("read-keys", self._read)
        agreed, self._last = seen == self._last, seen
        if agreed and seen != self._settled:
            self._settled = seen
            self._apply(seen, content)
        return agreed

    def _apply(self, seen: _Seen, content: bytes) -> None:
        if seen.problem:
            self._refuse(seen.problem)
            return
        try:
            parsed = self.parse(content)
        except ConfigurationError as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - its text may quote the content
            self._refuse(type(error).__name__)
        else:
            self.take(parsed)

    def _read(self) -> tuple[_Seen, bytes]:
        place = ""
        try:
            place = str(self.path.resolve(strict=True))
            with Path(place).open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, RuntimeError) as error:  # before Python 3.13, a loop of symlinks raises RuntimeError
            reason = getattr(error, "strerror", None) or type(error).__name__
            return _Seen(place, problem=f"cannot be read: {reason}"), b""
        if len(content) > MAX_FILE_BYTES:
            return _Seen(place, problem=f"larger than {MAX_FILE_BYTES} bytes"), b""
        digest = hashlib.sha256(hashlib.sha256(content).digest())
        for path in self.also():
            digest.update(_digest_of(path))
        return _Seen(place, digest.digest()), content

    def _refuse(self, reason: str) -> None:
        log.error(
            self.refusal,
            extra={"setting": self.setting, "file": str(self.path), "reason": reason},
        )


def _digest_of(path: Path) -> bytes:
    """Return a digest of a file, or of the reason why it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MAX_FURTHER_BYTES)).digest()
    except OSError as error:
        return hashlib.sha256(str(error.errno).encode()).digest()
