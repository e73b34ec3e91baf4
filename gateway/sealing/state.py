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

    Attributes:
        size: the length that the token would have, in characters (= bytes on the wire).
        limit: the longest allowed.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The state of this call takes {size} bytes; the limit is {limit}")
        self.size = size
        self.limit = limit


class OpenedState(NamedTuple):
    """The content of a `requestState`.

    Attributes:
        journal: the map that was sealed, including fields that this release does not know.
        key_id: the 4-byte id of the key that sealed it.
    """

    journal: dict[str, Any]
    key_id: bytes


def seal_state(
    sealer: Sealer, journal: dict[str, Any], *, aad: bytes, now: float, expires_at: float, max_bytes: int
) -> str:
    """Seal a journal into a `requestState`.

    Args:
        sealer: the process's sealer.
        journal: a map of JSON values and `bytes`.
        aad: `gateway.sealing.binding.request_state_binding` of the request.
        now: time of issue, seconds since the epoch.
        expires_at: the second from which the state is rejected.
        max_bytes: the longest token allowed.

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
    """Open a `requestState` that a client presents. A state expires exactly at its expiry.

    Args:
        sealer: the process's sealer.
        token: any value that the client sent.
        aad: `gateway.sealing.binding.request_state_binding` of the request that presents it.
        now: seconds since the epoch.
        max_bytes: a longer token is rejected before it is decoded.

    Raises:
        Rejected: with the reason, for the log and the counter only.
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

    Args:
        sealer: the process's sealer.
        token: any value that the client sent.
        aad: the associated data computed for the request that presents it.
        schema: the highest format number that this release reads for tokens of this purpose.
        max_chars: a longer token is rejected before it is decoded.
        now: seconds since the epoch; None for a token that does not expire.

    Returns:
        The map, and the 4-byte id of the key that sealed it.

    Raises:
        Rejected: with the reason, for the log and the counter only.
    """
    plaintext, key_id = sealer.open(token, aad, max_chars=max_chars)
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
    return payload, key_id
