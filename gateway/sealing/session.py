"""Pure: a client's session after its handshake, as a sealed `Mcp-Session-Id`. Any replica can read it; none stores it.

The token contains a MessagePack map: `v` its format number, `exp` the expiry in seconds since the epoch, `ver` the
protocol version, `caps` the client's declared capabilities, one bit for each of `FLAGS`, and `nonce`. Further fields
are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.errors import RejectReason
from gateway.sealing.client_flags import FLAGS
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.formats import SESSION
from gateway.sealing.packing import pack
from gateway.sealing.state import open_payload

MAX_SESSION_CHARS: Final = 512
"""The longest token that is opened or sealed: clients and proxies limit the size of a header."""

MAX_VERSION_CHARS: Final = 32
NONCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Session:
    """What a client and a replica agreed on in their handshake.

    Attributes:
        version: the protocol version, at most `MAX_VERSION_CHARS` ASCII characters.
        flags: the `FLAGS` that the client declared; `gateway.protocol.capabilities` converts them.
        nonce: 16 random bytes that identify the session.
        expires_at: the second since the epoch from which the session is rejected.
    """

    version: str
    flags: frozenset[str]
    nonce: bytes
    expires_at: float


class OpenedSession(NamedTuple):
    """The content of an `Mcp-Session-Id`, and the 4-byte id of the key that sealed it."""

    session: Session
    key_id: bytes


def seal_session(sealer: Sealer, session: Session, *, aad: bytes) -> str:
    """Seal a session into an `Mcp-Session-Id` of at most `MAX_SESSION_CHARS` characters.

    A flag that is not one of `FLAGS` is dropped. `aad` is the `gateway.sealing.binding.session_binding` of the caller.

    Raises:
        ValueError: the version is too long or not ASCII, or the nonce has the wrong size.
    """
    if len(session.version) > MAX_VERSION_CHARS or not session.version.isascii():
        raise ValueError(f"a version may have at most {MAX_VERSION_CHARS} ASCII characters")
    if len(session.nonce) != NONCE_BYTES:
        raise ValueError(f"a session's nonce must have {NONCE_BYTES} bytes")
    payload = {
        "v": SESSION.writes,
        "exp": session.expires_at,
        "ver": session.version,
        "caps": sum(1 << bit for bit, flag in enumerate(FLAGS) if flag in session.flags),
        "nonce": session.nonce,
    }
    return sealer.seal(pack(payload), aad)


def open_session(sealer: Sealer, token: object, *, aad: bytes, now: float) -> OpenedSession:
    """Open an `Mcp-Session-Id` from a client, or raise `Rejected`. A session expires exactly at its expiry.

    `aad` is the `gateway.sealing.binding.session_binding` of the caller; `now` is in seconds since the epoch.
    """
    payload, key_id = open_payload(sealer, token, aad=aad, schema=SESSION.reads, max_chars=MAX_SESSION_CHARS, now=now)
    version, bits, nonce = payload.get("ver"), payload.get("caps"), payload.get("nonce")
    if type(version) is not str or type(bits) is not int or bits < 0 or type(nonce) is not bytes:
        raise Rejected(RejectReason.MALFORMED)
    flags = frozenset(flag for bit, flag in enumerate(FLAGS) if bits >> bit & 1)
    return OpenedSession(Session(version, flags, nonce, payload["exp"]), key_id)
