"""Pure: the place of a held call, which its caller brings back with the answers: in which process, and which round.

It travels in the sealed slot of the call, so nobody outside reads or writes it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.sealing.base64url import decode, encode
from gateway.sealing.packing import pack, unpack

_FORMAT = "h1."


class MalformedPlace(ValueError):
    """A text is not a place that this release knows."""


class HeldPlace(msgspec.Struct, frozen=True):
    """Where a call is held.

    Attributes:
        url: where other processes reach its holder; "" if they cannot.
        boot: 16 random bytes that the holder chose when it started.
        call: 16 random bytes that name the call.
        round: the round that the next request brings.
    """

    url: str
    boot: bytes
    call: bytes
    round: int

    def to_text(self) -> str:
        """Return the form for the slot."""
        return _FORMAT + encode(pack([self.url, self.boot, self.call, self.round]))

    @classmethod
    def from_text(cls, text: str) -> HeldPlace:
        """Read the form of the slot, or raise `MalformedPlace`."""
        try:
            value: Any = unpack(decode(text.removeprefix(_FORMAT))) if text.startswith(_FORMAT) else None
        except ValueError:
            value = None
        match value:
            case [str(url), bytes(boot), bytes(call), int(round_number)]:
                return cls(url, boot, call, round_number)
        raise MalformedPlace(text[:20])
