"""`Context`: what an authored function may ask, do and know."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, overload

from gateway.authoring.content import content_block
from gateway.authoring.questions import MISSING, Ask, Completion, Elicit, ElicitUrl, Root, Roots, Sample
from gateway.engine.leg import Leg
from gateway.errors import AuthoringError
from gateway.protocol.capabilities import capability_path
from gateway.protocol.versions import LOG_LEVELS
from gateway.sealing.principal import Principal

T = TypeVar("T")

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
"""What a client may declare (schema of 2026-07-28, ClientCapabilities), as `can` names it."""


class Answers:
    """The answers a call has so far, for the return style."""

    __slots__ = ("_declared", "_leg")

    def __init__(self, leg: Leg, declared: Mapping[str, Ask[Any]]) -> None:
        self._leg = leg
        self._declared = declared

    def get(self, key: str, ask: Ask[Any] | None = None, default: Any = None) -> Any:
        """Return the answer to a question, validated, or `default` if there is none yet.

        Args:
            key: the question's key.
            ask: the question; may be left out if the function declares it in `asks`.
            default: what to return if it has no answer.

        Raises:
            Declined: the user said no.
            Dismissed: the user closed the question without deciding.
            Refused: the client answered with an error.
            AuthoringError: the question is neither given nor declared.
        """
        ask = ask or self._declared.get(key)
        if ask is None:
            raise AuthoringError(f"no question is declared under {key!r}; give it, or declare it in `asks`")
        return self._leg.answer(key, ask.question(key), default)


class PlainContext:
    """The part of the context that does not wait: all that a function without `async` gets."""

    __slots__ = ("_declared", "_leg", "principal")

    def __init__(self, leg: Leg, principal: Principal | None, declared: Mapping[str, Ask[Any]]) -> None:
        self._leg = leg
        self._declared = declared
        self.principal = principal
        """Who calls: issuer, subject and client id, or None for an anonymous caller."""

    def __getattr__(self, name: str) -> NoReturn:
        if name in AWAITED:
            raise AuthoringError(f"ctx.{name} is awaited, so the function must be an `async def`")
        raise AttributeError(f"the context has no attribute {name!r}")

    @property
    def call_id(self) -> str:
        """The flow id: the same in every leg of this call, different for every call."""
        return self._leg.journal.flow_id

    @property
    def replica_id(self) -> str:
        """The name of the replica that runs this leg. For people and logs: another leg may run elsewhere."""
        return self._leg.host.replica_id

    @property
    def answers(self) -> Answers:
        """The answers the call has so far; for functions that return `InputRequired`."""
        return Answers(self._leg, self._declared)

    def resumed(self, default: T) -> T:
        """Return the last checkpoint of an earlier leg, or `default` if there is none to go on from."""
        value: T = self._leg.resumed(default)
        return value

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is. Only ever rises: less than what was told before is not sent."""
        self._leg.progress(done, total, message)

    def log(self, level: str, data: object, logger: str | None = None) -> None:
        """Send the client's developer a message, if they asked for this level. Sent once, whatever is replayed.

        Args:
            level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency` (RFC 5424).
            data: any JSON value.
            logger: a name for where it comes from.
        """
        if level not in LOG_LEVELS:
            raise AuthoringError(f"{level!r} is no log level; there are {', '.join(LOG_LEVELS)}")
        self._leg.log(level, data, logger)

    def step_id(self, key: str) -> str:
        """Return a stable id for the step: the same in every leg of this call, unlike any other's."""
        return self._leg.step_id(key)

    def now(self) -> datetime:
        """Return when the call began, in UTC: one value in every leg. A fresh clock is a step."""
        return datetime.fromtimestamp(self._leg.journal.started_ms / 1000, UTC)

    def uuid(self, key: str) -> uuid.UUID:
        """Return a random UUID that is the same in every leg of this call."""
        return self._leg.uuid(key)

    def random(self, key: str) -> float:
        """Return a random number from [0, 1) that is the same in every leg of this call."""
        return self._leg.random(key)

    def can(self, capability: str) -> bool:
        """Tell whether the client declared a capability.

        Args:
            capability: `elicitation.form`, `elicitation.url`, `sampling`, `sampling.tools`, `roots`, or that of
                an extension, `extensions.` and its id.

        Raises:
            AuthoringError: there is no such capability.
        """
        if capability not in CAPABILITIES and not capability.startswith(("extensions.", "experimental.")):
            raise AuthoringError(f"{capability!r} is no capability; there are {', '.join(sorted(CAPABILITIES))}")
        return self._leg.supports(capability_path(capability))

    def changed(self, what: str) -> None:
        """Announce to subscribed clients that a list, or what a resource reads, has changed.

        Args:
            what: `"tools"`, `"prompts"`, `"resources"`, or the URI of a resource that announces its changes.
        """
        self._leg.host.changed(what)


class Context(PlainContext):
    """The call as its author sees it; the same in every leg, on every replica.

    Awaited methods may end the leg: the function is then run again from the top, later and elsewhere, and
    comes back to the same place with the answer. So everything with an effect belongs in a `step`.
    """

    __slots__ = ()

    @overload
    async def elicit(self, key: str, message: str, schema: type[T], *, default: Any = MISSING) -> T: ...

    @overload
    async def elicit(
        self, key: str, message: str, schema: Mapping[str, Any], *, default: Any = MISSING
    ) -> dict[str, Any]: ...

    async def elicit(
        self, key: str, message: str, schema: type[Any] | Mapping[str, Any], *, default: Any = MISSING
    ) -> Any:
        """Ask the user to fill in a form and return what they filled in.

        Args:
            key: names the question in this call. A recorded answer belongs to its key, so give a question
                with another meaning another key. No `~` in it.
            message: what the user reads.
            schema: a flat pydantic model, whose instance is returned, or a JSON Schema, for a dict.
            default: returned instead of raising if the user declines or dismisses.

        Raises:
            Declined: the user said no.
            Dismissed: the user closed the form without deciding.
            Refused: the client answered with an error.
        """
        return await self._leg.ask_one(key, Elicit(message, schema, default).question(key))

    async def elicit_url(self, key: str, message: str, url: str, *, default: Any = MISSING) -> None:
        """Send the user to a URL, for what must not pass through the client. Returns when they agreed to go."""
        await self._leg.ask_one(key, ElicitUrl(message, url, default).question(key))

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
    ) -> Completion:
        """Ask the client's language model; see `Sample` for the arguments.

        Raises:
            Refused: the client answered with an error.
        """
        sample = Sample(messages, max_tokens, system_prompt, tools, options, default)
        completion: Completion = await self._leg.ask_one(key, sample.question(key))
        return completion

    async def roots(self, key: str, *, default: Any = MISSING) -> list[Root]:
        """Ask which roots the client offers.

        Raises:
            Refused: the client answered with an error.
        """
        roots: list[Root] = await self._leg.ask_one(key, Roots(default).question(key))
        return roots

    async def ask(self, /, **questions: Ask[Any]) -> dict[str, Any]:
        """Ask several questions in one leg; return their values by key. A key that is no name goes in as `**{key: …}`.

        What was answered before is not asked again. Raises like `elicit` for the first question, in the
        order given, that the client gave no value for.
        """
        return await self._leg.ask({key: question.question(key) for key, question in questions.items()})

    async def step(self, key: str, function: Callable[..., Any], *args: Any) -> Any:
        """Run a side effect or a costly computation once and keep its result, a JSON value, in the journal.

        A coroutine function is awaited, any other runs in a thread. Later legs get the recorded result. At
        least once, not exactly once: a lost response makes the client repeat a leg. Hand `step_id(key)` to
        the other side as an idempotency key where that matters.
        """
        return await self._leg.step(key, function, args)

    async def checkpoint(self, value: object) -> None:
        """Keep the one JSON value from which a long computation can go on; the last one wins. Yields once."""
        await self._leg.checkpoint(value)

    async def emit(self, block: object) -> None:
        """Add a block to the tool's result now, ahead of what the function returns.

        The n-th block of a call is emitted once, whatever is replayed; so emit one after the other, in the same
        order each time.

        Args:
            block: a text, a block made by `content`, or anything that may be an item of a returned list.
        """
        await self._leg.emit(content_block(block))

    async def detach(self) -> bool:
        """Go on as a task, if there is a way. The function is run again from the top, by a worker.

        Returns:
            True in a task; False where the call cannot become one, because the client knows no tasks or the
            deployment has no Redis. It then goes on as it is.

        Raises:
            AuthoringError: the tool is declared with `task="forbidden"`.
        """
        return await self._leg.detach()


AWAITED = frozenset(name for name in vars(Context) if not name.startswith("_"))
"""The methods that only an `async def` can use."""
