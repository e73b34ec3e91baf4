"""Pure: what a sealed value is bound to, encoded as associated data.

A sealed value opens only for the caller, the deployment and the request that it was made for. All of these are
associated data of the cipher: they are never sent, both sides compute them.

The encoding is injective: two different bindings never give the same bytes. It is

    purpose label ‖ NUL ‖ audience ‖ caller ‖ field ‖ field …

The audience and every field are prefixed with their length (4 bytes, big-endian). No label contains NUL. The caller
begins with a tag for its kind: anonymous, a principal (three prefixed fields), an owner (one), or a process (two).
"""

from __future__ import annotations

import hmac
import struct
from enum import Enum
from functools import lru_cache
from typing import Final

from gateway.sealing.principal import Principal

_length: Final = struct.Struct(">I").pack
_time: Final = struct.Struct(">Q").pack
_frame: Final = struct.Struct(">BQ").pack
_ANONYMOUS: Final = b"\x00"
_PRINCIPAL: Final = b"\x01"
_OWNER: Final = b"\x02"
_PROCESS: Final = b"\x03"


class Purpose(Enum):
    """The purpose of a sealed value. A value sealed for one purpose never opens for another."""

    __hash__ = object.__hash__  # members are singletons, and an enumeration's own hash is a slow Python function

    REQUEST_STATE = b"request-state"
    SESSION = b"session"
    RETURN_ADDRESS = b"return-address"
    CURSOR = b"cursor"
    FIELD_AT_REST = b"field-at-rest"
    OWNER = b"owner"
    HOP = b"hop"
    OWNER_SECRET = b"owner-secret"


_REQUEST_STATE: Final = Purpose.REQUEST_STATE


def associated_data(purpose: Purpose, audience: str, principal: Principal | None, *fields: bytes) -> bytes:
    """Encode a binding to a caller (`None` = anonymous) as associated data; see the module's docstring.

    The purpose defines the meaning of each of `fields`; the functions below are the only list of them.
    """
    return _head(purpose, audience, principal) + b"".join([_length(len(field)) + field for field in fields])


def request_state_binding(
    audience: str, principal: Principal | None, method: str, target: str, arguments_digest: bytes
) -> bytes:
    """Bind a `requestState` to the request that may present it again.

    `audience` is shared by all replicas. `target` is the tool's or prompt's name, or the resource's URI.
    `arguments_digest` is from `gateway.sealing.digest`.
    """
    return associated_data(_REQUEST_STATE, audience, principal, _text(method), _text(target), arguments_digest)


def session_binding(audience: str, principal: Principal | None) -> bytes:
    """Bind an `Mcp-Session-Id` to the deployment and the caller that opened the session."""
    return associated_data(Purpose.SESSION, audience, principal)


def request_id_binding(audience: str, principal: Principal | None) -> bytes:
    """Bind the id of a server's request to the caller who should answer it."""
    return associated_data(Purpose.RETURN_ADDRESS, audience, principal)


def cursor_binding(audience: str, principal: Principal | None, method: str) -> bytes:
    """Bind a list cursor (`tasks/list`) to the caller whose list it pages through."""
    return associated_data(Purpose.CURSOR, audience, principal, _text(method))


def field_binding(audience: str, owner: str, task_id: str, field: str) -> bytes:
    """Bind a value stored in Redis to its place, so it cannot be moved to another task or field.

    `owner` is the hash that stands for the principal in the store.
    """
    return _encode(Purpose.FIELD_AT_REST, audience, _OWNER + _prefixed(_text(owner)), _text(task_id), _text(field))


def hop_binding(
    audience: str,
    direction: str,
    sender: tuple[str, bytes],
    receiver: tuple[str, bytes],
    url: str,
    *,
    nonce: bytes,
    time_ms: int,
    answered: bytes = b"",
) -> bytes:
    """Bind a message between two processes to both of them, to its direction and to its time.

    `sender` and `receiver` are a role and a boot id. `url` is where the request is sent, for both directions.
    `answered` is the nonce of the request that a reply answers.
    """
    role, boot = sender
    fields = (_text(direction), _text(receiver[0]), receiver[1], _text(url), nonce, _time(time_ms), answered)
    return _encode(Purpose.HOP, audience, _PROCESS + _prefixed(_text(role)) + _prefixed(boot), *fields)


def frame_binding(stream: bytes, kind: int, number: int) -> bytes:
    """Bind a frame to its stream, its kind and its number.

    `stream` is a `hop_binding`: that of a reply without a nonce of its own, in the direction "frame".
    """
    return stream + _prefixed(_frame(kind, number))


def owner_secret_binding(audience: str) -> bytes:
    """Bind the secret that `owner` needs to the deployment whose callers it names."""
    return associated_data(Purpose.OWNER_SECRET, audience, None)


def owner(principal: Principal | None, audience: str, secret: bytes) -> str:
    """Name a caller in the task store: HMAC-SHA256 of the caller and the deployment, 64 hex digits.

    Without the secret nobody can find out whose name it is, not even by trying callers. Anonymous callers share one
    owner. The secret is the deployment's own, stored by `gateway.storage.owners`.
    """
    return hmac.digest(secret, _encode(Purpose.OWNER, audience, _caller(principal)), "sha256").hex()


@lru_cache(maxsize=1024)
def _head(purpose: Purpose, audience: str, principal: Principal | None) -> bytes:
    return _encode(purpose, audience, _caller(principal))


def _encode(purpose: Purpose, audience: str, caller: bytes, *fields: bytes) -> bytes:
    head = purpose.value + b"\x00" + _prefixed(_text(audience)) + caller
    return head + b"".join([_prefixed(field) for field in fields])


def _caller(principal: Principal | None) -> bytes:
    if principal is None:
        return _ANONYMOUS
    return b"".join(
        (
            _PRINCIPAL,
            _prefixed(_text(principal.issuer)),
            _prefixed(_text(principal.subject)),
            _prefixed(_text(principal.client_id)),
        )
    )


def _prefixed(value: bytes) -> bytes:
    return _length(len(value)) + value


def _text(value: str) -> bytes:
    # The parser refuses lone surrogates. Here they must only not collide or crash.
    return value.encode("utf-8", "surrogatepass")
