"""The processes of `gateway dev` while it runs: replicas and workers that can be stopped, killed, started and added."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from typing_extensions import override

from gateway.cli.children import Child, Nursery, State
from gateway.cli.round_robin import Address, Backends
from gateway.ensured import ensured
from gateway.errors import ConfigurationError
from gateway.sealing.keyring import KeyRing, generate_entry

MAX_MEMBERS: Final = 8
"""The most replicas, and the most workers, of one run."""

ROTATION_SECONDS: Final = 5.0
"""The time between two steps of a rotation. All processes have read the file by then, and sealed with the new key."""

DEMO_RELEASE: Final = "GATEWAY_DEMO_RELEASE"

Kind: TypeAlias = Literal["replica", "holder", "worker"]
"""A holder is a replica that gets no requests of clients: see GATEWAY_HOLDERS."""


class CannotDo(Exception):
    """The order cannot be carried out. The message is for people."""


@dataclass(slots=True)
class Member:
    """One replica, holder or worker.

    `address` is where a replica listens to clients.
    """

    kind: Kind
    child: Child
    address: Address | None = None
    metrics: Address | None = None


class KeyFile:
    """The file with the seal keys of a run. It is written at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = [generate_entry(secrets.token_bytes)]
        self._is_turned = False
        self._turned_at = -ROTATION_SECONDS
        self._write()

    def rotate(self) -> str:
        """Take the next step of a rotation, and return it in words: old,new, then new,old, then new.

        Raises:
            CannotDo: the last step may not have reached all processes.
        """
        now = time.monotonic()
        if now - self._turned_at < ROTATION_SECONDS:
            raise CannotDo(f"Wait {ROTATION_SECONDS:g} seconds, until all processes have the keys of the last step")
        self._turned_at = now
        if len(self._entries) == 1:
            self._entries.append(generate_entry(secrets.token_bytes))
            step = "All processes can now open what a new key seals. The old key still seals."
            self._is_turned = False
        elif not self._is_turned:
            self._entries.reverse()
            self._is_turned = True
            step = "The new key seals. The old key still opens what it has sealed."
        else:
            self._entries.pop()
            step = "The old key is gone. Nothing that it has sealed can be opened any more."
        self._write()
        return step

    @property
    def ids(self) -> list[str]:
        """The public ids of the keys; the first one seals."""
        return [KeyRing.parse(entry).sealing_key.key_id.hex() for entry in self._entries]

    def _write(self) -> None:
        """Replace the file, so that nobody reads half of it."""
        fresh = self._path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(self._entries))
        fresh.replace(self._path)


@dataclass(slots=True)
class Fleet(Backends):
    """The processes of a run. The front forwards requests to the replicas that should run.

    Attributes:
        environ: the environment of processes that start from now on.
        keys: the file of the seal keys; None if the operator gave keys.
        has_releases: whether the tools have two releases to switch between.
        ended: set when a process cannot be kept running.
    """

    members: dict[str, Member]
    environ: dict[str, str]
    make: Callable[[Kind, int], Member]
    keys: KeyFile | None = None
    has_releases: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _nursery: Nursery | None = None
    _keepers: list[asyncio.Task[None]] = field(default_factory=list)
    _restarting: asyncio.Task[None] | None = None

    @override
    def addresses(self) -> Sequence[Address]:
        return [
            member.address
            for member in self.members.values()
            if member.address is not None and member.child.wanted.is_set()
        ]

    @override
    def address_of(self, name: str) -> Address | None:
        member = self.members.get(name)
        return member.address if member is not None and member.child.wanted.is_set() else None

    def keep(self, nursery: Nursery) -> None:
        """Keep the processes running from now on."""
        self._nursery = nursery
        for member in self.members.values():
            self._keep(member)

    async def stopped(self) -> list[Exception]:
        """Wait until all processes have ended after an order to stop, and return what went wrong."""
        if self._restarting is not None:
            self._restarting.cancel()
        outcomes = await asyncio.gather(*self._keepers, return_exceptions=True)
        return [outcome for outcome in outcomes if isinstance(outcome, Exception)]

    def _keep(self, member: Member) -> None:
        nursery = ensured(self._nursery, "`keep` comes first")
        keeper = asyncio.create_task(nursery.keep(member.child))
        keeper.add_done_callback(lambda _: self.ended.set())
        self._keepers.append(keeper)

    def order(self, name: str, what: str) -> None:
        """Stop, kill or start one process.

        Raises:
            CannotDo: the process does not exist, or is in that state already.
        """
        member = self.members.get(name)
        if member is None or self._nursery is None:
            raise CannotDo(f"There is no process with the name {name}")
        child = member.child
        if what == "start":
            if child.wanted.is_set():
                raise CannotDo(f"{name} is running already")
            self._nursery.start(child)
        elif not child.wanted.is_set():
            raise CannotDo(f"{name} has been stopped already")
        elif what == "stop":
            self._nursery.stop(child)
        else:
            self._nursery.kill(child)

    def add(self, kind: Kind) -> str:
        """Start another process, and return its name.

        Raises:
            CannotDo: there are as many as allowed, or nothing to run workers with.
        """
        number = sum(member.kind == kind for member in self.members.values()) + 1
        if number > MAX_MEMBERS:
            raise CannotDo(f"There are {MAX_MEMBERS} {kind}s already")
        if kind == "worker" and number == 1:
            raise CannotDo("There is no task store, so workers have nothing to do")
        try:
            member = self.make(kind, number)
        except ConfigurationError as error:
            raise CannotDo(str(error)) from None
        self.members[member.child.name] = member
        self._keep(member)
        return member.child.name

    def rotate_keys(self) -> str:
        """Take the next step of a key rotation, and return it in words.

        Raises:
            CannotDo: the operator's own keys are used.
        """
        if self.keys is None:
            raise CannotDo("This run uses the keys of GATEWAY_SEAL_KEYS, which the playground does not change")
        return self.keys.rotate()

    @property
    def release(self) -> int | None:
        """The release of the demo tools that processes start with; None if the tools have no releases."""
        return int(self.environ.get(DEMO_RELEASE) or 1) if self.has_releases else None

    def switch_release(self) -> int:
        """Roll out the other release of the demo tools, one process after the other, and return its number.

        Raises:
            CannotDo: the tools have no releases, or a rollout is under way.
        """
        release = self.release
        if release is None:
            raise CannotDo("Only the demo tools have two releases")
        if self._restarting is not None and not self._restarting.done():
            raise CannotDo("A rollout is under way")
        self.environ[DEMO_RELEASE] = str(3 - release)
        self._restarting = asyncio.create_task(self._restart_all())
        return 3 - release

    async def _restart_all(self) -> None:
        for member in list(self.members.values()):
            if member.child.wanted.is_set() and self._nursery is not None:
                self._nursery.stop(member.child)
                await _until(member.child, "stopped", "killed")
                self._nursery.start(member.child)
                await _until(member.child, "ready")


_PATIENCE_SECONDS: Final = 60.0


async def _until(child: Child, *states: State) -> None:
    """Wait until a process is in one of these states, for a bounded time: somebody else may give it other orders."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await child.until(*states)
