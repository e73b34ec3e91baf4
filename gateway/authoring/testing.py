"""Run a tool, prompt or resource without a server.

It uses the server's engine, and packs the journal between legs as a server does.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, Unpack, overload
from urllib.parse import quote

from pydantic import BaseModel
from typing_extensions import TypeVar

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.form_schemas import form_content
from gateway.authoring.lifespans import Lifespan, open_all
from gateway.authoring.questions import InputRequired as Asking
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.engine.driver import run_leg
from gateway.engine.journal import Checkpoint, Journal
from gateway.engine.leg import Detaching, Leg
from gateway.engine.outcomes import Completed, Detached, Failed, InputRequired, Outcome
from gateway.engine.questions import ELICIT, ROOTS, Answer, Question
from gateway.engine.values import copy_json
from gateway.errors import AuthoringError, GatewayError
from gateway.sealing.packing import pack, unpack
from gateway.sealing.principal import Principal

MAX_LEGS = 100
"""A tool that still asks questions after this many legs will not stop asking."""

FLOW_MAX_MS = 24 * 3600 * 1000

DECLINE: Mapping[str, Any] = {"result": {"action": "decline"}}
"""Pass this as an answer: the user says no."""

DISMISS: Mapping[str, Any] = {"result": {"action": "cancel"}}
"""Pass this as an answer: the user closes the question without deciding."""

REFUSE: Mapping[str, Any] = {"error": {"code": -1, "message": "refused by the test"}}
"""Pass this as an answer: the client answers with an error."""

Answers = Mapping[str, Any] | Callable[[str, Question], Any]

T = TypeVar("T", default=Any)


class Options(TypedDict, total=False):
    """The options of `run`; see `run_async`."""

    principal: Principal | None
    can: Callable[[str], bool]
    limit_seconds: float | None
    checkpoint: tuple[int, Any] | None
    lose_responses: bool
    as_task: bool | None


@dataclass
class Run(Generic[T]):
    """The outcome of a call that a test ran.

    Attributes:
        value: the return value of the function, unchanged; None if a question was left unanswered.
        result: the result that a client sees: `content`, `structuredContent` and `isError` of a tool, `messages` of
            a prompt, or `contents` of a resource.
        asked: the keys of the questions, in the order in which they were asked.
        unanswered: the questions that the test had no answer for, by key. The call ended there.
        legs: how often the function ran.
        became_task: whether the call was a task, from the start or after `ctx.detach()`.
        segments: the emitted blocks, in order. They are also in `result`.
        progress: the progress reports: done, total, message.
        logs: the log messages: level, data.
        changed: the lists and URIs that were announced as changed.
    """

    value: T = None  # type: ignore[assignment]  # a type that includes None would make every test check for it
    result: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    unanswered: Mapping[str, Question] = field(default_factory=dict)
    legs: int = 0
    became_task: bool = False
    segments: list[dict[str, Any]] = field(default_factory=list)
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)
    logs: list[tuple[str, Any]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the result, one line per content block, prompt message or part of a resource's contents."""
        messages = [message["content"] for message in self.result.get("messages", ())]
        parts = [*self.result.get("content", ()), *messages, *self.result.get("contents", ())]
        return "\n".join(part["text"] for part in parts if "text" in part)


@overload
def run(
    tool: Served[..., Awaitable[T | Asking]],
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[T]: ...
@overload
def run(
    tool: Served[..., T | Asking],
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[T]: ...


def run(
    tool: Served,
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[Any]:
    """Call a tool, prompt or resource, and answer its questions until it returns.

    For example::

        done = run(update_work_item, {"workItemId": 7}, answers={"resolution": {"resolution": "Fixed"}})
        assert done.asked == ["resolution"]

    The lifespans of its module are open during the call. To replace one, call `run` inside `with name.using(value):`.

    Args:
        tool: the decorated function.
        args: its arguments, as a client would send them.
        answers: the answers by key, or a function `(key, question)` that returns one. Answer a form with a dict or a
            model, sampling with a text or a whole result, and roots with a list of URIs. To any question, the answer
            can be `DECLINE`, `DISMISS` or `REFUSE`.
        **options: the other options of `run_async`.

    Raises:
        Exception: whatever the tool raised.
        AuthoringError: the tool broke a rule, for example it asked a question that is not declared in `asks`.
        GatewayError: an event loop is already running, as in an `async def` test. Await `run_async` there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise GatewayError("run() starts an event loop, but one is already running; use `await run_async(…)` instead")
    return asyncio.run(run_async(tool, args, answers=answers, **options))


@overload
async def run_async(
    tool: Served[..., Awaitable[T | Asking]],
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[T]: ...
@overload
async def run_async(
    tool: Served[..., T | Asking],
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[T]: ...


async def run_async(
    tool: Served,
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    principal: Principal | None = None,
    can: Callable[[str], bool] = lambda _capability: True,
    limit_seconds: float | None = 60,
    checkpoint: tuple[int, Any] | None = None,
    lose_responses: bool = False,
    as_task: bool | None = None,
) -> Run[Any]:
    """Do the same as `run`, inside a running event loop.

    Args:
        tool: see `run`.
        args: see `run`.
        answers: see `run`.
        principal: the caller, which the tool sees as `ctx.principal`.
        can: returns whether the client declares a capability, by its name in `ctx.can`. By default it declares all.
        limit_seconds: the time limit of each leg.
        checkpoint: the version and the value of a checkpoint from an earlier leg. Use it to test migrations.
        lose_responses: run every leg twice. For a call, this is a lost response that the client requests again:
            everything that the leg does for the first time happens twice, including its steps. For a task, this is a
            worker that is lost just before the end of the leg, after recording its work. A leg that may run only
            once still runs once: in a task with `max_attempts=1`, or after the first leg of a `single_use` tool.
        as_task: True starts the call as a task. False simulates a client that does not support tasks. None simulates
            a client that does, so that the tool's `task` and `start` decide.

    Raises:
        AuthoringError: `as_task` contradicts the tool's `task`; or see `run`.
    """
    run_ = Run[Any]()
    host = AsyncioHost(limit_seconds, "test", on_change=run_.changed.append)
    call = _Call(tool, run_, host, None if checkpoint is None else Checkpoint(*checkpoint), as_task)
    bound = functools.partial(tool.bind, args or {}, principal)
    try:
        async with open_all(_lifespans(tool)):
            for _ in range(MAX_LEGS):
                for _repeated in range(2 if lose_responses and call.may_repeat else 1):
                    outcome = await run_leg(bound(), leg := call.leg(can))
                    run_.legs += 1
                call.rest = leg.journal.to_map()
                run_.segments = leg.journal.segments
                if isinstance(outcome, Detached):
                    run_.became_task = True
                    call.fresh = {}
                elif _finished(run_, outcome, leg.journal, tool, args or {}):
                    return run_
                else:
                    call.fresh = _answered(run_, answers)
                    if run_.unanswered:
                        return run_
    finally:
        host.close()
    raise GatewayError(
        f"{tool} still asks questions after {MAX_LEGS} legs; the last ones: {', '.join(run_.asked[-3:])}"
    )


class _Call:
    """A call between its legs, with its journal at rest."""

    def __init__(
        self, tool: Served, run_: Run, host: AsyncioHost, checkpoint: Checkpoint | None, as_task: bool | None
    ) -> None:
        self.fresh: dict[str, Answer] = {}
        self._tool = tool
        self._run = run_
        self._host = host
        self._checkpoint = checkpoint
        self._detaching = _detaching(tool, as_task)
        self.rest: dict[str, Any] | None = None
        run_.became_task = as_task or (as_task is None and isinstance(tool, Tool) and tool.starts_as_task)

    @property
    def may_repeat(self) -> bool:
        """Whether the next leg may run twice."""
        if not isinstance(self._tool, Tool):
            return True
        if self._run.became_task:
            return self._tool.max_attempts > 1
        return not (self._tool.single_use and self._run.legs)

    def leg(self, can: Callable[[str], bool]) -> Leg:
        """Return the next leg, or the same one again. Its journal is packed and unpacked, as on its way to a client."""
        in_task = self._run.became_task
        if in_task and self.rest is None:
            self.rest = self._begun()
        return Leg(
            Journal.from_map(unpack(pack(self.rest or self._begun()))),
            self.fresh,
            self._host,
            supports=lambda path: can(".".join(path)),
            version=self._tool.version,
            migrations=self._tool.migrations,
            declared=self._tool.asks,
            notices=_Notices(self._run),
            keeper=_Keeper(self.rest or {}, self._host) if in_task else None,
            detaching=Detaching.DONE if in_task else self._detaching,
        )

    def _begun(self) -> dict[str, Any]:
        """Return the journal of a new flow at rest."""
        now_ms = int(time.time() * 1000)
        journal = Journal.begin(now_ms=now_ms, flow_max_ms=FLOW_MAX_MS, random_bytes=secrets.token_bytes)
        journal.checkpoint = self._checkpoint
        return journal.to_map()


def _detaching(tool: Served, as_task: bool | None) -> Detaching:
    support = tool.task if isinstance(tool, Tool) else "forbidden"
    if as_task and support == "forbidden":
        raise AuthoringError(f"{tool} never becomes a task; set task='optional', or run it with as_task=None")
    if as_task is False and support == "required":
        raise AuthoringError(f"{tool} has task='required'; clients that do not support tasks cannot call it")
    if support == "forbidden":
        return Detaching.FORBIDDEN
    return Detaching.IMPOSSIBLE if as_task is False else Detaching.POSSIBLE


class _Keeper:
    """Records what a task's leg learns immediately, in a journal at rest."""

    def __init__(self, rest: dict[str, Any], host: AsyncioHost) -> None:
        self._rest = rest
        self._host = host

    async def keep_step(self, key: str, value: Any) -> None:
        await self._host.yield_now()
        self._rest["steps"] = {**self._rest.get("steps", {}), key: copy_json(value)}

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        await self._host.yield_now()
        self._rest["segments"] = [*self._rest.get("segments", [])[: number - 1], block]

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        self._rest["checkpoint"] = checkpoint.to_map()
        return False


class _Notices:
    """Records the progress and log messages of a leg."""

    def __init__(self, run_: Run) -> None:
        self._run = run_

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self._run.progress.append((done, total, message))

    def log(self, level: str, data: Any, _logger: str | None) -> None:
        self._run.logs.append((level, data))


def _lifespans(tool: Served) -> list[Lifespan[Any]]:
    """Return the lifespans of the tool's module that the test has not opened itself."""
    names = getattr(sys.modules.get(tool.__module__), "__dict__", {})
    return [value for value in names.values() if isinstance(value, Lifespan) and not value.is_open]


def _target(tool: Served, args: Mapping[str, Any]) -> str:
    """Return what a client requests: a name, or the URI of a resource with its variables filled in."""
    if not isinstance(tool, Resource):
        return tool.name
    uri = tool.uri
    for name, value in args.items():
        uri = uri.replace(f"{{{name}}}", quote(str(value), safe="")).replace(f"{{+{name}}}", quote(str(value)))
    return uri


def _finished(run_: Run, outcome: Outcome, journal: Journal, tool: Served, args: Mapping[str, Any]) -> bool:
    if isinstance(outcome, Completed):
        run_.value = outcome.value
        run_.result = tool.whole_result(outcome.value, _target(tool, args), journal)
        return True
    if isinstance(outcome, Failed):
        raise outcome.error
    assert isinstance(outcome, InputRequired)  # noqa: S101 - the keeper here neither fails nor ends a leg
    run_.asked.extend(outcome.questions)
    run_.unanswered = outcome.questions
    return False


def _answered(run_: Run, answers: Answers | None) -> dict[str, Answer]:
    fresh: dict[str, Answer] = {}
    unanswered: dict[str, Question] = {}
    for key, question in run_.unanswered.items():
        if callable(answers):
            fresh[key] = _answer(question, answers(key, question))
        elif answers is not None and key in answers:
            fresh[key] = _answer(question, answers[key])
        else:
            unanswered[key] = question
    run_.unanswered = unanswered
    return fresh


def _is_whole_answer(given: Any) -> bool:
    """Distinguish `{"result": {…}}` from the content of a form with a field named "result". Forms are flat."""
    return (
        isinstance(given, dict)
        and given.keys() in ({"result"}, {"error"})
        and all(isinstance(value, dict) for value in given.values())
    )


def _in_dicts(given: Any) -> Any:
    """Return the value with a `dict` for every mapping, like decoded JSON."""
    return {name: _in_dicts(value) for name, value in given.items()} if isinstance(given, Mapping) else given


def _answer(question: Question, given: Any) -> Answer:
    given = _in_dicts(given)
    if _is_whole_answer(given):
        return given  # type: ignore[no-any-return]  # a dict by now
    if question.method == ELICIT:
        if not isinstance(given, dict):
            given = form_content(question.params.get("requestedSchema", {}), given)
        return {"result": {"action": "accept", "content": given}}
    if isinstance(given, BaseModel):
        given = given.model_dump(mode="json")
    if question.method == ROOTS:
        return {"result": {"roots": [{"uri": root} if isinstance(root, str) else root for root in given]}}
    if isinstance(given, str):
        content = {"type": "text", "text": given}
        return {"result": {"role": "assistant", "content": content, "model": "test", "stopReason": "endTurn"}}
    return {"result": given}
