"""`Context`: everything a tool, prompt or resource can ask, do and find out while it runs."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any, Final, Never, NoReturn, ParamSpec, TypeGuard, TypeVar, overload

from typing_extensions import TypeForm
from typing_extensions import TypeVar as TypeVarWithDefault

from gateway.authoring.content import content_block
from gateway.authoring.forgotten import notice_forgotten
from gateway.authoring.forms.questions import MISSING, Accepted, Ask, Completion, Elicit, ElicitUrl, Root, Roots, Sample
from gateway.authoring.forms.reading import Choices, SeveralChoices
from gateway.authoring.readable import readable
from gateway.authoring.token_exchange import no_exchange, token_wanted
from gateway.authoring.types.recorded import checkpoint_recorder, result_recorder, resumed_recorder
from gateway.engine.exchanged_token import ExchangedToken
from gateway.engine.leg import Leg
from gateway.errors import AuthoringError
from gateway.protocol.caller import Exchange
from gateway.protocol.capabilities import capability_path
from gateway.protocol.versions import LOG_LEVELS, LogLevel
from gateway.sealing.principal import Principal

T = TypeVar("T")
D = TypeVarWithDefault("D", default=Never)
P = ParamSpec("P")

CAPABILITIES = frozenset(
    {
        "elicitation",
        "elicitation.form",
        "elicitation.url",
        "sampling",
        "sampling.context",
        "sampling.tools",
        "roots",
        "roots.listChanged",
    }
)
"""The client capabilities that `can` knows by name (schema of 2026-07-28, ClientCapabilities)."""

_NO_KEY: Final = "ctx.elicit takes a key, then the message and the schema: ctx.elicit('name', 'Your name?', str)"

_ELSEWHERE: Final[Mapping[str, str]] = {
    **{level: f'ctx.log("{level}", …)' for level in LOG_LEVELS},
    "report_progress": "ctx.progress(done, total)",
}
"""What other libraries call a method → its call here."""


class Answers:
    """The answers that a call has so far, for functions that return `InputRequired`."""

    __slots__ = ("_declared", "_leg")

    def __init__(self, leg: Leg, declared: Mapping[str, Ask[Any]]) -> None:
        self._leg = leg
        self._declared = declared

    @overload
    def get(self, key: str, ask: Ask[T]) -> T | None: ...
    @overload
    def get(self, key: str, ask: Ask[T], default: D) -> T | D: ...
    @overload
    def get(self, key: str, ask: None = None, default: Any = None) -> Any: ...

    def get(self, key: str, ask: Ask[Any] | None = None, default: Any = None) -> Any:
        """Return the validated answer to a question, or `default` if there is none yet.

        Args:
            key: the key of the question.
            ask: the question. You can omit it if the function declares it in `asks`.
            default: returned while the question has no answer.

        Raises:
            Declined: the user said no.
            Dismissed: the user closed the question without deciding.
            Refused: the client answered with an error.
            AuthoringError: the question is neither passed nor declared.
        """
        ask = ask or self._declared.get(key)
        if ask is None:
            raise AuthoringError(f"no question is declared under {key!r}; pass it as `ask`, or declare it in `asks`")
        return self._leg.answer(key, ask.question(key), default)


class RequestHeaders(Mapping[str, str]):
    """Headers by name, in any case."""

    __slots__ = ("_by_name",)

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._by_name = by_name

    def __getitem__(self, name: str) -> str:
        """Return the value of a header; raise `KeyError` if the request had none, or tools may not see it."""
        try:
            return self._by_name[name.lower()]
        except KeyError:
            raise KeyError(f"the request has no {name!r}, or GATEWAY_TOOL_HEADERS does not list it") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


class PlainContext:
    """The methods of the context that do not wait. A function without `async` receives only these."""

    __slots__ = ("_declared", "_exchange", "_leg", "principal")

    def __init__(
        self,
        leg: Leg,
        principal: Principal | None,
        declared: Mapping[str, Ask[Any]],
        exchange: Exchange | None = None,
    ) -> None:
        self._leg = leg
        self._declared = declared
        self._exchange = exchange
        self.principal = principal
        """The authenticated caller (identity, scopes and chosen claims), or None if the caller is anonymous."""

    def __getattr__(self, name: str) -> NoReturn:
        if name in AWAITED:
            raise AuthoringError(f"ctx.{name} must be awaited; define the function with `async def`")
        advice = _ELSEWHERE.get(name)
        raise AttributeError(f"the context has no attribute {name!r}{'' if advice is None else f'; use {advice}'}")

    @property
    def call_id(self) -> str:
        """The flow id. It is the same in every leg of this call, and unique to this call."""
        return self._leg.journal.flow_id

    @property
    def headers(self) -> RequestHeaders:
        """The headers of the call's first request that the operator shows to tools (`GATEWAY_TOOL_HEADERS`).

        They are the same in every leg, also in a task. Any client can send any header: for identity, use `principal`.
        """
        return RequestHeaders(self._leg.journal.headers)

    @property
    def replica_id(self) -> str:
        """The name of the replica that runs this leg, for people and logs. Another leg may run elsewhere."""
        return self._leg.host.replica_id

    @property
    def answers(self) -> Answers:
        """The answers that the call has so far, for functions that return `InputRequired`."""
        return Answers(self._leg, self._declared)

    @overload
    def resumed(self, default: T) -> T: ...
    @overload
    def resumed(self, default: D, type: type[T]) -> T | D: ...

    def resumed(self, default: Any, type: Any = None) -> Any:  # noqa: A002 - what it is
        """Return the last checkpoint of an earlier leg, or `default` if there is none.

        Args:
            default: returned if there is no checkpoint.
            type: of the checkpoint; by default the class of `default`.

        Raises:
            AuthoringError: the checkpoint is not of that type.
        """
        return self._leg.resumed(default, resumed_recorder(default, type))

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the client, if it asked for progress.

        Progress only rises: a value that is not greater than the last one is not sent.

        Args:
            done: how much is done, in any unit.
            total: how much there is to do in the same unit, if you know it.
            message: what happens now, for people.

        Raises:
            AuthoringError: a number is not finite.
            ResultTooLarge: the message has more bytes than `GATEWAY_MAX_RESULT_BYTES`.
        """
        self._leg.progress(done, total, message)

    def log(self, level: LogLevel, data: object, logger: str | None = None) -> None:
        """Send a log message to the client, if it asked for this level. A replayed leg does not send it again.

        Args:
            level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency` (RFC 5424).
            data: any JSON value.
            logger: a name for the source of the message.

        Raises:
            AuthoringError: the level is unknown.
        """
        if level not in LOG_LEVELS:
            raise AuthoringError(f"unknown log level {level!r}; use one of: {', '.join(LOG_LEVELS)}")
        self._leg.log(level, data, logger)

    def step_id(self, key: str) -> str:
        """Return the id of a step: the same in every leg of this call, and unique to this call and key.

        Pass it to other systems as an idempotency key.
        """
        return self._leg.step_id(key)

    def now(self) -> datetime:
        """Return when the call began, in UTC: the same time in every leg. To read the clock again, use a `step`."""
        return datetime.fromtimestamp(self._leg.journal.started_ms / 1000, UTC)

    def uuid(self, key: str) -> uuid.UUID:
        """Return a random UUID that is the same in every leg of this call."""
        return self._leg.uuid(key)

    def random(self, key: str) -> float:
        """Return a random number from [0, 1) that is the same in every leg of this call."""
        return self._leg.random(key)

    def can(self, capability: str) -> bool:
        """Return whether the client declared a capability.

        Args:
            capability: for example `elicitation.form`, `elicitation.url`, `sampling`, `sampling.tools` or `roots`.
                For an extension, `extensions.` followed by its id.

        Raises:
            AuthoringError: the capability is unknown.
        """
        if capability not in CAPABILITIES and not capability.startswith(("extensions.", "experimental.")):
            raise AuthoringError(f"unknown capability {capability!r}; use one of: {', '.join(sorted(CAPABILITIES))}")
        return self._leg.supports(capability_path(capability))

    def changed(self, what: str) -> None:
        """Notify subscribed clients that a list or the content of a resource has changed.

        Args:
            what: `"tools"`, `"prompts"`, `"resources"`, or the URI of a resource that is declared with
                `announces_changes=True`.
        """
        self._leg.host.changed(what)


class Context(PlainContext):
    """A running call: ask the user or the client's model, run steps, report progress, save checkpoints.

    An awaited method may end the leg. The function then runs again from the top, perhaps later and on another
    replica, and reaches the same place with the answer. So put every side effect in a `step`.
    """

    __slots__ = ()

    @overload
    async def elicit(self, key: str, message: str, schema: type[T], *, default: D = ...) -> T | D: ...
    @overload
    async def elicit(
        self, key: str, message: str, schema: Mapping[str, Any], *, default: D = ...
    ) -> dict[str, Any] | D: ...
    @overload
    async def elicit(self, key: str, message: str, schema: Choices, *, default: D = ...) -> str | D: ...
    @overload
    async def elicit(self, key: str, message: str, schema: SeveralChoices, *, default: D = ...) -> list[str] | D: ...
    @overload
    async def elicit(self, key: str, message: str, schema: TypeForm[T], *, default: D = ...) -> T | D: ...

    async def elicit(self, key: str, message: str, schema: Any = MISSING, *, default: Any = MISSING) -> Any:
        """Ask the user to fill in a form, and return what they entered.

        Args:
            key: identifies the question in this call; it must not contain `~`. Answers are recorded by key, so use
                a new key for a question with a new meaning.
            message: the text that the user reads.
            schema: what to ask for; see `Elicit`.
            default: returned, instead of an error, if the user declines or dismisses the form or the client
                answers with an error.

        Raises:
            Declined: the user said no.
            Dismissed: the user closed the form without deciding.
            Refused: the client answered with an error.
        """
        if schema is MISSING:
            raise self._leg.broken(AuthoringError(_NO_KEY))
        return await self._leg.ask_one(key, Elicit(message, schema, default).question(key))

    @overload
    async def elicit_url(self, key: str, message: str, url: str) -> Accepted: ...
    @overload
    async def elicit_url(self, key: str, message: str, url: str, *, default: D) -> Accepted | D: ...

    async def elicit_url(self, key: str, message: str, url: str, *, default: Any = MISSING) -> Any:
        """Ask the user to visit a URL. Use it for secrets, which must not pass through the client.

        It returns `"accept"` when the user agrees to go there, not when they are done. See `elicit` for the key, the
        default and the errors.
        """
        return await self._leg.ask_one(key, ElicitUrl(message, url, default).question(key))

    @overload
    async def sample(
        self,
        key: str,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Completion: ...
    @overload
    async def sample(
        self,
        key: str,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        default: D,
    ) -> Completion | D: ...

    async def sample(
        self,
        key: str,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        default: Any = MISSING,
    ) -> Any:
        """Ask the client's language model for a completion; see `Sample` for the arguments.

        Raises:
            Refused: the client answered with an error, and there is no default.
        """
        sample = Sample(messages, max_tokens, system_prompt, tools, options, default=default)
        return await self._leg.ask_one(key, sample.question(key))

    @overload
    async def roots(self, key: str) -> list[Root]: ...
    @overload
    async def roots(self, key: str, *, default: D) -> list[Root] | D: ...

    async def roots(self, key: str, *, default: Any = MISSING) -> Any:
        """Ask the client for its roots: the directories and files that servers may work in.

        Raises:
            Refused: the client answered with an error, and there is no default.
        """
        return await self._leg.ask_one(key, Roots(default).question(key))

    @overload
    async def ask(self, /, **questions: Elicit[T, D]) -> dict[str, T | D]: ...
    @overload
    async def ask(self, /, **questions: Ask[T]) -> dict[str, T]: ...
    @overload
    async def ask(self, /, **questions: Ask[Any]) -> dict[str, Any]: ...

    async def ask(self, /, **questions: Ask[Any]) -> dict[str, Any]:
        """Ask several questions in one leg, and return their values by key.

        Questions that already have an answer are not asked again. Pass a key that is not an identifier as
        `**{key: question}`.

        Raises:
            AskError: a question has no value, and no default. It is the `Declined`, `Dismissed` or `Refused` of the
                first such question, in the order of the arguments.
        """
        return await self._leg.ask({key: question.question(key) for key, question in questions.items()})

    @overload
    async def step(self, key: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, key: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, key: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a side effect or a costly computation, and record its result, so that later legs do not run it again.

        A coroutine function is awaited; any other function runs in a thread. A step runs at least once, not exactly
        once: when a response is lost, the client repeats the leg. Where that matters, pass `step_id(key)` to the
        other system as an idempotency key.

        Args:
            key: identifies the step in this call.
            function: what to run. Its result is recorded as JSON, and restored by its return annotation. Without one,
                it must be JSON already.
            args: the arguments of the function.
            kwargs: its keyword arguments.

        Raises:
            AuthoringError: the result does not fit the annotation, or cannot be restored from JSON.
        """
        if not callable(function):
            raise self._leg.broken(_not_callable(key, function))
        try:
            recorder = result_recorder(function)
        except AuthoringError as error:
            raise self._leg.broken(error) from None
        return await self._leg.step(key, partial(function, **kwargs) if kwargs else function, args, recorder)

    async def checkpoint(self, value: object, type: Any = None) -> None:  # noqa: A002 - what it is
        """Save a value from which a long computation can continue in another leg, and yield once.

        Only the last checkpoint is kept. `resumed` returns it.

        Args:
            value: JSON, or anything that pydantic can write as JSON and restore.
            type: of the value, for a container of values that JSON lacks; by default the class of the value.

        Raises:
            AuthoringError: the value is not of that type, or cannot be restored from JSON.
        """
        try:
            recorder = checkpoint_recorder(value, type)
        except AuthoringError as error:
            raise self._leg.broken(error) from None
        await self._leg.checkpoint(value, recorder)

    async def emit(self, block: object) -> None:
        """Add a block to the tool's result now, before the blocks of the return value.

        Blocks count by position: a replayed leg does not emit the n-th block again. So emit them in the same order
        in every leg, one after the other.

        Args:
            block: text, a block made by `content`, or anything else that can be an item of a returned list.
        """
        self._leg.refuse_large(block, "The emitted block")
        try:
            written = content_block(block)
        except AuthoringError:
            written = content_block(readable(block))
        await self._leg.emit(written)

    async def detach(self) -> bool:
        """Turn the call into a task, if possible. A worker then runs the function again from the top.

        Returns:
            True in a task. False if the call cannot become one, because the client does not support tasks or the
            deployment has no Redis; the call then continues as it is.

        Raises:
            AuthoringError: the tool is declared with `task="forbidden"`.
        """
        return await self._leg.detach()

    async def exchange_token(
        self, audience: str, *, scopes: Iterable[str] = (), resource: str | None = None
    ) -> ExchangedToken:
        """Exchange the caller's token for one that another service accepts (RFC 8693).

        Call it in the `step` that makes the request to that service. The token is cached per caller and audience, until
        shortly before it expires. No journal can hold it, and the caller's own token stays hidden.

        Args:
            audience: the service, by the name that the identity provider knows it by.
            scopes: the scopes that the token should grant; by default the provider decides.
            resource: the URL of the service, for providers that require one.

        Raises:
            TokenExchangeError: the identity provider refused or did not answer, the caller's token has expired, the
                caller is anonymous, or the deployment exchanges no tokens.
            AuthoringError: the call is a task, which has no caller's token any more.
        """
        self._leg.check_running()
        wanted = token_wanted(audience, scopes, resource)
        if self._exchange is None or self._leg.in_task:
            raise no_exchange(self.principal, in_task=self._leg.in_task)
        return await self._exchange(wanted)


def _not_callable(key: object, given: object) -> AuthoringError:
    """Return the error for a step whose function was called already, or is not one."""
    called = "function"
    if isinstance(given, CoroutineType):
        given.close()  # or Python would warn that it was never awaited
        called = given.__name__
    return AuthoringError(f"step {key!r} takes the function and then its arguments: ctx.step({key!r}, {called}, …)")


AWAITED = frozenset(name for name in vars(Context) if not name.startswith("_"))
"""The methods that only an `async def` function can use."""


def call_of(coroutine: CoroutineType[Any, Any, Any]) -> str:
    """Return a call of the context that was never awaited, as its author wrote it."""
    given = {} if coroutine.cr_frame is None else coroutine.cr_frame.f_locals
    key = repr(given["key"]) + ", " if "key" in given else ""
    return f"ctx.{coroutine.__name__}({key}…)"


def is_forgotten(value: object) -> TypeGuard[CoroutineType[Any, Any, Any]]:
    """Return whether a value is a call of the context that was never awaited."""
    return type(value) is CoroutineType and value.cr_code in _AWAITED_CODES and getcoroutinestate(value) == CORO_CREATED


def _notice(coroutine: CoroutineType[Any, Any, Any]) -> bool:
    """Let the leg know of a call that its function never awaited. Return False if the leg has ended already."""
    context = None if coroutine.cr_frame is None else coroutine.cr_frame.f_locals.get("self")
    if not isinstance(context, Context):
        return False
    leg = context._leg  # noqa: SLF001 - our own class
    if leg.outcome is not None:
        return False
    if leg.forgotten is None:
        leg.forgotten = call_of(coroutine)
    return True


_AWAITED_CODES: Final = frozenset(vars(Context)[name].__code__ for name in AWAITED)
notice_forgotten(_AWAITED_CODES, _notice)
