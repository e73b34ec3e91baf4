"""Runs the legs of tools, prompts and resources of stateless upstreams.

The first leg sends the request. If the upstream asks something, the questions go to our client and the upstream's state
into the slot of the journal. The next leg sends both back, under the upstream's own keys. Nothing here waits for a
user, so any replica can run any leg.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gateway.engine.capabilities import CapabilityPath
from gateway.engine.journal import Journal
from gateway.engine.questions import Answer, Question
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.errors import (
    OLD_RESOURCE_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    CannotContinue,
    GatewayError,
    InvalidRequestState,
    MissingCapability,
    Overloaded,
    Refused,
    RejectReason,
    ResourceNotFound,
)
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.caller import Requester
from gateway.protocol.param_headers import ParamHeader
from gateway.protocol.reserved_meta import is_reserved
from gateway.protocol.strict_json import decode, encode
from gateway.protocol.upstream.asking import (
    MAX_CARRIED_BYTES,
    MAX_TASK_BYTES,
    AskedQuestion,
    AskedRound,
    Misasked,
    input_required,
    required_urls,
)
from gateway.protocol.upstream.cleaning import with_clean_meta
from gateway.protocol.upstream.entries import Entry, Kind, is_repeatable
from gateway.protocol.upstream.names import upstream_name
from gateway.protocol.upstream.notices import LOG, PROGRESS
from gateway.protocol.upstream.requests import RELAYED, mirrored
from gateway.protocol.upstream.results import Misshapen, Rewriting, plain_result
from gateway.registry.relayed import Relayed, forwarded_question
from gateway.runtime.sources import Clock
from gateway.runtime.turns import Turns
from gateway.upstreams import texts
from gateway.upstreams.callers import caller_of
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.credentials import CredentialHeaders
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.healing import Healing
from gateway.upstreams.ports import LATE_ANSWER, Continued, HeldRound, Requests, UpstreamCaller
from gateway.upstreams.sessions import NeedSessions, is_error_of_session, is_quoted, is_result_of_session
from gateway.upstreams.slot import MalformedSlot, Slot

log = logging.getLogger(__name__)

BARE_PAUSES: Final = (0.1, 0.5, 2.0)
"""How long a leg waits before it sends a bare state back: the first time, the second time and so on."""

BUSY_PAUSE_SECONDS: Final = 1.0
MAX_BUSY_PAUSES: Final = 60
"""How long, and how often, a task waits for a place or a connection. In an ephemeral call, the client tries again."""

MAX_VISITS: Final = 3
"""How often the user of one call may be sent to URLs before the call is made."""

ABANDON_SECONDS: Final = 5.0
"""How long ending a call may take that its client has left."""

_METHODS: Final[Mapping[Kind, str]] = {
    "tools": "tools/call",
    "prompts": "prompts/get",
    "resources": "resources/read",
    "templates": "resources/read",
}

_MISSING_CAPABILITY: Final = MissingCapability.CODE
_NOT_FOUND: Final = frozenset({OLD_RESOURCE_NOT_FOUND, -32602})
"""How servers say that they lack a resource: until 2025-11-25, and since 2026-07-28."""
_INVALID_REQUEST: Final = -32600
"""The one of the following that some servers also send for what goes wrong while a function runs."""
ABOUT_THE_REQUEST: Final = frozenset({-32700, _INVALID_REQUEST, -32601, -32020, -32022})
"""Errors about how the gateway wrote its request. Our client wrote another one, and must not act on them."""

_USER: Final = re.compile(r"//[^/?#]*@")
_SECRETS: Final = re.compile(r"([?#]).*", re.DOTALL)
_LOGGED_CHARACTERS: Final = 200
_CONTAINERS: Final = (dict, list)


Learn: TypeAlias = Callable[[Requester], Coroutine[Any, Any, str]]
"""Returns how the upstream writes a URI, which was not known when the call began.

It raises what the call then ends with: that a resource is not listed, or that the lists cannot be read.
"""

Supports: TypeAlias = Callable[[CapabilityPath], bool]
"""Returns whether the client declared a capability."""

Pause: TypeAlias = Callable[[float], Coroutine[Any, Any, None]]

Asked = TypeVar("Asked", bound=AskedRound | None)


class UpstreamRelay:
    """The relays of one upstream. `of` returns that of an entry. `turns` are those of all upstreams' large results."""

    def __init__(
        self,
        definition: Definition,
        client: Requests,
        credentials: CredentialHeaders,
        telemetry: UpstreamMetrics,
        *,
        turns: Turns | None = None,
        clock: Clock = time.monotonic,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.definition: Final = definition
        self.client: Final = client
        self.credentials: Final = credentials
        self.telemetry: Final = telemetry
        self.heal: Final = Healing(definition.name, telemetry)
        self.turns: Final = turns or Turns()
        self.clock: Final = clock
        self.pause: Final = pause
        self.sessions: Final = NeedSessions(clock)

    def of(self, entry: Entry, learn: Learn | None = None) -> EntryRelay:
        """Return the relay of an entry, for `RelayedTool`, `RelayedPrompt` or `RelayedResource`.

        `learn` finds out which URI to send, if that is not known yet. That of a tool or prompt only raises why it
        cannot be called.
        """
        repeatable = is_repeatable(entry.entry.get("annotations"))
        return EntryRelay(
            self,
            _METHODS[entry.kind],
            entry.own,
            entry.param_headers,
            repeatable=repeatable,
            promises=entry.entry.get("outputSchema") if entry.kind == "tools" else None,
            learn=learn,
        )

    def failure(self, reason: Reason, *, sent: bool, detail: str = "") -> UpstreamFailure:
        """Return a failure that the relay itself has found, counted."""
        self.telemetry.failed(self.definition.name, reason)
        return UpstreamFailure(self.definition.name, reason, sent=sent, detail=detail)


async def end_held(
    relay: UpstreamRelay, method: str, params: Mapping[str, Any], place: str, caller: UpstreamCaller
) -> None:
    """End a call that is held, of which nobody waits for the outcome."""
    with contextlib.suppress(GatewayError):
        await relay.client.request(
            method,
            params,
            requester=caller,
            continued=Continued(place, {}, cancels=True),
            seconds=ABANDON_SECONDS,
            max_bytes=relay.definition.max_result_bytes,
        )


class EntryRelay:
    """Runs the legs of one tool, prompt or resource, or of the resources of a template.

    The upstream is asked with `method` for `own`, its name or URI. It may get a request twice if that is `repeatable`,
    see `protocol.upstream.entries.is_repeatable`. It `promises` structured content of the schema that its entry has.
    See `UpstreamRelay.of` for `learn`.
    """

    def __init__(
        self,
        relay: UpstreamRelay,
        method: str,
        own: str,
        param_headers: tuple[ParamHeader, ...],
        *,
        repeatable: bool = False,
        promises: Mapping[str, Any] | None = None,
        learn: Learn | None = None,
    ) -> None:
        self._learn = learn
        self._repeatable = repeatable
        self._promises = promises
        self._relay = relay
        self._method = method
        self._own = own
        self._param_headers = param_headers

    @property
    def upstream(self) -> str:
        """The name of the upstream."""
        return self._relay.definition.name

    def bind(
        self, _served: Relayed, target: str, arguments: dict[str, Any], requester: Requester, journal: Journal
    ) -> RelayFunction:
        """Return what runs a leg; see `Served.begin`.

        Raises:
            InvalidRequestState: the call began at an upstream that has become another one.
            CannotContinue: the same in a task, or its tool is not served any more.
        """
        slot = self._slot(journal, requester)
        if self._method == "resources/read":
            read = _RelayedRequest(self._method, target, self._own, {"uri": self._own})
            return _RelayRun(self._relay, read, requester, slot, self._learn)
        if requester.in_task and not self._relay.definition.serves_tool(slot.own or self._own):
            raise CannotContinue(texts.sentence_of(self._relay.failure(Reason.CHANGED, sent=True)))
        params = {"name": self._own, "arguments": arguments}
        request = _RelayedRequest(self._method, target, self._own, params, promises=self._promises)
        if slot.own is not None:
            repeatable = self._repeatable and slot.own == self._own
            return _RelayRun(self._relay, request.of(slot.own, _headers_of(slot), repeatable), requester, slot)
        learn = None if requester.in_task else self._learn
        own = request.of(self._own, self._param_headers, self._repeatable)
        return _RelayRun(self._relay, own, requester, slot, learn)

    async def prepare_task(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """Keep in the journal the identity of the upstream and, if it needs one, the token of the caller.

        Without a token for this caller, this raises `CannotContinue`.
        """
        if self._learn is not None:
            await self._learn(requester)
        slot = self._named(self._slot(journal, requester), served)
        try:
            token = await self._relay.credentials.token_to_keep(caller_of(requester, self._relay.definition))
        except UpstreamFailure as failure:
            self._relay.telemetry.failed(self.upstream, failure.reason)
            raise CannotContinue(texts.sentence_of(failure)) from failure
        journal.slot = msgspec.structs.replace(slot, token=token).to_map()

    async def abandon(self, _served: Relayed, requester: Requester, journal: Journal) -> None:
        """End a call that is held. If its holder cannot be reached, it ends after its time."""
        with contextlib.suppress(InvalidRequestState, CannotContinue):
            slot = self._slot(journal, requester)
            if not slot.is_held or slot.state is None:
                return
            own = slot.own or self._own
            params = {"uri": own} if self._method == "resources/read" else {"name": own}
            caller = caller_of(requester, self._relay.definition)
            await end_held(self._relay, self._method, params, slot.state, caller)

    def _named(self, slot: Slot, served: Relayed) -> Slot:
        """Return a slot with the upstream's name of a tool, where a worker could not tell it from ours."""
        own, headers = self._own, self._param_headers
        if own == upstream_name(self._relay.definition.prefix, served.name) and not headers:
            return slot
        paths = tuple((header.name, *header.path) for header in headers)
        return msgspec.structs.replace(slot, own=own, param_headers=paths)

    def _slot(self, journal: Journal, requester: Requester) -> Slot:
        """Return where the call stands.

        Raises:
            InvalidRequestState: the journal is of another upstream, or of a release that this one cannot read.
            CannotContinue: the same in a task.
        """
        identity = self._relay.definition.identity
        if journal.slot is None:
            return Slot(identity)
        try:
            slot = Slot.from_map(journal.slot)
        except MalformedSlot:
            slot, reason = None, RejectReason.NEWER_SCHEMA
        else:
            reason = RejectReason.NOT_AUTHENTIC
        if slot is not None and slot.identity == identity:
            return slot
        changed = self._relay.failure(Reason.CHANGED, sent=True)
        if requester.in_task:
            raise CannotContinue(texts.sentence_of(changed))
        raise InvalidRequestState(reason)


class _RelayedRequest(msgspec.Struct, frozen=True):
    """The request of one call.

    `target` is the name or URI that the client sent, `own` the same as the upstream knows it. `params` are those of the
    first request. `param_headers` has names and values of `Mcp-Param-*`. See `EntryRelay` for `repeatable` and
    `promises`.
    """

    method: str
    target: str
    own: str
    params: Mapping[str, Any]
    param_headers: Sequence[tuple[str, str]] = ()
    repeatable: bool = False
    promises: Mapping[str, Any] | None = None

    def of(self, own: str, compiled: Sequence[ParamHeader], repeatable: bool) -> _RelayedRequest:
        """Return the same request for what the upstream knows by this name."""
        params = {**self.params, "name": own}
        headers = mirrored(compiled, params["arguments"]) if compiled else ()
        return msgspec.structs.replace(self, own=own, params=params, param_headers=headers, repeatable=repeatable)


def _headers_of(slot: Slot) -> tuple[ParamHeader, ...]:
    return tuple(ParamHeader(name, name.lower().encode(), tuple(path)) for name, *path in slot.param_headers)


class _RelayRun:
    """One leg of a call to an upstream. `UpstreamRelay.of` explains `learn`."""

    def __init__(
        self,
        relay: UpstreamRelay,
        request: _RelayedRequest,
        requester: Requester,
        slot: Slot,
        learn: Learn | None = None,
    ) -> None:
        self._learn = learn
        self._relay = relay
        self._request = request
        self._requester = requester
        self._slot = slot
        self._name = relay.definition.name
        self._busy_pauses = 0

    async def __call__(self, leg: RelayLeg) -> dict[str, Any]:
        """Run the leg and return the upstream's result.

        Raises:
            RpcError: the upstream's own error, or that the client lacks a capability.
            CannotContinue: there is no result; the message is for the caller.
            Refused: the client could not answer a question.
            Overloaded: no place became free at the upstream; nothing was sent.
        """
        try:
            return await self._run(leg)
        except UpstreamError as error:
            raise self._passed_on(error, leg.supports) from error
        except UpstreamFailure as failure:
            raise self._ended(failure) from failure

    async def _run(self, leg: RelayLeg) -> dict[str, Any]:
        if self._slot.sent and not self._slot.can_resend:
            raise CannotContinue(texts.lost(self._name))
        if self._learn is not None:
            self._requester.step_aside()
            own = await self._learn(self._requester)
            self._request = msgspec.structs.replace(self._request, own=own, params={"uri": own})
        if self._needs_session() and not self._relay.definition.has_sessions_too(self._request.own):
            raise CannotContinue(texts.needs_session(self._name, self._request.target, sent=False))
        answers = await leg.ask_forwarded(self._questions())
        for pause in (*BARE_PAUSES, None):
            result = await self._round(leg, self._answered(answers, leg.early), self._continued(answers))
            if result is not None:
                return await self._final(result)
            answers = await leg.ask_forwarded(self._questions())  # ends the leg, unless the state is bare
            if pause is not None:
                await self._relay.pause(pause)
        leg.shed_bare()
        raise CannotContinue(texts.never_ready(self._name))

    def _needs_session(self) -> bool:
        """Return whether the function is known to ask in a way that works only in a session."""
        return self._relay.sessions.has(self._requester.principal, self._request.method, self._request.own)

    async def _round(self, leg: RelayLeg, params: dict[str, Any], continued: Continued | None) -> dict[str, Any] | None:
        """Send a request and return its result, None if the upstream asks something, which begins the next round."""
        try:
            result = await self._send(leg, params, continued)
        except UpstreamError as error:
            if error.code != URL_ELICITATION_REQUIRED:
                raise
            asked = self._slot.asked(self._to_visit(leg, error), visits=self._slot.visits + 1)
        else:
            try:
                questions = self._asked(leg, input_required, result)
            except CannotContinue:
                await self._give_up(result)
                raise
            if questions is None:
                return result
            asked = self._slot.asked(questions, is_held=isinstance(result, HeldRound))
            del result
        leg.away.drop_result()
        await self._keep(leg, asked)
        return None

    async def _give_up(self, result: Mapping[str, Any]) -> None:
        """End a call that is held, if the upstream asks something that no client gets."""
        if isinstance(result, HeldRound):
            await end_held(
                self._relay, self._request.method, self._request.params, result["requestState"], self._caller()
            )

    def _questions(self) -> dict[str, Question]:
        """Return what the upstream asked last, by the keys that our clients see."""
        return {asked.wire_key: forwarded_question(asked.method, asked.params) for asked in self._slot.questions}

    def _answered(self, answers: Mapping[str, Answer], early: Mapping[str, Answer]) -> dict[str, Any]:
        """Return the params of the next request: the first ones, with answers and state.

        `early` is what the client sent with its first request; the upstream judges it, as if it was asked directly.

        Raises:
            Refused: the client answered with an error. A request to the upstream cannot carry that, so the call ends.
            CannotContinue: the user does not want to visit a URL.
        """
        params = dict(self._request.params)
        if self._requester.meta:
            params["_meta"] = dict(self._requester.meta)  # the client removes what the protocol reserves
        if self._slot.is_held:
            return params
        responses: dict[str, Any] = {}
        for asked in self._slot.questions:
            answer = answers[asked.wire_key]
            if "error" in answer:
                raise Refused(asked.wire_key, str(answer["error"].get("message", "")))
            if not self._slot.visits:
                responses[asked.key] = with_clean_meta("", answer["result"])
            elif answer["result"].get("action") != "accept":
                raise CannotContinue(texts.not_visited(self._name))
        if self._slot.round == 0:
            responses = {key: with_clean_meta("", early[key]["result"]) for key in early if "result" in early[key]}
        if responses:
            params["inputResponses"] = responses
        if self._slot.state is not None:
            params["requestState"] = self._slot.state
        return params

    def _continued(self, answers: Mapping[str, Answer]) -> Continued | None:
        """Return what continues a call that is held, with the client's errors too; None if the call is not held."""
        if self._slot.sent and self._slot.place is not None:
            return Continued(self._slot.place, {})
        if not self._slot.is_held or self._slot.state is None:
            return None
        given = {asked.key: _clean_answer(answers[asked.wire_key]) for asked in self._slot.questions}
        return Continued(self._slot.state, given)

    async def _send(self, leg: RelayLeg, params: dict[str, Any], continued: Continued | None) -> dict[str, Any]:
        """Send a request and return its result. The time that it takes counts for the whole call."""
        definition = self._relay.definition
        spent_seconds = 0.0 if continued is not None else self._slot.spent_ms / 1000  # the holder counts
        seconds = definition.timeout_seconds - spent_seconds
        if seconds <= 0:
            raise self._relay.failure(Reason.TIMED_OUT, sent=False)
        if leg.in_task:
            self._slot = msgspec.structs.replace(self._slot, sent=True)
            await leg.keep_slot(self._slot.to_map())
        self._set_arguments_aside(leg, params)
        self._set_meta_aside(params)
        self._requester.step_aside()
        while True:
            began = self._relay.clock()
            try:
                result = await self._relay.client.request(
                    self._request.method,
                    params,
                    requester=self._caller(),
                    param_headers=self._request.param_headers,
                    on_notice=lambda method, told: self._notice(leg, method, told),
                    wants_progress=self._requester.wants_progress,
                    log_level=self._requester.log_level,
                    repeatable=self._request.repeatable,
                    keep=leg.away.keep_result,
                    continued=continued,
                    needs_session=self._needs_session(),
                    keep_place=partial(self._keep_place, leg) if leg.in_task else None,
                    seconds=seconds,
                    max_bytes=definition.max_result_bytes,
                )
            except (Overloaded, UpstreamFailure) as problem:
                if not _had_no_room(problem):
                    raise
                began = self._relay.clock()  # the upstream did not work while the request waited for a place
                if not leg.in_task or self._busy_pauses == MAX_BUSY_PAUSES:
                    raise
                self._busy_pauses += 1
            else:
                return result
            finally:
                self._spend(leg, began)
            await self._relay.pause(BUSY_PAUSE_SECONDS)

    async def _keep_place(self, leg: RelayLeg, place: str) -> None:
        """Keep where a call begins, so that another worker can join it."""
        self._slot = msgspec.structs.replace(self._slot, place=place)
        await leg.keep_slot(self._slot.to_map())

    def _set_arguments_aside(self, leg: RelayLeg, params: dict[str, Any]) -> None:
        """Keep the arguments only as JSON while the upstream works: as objects, they take many times as much memory."""
        arguments = params.get("arguments")
        if type(arguments) is not dict:  # there are none, or it was done for an earlier request
            return
        encoded = encode(arguments)
        params["arguments"] = msgspec.Raw(encoded)
        kept = {**self._request.params, "arguments": params["arguments"]}
        self._request = msgspec.structs.replace(self._request, params=kept)
        arguments.clear()
        leg.away.aside_bytes = len(encoded)
        leg.away.restore_arguments = lambda: arguments.update(decode(encoded, sys.maxsize, sys.maxsize))

    def _set_meta_aside(self, params: dict[str, Any]) -> None:
        """Do the same with the large values of the request's `_meta`, but for good: only the upstream reads them."""
        meta = self._requester.meta
        for name, value in meta.items():
            if type(value) in _CONTAINERS and not is_reserved(name):
                params["_meta"][name] = meta[name] = msgspec.Raw(encode(value))

    def _spend(self, leg: RelayLeg, began: float) -> None:
        """Count the time since then as time that the upstream worked."""
        seconds = self._relay.clock() - began
        leg.away.seconds += seconds
        self._slot = msgspec.structs.replace(self._slot, spent_ms=self._slot.spent_ms + round(seconds * 1000))

    def _caller(self) -> UpstreamCaller:
        caller = caller_of(self._requester, self._relay.definition)
        return caller if self._slot.token is None else msgspec.structs.replace(caller, token=self._slot.token)

    def _notice(self, leg: RelayLeg, method: str, told: Mapping[str, Any]) -> None:
        """Pass on what the upstream reports while it works."""
        if method == PROGRESS:
            passed = leg.relay_progress(told["progress"], told.get("total"), told.get("message"))
            what = "progress"
        elif method == LOG:
            passed = leg.relay_log(told["level"], told["data"], told.get("logger"))
            what = "log"
        elif method == LATE_ANSWER:
            passed = leg.away.late_answer = True
            what = "answer"
        else:
            passed, what = False, "notification"
        if not passed:
            self._relay.telemetry.dropped(self._name, what)

    def _to_visit(self, leg: RelayLeg, error: UpstreamError) -> AskedRound:
        """Return the URLs that the user must visit before the upstream acts.

        Raises:
            UpstreamError: it asked something before, so it may have acted. Its error is passed on.
            CannotContinue: the user cannot be sent there, or was often enough.
        """
        asked = self._asked(leg, required_urls, error.data)
        has_acted = not self._slot.is_first_request
        if self._relay.definition.ask.of(self._request.own) == "refuse":
            raise CannotContinue(texts.refuses_visits(self._name, self._request.target, acted=has_acted))
        if has_acted:
            raise error
        if self._slot.visits == MAX_VISITS:
            raise CannotContinue(texts.sent_away_again(self._name, MAX_VISITS))
        return asked

    def _asked(self, leg: RelayLeg, read: Callable[..., Asked], said: Any) -> Asked:
        """Return what the upstream asks, as `read` finds it in what it said.

        If it asks in a way that cannot be passed on, this raises `CannotContinue`.
        """
        try:
            asked = read(said, max_bytes=MAX_TASK_BYTES if leg.in_task else MAX_CARRIED_BYTES)
            for question in () if asked is None else asked.questions:
                _refuse_unaskable(question)
        except Misasked as problem:
            if problem.refused:
                self._relay.telemetry.dropped(self._name, "question")
            reason = Reason.UNASKED if problem.refused else Reason.TOO_LARGE if problem.too_large else Reason.MALFORMED
            self._log(self._relay.failure(reason, sent=True, detail=str(problem)))
            raise CannotContinue(texts.misasked(self._name, str(problem))) from None
        return asked

    async def _keep(self, leg: RelayLeg, asked: Slot) -> None:
        """Begin the next round: earlier rounds and their answers are forgotten."""
        earlier, self._slot = self._slot.round, asked
        leg.forget_round(earlier)
        await leg.keep_slot(self._slot.to_map())

    async def _final(self, result: dict[str, Any]) -> dict[str, Any]:
        is_tool = self._request.method == "tools/call"
        if is_tool and is_result_of_session(result) and not is_quoted(self._request.params):
            raise self._relay.failure(Reason.NEEDS_SESSION, sent=True)
        if is_tool and self._request.promises is None and (plain := plain_result(result)) is not None:
            return plain
        try:
            rewriting = Rewriting(
                self._request.method,
                self._relay.definition.prefix,
                result,
                uri=self._request.own,
                promises=self._request.promises,
                heal=self._relay.heal,
            )
            for _ in rewriting.portions():
                await self._relay.turns.resume(self._name)
        except Misshapen as problem:
            raise self._relay.failure(Reason.MALFORMED, sent=True, detail=str(problem)) from None
        return rewriting.result

    def _passed_on(self, error: UpstreamError, supports: Supports) -> Exception:
        """Return what our client gets for the upstream's own error."""
        if is_error_of_session(error) and not is_quoted(self._request.params):
            return self._ended(self._relay.failure(Reason.NEEDS_SESSION, sent=True))
        if error.code == _MISSING_CAPABILITY:
            return self._missing(error, supports)
        if self._request.method == "resources/read" and error.code in _NOT_FOUND and _names_uri(error.data):
            return ResourceNotFound(self._request.target)
        if error.code in ABOUT_THE_REQUEST:
            return self._refused_request(error, sent=error.code == _INVALID_REQUEST)
        return error

    def _missing(self, error: UpstreamError, supports: Supports) -> Exception:
        """Return what our client gets for an upstream that needs a capability which the client did not declare.

        Only what this gateway passes on is named: declaring anything else would not help the client. An upstream that
        names only what the client declared knows that, and has another reason.
        """
        data = error.data if isinstance(error.data, Mapping) else {}
        required = data.get("requiredCapabilities")
        paths = list(_paths(required)) if isinstance(required, Mapping) else []
        if not paths or any(path not in RELAYED for path in paths):
            return CannotContinue(texts.lacks_capability(self._name))
        lacking = [path for path in paths if not supports(path)]
        return MissingCapability(*lacking) if lacking else self._refused_request(error, sent=False)

    def _refused_request(self, error: UpstreamError, *, sent: bool) -> CannotContinue:
        if texts.NOT_PASSED_ON in error.message:  # servers of the SDK 2 answer with the error of their question
            return CannotContinue(error.message)
        self._log(self._relay.failure(Reason.MALFORMED, sent=sent, detail=f"error {error.code}"))
        return CannotContinue(texts.refused_request(self._name, error.code, sent=sent))

    def _ended(self, failure: UpstreamFailure) -> CannotContinue:
        """Return what the caller reads about a failure. A function that could ask only in a session is remembered."""
        if failure.reason is Reason.NEEDS_SESSION and failure.sent:
            self._relay.sessions.add(self._requester.principal, self._request.method, self._request.own)
        if failure.reason is Reason.BREAKER_OPEN:
            self._relay.telemetry.failed(self._name, failure.reason)  # nothing was sent, so no client has counted it
        self._log(failure)
        return CannotContinue(self._sentence(failure))

    def _sentence(self, failure: UpstreamFailure) -> str:
        if failure.reason is Reason.NEEDS_SESSION:
            return texts.needs_session(self._name, self._request.target, sent=failure.sent)
        if failure.reason is Reason.TIMED_OUT and (failure.sent or not self._slot.is_first_request):
            return texts.took_too_long(self._name, self._relay.definition.timeout_seconds, sent=failure.sent)
        return texts.sentence_of(failure)

    def _log(self, failure: UpstreamFailure) -> None:
        fields = {
            "upstream": self._name,
            "target": _logged(self._request.target),
            "reason": failure.reason.value,
            "sent": failure.sent,
            "detail": failure.detail,
        }
        log.warning("a request to an upstream failed", extra=fields)


def _clean_answer(answer: Answer) -> dict[str, Any]:
    """Return an answer as a server may get it."""
    return dict(answer) if "error" in answer else {"result": with_clean_meta("", answer["result"])}


def _had_no_room(problem: Overloaded | UpstreamFailure) -> bool:
    """Return whether nothing was sent because all places, connections or children were in use."""
    if isinstance(problem, Overloaded):
        return True
    return problem.reason is Reason.BUSY and not (problem.sent or problem.refused)


def _logged(target: str) -> str:
    """Return the name or URI of a request for the log: the user, the query and the fragment of a URI may be secrets."""
    shown = _SECRETS.sub(r"\1…", _USER.sub("//", target, count=1), count=1) if ":" in target else target
    return shown[:_LOGGED_CHARACTERS]


def _refuse_unaskable(question: AskedQuestion) -> None:
    """Raise `Misasked` for what no client can be asked: a question without what its method needs."""
    try:
        forwarded_question(question.method, question.params)
    except ValueError:
        raise Misasked("one of its questions is not valid") from None


def _paths(required: Mapping[str, Any]) -> Iterator[CapabilityPath]:
    """Yield the path of each capability. An `elicitation` without modes means forms."""
    for name, inner in required.items():
        if isinstance(inner, Mapping) and inner:
            yield from ((name, mode) for mode in inner)
        else:
            yield ("elicitation", "form") if name == "elicitation" else (name,)


def _names_uri(data: Any) -> bool:
    return isinstance(data, Mapping) and isinstance(data.get("uri"), str)
