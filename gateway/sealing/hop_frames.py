"""Pure: the reply to a request between processes as a stream of sealed frames.

The stream is a sequence of `length(4) ‖ frame`, and a frame is

    format(1) ‖ kind(1) ‖ sender's boot id(16) ‖ key id ‖ nonce ‖ ciphertext

All numbers are big-endian. A frame is bound to the request with its nonce, to both processes, to its kind, and to its
number in the stream. So no frame opens if one before it was left out, repeated or moved, or if it belongs to another
stream. The frames carry bodies, which are MessagePack maps; a body that does not fit into one frame is cut. Only a
frame of the kind `LAST` or `REFUSED` ends a stream: a stream that ends without one was cut off.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final

from gateway.errors import GatewayError, HopReason
from gateway.sealing.binding import frame_binding, hop_binding
from gateway.sealing.envelope import OVERHEAD_BYTES, Rejected, Sealer
from gateway.sealing.formats import FIRST, HOP_FRAME
from gateway.sealing.hop import BOOT_BYTES, Head, HopRefused, Process
from gateway.sealing.packing import pack, unpack

MAX_FRAME_BYTES: Final = 65_536

_HEAD: Final = struct.Struct(f">BB{BOOT_BYTES}s")
_LENGTH: Final = struct.Struct(">I")
_MIN_FRAME_BYTES: Final = _HEAD.size + OVERHEAD_BYTES
_MAX_PART_BYTES: Final = MAX_FRAME_BYTES - _MIN_FRAME_BYTES


class FrameKind(IntEnum):
    """The purpose of a frame. The numbers are part of the format."""

    PART = 1
    """The beginning of a body, or more of it. The next frame continues it."""
    BODY = 2
    """A body, or the end of one. Others follow."""
    LAST = 3
    """The last body, or the end of it."""
    REFUSED = 4
    """Nothing was done with the request. It contains the reason."""
    ALIVE = 5
    """Nothing, to show that the sender is still there."""


class StreamReason(StrEnum):
    """Why a process refused a request for a stream. Its sender learns the reason."""

    OTHER_PROCESS = "other_process"
    """The process at this place is not the one that the request is for."""
    DRAINING = "draining"
    UNKNOWN_KIND = "unknown_kind"
    MALFORMED = "malformed"
    OVERLOADED = "overloaded"


class StreamRefused(GatewayError):
    """A process refused a request for a stream, and did nothing with it.

    The reason is a `StreamReason`, or one of a later release. `boot` is the boot id of the process that refused it, b""
    where it is not known yet.
    """

    def __init__(self, reason: str, boot: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.boot = boot


class FrameWriter:
    """Seals the frames of one stream, in the order in which they must be sent.

    The request is the one that the stream answers, sent to `url`. Each call needs the current sealer, because keys may
    change while a stream is open.
    """

    def __init__(self, audience: str, url: str, request: Head, sender: Process) -> None:
        self._stream = _stream_binding(audience, url, request, sender)
        self._boot = sender.boot
        self._number = 0

    def body(self, sealer: Sealer, body: Mapping[str, Any], *, is_last: bool) -> bytes:
        """Return the frames for a body; raise `TypeError` or `ValueError` if `pack` cannot encode it."""
        packed = pack(dict(body))
        kind = FrameKind.LAST if is_last else FrameKind.BODY
        if len(packed) <= _MAX_PART_BYTES:
            return self._frame(sealer, kind, packed)
        parts = [packed[start : start + _MAX_PART_BYTES] for start in range(0, len(packed), _MAX_PART_BYTES)]
        frames = [self._frame(sealer, FrameKind.PART, part) for part in parts[:-1]]
        return b"".join((*frames, self._frame(sealer, kind, parts[-1])))

    def refusal(self, sealer: Sealer, reason: str) -> bytes:
        """Return the only frame of a stream that refuses its request."""
        return self._frame(sealer, FrameKind.REFUSED, reason.encode())

    def alive(self, sealer: Sealer) -> bytes:
        """Return a frame without content."""
        return self._frame(sealer, FrameKind.ALIVE, b"")

    def _frame(self, sealer: Sealer, kind: FrameKind, content: bytes) -> bytes:
        aad = frame_binding(self._stream, kind, self._number)
        self._number += 1
        length = _LENGTH.pack(_MIN_FRAME_BYTES + len(content))
        return length + _HEAD.pack(HOP_FRAME.writes, kind, self._boot) + sealer.seal_bytes(content, aad)


class FrameReader:
    """Opens the frames of one stream, and puts the bodies together again.

    A body of more than `max_bytes` is refused. `url` is where the request was sent.

    Attributes:
        boot: the boot id of the process that answers; None until a frame of it has opened.
        is_complete: whether the last body was read.
    """

    def __init__(self, audience: str, url: str, request: Head, *, max_bytes: int) -> None:
        self.boot: bytes | None = None
        self.is_complete = False
        self._audience = audience
        self._url = url
        self._request = request
        self._max_bytes = max_bytes
        self._stream = b""
        self._number = 0
        self._received = bytearray()
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream. Any bytes may have arrived."""
        self._received += data

    def next_body(self, sealer: Sealer) -> dict[str, Any] | None:
        """Return the next body, or None if more of the stream is needed.

        Each call needs the current sealer. After an error, nothing of the stream may be read any more.

        Raises:
            HopRefused: a frame does not belong here.
            StreamRefused: the other process refused the request.
        """
        for kind, content in self._frames(sealer):
            if kind is FrameKind.REFUSED:
                raise StreamRefused(content.decode("utf-8", "replace"), self.boot or b"")
            if kind is FrameKind.ALIVE:
                continue
            self._parts.append(content)
            self._parts_bytes += len(content)
            if self._parts_bytes > self._max_bytes:
                raise HopRefused(HopReason.TOO_LARGE)
            if kind in {FrameKind.BODY, FrameKind.LAST}:
                self.is_complete = kind is FrameKind.LAST
                return self._whole_body()
        return None

    def _whole_body(self) -> dict[str, Any]:
        packed = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []
        self._parts_bytes = 0
        try:
            body = unpack(packed)
        except ValueError:
            body = None
        if type(body) is not dict:
            raise HopRefused(HopReason.MALFORMED)
        return body

    def _frames(self, sealer: Sealer) -> Iterator[tuple[FrameKind, bytes]]:
        """Open the frames that have arrived."""
        received = self._received
        while len(received) >= _LENGTH.size and not self.is_complete:
            (length,) = _LENGTH.unpack_from(received)
            if not _MIN_FRAME_BYTES <= length <= MAX_FRAME_BYTES:
                raise HopRefused(HopReason.MALFORMED)
            end = _LENGTH.size + length
            if len(received) < end:
                return
            frame = bytes(received[_LENGTH.size : end])
            del received[:end]
            yield self._open(sealer, frame)

    def _open(self, sealer: Sealer, frame: bytes) -> tuple[FrameKind, bytes]:
        form, number, boot = _HEAD.unpack_from(frame)
        if not FIRST <= form <= HOP_FRAME.reads:
            raise HopRefused(HopReason.NEWER_SCHEMA if form > HOP_FRAME.reads else HopReason.MALFORMED)
        kind = _KINDS.get(number)
        if kind is None:
            raise HopRefused(HopReason.MALFORMED)
        if boot != self.boot:
            self._begin(kind, boot)
        reason: HopReason | None = None
        try:
            content = sealer.open_bytes(frame[_HEAD.size :], frame_binding(self._stream, kind, self._number)).plaintext
        except Rejected as rejected:
            reason = HopReason(rejected.reason.value)
        if reason is not None:
            raise HopRefused(reason)
        self._number += 1
        self.boot = boot
        return kind, content

    def _begin(self, kind: FrameKind, boot: bytes) -> None:
        """Find out whether a process may answer. Another one than the request is for may only refuse it."""
        asked = self._request.receiver
        if self._number or not (boot == asked.boot or kind is FrameKind.REFUSED):
            raise HopRefused(HopReason.OTHER_RECEIVER)
        self._stream = _stream_binding(self._audience, self._url, self._request, Process(asked.role, boot))


def _stream_binding(audience: str, url: str, request: Head, sender: Process) -> bytes:
    return hop_binding(
        audience,
        "frame",
        (sender.role.name.lower(), sender.boot),
        (request.sender.role.name.lower(), request.sender.boot),
        url,
        nonce=b"",
        time_ms=request.time_ms,
        answered=request.nonce,
    )


_KINDS: Final = {kind.value: kind for kind in FrameKind}
