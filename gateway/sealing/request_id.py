"""Pure: where the answer to a question belongs, as the sealed id of the request that asks it.

The server's own request to a client has this token for its JSON-RPC id, so the client's response brings it back to
whichever replica it reaches. Inside is a MessagePack map: `v` the schema number, `exp` the expiry in seconds since the
epoch, `key` the question's key, and either `kind` "call" with `url`, `boot` and `call`, or `kind` "task" with `task`
and, where the answer has to come with one session, its nonce `in`. Further fields are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.errors import RejectReason
from gateway.sealing.envelope import Rejected, Sealer, token_chars
from gateway.sealing.packing import pack
from gateway.sealing.state import open_payload

SCHEMA: Final = 1
"""Raise it only for a layout that the release before cannot read."""

MAX_REQUEST_ID_CHARS: Final = 1_500
"""Longest token that is sealed or opened: ids of this length have been seen to work with the usual clients."""

ID_BYTES: Final = 16
"""Random bytes that name a process since its start, and a call within it."""


@dataclass(frozen=True, slots=True)
class CallAddress:
    """A call that waits in one process for the answer.

    Attributes:
        replica_url: where other replicas reach that process, "" if they cannot.
        boot: 16 random bytes that the process took when it started.
        call: 16 random bytes that name the call in it.
        key: the question's key on the wire.
        expires_at: the second since the epoch from which the address is no longer accepted.
    """

    replica_url: str
    boot: bytes
    call: bytes
    key: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class TaskAddress:
    """A task that waits in the store for the answer.

    Attributes:
        task_id: the task.
        key: the question's key on the wire.
        expires_at: the second since the epoch from which the address is no longer accepted.
        session: the nonce of the session that the answer has to come with, b"" for any or none.
    """

    task_id: str
    key: str
    expires_at: float
    session: bytes = b""


Address: TypeAlias = CallAddress | TaskAddress


def seal_request_id(sealer: Sealer, address: Address, *, aad: bytes) -> str:
    """Seal an address into the id of a request, of at most `MAX_REQUEST_ID_CHARS` characters.

    Args:
        sealer: the process's sealer.
        address: where the answer belongs.
        aad: `gateway.sealing.binding.request_id_binding` of the caller who is asked.

    Raises:
        ValueError: the URL, the key or the task's id is too long or holds a lone surrogate, or a name of a process or
            call has another size.
    """
    plaintext = pack({"v": SCHEMA, "exp": address.expires_at, "key": address.key, **_place(address)})
    if token_chars(len(plaintext)) > MAX_REQUEST_ID_CHARS:
        raise ValueError(f"a request id may have at most {MAX_REQUEST_ID_CHARS} characters")
    return sealer.seal(plaintext, aad)


def open_request_id(sealer: Sealer, token: object, *, aad: bytes, now: float) -> Address:
    """Open the id of a response. An address is expired at exactly its expiry.

    Args:
        sealer: the process's sealer.
        token: whatever the client sent.
        aad: `gateway.sealing.binding.request_id_binding` of the caller who answers.
        now: seconds since the epoch.

    Raises:
        Rejected: with the reason, which is for the log and the counter only.
    """
    payload, _ = open_payload(sealer, token, aad=aad, schema=SCHEMA, max_chars=MAX_REQUEST_ID_CHARS, now=now)
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
