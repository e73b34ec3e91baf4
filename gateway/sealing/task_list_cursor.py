"""Pure: cursors of `tasks/list`. They are sealed, because a place in a caller's list names one of the caller's tasks.

The token contains a MessagePack map: `v` its format number, `ms` and `task` the expiry and the id of the last task
listed. Further fields are ignored. A cursor does not expire: the place that it marks stays valid.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import RejectReason
from gateway.sealing.envelope import Rejected, Sealer, token_chars
from gateway.sealing.formats import TASK_CURSOR
from gateway.sealing.packing import pack
from gateway.sealing.state import open_payload

MAX_TASK_CURSOR_CHARS: Final = 512
"""The longest token that is sealed or opened."""


def seal_task_cursor(sealer: Sealer, mark: tuple[int, str], *, aad: bytes) -> str:
    """Seal a place in a caller's list of tasks into a cursor of at most `MAX_TASK_CURSOR_CHARS` characters.

    `mark` is the expiry of the last task listed, in milliseconds since the epoch, and its id. `aad` is the
    `gateway.sealing.binding.cursor_binding` of the caller and the method.

    Raises:
        ValueError: the id is too long or contains a lone surrogate.
    """
    expires_ms, task_id = mark
    plaintext = pack({"v": TASK_CURSOR.writes, "ms": expires_ms, "task": task_id})
    if token_chars(len(plaintext)) > MAX_TASK_CURSOR_CHARS:
        raise ValueError(f"a cursor may have at most {MAX_TASK_CURSOR_CHARS} characters")
    return sealer.seal(plaintext, aad)


def open_task_cursor(sealer: Sealer, token: object, *, aad: bytes) -> tuple[int, str]:
    """Return the place in the list that a client's cursor marks, or raise `Rejected`.

    `aad` is the `gateway.sealing.binding.cursor_binding` of the caller and the method that presents it.
    """
    payload, _ = open_payload(sealer, token, aad=aad, schema=TASK_CURSOR.reads, max_chars=MAX_TASK_CURSOR_CHARS)
    expires_ms, task_id = payload.get("ms"), payload.get("task")
    if type(expires_ms) is not int or type(task_id) is not str:
        raise Rejected(RejectReason.MALFORMED)
    return expires_ms, task_id
