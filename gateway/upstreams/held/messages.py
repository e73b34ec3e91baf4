"""Pure: requests to upstreams, and their answers, as one process of the deployment sends them to another."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.errors import Overloaded
from gateway.protocol.strict_json import decode, encode
from gateway.sealing.principal import Principal
from gateway.upstreams.failures import HeldFailure, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import Continued, HeldRound, RequestOptions, UpstreamCaller

KIND: Final = "upstream"
"""The kind of messages with a request."""
LISTEN: Final = "upstream-changes"
"""The kind of messages that open a stream of changes."""


class MalformedMessage(ValueError):
    """A message does not have the form of this release."""


class RequestMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to an upstream. Members that end in `_json` are encoded.

    Attributes:
        upstream: its name and identity must be those that the other process serves.
        call: the id of the call, with which this request can be sent again.
        place: where the call is held, if this continues it.
        token: of the caller for the upstream, where credentials differ by caller.
        unattended_seconds: how long the call lasts while no request waits for it; None leaves it at the usual time.
    """

    upstream: str
    identity: bytes
    method: str
    params_json: bytes
    call: bytes
    seconds: float
    max_bytes: int
    place: str = ""
    answers_json: bytes = b"{}"
    cancels: bool = False
    principal: tuple[str, str, str] | None = None
    headers: dict[str, str] = {}
    token: str | None = None
    capabilities_json: bytes = b"{}"
    log_level: str | None = None
    wants_progress: bool = False
    param_headers: list[tuple[str, str]] = []
    repeatable: bool = False
    may_lack_token: bool = False
    unattended_seconds: float | None = None

    def __repr__(self) -> str:
        """Return a text without the token, the headers, the parameters and the answers."""
        return f"RequestMessage({self.upstream!r}, {self.method!r})"

    @property
    def params(self) -> dict[str, Any]:
        """The parameters."""
        params: dict[str, Any] = _decoded(self.params_json)
        return params

    @property
    def continued(self) -> Continued | None:
        """The answers, if this continues a call."""
        return Continued(self.place, _decoded(self.answers_json), self.cancels) if self.place else None

    def options(self) -> RequestOptions:
        """Return the options of the request, without those that only the process has that sends it."""
        principal = None if self.principal is None else Principal(*self.principal)
        capabilities = _decoded(self.capabilities_json)
        return {
            "requester": UpstreamCaller(
                principal, None, self.headers, capabilities, self.token, may_lack_token=self.may_lack_token
            ),
            "param_headers": self.param_headers,
            "repeatable": self.repeatable,
            "log_level": self.log_level,
            "wants_progress": self.wants_progress,
            "seconds": self.seconds,
            "max_bytes": self.max_bytes,
            "continued": self.continued,
        }


class ListenMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Opens a stream of changes. The gateway itself listens, so there is no caller."""

    upstream: str
    identity: bytes
    wanted_json: bytes

    @property
    def wanted(self) -> dict[str, Any]:
        """What to listen for."""
        wanted: dict[str, Any] = _decoded(self.wanted_json)
        return wanted


class NoticeMessage(msgspec.Struct, frozen=True, tag="notice"):
    """A notice about the request."""

    method: str
    told_json: bytes


class ResultMessage(msgspec.Struct, frozen=True, tag="result"):
    """The result. If it `is_held`, it asks, and its state is the place of the call."""

    result_json: bytes
    is_held: bool


class ErrorMessage(msgspec.Struct, frozen=True, tag="error"):
    """The upstream's own error."""

    code: int
    message: str
    data_json: bytes
    status: int
    has_id: bool


class FailureMessage(msgspec.Struct, frozen=True, tag="failure"):
    """There is no result; see `UpstreamFailure` and, if it `is_held`, `HeldFailure`."""

    reason: Reason
    sent: bool
    refused: bool = False
    detail: str = ""
    is_unavailable: bool = False
    is_held: bool = False
    call: bytes = b""
    seconds: float = 0.0


class BusyMessage(msgspec.Struct, frozen=True, tag="busy"):
    """There was no place. Nothing was sent."""


_Answer = NoticeMessage | ResultMessage | ErrorMessage | FailureMessage | BusyMessage


def request_body(
    name: str,
    identity: bytes,
    request: tuple[str, Mapping[str, Any]],
    call: bytes,
    options: RequestOptions,
    *,
    unattended_seconds: float | None = None,
) -> dict[str, Any]:
    """Return the body of a message with a request, a method and its parameters."""
    method, params = request
    requester, continued = options["requester"], options.get("continued")
    principal = requester.principal
    message = RequestMessage(
        upstream=name,
        identity=identity,
        method=method,
        params_json=encode(params),
        call=call,
        seconds=options["seconds"],
        max_bytes=options["max_bytes"],
        place="" if continued is None else continued.place,
        answers_json=b"{}" if continued is None else encode(continued.answers),
        cancels=continued is not None and continued.cancels,
        principal=None if principal is None else (principal.issuer, principal.subject, principal.client_id),
        headers=dict(requester.headers),
        token=requester.token,
        capabilities_json=encode(requester.capabilities),
        log_level=options.get("log_level"),
        wants_progress=options.get("wants_progress", False),
        param_headers=list(options.get("param_headers", ())),
        repeatable=options.get("repeatable", False),
        may_lack_token=requester.may_lack_token,
        unattended_seconds=unattended_seconds,
    )
    return body_of(message)


def read_request(body: Mapping[str, Any]) -> RequestMessage:
    """Read a message with a request, or raise `MalformedMessage`."""
    message: RequestMessage = _read(body, RequestMessage)
    return message


def read_listen(body: Mapping[str, Any]) -> ListenMessage:
    """Read a message that opens a stream of changes, or raise `MalformedMessage`."""
    message: ListenMessage = _read(body, ListenMessage)
    return message


def listen_message(name: str, identity: bytes, wanted: Mapping[str, Any]) -> ListenMessage:
    """Return a message that opens a stream of changes."""
    return ListenMessage(name, identity, encode(wanted))


def notice_body(method: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a message with a notice."""
    return body_of(NoticeMessage(method, encode(told)))


def answer_body(outcome: Mapping[str, Any] | Exception) -> dict[str, Any]:
    """Return the body of the last message: with a result, or the exception that there is instead."""
    match outcome:
        case UpstreamError():
            data = encode(outcome.data)
            return body_of(ErrorMessage(outcome.code, outcome.message, data, outcome.status, outcome.has_id))
        case UpstreamFailure():
            return body_of(_failure_message(outcome))
        case Overloaded():
            return body_of(BusyMessage())
        case Mapping():
            return body_of(ResultMessage(encode(outcome), isinstance(outcome, HeldRound)))
    raise TypeError(type(outcome).__name__)


def read_answer_message(body: Mapping[str, Any], upstream: str) -> tuple[str, dict[str, Any]] | dict[str, Any]:
    """Return a notice, as its method and parameters, or the result; raise what there is instead of one."""
    message = _read(body, _Answer)
    match message:
        case NoticeMessage(method, told_json):
            return method, _decoded(told_json)
        case ResultMessage(result_json, is_held):
            result: dict[str, Any] = _decoded(result_json)
            return HeldRound(result) if is_held else result
        case ErrorMessage(code, text, data_json, status, has_id):
            raise UpstreamError(upstream, code, text, _decoded(data_json), status=status, has_id=has_id)
        case FailureMessage():
            raise _failure(message, upstream)
    raise Overloaded


def _failure_message(failure: UpstreamFailure) -> FailureMessage:
    message = FailureMessage(
        failure.reason, failure.sent, failure.refused, failure.detail, is_unavailable=failure.is_unavailable
    )
    if not isinstance(failure, HeldFailure):
        return message
    reference = bytes.fromhex(failure.reference)
    return msgspec.structs.replace(message, is_held=True, call=reference, seconds=failure.seconds)


def _failure(message: FailureMessage, upstream: str) -> UpstreamFailure:
    if message.is_held:
        return HeldFailure(upstream, message.reason, sent=message.sent, call_id=message.call, seconds=message.seconds)
    return UpstreamFailure(
        upstream,
        message.reason,
        sent=message.sent,
        refused=message.refused,
        detail=message.detail,
        is_unavailable=message.is_unavailable,
    )


def body_of(message: msgspec.Struct) -> dict[str, Any]:
    """Return the body that carries a message."""
    body: dict[str, Any] = msgspec.to_builtins(message, builtin_types=(bytes,))
    return body


def _read(body: Mapping[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise MalformedMessage(str(error)) from None


def _decoded(encoded: bytes) -> Any:
    return decode(encoded, sys.maxsize, sys.maxsize)
