"""Every error of the gateway, in one small tree.

::

    GatewayError
    ├── ConfigurationError          the process refuses to start; the message says what to change
    ├── AuthoringError              a tool breaks a rule of the authoring API
    ├── AskError                    the client did not answer a question with a value
    │   ├── Declined                the user said no
    │   ├── Dismissed               the user closed the question without deciding
    │   └── Refused                 the client answered with an error
    ├── CannotContinue              a call cannot continue in another leg; the message says why
    │   ├── JournalTooLarge         too large for a client to carry; a task could still carry it
    │   └── ResultTooLarge          a tool, prompt or resource returned more than it may
    ├── HttpRefusal                 an HTTP status without a JSON-RPC body
    ├── InsufficientScope           403: the caller's token lacks a scope
    ├── TokenExchangeError          a caller's token could not be exchanged; a tool may catch it
    ├── LeaseLost                   a worker no longer holds the task it works on
    ├── ValueTooLarge               the task store will never accept it; the message states the limit
    │   └── NoRoomLeft              the caller's tasks have used up their storage
    └── RpcError                    a JSON-RPC error (JSON-RPC 2.0 section 5.1)
        ├── ProtocolError           raised by a tool author on purpose
        ├── ParseError              -32700
        │   └── TooDeep             -32700, over a limit
        ├── InvalidRequest          -32600
        ├── MethodNotFound          -32601
        ├── InvalidParams           -32602
        │   ├── ArgumentsTooLarge   -32602, over a limit
        │   ├── InvalidRequestState -32602, one fixed text for every reason
        │   ├── ResourceNotFound    -32602
        │   ├── TaskIdTaken         -32602
        │   └── TooManyAnswers      -32602, over a limit
        ├── InternalError           -32603
        │   ├── RelayFailed         -32603
        │   └── WorkersLost         -32603
        ├── HeaderMismatch          -32020
        ├── MissingCapability       -32021
        ├── UnsupportedVersion      -32022
        ├── NotAnswered             -31005, a question of a prompt or a resource has no answer
        ├── NotDelivered            -31006, an answer cannot reach the call that asked
        └── NotNow                  the same request may succeed after `retry_after_seconds`
            ├── TryAgain            no part of the request ran
            │   ├── AuditLogDown    -31001
            │   ├── InProgress      -31001
            │   ├── Overloaded      -31001
            │   │   ├── ShuttingDown -31001
            │   │   ├── TooManyBodyBytes -31001
            │   │   └── TooManyWaiting -31001
            │   ├── RateLimited     -31003
            │   ├── TooManyStreams  -31003
            │   ├── TooManyTaskBytes -31003
            │   └── TooManyTasks    -31003
            └── TaskStoreDown       -31004, the request may have taken effect
                └── TaskStoreAway   -31001, the request had no effect: this is a `TryAgain` too

These are the expected refusals. Anything else is a bug or a tool's own exception. One function, in
`gateway.web.errors`, turns them into HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final


class GatewayError(Exception):
    """Base of every error the gateway raises on purpose."""


class ConfigurationError(GatewayError):
    """The process cannot start as configured. Each problem is one line that says what to change."""

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
    """A refusal sent as an HTTP status, before or without JSON-RPC. Names of its headers are in lower case.

    `code` is that of the JSON-RPC error in the body.
    """

    def __init__(
        self, status: int, message: str, headers: Sequence[tuple[str, str]] = (), *, code: int = -32600
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = tuple(headers)
        self.code = code


class InsufficientScope(GatewayError):
    """The caller's token lacks a scope that the tool, prompt or resource requires (RFC 6750 section 3.1).

    Attributes:
        required: every required scope, granted or not.
        granted: the scopes of the token, set where the request is refused.
    """

    def __init__(self, required: Iterable[str], message: str | None = None) -> None:
        self.required = frozenset(required)
        self.granted: frozenset[str] = frozenset()
        super().__init__(message or f"This needs the scopes: {' '.join(sorted(self.required))}")


class TokenExchangeError(GatewayError):
    """A caller's token could not be exchanged for another one. The message contains no token.

    Attributes:
        code: the OAuth error code with which the identity provider refused, such as `invalid_target`; "" if there is
            none, because it did not answer or nothing was asked.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class LeaseLost(GatewayError):
    """A worker no longer holds the task it works on; its writes no longer count.

    If the task was not `cancelled`, another worker has it, or it has expired.
    """

    def __init__(self, *, cancelled: bool) -> None:
        super().__init__("The task was cancelled" if cancelled else "The lease on the task was lost")
        self.cancelled = cancelled


class ValueTooLarge(GatewayError):
    """A value is larger than the task store accepts; a retry cannot help. The message is safe to show.

    `what` is the start of a sentence. Sizes are in bytes; `limit` is None if only the store's server knows it.
    """

    def __init__(self, what: str, size: int, limit: int | None = None) -> None:
        allowed = "more than the task store accepts" if limit is None else f"the limit is {limit}"
        super().__init__(f"{what} is too large: {size} bytes; {allowed}")


class NoRoomLeft(ValueTooLarge):
    """A running task has more to store than its caller's tasks may store together."""

    def __init__(self, limit: int) -> None:
        GatewayError.__init__(
            self, f"The tasks of one caller may store {limit} bytes in total, and this one needs more than is left"
        )


class RpcError(GatewayError):
    """A JSON-RPC error: `code`, `message` and optional `data`, all safe to show to the client.

    If it `is_relayed`, it comes from another server, and says nothing about the health of this one.
    """

    is_relayed: bool = False
    code: int

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


GATEWAY_CODES: Final = range(-31099, -30999)
"""The codes of this gateway's own errors, by which clients decide whether to try again."""
MCP_CODES: Final = range(-32099, -32019)
"""The codes that only the protocol gives a meaning (MCP 2026-07-28 "Error Codes")."""
OLD_RESOURCE_NOT_FOUND: Final = -32002
"""How versions before 2026-07-28 say that a resource does not exist. Since then it is -32602."""
UNKNOWN_SESSION: Final = -32001
"""How the servers of the TypeScript SDK say that a session does not exist. Some clients then begin a new one."""
URL_ELICITATION_REQUIRED: Final = -32042
"""How a server of 2025-11-25 says that the user must visit a URL first. Later versions ask instead."""


class ProtocolError(RpcError):
    """A tool author ends the call with a JSON-RPC error of their own.

    The codes from -32768 to -32000 are reserved (JSON-RPC 2.0 section 5.1, MCP "Error Codes"). Pick another one, or one
    of the standard codes -32600 to -32603. A -32002 for a resource that does not exist is -32602 on 2026-07-28.

    Raises:
        AuthoringError: the code is one of the gateway's own, or one that only the protocol gives a meaning.
    """

    def __init__(self, code: int, message: str, data: Mapping[str, Any] | None = None) -> None:
        advice = code_advice(code)
        if advice:
            raise AuthoringError(f"ProtocolError cannot have the code {code}: {advice}")
        super().__init__(code, message, data)


def code_advice(code: Any) -> str:
    """Return what an author should do who uses this code; "" if they may."""
    if code in GATEWAY_CODES:
        return "by codes from -31099 to -31000, clients know errors of the gateway; use another one, such as 1001"
    if code == URL_ELICITATION_REQUIRED:
        return "ask with `ctx.elicit_url`"
    if code in MCP_CODES:
        return "the protocol reserves the codes from -32099 to -32020; use another one, such as 1001"
    return ""


class _FixedCode(RpcError):
    CODE: ClassVar[int]

    def __init__(self, message: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(self.CODE, message, data)


class ParseError(_FixedCode):
    """The body is not JSON, or two parsers could read it differently."""

    CODE = -32700


class TooDeep(ParseError):
    """The body nests more deeply than allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body nests deeper than {limit} levels")


class InvalidRequest(_FixedCode):
    """The body is JSON but not one JSON-RPC request or notification."""

    CODE = -32600


class TooManyValues(InvalidRequest):
    """The body has more JSON values than allowed, too many to read all of them.

    A value that is dear to read counts `weight` times.
    """

    def __init__(self, limit: int, weight: int) -> None:
        super().__init__(
            f"The body has more than {limit} JSON values; each array, object and number with an exponent counts as"
            f" {weight}. Send fewer at a time, or send them as text."
        )


class MethodNotFound(_FixedCode):
    """The method does not exist on this wire."""

    CODE = -32601


class InvalidParams(_FixedCode):
    """The parameters, the `_meta` or a name in them are wrong."""

    CODE = -32602


class TooManyAnswers(InvalidParams):
    """One leg carries more answers than allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"params.inputResponses must not have more than {limit} entries")


class ArgumentsTooLarge(InvalidParams):
    """The arguments are larger than a task may have; both sizes are in bytes of JSON."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"The arguments are too large for a task: {size} bytes; the limit is {limit}")


class TaskIdTaken(InvalidParams):
    """The client chose a task id that it has already used (SEP-1686)."""

    def __init__(self) -> None:
        super().__init__("Task ID already exists")


class ResourceNotFound(InvalidParams):
    """No resource has this URI."""

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found", {"uri": uri})
        self.uri = uri


class InternalError(_FixedCode):
    """Something broke, and the caller is not at fault. The message never says what."""

    CODE = -32603


class RelayFailed(InternalError):
    """Another server gave no usable answer. The message says why, and whether it may have acted."""

    is_relayed = True


class WorkersLost(InternalError):
    """A task has failed: `attempts` workers were lost while they ran it, so it may not run once more."""

    def __init__(self, attempts: int) -> None:
        super().__init__("The task failed: too many of its workers were lost", {"attempts": attempts})


class HeaderMismatch(_FixedCode):
    """A request header is missing, malformed or differs from the body (Streamable HTTP, "Server Validation")."""

    CODE = -32020


class MissingCapability(_FixedCode):
    """The call needs a capability that the client did not declare.

    `data.requiredCapabilities` has the shape of `ClientCapabilities`, e.g. `{"elicitation": {"form": {}}}`. Each path
    is in `ClientCapabilities`, e.g. `("elicitation", "form")`.
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
    """A question of a prompt or resource was not answered, so there is no result; `data.reason` says why."""

    CODE = -31005

    def __init__(self, error: GatewayError) -> None:
        super().__init__(str(error), {"reason": type(error).__name__.lower()})


class NotDelivered(_FixedCode):
    """A client's answer cannot reach the call that asked, in another process of the deployment."""

    CODE = -31006

    def __init__(self) -> None:
        super().__init__(
            "The answer could not be delivered: the server process that asked cannot be reached. "
            "Cancel the call and start it again"
        )


class UnsupportedVersion(_FixedCode):
    """The server does not support the protocol version; `data.supported` lists those it does.

    If it supports the version, but only in sessions, `data.needsInitialize` is true.
    """

    CODE = -32022

    def __init__(self, supported: Sequence[str], requested: str) -> None:
        data = {"supported": list(supported), "requested": requested}
        if requested in supported:
            message = f"{requested} needs a session: send initialize, and no version in params._meta"
            super().__init__(message, {**data, "needsInitialize": True})
        else:
            super().__init__("Unsupported protocol version", data)


class NotNow(_FixedCode):
    """The request is valid, but cannot be served right now.

    It may succeed in `retry_after_seconds`, at least 1 (RFC 9110 section 10.2.3). `TEXT` and `SECONDS` hold unless
    others are given.
    """

    TEXT: ClassVar[str]
    SECONDS: ClassVar[int] = 1

    def __init__(self, retry_after_seconds: int | None = None, text: str | None = None) -> None:
        self.retry_after_seconds = self.SECONDS if retry_after_seconds is None else retry_after_seconds
        super().__init__(text or self.TEXT, {"retryAfterSeconds": self.retry_after_seconds})


class TryAgain(NotNow):
    """No part of the request ran, so anyone may send it again, including a load balancer."""


class InProgress(TryAgain):
    """An earlier copy of this request is still running. When it has ended, a retry gets its answer."""

    CODE = -31001
    TEXT = "The same request is still running"


class Overloaded(TryAgain):
    """The replica already has as many requests as it can serve in time."""

    CODE = -31001
    TEXT = "The server is overloaded"


class ShuttingDown(Overloaded):
    """The replica drains and takes no new requests. This one has not run; another replica can serve it."""

    TEXT = "This replica is shutting down"


class TooManyWaiting(Overloaded):
    """The caller already has as many waiting requests as the others leave room for."""

    TEXT = "One caller may have no more waiting requests at the moment"


class TooManyBodyBytes(Overloaded):
    """The caller's unanswered requests already have as many bytes as it may send at a time."""

    TEXT = "The unanswered requests of one caller may have no more bytes at the moment"


class AuditLogDown(TryAgain):
    """The audit log cannot be written, and no call may run without its entry (`GATEWAY_AUDIT_LOG_REQUIRED`)."""

    CODE = -31001
    TEXT = "The server cannot accept calls right now"
    SECONDS = 5


class RateLimited(TryAgain):
    """The caller sends more requests than allowed."""

    CODE = -31003
    TEXT = "Too many requests"


class TooManyStreams(TryAgain):
    """The caller already has as many open streams as allowed."""

    CODE = -31003

    def __init__(self, limit: int, retry_after_seconds: int) -> None:
        super().__init__(retry_after_seconds, f"No more than {limit} streams may be open at a time")


class TooManyTasks(TryAgain):
    """The caller already has as many stored tasks as allowed."""

    CODE = -31003

    def __init__(self, limit: int, retry_after_seconds: int) -> None:
        super().__init__(retry_after_seconds, f"No more than {limit} tasks may be stored at a time")


class TooManyTaskBytes(TryAgain):
    """The caller's tasks already use as many bytes as allowed."""

    CODE = -31003

    def __init__(self, limit: int, retry_after_seconds: int) -> None:
        super().__init__(retry_after_seconds, f"The tasks of one caller may store no more than {limit} bytes")


class TaskStoreDown(NotNow):
    """The task store failed. Except with `TaskStoreAway`, the request may have taken effect."""

    CODE = -31004
    TEXT = "The task store did not answer in time; the request may still have taken effect"
    SECONDS = 2


class TaskStoreAway(TaskStoreDown, TryAgain):
    """The task store is unreachable or full, or refuses. The request had no effect and never will."""

    CODE = -31001
    TEXT = "The task store is not available"


class RejectReason(StrEnum):
    """Why a sealed token was rejected. For the log and the counter only, never for the client.

    `GONE` and `LATE` apply to request ids: the replica is gone or did not accept the answer; nothing waits for it any
    more.
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
    """Why a message from another process was rejected. For the log and the counter only, never for its sender."""

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
    """A `requestState` was rejected; every reason looks the same to the client.

    The real reason is for the log and the counter.
    """

    def __init__(self, reason: RejectReason) -> None:
        super().__init__("Invalid or expired requestState", {"reason": "invalid_request_state"})
        self.reason = reason


class CannotContinue(GatewayError):
    """A call cannot continue in another leg. The message is for the caller."""


class JournalTooLarge(CannotContinue):
    """The journal is too large for a client to carry; a task could still carry it. Both sizes are in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"This call has collected more state than it can carry to its next round: {size} bytes;"
            f" the limit is {limit}. Try again with less."
        )


class ResultTooLarge(CannotContinue):
    """A function of the author returned, emitted or logged more than `limit` bytes of JSON."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what} is too large: the limit is {limit} bytes. Try again with less.")
