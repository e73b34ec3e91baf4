"""Pure: sealed messages from one process of a deployment to another.

A process sends a request to another one, and gets one reply. Both are

    format(1) ‖ sender's role(1) ‖ receiver's role(1) ‖ sender's boot id(16) ‖ receiver's boot id(16) ‖ nonce(16) ‖
    time(8) ‖ token

The head is readable and names no user. It is associated data of the token, together with the audience, the direction
and the URL that the request is sent to. A reply is also bound to the nonce of its request. So no message can be
altered, replayed, sent back to its sender, or delivered to another process. The token contains a MessagePack map: `v`
the format number, `kind` the subject of the message, and `body`, a map. Further fields are ignored.

A message to `EVERYONE` is bound to no URL and gets no sealed reply. Every process of the receiver's role accepts it
once.

A request may also ask for a stream of frames, see `gateway.sealing.hop_frames`. Then the bytes of the token follow the
head, not its text, because such requests and frames are large and many.

Only a process with the key ring can write a reply that opens, so a reply proves that its sender has the ring.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Literal

from gateway.errors import GatewayError, HopReason
from gateway.sealing.binding import hop_binding
from gateway.sealing.envelope import OVERHEAD_BYTES, Opened, Rejected, Sealer, token_chars
from gateway.sealing.formats import FIRST, HOP, HOP_HEAD
from gateway.sealing.packing import pack
from gateway.sealing.state import read_payload

BOOT_BYTES: Final = 16
NONCE_BYTES: Final = 16

NO_BOOT: Final = bytes(BOOT_BYTES)
"""The receiver's boot id if the sender does not know it."""

EVERYONE: Final = b"\xff" * BOOT_BYTES
"""The receiver's boot id if a message is for all processes of its role."""

CLOCK_SECONDS: Final = 30
"""How far the clocks of two processes may differ, including the time in transit."""

NONCE_SECONDS: Final = 2 * CLOCK_SECONDS
"""How long a nonce is remembered: as long as a message with it could be accepted."""

GENERATION_SECONDS: Final = 10
"""Nonces of so many seconds are forgotten together, so each takes no memory for its time."""

MAX_NONCES: Final = 1_000_000 * (NONCE_SECONDS + GENERATION_SECONDS) // NONCE_SECONDS
"""How many nonces are remembered at a time: 1 million a minute. At this number, further messages are refused."""

_NONCE_BYTES_KEPT: Final = 7
"""How much of a nonce is remembered: an integer that Python keeps in 32 bytes. Among a million, two are alike by chance
once in 10^11 messages, and then a message is refused."""

_HEAD: Final = struct.Struct(f">BBB{BOOT_BYTES}s{BOOT_BYTES}s{NONCE_BYTES}sQ")

_Direction = Literal["request", "reply", "stream"]


class Role(IntEnum):
    """The kind of a process. The numbers are part of the format."""

    REPLICA = 1
    WORKER = 2
    """It only sends."""


class HopRefused(GatewayError):
    """A message was refused.

    The reason is for the log and the counter only. To the sender all reasons look alike.
    """

    def __init__(self, reason: HopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Process:
    """One end of a message.

    `boot` is 16 random bytes that the process chose when it started, or `NO_BOOT`, or `EVERYONE`.
    """

    role: Role
    boot: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The readable part of a message.

    The nonce is 16 random bytes. `time_ms` is when it was sent, in milliseconds since the epoch.
    """

    sender: Process
    receiver: Process
    nonce: bytes
    time_ms: int


@dataclass(frozen=True, slots=True)
class HopContent:
    """The sealed part of a message: its subject, and a map of JSON values and `bytes`."""

    kind: str
    body: Mapping[str, Any]


class HopSealer:
    """Seals and opens the messages of one deployment to processes at one URL.

    `url` is where requests are sent, exactly as the receiver knows it.
    """

    def __init__(self, sealer: Sealer, audience: str, url: str) -> None:
        self._sealer = sealer
        self._audience = audience
        self._url = url

    def seal_request(self, head: Head, content: HopContent) -> bytes:
        """Seal a request; raise `TypeError` or `ValueError` if `pack` cannot encode the body."""
        return self._seal("request", head, content, b"")

    def seal_reply(self, head: Head, content: HopContent, request: Head) -> bytes:
        """Seal the reply to a request; raise `TypeError` or `ValueError` if `pack` cannot encode the body."""
        return self._seal("reply", head, content, request.nonce)

    def open_request(self, message: bytes, receiver: Process, *, now: float, max_bytes: int) -> tuple[Head, HopContent]:
        """Open a recent request, or raise `HopRefused`. `SeenNonces` detects repetitions.

        Any bytes may have arrived; more than `max_bytes` are refused before anything is decoded. `now` is in seconds
        since the epoch.
        """
        head = _read_head(message, max_bytes)
        if not _is_for(head.receiver, receiver):
            raise HopRefused(HopReason.OTHER_RECEIVER)
        _check_time(head, now)
        return head, self._open("request", head, message, b"", max_bytes)

    def open_reply(self, message: bytes, request: Head, *, max_bytes: int) -> HopContent:
        """Open the reply to a request, or raise `HopRefused`.

        The time of the reply does not count, because it is bound to the request's nonce. Any bytes may have arrived;
        more than `max_bytes` are refused before anything is decoded.
        """
        head = _read_head(message, max_bytes)
        if head.receiver != request.sender or not _is_for(request.receiver, head.sender):
            raise HopRefused(HopReason.OTHER_RECEIVER)
        return self._open("reply", head, message, request.nonce, max_bytes)

    def seal_stream_request(self, head: Head, content: HopContent) -> bytes:
        """Seal a request for a stream; raise `TypeError` or `ValueError` if `pack` cannot encode the body."""
        sealed = self._sealer.seal_bytes(_packed(content), self._binding("stream", head, b""))
        return _written_head(head) + sealed

    def open_stream_request(self, message: bytes, role: Role, *, now: float, max_bytes: int) -> tuple[Head, HopContent]:
        """Do the same as `open_request` for a request for a stream to any process of a role.

        If it is for another process, the caller has to refuse it.
        """
        head = _read_head(message, max_bytes)
        if head.receiver.role != role or head.receiver.boot == EVERYONE:
            raise HopRefused(HopReason.OTHER_RECEIVER)
        _check_time(head, now)
        aad = self._binding("stream", head, b"")
        return head, _content_of(lambda: self._sealer.open_bytes(message[_HEAD.size :], aad))

    def _seal(self, direction: _Direction, head: Head, content: HopContent, answered: bytes) -> bytes:
        token = self._sealer.seal(_packed(content), self._binding(direction, head, answered))
        return _written_head(head) + token.encode("ascii")

    def _open(self, direction: _Direction, head: Head, message: bytes, answered: bytes, max_bytes: int) -> HopContent:
        token = message[_HEAD.size :].decode("latin-1")  # accepts any bytes; tokens contain only ASCII
        aad = self._binding(direction, head, answered)
        return _content_of(lambda: self._sealer.open(token, aad, max_chars=max_bytes))

    def _binding(self, direction: _Direction, head: Head, answered: bytes) -> bytes:
        return hop_binding(
            self._audience,
            direction,
            _named(head.sender),
            _named(head.receiver),
            "" if head.receiver.boot == EVERYONE else self._url,
            nonce=head.nonce,
            time_ms=head.time_ms,
            answered=answered,
        )


class SeenNonces:
    """Remembers the nonces of opened requests for as long as those could be repeated.

    Only requests that have opened get here, so the keys are needed to fill it.
    """

    def __init__(self, limit: int = MAX_NONCES) -> None:
        self._limit = limit
        self._generations: deque[_Generation] = deque()  # the oldest first

    def __len__(self) -> int:
        """Return how many nonces are remembered."""
        return sum(len(generation.nonces) for generation in self._generations)

    def add(self, nonce: bytes, now: float) -> None:
        """Remember the nonce of a request that has just opened.

        `now` is in seconds since the epoch, on the clock that the time of the request was compared with.

        Raises:
            HopRefused: the request came before, or there is no room to remember it.
        """
        while self._generations and now - self._generations[0].newest > NONCE_SECONDS:
            self._generations.popleft()
        kept = int.from_bytes(nonce[:_NONCE_BYTES_KEPT], "big")
        if any(kept in generation.nonces for generation in self._generations):
            raise HopRefused(HopReason.REPLAYED)
        if len(self) >= self._limit:
            raise HopRefused(HopReason.OVERLOADED)
        if not self._generations or now - self._generations[-1].began >= GENERATION_SECONDS:
            self._generations.append(_Generation(now))
        self._generations[-1].add(kept, now)


class _Generation:
    """Nonces that came in quick succession. `newest` is when the last one came, on a clock that may be set back."""

    __slots__ = ("began", "newest", "nonces")

    def __init__(self, now: float) -> None:
        self.began = self.newest = now
        self.nonces: set[int] = set()

    def add(self, nonce: int, now: float) -> None:
        self.newest = max(self.newest, now)
        self.nonces.add(nonce)


def _packed(content: HopContent) -> bytes:
    return pack({"v": HOP.writes, "kind": content.kind, "body": dict(content.body)})


def _content_of(open_it: Callable[[], Opened]) -> HopContent:
    """Open the sealed part of a message, or raise `HopRefused`."""
    reason: HopReason | None = None
    payload: dict[str, Any] = {}
    try:
        payload = read_payload(open_it().plaintext, schema=HOP.reads)
    except Rejected as rejected:
        reason = HopReason(rejected.reason.value)
    if reason is not None:
        raise HopRefused(reason)
    match payload:
        case {"kind": str(kind), "body": dict(body)}:
            return HopContent(kind, body)
    raise HopRefused(HopReason.MALFORMED)


def _check_time(head: Head, now: float) -> None:
    if abs(now * 1000 - head.time_ms) > CLOCK_SECONDS * 1000:
        raise HopRefused(HopReason.STALE)


def receiver_of(message: bytes) -> bytes:
    """Return the boot id of the receiver that a message names, without opening it; b"" if it is not a message."""
    return b"" if len(message) < _HEAD.size else _HEAD.unpack_from(message)[4]


def message_bytes(plaintext_bytes: int) -> int:
    """Return the length of a message with packed content of this size."""
    return _HEAD.size + token_chars(plaintext_bytes)


def stream_request_bytes(plaintext_bytes: int) -> int:
    """Return the length of a request for a stream with packed content of this size."""
    return _HEAD.size + OVERHEAD_BYTES + plaintext_bytes


def _is_for(named: Process, process: Process) -> bool:
    """Return whether a message to the receiver `named` is for a process."""
    return named in (process, Process(process.role, NO_BOOT), Process(process.role, EVERYONE))


def _named(process: Process) -> tuple[str, bytes]:
    return process.role.name.lower(), process.boot


def _written_head(head: Head) -> bytes:
    sender, receiver = head.sender, head.receiver
    if not len(sender.boot) == len(receiver.boot) == BOOT_BYTES or len(head.nonce) != NONCE_BYTES:
        raise ValueError(f"a boot id must have {BOOT_BYTES} bytes, and a nonce {NONCE_BYTES}")
    return _HEAD.pack(HOP_HEAD.writes, sender.role, receiver.role, sender.boot, receiver.boot, head.nonce, head.time_ms)


def _read_head(message: bytes, max_bytes: int) -> Head:
    if len(message) > max_bytes:
        raise HopRefused(HopReason.TOO_LARGE)
    if len(message) < _HEAD.size:
        raise HopRefused(HopReason.MALFORMED)
    form, sender_role, receiver_role, sender_boot, receiver_boot, nonce, time_ms = _HEAD.unpack_from(message)
    if not FIRST <= form <= HOP_HEAD.reads:
        raise HopRefused(HopReason.NEWER_SCHEMA if form > HOP_HEAD.reads else HopReason.MALFORMED)
    sender, receiver = _ROLES.get(sender_role), _ROLES.get(receiver_role)
    if sender is None or receiver is None:
        raise HopRefused(HopReason.OTHER_RECEIVER)
    return Head(Process(sender, sender_boot), Process(receiver, receiver_boot), nonce, time_ms)


_ROLES: Final = {role.value: role for role in Role}
