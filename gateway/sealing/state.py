"""Pure: the journal of a call as a sealed `requestState`.

The token contains a MessagePack map: `v` its format number, `iat` and `exp` the times of issue and expiry in seconds
since the epoch, and `j` the journal, itself a map. Unknown fields of the journal are kept; other unknown fields are
ignored. Only a format number higher than this release reads is rejected, so neighbouring releases can read each
other's state.

`open_payload` contains what all kinds of tokens share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.errors import GatewayError, RejectReason
from gateway.sealing.envelope import Rejected, Sealer, token_chars
from gateway.sealing.formats import REQUEST_STATE
from gateway.sealing.packing import pack, unpack


class StateTooLarge(GatewayError):
    """The journal does not fit into a token.

    `size` is the length that the token would have, in characters (= bytes on the wire).
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The state of this call takes {size} bytes; the limit is {limit}")
        self.size = size
        self.limit = limit


class OpenedState(NamedTuple):
    """The content of a `requestState`.

    The journal includes fields that this release does not know. `key_id` is the 4-byte id of the key that sealed it.
    """

    journal: dict[str, Any]
    key_id: bytes


def seal_state(
    sealer: Sealer, journal: dict[str, Any], *, aad: bytes, now: float, expires_at: float, max_bytes: int
) -> str:
    """Seal a journal into a `requestState`.

    The journal has JSON values and `bytes`. `aad` is the `gateway.sealing.binding.request_state_binding` of the
    request. From `expires_at` on the state is rejected; times are seconds since the epoch.

    Raises:
        StateTooLarge: the token would be longer than `max_bytes`.
        TypeError, ValueError: `pack` cannot encode the journal.
    """
    plaintext = pack({"v": REQUEST_STATE.writes, "iat": now, "exp": expires_at, "j": journal})
    size = token_chars(len(plaintext))
    if size > max_bytes:
        raise StateTooLarge(size, max_bytes)
    return sealer.seal(plaintext, aad)


def open_state(sealer: Sealer, token: object, *, aad: bytes, now: float, max_bytes: int) -> OpenedState:
    """Open a `requestState` from a client, or raise `Rejected`. A state expires exactly at its expiry.

    `aad` is the `gateway.sealing.binding.request_state_binding` of the request. `now` is in seconds since the epoch. A
    token longer than `max_bytes` is rejected before it is decoded.
    """
    payload, key_id = open_payload(sealer, token, aad=aad, schema=REQUEST_STATE.reads, max_chars=max_bytes, now=now)
    journal = payload.get("j")
    if type(journal) is not dict:
        raise Rejected(RejectReason.MALFORMED)
    return OpenedState(journal, key_id)


def open_payload(
    sealer: Sealer, token: object, *, aad: bytes, schema: int, max_chars: int, now: float | None = None
) -> tuple[dict[str, Any], bytes]:
    """Open a sealed token and check what every payload contains: a map with a format number and an expiry.

    Return the map, and the 4-byte id of the key that sealed it, or raise `Rejected`. `schema` is the highest format
    number that this release reads for tokens of this purpose. A token with more than `max_chars` is rejected before it
    is decoded. `now` is None for a token that does not expire.
    """
    plaintext, key_id = sealer.open(token, aad, max_chars=max_chars)
    return read_payload(plaintext, schema=schema, now=now), key_id


def read_payload(plaintext: bytes, *, schema: int, now: float | None = None) -> dict[str, Any]:
    """Decode what was sealed, and check it as `open_payload` does."""
    try:
        payload = unpack(plaintext)
    except ValueError:
        raise Rejected(RejectReason.MALFORMED) from None
    # The format number comes first: this release cannot judge the rest of a newer layout.
    number = payload.get("v") if type(payload) is dict else None
    if type(number) is not int:
        raise Rejected(RejectReason.MALFORMED)
    if number > schema:
        raise Rejected(RejectReason.NEWER_SCHEMA)
    if now is not None:
        expires_at = payload.get("exp")
        if type(expires_at) not in (int, float):
            raise Rejected(RejectReason.MALFORMED)
        if not now < expires_at:
            raise Rejected(RejectReason.EXPIRED)
    checked: dict[str, Any] = payload
    return checked
