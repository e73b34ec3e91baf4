"""The interfaces between the parts of this package and the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NotRequired, Protocol, TypeAlias, TypedDict, Unpack

import msgspec

from gateway.engine.questions import Answer
from gateway.protocol.caller import Exchange
from gateway.protocol.upstream.responses import ServerRequest
from gateway.sealing.principal import Principal
from gateway.upstreams.readings import Keep


class UpstreamCaller(msgspec.Struct, frozen=True):
    """For whom a request to an upstream is made. Its text contains no token and no header.

    Attributes:
        principal: the caller, or None if it is anonymous or the gateway asks for itself.
        headers: the headers of the caller's request, by lower-case name; only those of `forward_headers` are sent.
        token: a token for the upstream that a task has kept, or None.
        may_lack_token: whether a request without the token of a caller is sent as well: its refusal is an answer.
    """

    principal: Principal | None = None
    exchange: Exchange | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    capabilities: Mapping[str, Any] = msgspec.field(default_factory=dict)
    token: str | None = None
    may_lack_token: bool = False

    @property
    def key(self) -> Hashable:
        """The caller and its headers: all that an upstream can tell callers apart by."""
        return self.principal, tuple(sorted(self.headers.items()))

    def __repr__(self) -> str:
        """Return a text without the token and the headers, which are the caller's."""
        return f"UpstreamCaller({self.principal!r})"


NOBODY = UpstreamCaller()
"""The gateway itself, for requests that no caller makes."""


OnNotice: TypeAlias = Callable[[str, dict[str, Any]], None]
"""Takes the method and the checked parameters of a progress notification or log message."""

KeepPlace: TypeAlias = Callable[[str], Awaitable[None]]
"""Keeps the place of a call that is about to begin, so that it can be continued if this process is lost."""

OnHeaders: TypeAlias = Callable[[Mapping[str, str]], None]
"""Takes the headers of a response that is 200."""


Changes: TypeAlias = AsyncIterator[tuple[str, dict[str, Any]]]
"""The methods and parameters of notifications of changes, as they arrive."""


class Questions(Protocol):
    """Takes what an upstream in a session asks while one request runs.

    Attributes:
        has_begun: set once the request is about to be sent.
        is_asked: whether the upstream waits for an answer now.
        on_change: called when `is_asked` changes.
    """

    has_begun: bool
    is_asked: bool
    on_change: Callable[[], None]

    @property
    def asked_seconds(self) -> float:
        """How long the upstream has waited for answers so far. It did not work meanwhile."""
        ...

    async def answer(self, asked: ServerRequest) -> Answer:
        """Return the answer: the `result` or the `error` of a response.

        The upstream withdraws its question by a cancellation of this.
        """
        ...

    def lose(self) -> None:
        """End the request, because an answer could not be sent."""
        ...


LATE_ANSWER: Final = "gateway/late_answer"
"""The method of a notice of our own: the upstream had withdrawn the question, so the answer is not sent."""


class HeldRound(dict[str, Any]):
    """An `InputRequiredResult` of a call that is held: its `requestState` is a place that only the gateway knows."""


class Continued(msgspec.Struct, frozen=True):
    """Continues a call that is held: its place, and the answers by the keys of its questions.

    If it `cancels`, it ends the call instead.
    """

    place: str
    answers: Mapping[str, Answer]
    cancels: bool = False


class RequestOptions(TypedDict):
    """The options of a request to an upstream.

    Attributes:
        requester: for whom it is made. Its capabilities are declared upstream, as far as they are relayed.
        param_headers: names and plain values of `Mcp-Param-*`, see `protocol.upstream.requests.mirrored`.
        on_notice: called with the method of each progress notification or log message of this request, and its checked
            parameters without token and `_meta`.
        on_headers: called with the headers of the response, if it is 200.
        keep: takes what releases the memory of a large answer, once that is not used any more; see `Readings`.
        progress_token: under which progress arrives; by default the id of the request. No id is negative.
        continued: continues a call that is held. The params are those of the first request.
        needs_session: sends it in a session, although the upstream can be called without one.
        keep_place: keeps the place of a call that begins in another process.
        questions: takes what the upstream asks on the way; None refuses it. Only in sessions.
        repeatable: sends a `tools/call` again that the upstream has refused with a 503. All other methods only read, so
            they are sent again anyway.
        seconds: the time limit, retries included.
    """

    requester: UpstreamCaller
    param_headers: NotRequired[Sequence[tuple[str, str]]]
    on_notice: NotRequired[OnNotice | None]
    wants_progress: NotRequired[bool]
    progress_token: NotRequired[int]
    log_level: NotRequired[str | None]
    on_headers: NotRequired[OnHeaders | None]
    keep: NotRequired[Keep | None]
    continued: NotRequired[Continued | None]
    needs_session: NotRequired[bool]
    keep_place: NotRequired[KeepPlace | None]
    questions: NotRequired[Questions | None]
    repeatable: NotRequired[bool]
    seconds: float
    max_bytes: int


class Requests(Protocol):
    """Sends requests to one upstream; see `gateway.upstreams.client.stateless.StatelessClient`."""

    async def request(
        self, method: str, params: Mapping[str, Any], **options: Unpack[RequestOptions]
    ) -> dict[str, Any]:
        """Send a request and return its result."""
        ...
