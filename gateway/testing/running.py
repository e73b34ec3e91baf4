"""Run a tool, prompt or resource without a server.

It uses the server's engine, and hands the journal from leg to leg as a server does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack, overload

from gateway.authoring.forms.questions import InputRequired
from gateway.authoring.mistakes import cut_to_author, place_of_error
from gateway.authoring.served import Served
from gateway.errors import GatewayError
from gateway.sealing.principal import Principal
from gateway.testing.answers import Answering, Answers
from gateway.testing.calls import CallRun, Setting, Taken
from gateway.testing.faults import Fault, Faults
from gateway.testing.mistakes import RunError, advice, check_arguments, check_served
from gateway.testing.options import check_values, check_version
from gateway.testing.results import Run

__tracebackhide__ = True  # pytest shows the test and the author's code

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of `run`, `run_async` and `record`.

    Attributes:
        principal: the caller, which the tool sees as `ctx.principal`.
        tokens: the tokens that `ctx.exchange_token` returns, by audience. Any other audience is refused.
        headers: the request headers that the tool sees as `ctx.headers`.
        can: returns whether the client declares a capability, by its name in `ctx.can`. By default it declares all.
        limit_seconds: the time limit of each leg; 60 by default.
        checkpoint: the version and the value of a checkpoint from an earlier leg. Use it to test migrations.
        faults: what goes wrong: `crash_after("step")`, `lose_response(leg)`, or a list of them.
        lose_responses: run every leg twice, as `lose_response` does for one.
        as_task: True starts the call as a task. False simulates a client that does not support tasks. None simulates
            a client that does, so that the tool's `task` and `start` decide.
        now: when the call begins, which `ctx.now()` returns. It needs a time zone.
        seed: makes `ctx.random`, `ctx.uuid`, `ctx.call_id` and `ctx.step_id` the same in every run.
        state_max_bytes: the setting `GATEWAY_STATE_MAX_BYTES` of the server.
    """

    principal: Principal | None
    tokens: Mapping[str, str] | None
    headers: Mapping[str, str]
    can: Callable[[str], bool]
    limit_seconds: float | None
    checkpoint: tuple[int, Any] | None
    faults: Fault | Sequence[Fault]
    lose_responses: bool
    as_task: bool | None
    now: datetime | None
    seed: int | str | None
    state_max_bytes: int


@overload
def run(
    tool: Served[..., Awaitable[T | InputRequired]],
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[T]: ...
@overload
def run(
    tool: Served[..., T | InputRequired],
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
            can be `DECLINE`, `DISMISS` or `REFUSE`. A list has one answer for each time the question is asked.
        **options: see `Options`.

    Raises:
        Exception: whatever the tool raised.
        RunError: the test is wrong: an answer does not fit, was never asked for, and so on.
        AuthoringError: the tool broke a rule, for example it asked a question that is not declared in `asks`; or
            `as_task` contradicts the tool's `task`.
        CannotContinue: a server would end the call: the state is too large, no answer to a question fits, or a fault
            hit a leg that may not run again.
        GatewayError: an event loop is already running, as in an `async def` test. Await `run_async` there.
    """
    check_served(tool, "run")
    return without_loop(run_call("run", tool, args, answers, options), "run")


@overload
async def run_async(
    tool: Served[..., Awaitable[T | InputRequired]],
    args: Mapping[str, Any] | None = None,
    *,
    answers: Answers | None = None,
    **options: Unpack[Options],
) -> Run[T]: ...
@overload
async def run_async(
    tool: Served[..., T | InputRequired],
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
    **options: Unpack[Options],
) -> Run[Any]:
    """Do the same as `run`, inside a running event loop."""
    return await run_call("run_async", tool, args, answers, options)


async def run_call(
    called: str,
    served: Any,
    arguments: Any,
    answers: Answers | None,
    options: Options,
    *,
    taken: Callable[[Taken], None] = lambda _taken: None,
) -> Run[Any]:
    """Run a call for a public function of this package.

    Args:
        called: the name of that function, for messages.
        served: what the test passed as a tool.
        arguments: what it passed as arguments.
        answers: of the test.
        options: of the test.
        taken: called with each leg that counted.
    """
    check_served(served, called)
    arguments = check_arguments(arguments, called)
    _check_options(options, called)
    check_version(options.get("checkpoint"), served)
    given: dict[str, Any] = dict(options)
    faults = Faults(given.pop("faults", ()), every_response=given.pop("lose_responses", False))
    call = CallRun(served, arguments, Answering(answers), faults, Setting(**given), taken=taken)
    try:
        return await call.to_its_end()
    except BaseException as error:
        _hide_gateway(error)
        raise


def loop_runs() -> bool:
    """Return whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def without_loop(running: Coroutine[Any, Any, T], called: str) -> T:
    """Run a coroutine in an event loop of its own.

    Raises:
        GatewayError: an event loop is already running.
    """
    if not loop_runs():
        try:
            return asyncio.run(running)
        except BaseException as error:
            _hide_gateway(error)
            raise
    running.close()
    raise GatewayError(
        f"{called}() starts an event loop, but one is already running; use `await {called}_async(…)` instead"
    )


def _hide_gateway(error: BaseException) -> None:
    """Cut the traceback of a call to the author's code, or to nothing if the error is about the test."""
    cut_to_author(error)
    if isinstance(error, GatewayError) and not place_of_error(error, ""):
        error.__traceback__ = None


def _check_options(options: Options, called: str) -> None:
    """Refuse what a type checker would have found.

    Raises:
        RunError: an option is unknown, or its value cannot be used.
    """
    known = Options.__annotations__
    for name in options:
        if name not in known:
            raise RunError(f"{called}() has no option {name!r}; {advice(name, ['answers', *known], 'its options are')}")
    check_values(options)
