"""Failures of requests to upstreams."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from gateway.errors import GatewayError, RpcError


class Reason(StrEnum):
    """Why a request to an upstream has no result. The values are labels of metrics."""

    UNREACHABLE = "unreachable"
    REFUSED_ADDRESS = "refused_address"
    BUSY = "busy"
    """All places for this upstream stayed taken."""
    BREAKER_OPEN = "breaker_open"
    TIMED_OUT = "timed_out"
    CUT = "cut"
    """The connection ended before the answer was complete."""
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    """The answer is not a valid HTTP, event stream, JSON or JSON-RPC message."""
    WRONG_ID = "wrong_id"
    UNASKED = "unasked"
    """The upstream asks something where it may not."""
    REDIRECT = "redirect"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    SERVER_ERROR = "server_error"
    CREDENTIALS = "credentials"
    """No credential could be obtained for the caller."""
    NEEDS_SESSION = "needs_session"
    """The tool can ask its questions only in a session."""
    LOST_SESSION = "lost_session"
    """The upstream does not know the session any more, and the same happened in a new one."""
    HELD_LOST = "held_lost"
    """The process that held the call does not know it any more, or is gone."""
    HELD_EXPIRED = "held_expired"
    """The user did not answer within `held_seconds`."""
    HELD_ANSWERED = "held_answered"
    """The question has had another answer before."""
    HOLDER_LOST = "holder_lost"
    """The process that was to call the upstream took the request, and does not answer any more."""
    HELD_TOO_MANY = "held_too_many"
    """Too many calls of the caller wait for answers."""
    CHANGED = "changed"
    """The upstream's definition changed between two legs of a call, or its tool differs from the pinned one."""


NO_HOLDER: Final = "its holder takes no requests now"
"""Why nothing is sent to an upstream that can be reached only through another process."""

LIMIT_OPTION: Final = 'the option "max_result_bytes" of the upstream'
"""What limits an answer, in words for operators and callers."""


class UpstreamFailure(GatewayError):
    """A request to an upstream has no result.

    Attributes:
        sent: whether the upstream may have received the request, and so may have acted.
        refused: whether it received the request and refused it, so it should not have acted. Never with `sent`.
        detail: for the log; it contains no secret, and of what only the upstream said just the address of a redirect.
        is_unavailable: whether the upstream says that it serves nobody now (503).
    """

    def __init__(
        self,
        upstream: str,
        reason: Reason,
        *,
        sent: bool,
        refused: bool = False,
        detail: str = "",
        is_unavailable: bool = False,
    ) -> None:
        super().__init__(f"{upstream}: {reason.value}{': ' if detail else ''}{detail}")
        self.upstream = upstream
        self.reason = reason
        self.sent = sent
        self.refused = refused
        self.detail = detail
        self.is_unavailable = is_unavailable

    @property
    def concerns_all(self) -> bool:
        """Whether requests of other callers fail too. A caller can cause all other failures."""
        return self.is_unavailable or self.reason is Reason.UNREACHABLE


class UpstreamError(RpcError):
    """The upstream answered with a JSON-RPC error, which the caller gets as it came, within our limits.

    Attributes:
        status: of the HTTP response.
        has_id: whether it names our request, so that the upstream has looked at it.
    """

    is_relayed = True

    def __init__(
        self, upstream: str, code: int, message: str, data: Any = None, *, status: int = 200, has_id: bool = True
    ) -> None:
        super().__init__(code, message, data)
        self.upstream = upstream
        self.status = status
        self.has_id = has_id


class HeldFailure(UpstreamFailure):
    """A call that waits for its user has no result, for a reason that is not the upstream's.

    Attributes:
        reference: finds the call in the log; "" if it was not held.
        seconds: how long it waited for its user, if that is why.
    """

    def __init__(
        self,
        upstream: str,
        reason: Reason,
        *,
        sent: bool = True,
        call_id: bytes = b"",
        seconds: float = 0.0,
        detail: str = "",
    ) -> None:
        super().__init__(upstream, reason, sent=sent, detail=detail)
        self.reference = call_id[:4].hex()
        self.seconds = seconds


def ended_without_answer(problem: BaseException) -> bool:
    """Return whether a request that has ended so may still be worked on."""
    return not isinstance(problem, UpstreamError) and getattr(problem, "sent", True)


class LostSession(UpstreamFailure):
    """The session of a request had ended before the request came, so the upstream has not acted."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, Reason.LOST_SESSION, sent=False, refused=True, detail="it has ended the session")
