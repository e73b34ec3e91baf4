"""Pure: the sealed id of a request to a client, which says where its answer belongs.

The server's own request to a client has this token as its JSON-RPC id, so the client's response brings it back to any
replica. It contains a MessagePack map: `v` its format number, `exp` the expiry in seconds since the epoch, `key` the
question's key, and `kind`. With `kind` "call" it also has `url`, `boot` and `call`. With `kind` "task" it has `task`
and, if the answer must come from one session, its nonce `in`. Further fields are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.errors import RejectReason
from gateway.sealing.envelope import Rejected, Sealer, token_chars
from gateway.sealing.formats import REQUEST_ID
from gateway.sealing.packing import pack
from gateway.sealing.state import open_payload

MAX_REQUEST_ID_CHARS: Final = 1_500
"""The longest token that is sealed or opened. Ids of this length work with the usual clients."""

ID_BYTES: Final = 16
"""Random bytes that identify a process since its start, and a call within it."""


@dataclass(frozen=True, slots=True)
class CallAddress:
    """A call in one process that waits for the answer.

    Attributes:
        replica_url: where other replicas reach that process, "" if they cannot.
        boot: 16 random bytes that the process chose when it started.
        call: 16 random bytes that identify the call in it.
        expires_at: the second since the epoch from which the address is rejected.
    """

    replica_url: str
    boot: bytes
    call: bytes
    key: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class TaskAddress:
    """A task in the store that waits for the answer.

    Attributes:
        expires_at: the second since the epoch from which the address is rejected.
        session: the nonce of the session that the answer must come from, b"" for any or none.
    """

    task_id: str
    key: str
    expires_at: float
    session: bytes = b""


Address: TypeAlias = CallAddress | TaskAddress


def seal_request_id(sealer: Sealer, address: Address, *, aad: bytes) -> str:
    """Seal an address into a request id of at most `MAX_REQUEST_ID_CHARS` characters.

    `aad` is the `gateway.sealing.binding.request_id_binding` of the caller who is asked.

    Raises:
        ValueError: a text is too long or contains a lone surrogate, or an id of a process or call has the wrong size.
    """
    plaintext = pack({"v": REQUEST_ID.writes, "exp": address.expires_at, "key": address.key, **_place(address)})
    if token_chars(len(plaintext)) > MAX_REQUEST_ID_CHARS:
        raise ValueError(f"a request id may have at most {MAX_REQUEST_ID_CHARS} characters")
    return sealer.seal(plaintext, aad)


def open_request_id(sealer: Sealer, token: object, *, aad: bytes, now: float) -> Address:
    """Open the id of a response, or raise `Rejected`. An address expires exactly at its expiry.

    `aad` is the `gateway.sealing.binding.request_id_binding` of the caller who answers; `now` is in seconds since the
    epoch.
    """
    payload, _ = open_payload(sealer, token, aad=aad, schema=REQUEST_ID.reads, max_chars=MAX_REQUEST_ID_CHARS, now=now)
    session = payload.get("in", b"")
    match payload:
        case {"kind": "call", "key": str(key), "url": str(url), "boot": bytes(boot), "call": bytes(call)}:
            return CallAddress(url, boot, call, key, payload["exp"])
        case {"kind": "task", "key": str(key), "task": str(task_id)} if type(session) is bytes:
            return TaskAddress(task_id, key, payload["exp"], session)
    raise Rejected(RejectReason.MALFORMED)


def _place(address: Address) -> dict[str, Any]:
    if isinstance(address, TaskAddress):
        session = {"in": address.session} if address.session else {}
        return {"kind": "task", "task": address.task_id, **session}
    if len(address.boot) != ID_BYTES or len(address.call) != ID_BYTES:
        raise ValueError(f"the ids of a process and of a call must have {ID_BYTES} bytes")
    return {"kind": "call", "url": address.replica_url, "boot": address.boot, "call": address.call}
