"""The sources of public keys: a watched file, or the URL of a provider.

After any failure the previous keys stay: a provider that is down for an hour must not lock everyone out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from gateway.auth.fetch import FetchFailed, fetch
from gateway.auth.keys import Keys, KeySet, KeysUnavailable
from gateway.ensured import ensured
from gateway.errors import ConfigurationError, Overloaded
from gateway.observability.clock_watch import ClockSource
from gateway.observability.metrics import Telemetry
from gateway.runtime.background import task_running
from gateway.runtime.file_watcher import FileWatcher
from gateway.runtime.reread import rereading
from gateway.runtime.sources import Clock
from gateway.settings.hosts import place_of

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
"""Between two reads from a provider that does not answer."""
MIN_ASKED_SECONDS: Final = RETRY_SECONDS
"""Between two reads because of unknown key ids: the content of clients' tokens must not drive us. Anybody can invent
key ids, so while such tokens arrive, a new key may count that much later."""
FETCH_SECONDS: Final = 5.0
MAX_WAITING: Final = 8
"""Requests that may wait for a read in progress. Their tokens are not verified yet, so more are refused at once."""
MAX_KEY_SET_BYTES: Final = 1 << 18
MAX_LEFT: Final = 1024
"""How many former keys a process remembers: streams may be open that were authorized by one of them."""

FILE_SETTING: Final = "GATEWAY_JWKS_FILE"
URL_SETTING: Final = "GATEWAY_JWKS_URL"


def read_key_file(path: Path, algorithms: Iterable[str]) -> KeySet:
    """Return the key set in a file. If it cannot be read, or has no usable key, raise `ConfigurationError`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"{FILE_SETTING}: {str(path)!r} cannot be read: {reason}; name a readable file"
        ) from None
    return KeySet.parse(content, algorithms, source=FILE_SETTING)


class CurrentKeys(Keys):
    """The current key set."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._keys: KeySet | None = None
        self._left: dict[bytes, None] = {}  # ordered
        self._forget: list[Callable[[], None]] = []

    @override
    def on_change(self, forget: Callable[[], None]) -> None:
        self._forget.append(forget)

    @override
    def name_of(self, key: Any) -> bytes:
        return ensured(self._keys, "the key came from it").name_of(key)

    @override
    def has_left(self, name: bytes) -> bool:
        return name in self._left

    def take(self, keys: KeySet) -> None:
        """Use a newer key set from now on."""
        if keys == self._keys:
            return
        self._note_left(keys)
        self._keys = keys
        self._telemetry.token_keys(len(keys.keys))
        for forget in self._forget:
            forget()
        log.info("token keys replaced", extra={"keys": len(keys.keys), "key_ids": ", ".join(keys.key_ids)})

    def _note_left(self, keys: KeySet) -> None:
        """Note which keys leave with this set, and which come back. Only the latest `MAX_LEFT` are remembered."""
        stay = {key.name for key in keys.keys}
        before = () if self._keys is None else (key.name for key in self._keys.keys)
        left = dict.fromkeys(name for name in (*self._left, *before) if name not in stay)
        self._left = dict.fromkeys(list(left)[-MAX_LEFT:])


class FileKeys(CurrentKeys):
    """The key set in a file, read again when the file changes. The first reading may raise `ConfigurationError`."""

    def __init__(self, path: Path, algorithms: Iterable[str], telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._algorithms = frozenset(algorithms)
        self._watcher = FileWatcher(FILE_SETTING, path, self._parse, self.take)
        self.take(read_key_file(path, self._algorithms))

    def _parse(self, content: bytes) -> KeySet:
        return KeySet.parse(content, self._algorithms, source=FILE_SETTING)

    @override
    async def find(self, algorithm: str, key_id: str | None) -> Any:
        return ensured(self._keys, "the constructor has read it").find(algorithm, key_id)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch the file while the context is open."""
        return self._watcher.running()


class UrlKeys(CurrentKeys):
    """The key set that an identity provider publishes.

    It is read when `running` begins and every `refresh_seconds`, or `retry_seconds` from a provider that does not
    answer. It is also read when a token names an unknown key, but then at most once in `min_asked_seconds`. There is
    one read at a time, and up to `MAX_WAITING` requests wait for it. After a failure no request waits; the read is
    repeated only at regular intervals until one succeeds.
    """

    def __init__(
        self,
        url: str,
        algorithms: Iterable[str],
        telemetry: Telemetry,
        *,
        refresh_seconds: float,
        retry_seconds: float = RETRY_SECONDS,
        min_asked_seconds: float = MIN_ASKED_SECONDS,
        fetch_seconds: float = FETCH_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(telemetry)
        self._url = url
        self._place = place_of(url)
        self._algorithms = frozenset(algorithms)
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = retry_seconds
        self._min_asked_seconds = min_asked_seconds
        self._fetch_seconds = fetch_seconds
        self._clock = clock
        self._may_ask_at = -float("inf")
        self._reading: asyncio.Task[None] | None = None
        self._problem: str | None = None
        self._failed = asyncio.Event()
        self._waiting = 0

    async def find(self, algorithm: str, key_id: str | None) -> Any:
        """Return the key for a token with this header, reading the set again first if that may help.

        If too many requests wait for that read, this raises `Overloaded`.
        """
        if not self._knows(key_id):
            await self._learn(key_id)
        if self._keys is None:
            raise KeysUnavailable
        return self._keys.find(algorithm, key_id)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read the key set, then keep it fresh while the context is open.

        A provider that does not answer delays the start by the time limit of a read, but does not prevent it.
        """
        await self._read()
        try:
            with rereading(self._read_anew):
                async with task_running(self._keep_fresh()):
                    yield
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait({self._reading})

    def _knows(self, key_id: str | None) -> bool:
        # A token without a key id names no key that another read could find.
        return self._keys is not None and (key_id is None or self._keys.has(key_id))

    async def _learn(self, key_id: str | None) -> None:
        if not self._may_learn():
            return
        if self._waiting >= MAX_WAITING:
            raise Overloaded
        self._waiting += 1
        try:
            if self._reading is not None:
                # It may have begun before the key was published, so another one may be needed.
                await self._read()
                if self._knows(key_id) or not self._may_learn():
                    return
            if self._reading is None:
                self._may_ask_at = self._clock() + self._min_asked_seconds
            await self._read()
        finally:
            self._waiting -= 1

    def _may_learn(self) -> bool:
        """Return whether waiting can help: the last read succeeded, and a read is in progress or allowed."""
        return self._problem is None and (self._reading is not None or self._clock() >= self._may_ask_at)

    async def _keep_fresh(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_seconds):
                    await self._failed.wait()  # also set after a read that a token triggered
            if self._failed.is_set():
                await asyncio.sleep(self._retry_seconds)
            await self._read()

    async def _read(self) -> None:
        """Read the key set once, or wait for the read in progress."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_once())
        # A client that disconnects must not end the read for the others.
        await asyncio.shield(self._reading)

    async def _read_anew(self) -> None:
        """Read the key set with a read that begins now."""
        if self._reading is not None:
            await self._read()
        await self._read()

    async def _read_once(self) -> None:
        problem: str | None = None
        try:
            fetched = await fetch(self._url, seconds=self._fetch_seconds, max_bytes=MAX_KEY_SET_BYTES)
            if fetched.time is not None:
                self._telemetry.clocks.compare(ClockSource.IDENTITY_PROVIDER, fetched.time)
            self.take(KeySet.parse(fetched.body, self._algorithms, source=URL_SETTING))
        except (FetchFailed, ConfigurationError) as error:
            problem = str(error)
        except Exception as error:  # requests that wait for the keys must not get an unknown error
            log.exception("token keys not read")
            problem = type(error).__name__
        finally:
            self._reading = None
        self._telemetry.token_keys_read(failed=problem is not None)
        if problem is not None and problem != self._problem:
            log.warning("token keys not read; keeping the previous ones", extra={"url": self._place, "reason": problem})
        elif problem is None and self._problem is not None:
            log.info("token keys are read again", extra={"url": self._place})
        self._problem = problem
        if problem is None:
            self._failed.clear()
        else:
            self._failed.set()
