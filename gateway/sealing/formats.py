"""Pure: the format number of everything that one release of the gateway leaves for another.

Two neighbouring releases work side by side. So a release reads a new format before the next release writes it, and
writes only what the previous one reads. Where there is no number, the format is the first: that of release 0.2.0, which
wrote numbers only into tokens.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST: Final = 1
"""The number of a format that carries none."""


class Format(NamedTuple):
    """The format of one kind of data.

    Attributes:
        reads: the highest number that this release reads.
        writes: the number that this release writes: never more than the previous release reads.
    """

    kind: str
    place: str
    reads: int = FIRST
    writes: int = FIRST


TASK_STORE: Final = Format("task store", "the key `…:format` in Redis")
TASK_RECORD: Final = Format("record of a task", "`v` in its field `about`")
STORED_VALUE: Final = Format("sealed value of a task or of a single-use call", "digits and a colon before the token")
OWNER_SECRET: Final = Format("secret that names owners", "digits and a colon before the token")
REQUEST_STATE: Final = Format("requestState", "`v` in the token")
SESSION: Final = Format("session id", "`v` in the token")
REQUEST_ID: Final = Format("id of a request to a client", "`v` in the token")
TASK_CURSOR: Final = Format("cursor of tasks/list", "`v` in the token")
LIST_CURSOR: Final = Format("cursor of any other list", "its label, `c1.`")
HOP: Final = Format("message between processes", "`v` in the token")
HOP_HEAD: Final = Format("readable head of such a message", "its first byte")
HOP_FRAME: Final = Format("frame of a streamed reply", "its first byte")
TOKEN: Final = Format("token around all sealed data", "its label, `s1.`")

FORMATS: Final = (
    *(TASK_STORE, TASK_RECORD, STORED_VALUE, OWNER_SECRET, REQUEST_STATE, SESSION, REQUEST_ID, TASK_CURSOR),
    *(LIST_CURSOR, HOP, HOP_HEAD, HOP_FRAME, TOKEN),
)
"""Every format. The table in `docs/run/upgrading.md` has the same rows."""

_MARK: Final = b":"
_MAX_DIGITS: Final = 9


def split_number(stored: bytes) -> tuple[int, bytes]:
    """Return the number of a sealed value in Redis, and its token.

    Without a number before the token, the number is `FIRST`, and what is there counts as the token.
    """
    digits, mark, token = stored.partition(_MARK)
    if mark and digits.isdigit() and len(digits) <= _MAX_DIGITS:
        return int(digits), token
    return FIRST, stored
