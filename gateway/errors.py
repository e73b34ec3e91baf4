"""Every error of the gateway, as one small tree.

::

    GatewayError
    ├── ConfigurationError          the process refuses to start; the message says what to change
    ├── AuthoringError              a tool breaks a rule of the authoring API
    ├── AskError                    the client did not answer a question with a value
    │   ├── Declined                the user said no
    │   ├── Dismissed               the user closed the question without deciding
    │   └── Refused                 the client answered with an error
    ├── CannotContinue              a call cannot go on in another leg; the message tells the caller why
    │   └── JournalTooLarge         over what a client carries; a task could still carry it
    ├── HttpRefusal                 an HTTP status without a JSON-RPC body
    ├── InsufficientScope           403: the caller's token lacks a scope
    ├── LeaseLost                   a worker no longer holds the task it works on
    ├── ValueTooLarge               the task store will never take it; the message says how large is allowed
    │   └── NoRoomLeft              the caller's tasks keep as much as they may
    └── RpcError                    a JSON-RPC error (JSON-RPC 2.0 section 5.1)
        ├── ProtocolError           raised by a tool author on purpose
        ├── ParseError              -32700
        │   └── TooDeep             -32700, over a limit
        ├── InvalidRequest          -32600
        ├── MethodNotFound          -32601
        ├── InvalidParams           -32602
        │   ├── ArgumentsTooLarge   -32602, over a limit
        │   ├── InvalidRequestState -32602, one frozen text for every reason
        │   ├── ResourceNotFound    -32602
        │   ├── TaskIdTaken         -32602
        │   └── TooManyAnswers      -32602, over a limit
        ├── InternalError           -32603
        ├── HeaderMismatch          -32020
        ├── MissingCapability       -32021
        ├── UnsupportedVersion      -32022
        ├── NotAnswered             -31005, what a prompt or a resource asked has no answer
        └── NotNow                  the same request may succeed after `retry_after_seconds`
            ├── TryAgain            nothing of it ran
            │   ├── AuditLogDown    -31001
            │   ├── InProgress      -31001
            │   ├── Overloaded      -31001
            │   ├── RateLimited     -31003
            │   ├── TooManyStreams  -31003
            │   ├── TooManyTaskBytes -31003
            │   └── TooManyTasks    -31003
            └── TaskStoreDown       -31004, it is unknown whether anything of it ran
                └── TaskStoreAway   -31001, nothing of it ran: this is a `TryAgain` too

Expected refusals are these; anything else is a bug or a tool's own exception. One function, in
`gateway.web.errors`, turns them into HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar


class GatewayError(Exception):
    """Base of every error the gateway raises on purpose."""


class ConfigurationError(GatewayError):
    """The process cannot start as configured.

    Args:
        problems: what is wrong, one line each that says what to change.

    Attributes:
        problems: the same, without line breaks.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(" ".join(problem.split()) for problem in problems)
        super().__init__("\n".join(self.problems))


class AuthoringError(GatewayError):
    """A tool breaks a rule of the authoring API. The message addresses the tool's author."""


class AskError(GatewayError):
    """The client did not answer a question with a value.

    Attributes:
        key: the author's key of the question.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Declined(AskError):
    """The user explicitly declined to answer (elicitation action `decline`)."""

    def __init__(self, key: str) -> None:
        super().__init__(key, f"The user declined to answer {key!r}.")


class Dismissed(AskError):
    """The user closed the question without deciding (elicitation action `cancel`)."""

    def __init__(self, key: str) -> None:
        super().__init__(key, f"The user dismissed the question {key!r}.")


class Refused(AskError):
    """The client answered a question with an error instead of a result."""

    def __init__(self, key: str, message: str = "") -> None:
        super().__init__(key, f"The client could not answer {key!r}" + (f": {message}" if message else "."))


class HttpRefusal(GatewayError):
    """A refusal told by its HTTP status, before or without JSON-RPC.

    Attributes:
        status: the HTTP status code.
        headers: extra response headers, names in lower case.
    """

    def __init__(self, status: int, message: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.headers = tuple(headers)


class InsufficientScope(GatewayError):
    """The caller's token does not grant what the tool, prompt or resource asks for (RFC 6750 section 3.1).

    Args:
        required: every scope that is asked for, granted or not.
        message: what else is missing, where it is not a scope.

    Attributes:
        required: as given.
        granted: the scopes that the token has, set where the request is refused.
    """

    def __init__(self, required: Iterable[str], message: str | None = None) -> None:
        self.required = frozenset(required)
        self.granted: frozenset[str] = frozenset()
        super().__init__(message or f"This needs the scopes: {' '.join(sorted(self.required))}")


class LeaseLost(GatewayError):
    """A worker no longer holds the task it works on; nothing that it writes about it counts.

    Attributes:
        cancelled: whether the task was cancelled; otherwise another worker has it, or it has expired.
    """

    def __init__(self, *, cancelled: bool) -> None:
        super().__init__("The task was cancelled" if cancelled else "The lease on the task was lost")
        self.cancelled = cancelled


class ValueTooLarge(GatewayError):
    """Something is larger than the task store keeps, and will be the next time too. The message is safe to show.

    Args:
        what: what is too large, as the start of a sentence.
        size: its size in bytes.
        limit: the most that is allowed, None where only the store's server knows.
    """

    def __init__(self, what: str, size: int, limit: int | None = None) -> None:
        allowed = "more than the task store accepts" if limit is None else f"the limit is {limit}"
        super().__init__(f"{what} is too large: {size} bytes; {allowed}")


class NoRoomLeft(ValueTooLarge):
    """A running task has more to store, but all tasks of its caller together keep as much as they may.

    Args:
        limit: how many bytes that is.
    """

    def __init__(self, limit: int) -> None:
        GatewayError.__init__(
            self, f"The tasks of one caller may store {limit} bytes in total, and this one needs more than is left"
        )


class RpcError(GatewayError):
    """A JSON-RPC error: `code`, `message` and optional `data`, all safe to show to the client."""

    code: int

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ProtocolError(RpcError):
    """Raised by a tool author to end the call with a JSON-RPC error of their own.

    The codes from -32768 to -32000 are reserved (JSON-RPC 2.0 section 5.1, MCP "Error Codes"); pick
    another one, or one of the standard codes -32600 to -32603.
    """


class _FixedCode(RpcError):
    CODE: ClassVar[int]

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(self.CODE, message, data)


class ParseError(_FixedCode):
    """The body is not JSON, or not JSON that two readers would read alike."""

    CODE = -32700


class TooDeep(ParseError):
    """The body nests deeper than is allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body nests deeper than {limit} levels")


class InvalidRequest(_FixedCode):
    """The body is JSON but not one JSON-RPC request or notification."""

    CODE = -32600


class MethodNotFound(_FixedCode):
    """The method does not exist on this wire."""

    CODE = -32601


class InvalidParams(_FixedCode):
    """The parameters, the `_meta` or a name in them are wrong."""

    CODE = -32602


class TooManyAnswers(InvalidParams):
    """One leg brings more answers than is allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"params.inputResponses must not have more than {limit} entries")


class ArgumentsTooLarge(InvalidParams):
    """The arguments of a call are larger than those of a task may be.

    Args:
        size: theirs, in bytes of JSON.
        limit: the most that is allowed.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The arguments are too large for a task: {size} bytes; the limit is {limit}")


class TaskIdTaken(InvalidParams):
    """The client chose the id of a task that it has already used (SEP-1686)."""

    def __init__(self) -> None:
        super().__init__("Task ID already exists")


class ResourceNotFound(InvalidParams):
    """There is no resource of this uri.

    Attributes:
        uri: as the client sent it.
    """

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found", {"uri": uri})
        self.uri = uri


class InternalError(_FixedCode):
    """Something broke that is not the caller's fault. The message never says what."""

    CODE = -32603


class HeaderMismatch(_FixedCode):
    """A request header is missing, malformed or differs from the body (Streamable HTTP, "Server Validation")."""

    CODE = -32020


class MissingCapability(_FixedCode):
    """The call needs something that the client did not declare.

    `data.requiredCapabilities` is shaped like `ClientCapabilities`, e.g. `{"elicitation": {"form": {}}}`.

    Args:
        paths: where in `ClientCapabilities` each missing one stands, e.g. `("elicitation", "form")`.
    """

    CODE = -32021

    def __init__(self, *paths: tuple[str, ...]) -> None:
        required: dict[str, Any] = {}
        for path in paths:
            node = required
            for name in path:
                node = node.setdefault(name, {})
        names = " and ".join(dict.fromkeys(map(_capability, paths)))
        super().__init__(
            f"This needs a client that supports {names}, which this one does not declare.",
            {"requiredCapabilities": required},
        )


def _capability(path: tuple[str, ...]) -> str:
    return f"the extension {path[1]}" if path[0] == "extensions" else ".".join(path)


class NotAnswered(_FixedCode):
    """A prompt or a resource has no result since what it asked was not answered; `data.reason` says why.

    Args:
        error: why there is no answer.
    """

    CODE = -31005

    def __init__(self, error: GatewayError) -> None:
        super().__init__(str(error), {"reason": type(error).__name__.lower()})


class UnsupportedVersion(_FixedCode):
    """The protocol version is not served here; `data.supported` says which are."""

    CODE = -32022

    def __init__(self, supported: Sequence[str], requested: str) -> None:
        super().__init__("Unsupported protocol version", {"supported": list(supported), "requested": requested})


class NotNow(_FixedCode):
    """Nothing is wrong with the request, but it is not served now.

    Attributes:
        retry_after_seconds: when it may succeed, at least 1 (RFC 9110 section 10.2.3).
    """

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message, {"retryAfterSeconds": retry_after_seconds})
        self.retry_after_seconds = retry_after_seconds


class TryAgain(NotNow):
    """Nothing of the request ran, so that anybody may send it again, a load balancer included."""


class InProgress(TryAgain):
    """The same request came before and still runs. Once it has ended, a repetition gets its answer."""

    CODE = -31001

    def __init__(self, retry_after_seconds: int = 1) -> None:
        super().__init__("The same request is still running", retry_after_seconds)


class Overloaded(TryAgain):
    """The replica has as many requests in hand as it can serve in time."""

    CODE = -31001

    def __init__(self, retry_after_seconds: int = 1) -> None:
        super().__init__("The server is overloaded", retry_after_seconds)


class AuditLogDown(TryAgain):
    """The audit log cannot be written, and no call may run without its line (`GATEWAY_AUDIT_LOG_REQUIRED`)."""

    CODE = -31001

    def __init__(self, retry_after_seconds: int = 5) -> None:
        super().__init__("The server cannot accept calls right now", retry_after_seconds)


class RateLimited(TryAgain):
    """The caller sends more requests than one may."""

    CODE = -31003

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__("Too many requests", retry_after_seconds)


class TooManyStreams(TryAgain):
    """The caller keeps as many streams open as one may."""

    CODE = -31003

    def __init__(self, limit: int, retry_after_seconds: int) -> None:
        super().__init__(f"No more than {limit} streams may be open at a time", retry_after_seconds)


class TooManyTasks(TryAgain):
    """The caller has as many tasks stored as one may."""

    CODE = -31003

    def __init__(self, limit: int, retry_after_seconds: int) -> None:
        super().__init__(f"No more than {limit} tasks may be stored at a time", retry_after_seconds)


class TooManyTaskBytes(TryAgain):
    """The tasks of the caller keep as many bytes as they may."""

    CODE = -31003

    def __init__(self, limit: int, retry_after_seconds: int) -> None:
        super().__init__(f"The tasks of one caller may store no more than {limit} bytes", retry_after_seconds)


class TaskStoreDown(NotNow):
    """The task store does not serve. Unless this is a `TaskStoreAway`, it may have done what was asked."""

    CODE = -31004
    MESSAGE: ClassVar[str] = "The task store did not answer in time; the request may still have taken effect"

    def __init__(self, retry_after_seconds: int = 2) -> None:
        super().__init__(self.MESSAGE, retry_after_seconds)


class TaskStoreAway(TaskStoreDown, TryAgain):
    """The task store cannot be reached, is full, or refuses; nothing was done, and nothing will be."""

    CODE = -31001
    MESSAGE = "The task store is not available"


class RejectReason(StrEnum):
    """Why a sealed token was not accepted. For the log and the counter only, never for the client.

    The last two are of request ids: the replica is not there or did not take the answer; nobody waits any more.
    """

    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    NOT_AUTHENTIC = "not_authentic"
    EXPIRED = "expired"
    TOO_LARGE = "too_large"
    NEWER_SCHEMA = "newer_schema"
    ALREADY_USED = "already_used"
    GONE = "gone"
    LATE = "late"


class HopReason(StrEnum):
    """Why a message of another process was not accepted. For the log and the counter only, never for its sender."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNKNOWN_KEY = "unknown_key"
    NOT_AUTHENTIC = "not_authentic"
    NEWER_SCHEMA = "newer_schema"
    OTHER_RECEIVER = "other_receiver"
    STALE = "stale"
    REPLAYED = "replayed"
    OVERLOADED = "overloaded"


class InvalidRequestState(InvalidParams):
    """A `requestState` that is not accepted; every reason looks the same to the client.

    Attributes:
        reason: the real reason, for the log and the counter.
    """

    def __init__(self, reason: RejectReason) -> None:
        super().__init__("Invalid or expired requestState", {"reason": "invalid_request_state"})
        self.reason = reason


class CannotContinue(GatewayError):
    """A call cannot go on in another leg. The message tells the caller why."""


class JournalTooLarge(CannotContinue):
    """The journal is over what a client carries; a task could still carry it."""
