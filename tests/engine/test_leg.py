"""The rules of replay: what a leg may and may not do, whatever carries the journal."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Protocol

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.asking import MAX_FORMS
from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal
from gateway.engine.keys import MAX_KEY_LENGTH
from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed, Failed, LegTimedOut, NeedsInput, Outcome
from gateway.engine.questions import ELICIT, Answer, InvalidAnswer, Question, question_digest
from gateway.engine.stoppable_leg import MAX_IGNORED_STOPS, LegStopped
from gateway.errors import AuthoringError, CannotContinue, Declined, MissingCapability
from gateway.sealing.packing import pack, unpack
from tests.calls.policies import POLICY
from tests.cpu_time import least_seconds

TEXT_FORM = {"type": "object", "properties": {"n": {"type": "integer"}, "why": {"type": "string"}}, "required": ["n"]}


class Call(Protocol):
    """The result of the fixture `begin`; see conftest.py."""

    host: AsyncioHost
    rest: Any

    @property
    def journal(self) -> Any: ...

    async def leg(self, answers: Mapping[str, Answer] | None = None, **options: Any) -> Outcome: ...


Begin = Callable[..., Call]
Integer = Callable[..., Question]
Accept = Callable[[Any], Answer]


def asked(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, NeedsInput), outcome
    return list(outcome.questions)


def value_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return outcome.value


def error_of(outcome: Outcome) -> Exception:
    assert isinstance(outcome, Failed), outcome
    return outcome.error


# Rule 1: keys and digests


@pytest.mark.parametrize(
    "key", ["", "a~2", "~", "a\nb", "a\x00", "x" * (MAX_KEY_LENGTH + 1), "\ud800", None, 5, b"bytes"], ids=repr
)
async def test_a_key_is_short_printable_and_without_tilde(begin: Begin, integer: Integer, key: Any) -> None:
    async def asks(leg: Leg) -> Any:
        return await leg.ask({key: integer()})

    async def steps(leg: Leg) -> Any:
        return await leg.step(key, lambda: 1, ())

    async def names(leg: Leg) -> Any:
        return leg.step_id(key)

    async def draws(leg: Leg) -> Any:
        return leg.random(key)

    async def draws_uuid(leg: Leg) -> Any:
        return leg.uuid(key)

    for function in (asks, steps, names, draws, draws_uuid):
        error = error_of(await begin(function).leg())
        assert isinstance(error, AuthoringError)
        assert "is not a valid key" in str(error)


@pytest.mark.parametrize("key", ["a", "größe", "two words", "a.b-c/d:e", "x" * MAX_KEY_LENGTH])
async def test_other_keys_are_the_authors_choice(begin: Begin, integer: Integer, accept: Accept, key: str) -> None:
    async def function(leg: Leg) -> Any:
        return (await leg.ask({key: integer()}))[key]

    call = begin(function)
    assert asked(await call.leg()) == [key]
    assert value_of(await call.leg({key: accept(3)})) == 3


async def test_a_key_used_twice_in_one_leg_is_an_error_even_between_a_question_and_a_step(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def ask_twice(leg: Leg) -> Any:
        await leg.ask({"k": integer()})
        await leg.ask({"k": integer()})

    async def ask_and_step(leg: Leg) -> Any:
        await leg.ask({"k": integer()})
        await leg.step("k", lambda: 1, ())

    async def step_twice(leg: Leg) -> Any:
        await leg.step("k", lambda: 1, ())
        await leg.step("k", lambda: 2, ())

    for function in (ask_twice, ask_and_step, step_twice):
        error = error_of(await begin(function).leg({"k": accept(1)}))
        assert isinstance(error, AuthoringError)
        assert "'k' is used twice" in str(error)


async def test_a_changed_question_is_asked_again_and_the_others_are_kept(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def release_1(leg: Leg) -> Any:
        return await leg.ask({"a": integer(), "b": integer()})

    async def release_2(leg: Leg) -> Any:
        return await leg.ask({"a": integer(), "b": integer(form=TEXT_FORM), "c": integer()})

    call = begin(release_1)
    await call.leg()
    outcome = await call.leg({"a": accept(1), "b": accept(2)}, function=release_2)
    assert asked(outcome) == ["b", "c"]
    outcome = await call.leg({"b": accept(20), "c": accept(3)}, function=release_2)
    assert value_of(outcome) == {"a": 1, "b": 20, "c": 3}


async def test_going_back_to_the_older_release_asks_nothing_twice(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def release_1(leg: Leg) -> Any:
        first = await leg.ask({"a": integer(), "b": integer()})
        return {**first, **await leg.ask({"c": integer()})}

    async def release_2(leg: Leg) -> Any:
        first = await leg.ask({"a": integer(), "b": integer(form=TEXT_FORM)})
        return {**first, **await leg.ask({"d": integer()})}

    call = begin(release_1)
    assert asked(await call.leg()) == ["a", "b"]
    assert asked(await call.leg({"a": accept(1), "b": accept(2)}, function=release_2)) == ["b"]
    assert asked(await call.leg({"b": accept(20)}, function=release_2)) == ["d"]
    assert asked(await call.leg(function=release_1)) == ["c"]
    assert asked(await call.leg(function=release_2)) == ["d"]
    assert value_of(await call.leg({"c": accept(3)}, function=release_1)) == {"a": 1, "b": 2, "c": 3}


async def test_an_answer_belongs_to_the_question_that_was_asked_not_to_one_that_replaced_it(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    """A replica of the new release gets an answer to the old question, and must not accept it."""

    async def release_1(leg: Leg) -> Any:
        return await leg.ask({"k": integer()})

    async def release_2(leg: Leg) -> Any:
        return await leg.ask({"k": integer(form=TEXT_FORM)})

    call = begin(release_1)
    await call.leg()
    assert asked(await call.leg({"k": accept(1)}, function=release_2)) == ["k"]
    assert value_of(await call.leg({"k": accept(2)}, function=release_2)) == {"k": 2}
    assert value_of(await call.leg(function=release_1)) == {"k": 1}


async def test_a_changed_message_asks_nothing_again(begin: Begin, integer: Integer, accept: Accept) -> None:
    async def release_1(leg: Leg) -> Any:
        return {**await leg.ask({"a": integer()}), **await leg.ask({"b": integer()})}

    async def release_2(leg: Leg) -> Any:
        return {**await leg.ask({"a": integer(message="Otherwise?")}), **await leg.ask({"b": integer()})}

    call = begin(release_1)
    await call.leg()
    await call.leg({"a": accept(1)})
    assert value_of(await call.leg({"b": accept(2)}, function=release_2)) == {"a": 1, "b": 2}


async def test_only_declared_questions_may_be_asked_where_that_is_checked(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def function(leg: Leg) -> Any:
        return await leg.ask({"k": integer()})

    error = error_of(await begin(function).leg(declared={}))
    assert "'k' is not declared in" in str(error)
    error = error_of(await begin(function).leg(declared={"k": integer(form=TEXT_FORM).digest}))
    assert "'k' differs" in str(error)
    outcome = await begin(function).leg({"k": accept(1)}, declared={"k": integer().digest})
    assert value_of(outcome) == {"k": 1}


# Rule 2: which answers count


async def test_an_asked_answer_is_kept_although_this_leg_does_not_reach_it(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def release_1(leg: Leg) -> Any:
        return await leg.ask({"late": integer()})

    async def release_2(leg: Leg) -> Any:
        return {**await leg.ask({"first": integer()}), **await leg.ask({"late": integer()})}

    call = begin(release_1)
    assert asked(await call.leg()) == ["late"]
    assert asked(await call.leg({"late": accept(7)}, function=release_2)) == ["first"]
    assert value_of(await call.leg({"first": accept(1)}, function=release_2)) == {"first": 1, "late": 7}


async def test_an_asked_answer_is_kept_by_a_release_that_does_not_read_it(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def release_1(leg: Leg) -> Any:
        return await leg.ask({"a": integer()})

    async def release_2(leg: Leg) -> Any:
        return await leg.ask({"z": integer()})

    call = begin(release_1)
    await call.leg()
    assert asked(await call.leg({"a": accept(1)}, function=release_2)) == ["z"]
    assert value_of(await call.leg(function=release_1)) == {"a": 1}


async def test_an_answer_nobody_asked_for_counts_if_this_leg_asks_for_it(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def function(leg: Leg) -> Any:
        return {**await leg.ask({"a": integer()}), **await leg.ask({"b": integer()})}

    call = begin(function)
    assert asked(await call.leg({"a": accept(1)})) == ["b"]
    assert value_of(await call.leg({"b": accept(2)})) == {"a": 1, "b": 2}


async def test_an_answer_nobody_asked_for_is_dropped_if_this_leg_does_not_ask_for_it(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def function(leg: Leg) -> Any:
        return {**await leg.ask({"a": integer()}), **await leg.ask({"b": integer()})}

    call = begin(function)
    assert asked(await call.leg({"b": accept(666), "junk": accept(1)})) == ["a"]
    assert call.journal.answers == {}
    assert asked(await call.leg({"a": accept(1)})) == ["b"]


async def test_a_recorded_answer_cannot_be_replaced(begin: Begin, integer: Integer, accept: Accept) -> None:
    async def function(leg: Leg) -> Any:
        return {**await leg.ask({"a": integer()}), **await leg.ask({"b": integer()})}

    call = begin(function)
    await call.leg()
    await call.leg({"a": accept(1)})
    assert value_of(await call.leg({"a": accept(666), "b": accept(2)})) == {"a": 1, "b": 2}


async def test_an_invalid_or_missing_answer_is_asked_again_and_never_passed_in(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    seen: list[Any] = []

    async def function(leg: Leg) -> Any:
        seen.append(await leg.ask({"a": integer(), "b": integer()}))

    call = begin(function)
    await call.leg()
    assert asked(await call.leg({"a": accept("three"), "b": accept(2)})) == ["a"]
    assert asked(await call.leg()) == ["a"]
    assert asked(await call.leg({"a": {"result": {}}})) == ["a"]
    assert seen == []
    assert list(call.journal.answers) == ["b"]  # an answer that does not fit is dropped
    await call.leg({"a": accept(1)})
    assert seen == [{"a": 1, "b": 2}]


async def test_a_question_whose_form_differs_in_each_leg_is_not_asked_for_ever(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def function(leg: Leg) -> Any:
        form = {"type": "object", "properties": {"n": {"type": "integer", "minimum": call.journal.legs}}}
        return await leg.ask({"a": integer("a", form)})

    call = begin(function)
    for number in range(MAX_FORMS):
        assert asked(await call.leg({"a": accept(number)} if number else {})) == ["a"]
    error = error_of(await call.leg({"a": accept(MAX_FORMS)}))
    assert isinstance(error, CannotContinue)
    assert str(error) == "The question 'a' is a different one each time, so no answer belongs to it"


async def test_a_decline_is_recorded_like_any_answer(begin: Begin, integer: Integer) -> None:
    async def function(leg: Leg) -> Any:
        try:
            await leg.ask({"a": integer("a")})
        except Declined as declined:
            return {"declined": declined.key, **await leg.ask({"b": integer("b")})}

    call = begin(function)
    await call.leg()
    assert asked(await call.leg({"a": {"result": {"action": "decline"}}})) == ["b"]
    assert asked(await call.leg()) == ["b"]


async def test_a_question_the_client_cannot_answer_is_a_missing_capability(begin: Begin, integer: Integer) -> None:
    async def function(leg: Leg) -> Any:
        await leg.ask({"a": integer()})

    call = begin(function)
    error = error_of(await call.leg(can=lambda path: path != ("elicitation", "form")))
    assert isinstance(error, MissingCapability)
    assert error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert call.journal.pending == {}


# Rule 3: the stop signal cannot be swallowed


async def swallow_exception(leg: Leg, question: Question) -> Any:
    try:
        await leg.ask({"k": question})
    except Exception:  # noqa: BLE001 - the subject of the test
        return "swallowed"


async def swallow_base_exception(leg: Leg, question: Question) -> Any:
    try:
        await leg.ask({"k": question})
    except BaseException:  # noqa: BLE001 - the same
        return "swallowed"


async def suppress(leg: Leg, question: Question) -> Any:
    with contextlib.suppress(BaseException):
        await leg.ask({"k": question})
    return "swallowed"


async def swallow_and_fail(leg: Leg, question: Question) -> Any:
    try:
        await leg.ask({"k": question})
    except BaseException:  # noqa: BLE001 - the same
        raise RuntimeError("cleaning up") from None


async def ask_again_in_finally(leg: Leg, question: Question) -> Any:
    try:
        await leg.ask({"k": question})
    finally:
        await leg.ask({"other": question})


async def ask_in_a_task_group(leg: Leg, question: Question) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(leg.ask({"k": question}))
        group.create_task(asyncio.sleep(60))
    return "swallowed"


async def ask_twice_in_a_task_group(leg: Leg, question: Question) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(leg.ask({"k": question}))
        group.create_task(leg.ask({"other": question}))


async def gather(leg: Leg, question: Question) -> Any:
    return await asyncio.gather(leg.ask({"k": question}), leg.ask({"other": question}))


async def gather_exceptions(leg: Leg, question: Question) -> Any:
    return await asyncio.gather(leg.ask({"k": question}), return_exceptions=True)


@pytest.mark.parametrize(
    "function",
    [
        swallow_exception,
        swallow_base_exception,
        suppress,
        swallow_and_fail,
        ask_again_in_finally,
        ask_in_a_task_group,
        ask_twice_in_a_task_group,
        gather,
        gather_exceptions,
    ],
)
async def test_a_question_ends_the_leg_whatever_the_function_catches(
    begin: Begin, integer: Integer, function: Callable[[Leg, Question], Awaitable[Any]]
) -> None:
    assert asked(await begin(lambda leg: function(leg, integer())).leg()) == ["k"]


async def test_the_stop_signal_passes_a_tools_except_exception(begin: Begin, integer: Integer) -> None:
    """Otherwise its handler would run, and undo or report a failure that never happened."""
    handled: list[str] = []

    async def function(leg: Leg) -> Any:
        try:
            await leg.ask({"k": integer()})
        except Exception:  # noqa: BLE001 - the subject of the test
            handled.append("failed")
        handled.append("went on")

    assert asked(await begin(function).leg()) == ["k"]
    assert handled == []


async def test_after_its_end_the_context_raises_again_and_records_nothing(begin: Begin, integer: Integer) -> None:
    ran: list[str] = []

    async def function(leg: Leg) -> Any:
        with contextlib.suppress(BaseException):
            await leg.ask({"k": integer()})
        for attempt in (
            lambda: leg.ask({"other": integer()}),
            lambda: leg.step("s", lambda: ran.append("step"), ()),
            lambda: leg.checkpoint(1),
        ):
            with pytest.raises(LegStopped):
                await attempt()
        with pytest.raises(LegStopped):
            leg.resumed(0)
        ran.append("end")

    call = begin(function)
    assert asked(await call.leg()) == ["k"]
    assert ran == ["end"]
    assert call.journal.steps == {}
    assert call.journal.checkpoint is None
    assert list(call.journal.pending) == ["k"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it even ignores its own disposal
async def test_a_function_that_swallows_every_stop_and_loops_is_given_up(begin: Begin, integer: Integer) -> None:
    rounds = 0

    async def function(leg: Leg) -> Any:
        nonlocal rounds
        while True:
            rounds += 1
            with contextlib.suppress(BaseException):
                await leg.ask({"k": integer()})

    assert asked(await begin(function).leg()) == ["k"]
    assert rounds >= MAX_IGNORED_STOPS
    gc.collect()


def test_a_given_up_function_can_be_disposed_of_after_its_loop_is_gone(begin: Begin, integer: Integer) -> None:
    """The garbage collector may close it anywhere; closing must not run its loop forever."""
    held: list[Any] = []

    async def function(leg: Leg) -> Any:
        while True:
            with contextlib.suppress(BaseException):
                await leg.ask({"k": integer()})

    def hold(leg: Leg) -> Awaitable[Any]:
        held.append(function(leg))
        return held[0]  # type: ignore[no-any-return]

    assert asked(asyncio.run(begin(hold).leg())) == ["k"]
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        held[0].close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.unraisablehook", lambda _unraisable: None)
        held.clear()
        gc.collect()


async def test_a_broken_rule_is_final_even_in_a_loop_around_except_exception(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def ask(leg: Leg) -> Any:
        while True:
            with contextlib.suppress(Exception):
                await leg.ask({"k": integer()})

    async def step(leg: Leg) -> Any:
        while True:
            with contextlib.suppress(Exception):
                await leg.step("k", lambda: 1, ())

    async def bad_step(leg: Leg) -> Any:
        with contextlib.suppress(Exception):
            await leg.step("k", object, ())
        return "swallowed"

    async def bad_checkpoint(leg: Leg) -> Any:
        with contextlib.suppress(Exception):
            await leg.checkpoint(object())
        return "swallowed"

    for function in (ask, step, bad_step, bad_checkpoint):
        assert isinstance(error_of(await begin(function).leg({"k": accept(1)})), AuthoringError)


async def test_the_first_end_of_a_leg_is_the_one_that_counts(begin: Begin, integer: Integer) -> None:
    async def function(leg: Leg) -> Any:
        with contextlib.suppress(BaseException):
            await leg.ask({"k": integer()})
        leg.stop(Failed(RuntimeError("later")))

    assert asked(await begin(function).leg()) == ["k"]


async def test_raising_the_stop_signal_oneself_is_an_error(begin: Begin) -> None:
    async def function(_leg: Leg) -> Any:
        raise LegStopped

    assert "stop signal" in str(error_of(await begin(function).leg()))


# How a leg ends


async def test_an_exception_of_a_function_is_its_outcome(begin: Begin) -> None:
    async def function(_leg: Leg) -> Any:
        raise LookupError("mine")

    error = error_of(await begin(function).leg())
    assert isinstance(error, LookupError)
    assert error.__traceback__ is not None


@pytest.mark.parametrize("waits", [0, 1, 2])
@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, BaseException]
)
async def test_an_exception_that_would_end_the_process_ends_only_the_call(
    begin: Begin, kind: type[BaseException], waits: int
) -> None:
    async def function(_leg: Leg) -> Any:
        for _ in range(waits):
            await asyncio.sleep(0)
        raise kind

    assert isinstance(error_of(await begin(function).leg()).__cause__, kind)


async def test_a_cancellation_nobody_asked_for_is_an_outcome(begin: Begin) -> None:
    async def function(_leg: Leg) -> Any:
        other = asyncio.ensure_future(asyncio.sleep(60))
        other.cancel()
        await other

    assert isinstance(error_of(await begin(function).leg()).__cause__, asyncio.CancelledError)


async def test_cancelling_the_outer_task_passes_through_and_cleans_up(begin: Begin) -> None:
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def function(_leg: Leg) -> Any:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    task = asyncio.ensure_future(begin(function).leg())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


async def test_a_leg_that_outlives_its_time_fails_with_the_limit(begin: Begin) -> None:
    host = AsyncioHost(0.01, "impatient")

    async def function(_leg: Leg) -> Any:
        await asyncio.Event().wait()

    error = error_of(await begin(function, host).leg())
    assert isinstance(error, LegTimedOut)
    assert error.seconds == 0.01
    host.close()


async def test_the_time_limit_holds_after_a_failed_task_group(begin: Begin) -> None:
    """Before Python 3.13 such a group can leave the task marked as being cancelled."""
    host = AsyncioHost(0.05, "impatient")

    async def fail() -> None:
        raise LookupError

    async def function(_leg: Leg) -> Any:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(60))
                group.create_task(fail())
        await asyncio.Event().wait()

    assert isinstance(error_of(await begin(function, host).leg()), LegTimedOut)
    host.close()


async def test_the_functions_own_timeout_is_not_the_time_limit(begin: Begin) -> None:
    async def raises(_leg: Leg) -> Any:
        raise TimeoutError("mine")

    async def waits(_leg: Leg) -> Any:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    for function in (raises, waits):
        assert type(error_of(await begin(function).leg())) is TimeoutError


async def by_timeout() -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


async def by_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0.001))


async def by_anyio_scope() -> None:
    with anyio.move_on_after(0.001) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def by_anyio_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep_forever)
        await anyio.sleep(0.001)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("leaving", [by_timeout, by_task_group, by_anyio_scope, by_anyio_group])
async def test_a_context_entered_before_the_first_wait_can_be_left_later(
    begin: Begin, leaving: Callable[[], Awaitable[None]]
) -> None:
    mark: ContextVar[str] = ContextVar("mark", default="")

    async def function(_leg: Leg) -> Any:
        token = mark.set("set at first")
        await leaving()
        await asyncio.sleep(0)
        found = mark.get()
        mark.reset(token)
        task = asyncio.current_task()
        return found, task is not None and task.cancelling()

    assert value_of(await begin(function).leg()) == ("set at first", 0)


async def endlessly_by_timeout() -> None:
    async with asyncio.timeout(60):
        await asyncio.Event().wait()


async def endlessly_by_anyio() -> None:
    with anyio.move_on_after(60):
        await anyio.sleep_forever()


@pytest.mark.parametrize("waiting", [endlessly_by_timeout, endlessly_by_anyio])
async def test_the_time_limit_holds_within_limits_of_the_functions_own(
    begin: Begin, waiting: Callable[[], Awaitable[None]]
) -> None:
    host = AsyncioHost(0.01, "impatient")

    async def function(_leg: Leg) -> Any:
        await waiting()

    assert isinstance(error_of(await begin(function, host).leg()), LegTimedOut)
    host.close()


async def test_a_task_that_outlives_the_function_can_do_nothing_more(begin: Begin, integer: Integer) -> None:
    go_on = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def later(leg: Leg) -> None:
        await go_on.wait()
        await leg.checkpoint("too late")

    async def function(leg: Leg) -> Any:
        left.append(asyncio.ensure_future(later(leg)))
        return "done"

    call = begin(function)
    assert value_of(await call.leg()) == "done"
    go_on.set()
    with pytest.raises(LegStopped):
        await left[0]


# Rule 4: time and chance


async def test_time_and_chance_are_the_same_in_every_leg_and_differ_by_key(begin: Begin, integer: Integer) -> None:
    drawn: list[Any] = []

    async def function(leg: Leg) -> Any:
        keys = ("a", "b")
        drawn.append([leg.uuid(key) for key in keys] + [leg.random(key) for key in keys] + [leg.step_id("a")])
        await leg.ask({"k": integer()})

    call = begin(function)
    await call.leg()
    await call.leg()
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 5
    assert all(made.version == 4 for made in drawn[0][:2])
    assert all(0 <= number < 1 for number in drawn[0][2:4])


async def test_another_call_draws_otherwise(begin: Begin) -> None:
    async def function(leg: Leg) -> Any:
        return leg.uuid("a"), leg.random("a")

    one, other = begin(function), begin(function)
    other.rest["seed"] = b"another seed"
    assert set(value_of(await one.leg())).isdisjoint(value_of(await other.leg()))


# Rule 5: steps


class Adds:
    """A callable object with an async method."""

    async def __call__(self, a: int, b: int) -> int:
        return a + b


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def add_in_thread(a: int, b: int) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return a + b


@pytest.mark.parametrize(
    "function",
    [
        add,
        add_in_thread,
        functools.partial(add),
        functools.partial(add_in_thread),
        Adds(),
        lambda a, b: a + b,
        lambda *numbers: add(*numbers),  # noqa: PLW0108 - no coroutine function, but returns a coroutine
    ],
    ids=["async", "sync", "partial of async", "partial of sync", "callable object", "lambda", "lambda of async"],
)
async def test_a_step_runs_any_kind_of_function_once(
    begin: Begin, integer: Integer, accept: Accept, function: Callable[..., Any]
) -> None:
    runs: list[int] = []

    def counted() -> None:
        runs.append(1)

    async def tool(leg: Leg) -> Any:
        await leg.step("count", counted, ())
        total = await leg.step("add", function, (1, 2))
        return total, await leg.ask({"k": integer()})

    call = begin(tool)
    await call.leg()
    assert value_of(await call.leg({"k": accept(0)})) == (3, {"k": 0})
    assert runs == [1]


async def test_a_step_that_raises_is_not_recorded_and_runs_again(begin: Begin, integer: Integer) -> None:
    runs: list[int] = []

    def flaky() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError
        return len(runs)

    async def tool(leg: Leg) -> Any:
        return await leg.step("s", flaky, ())

    call = begin(tool)
    assert isinstance(error_of(await call.leg()), ConnectionError)
    assert call.journal.steps == {}
    assert value_of(await call.leg()) == 2
    assert value_of(await call.leg()) == 2


async def test_a_step_that_asks_is_an_authors_error(begin: Begin, integer: Integer) -> None:
    """Its effects before the question would happen again with the answer."""

    async def tool(leg: Leg) -> Any:
        async def inner() -> int:
            return int((await leg.ask({"k": integer()}))["k"]) + 1

        return await leg.step("s", inner, ())

    call = begin(tool)
    outcome = await call.leg()
    assert isinstance(outcome, Failed)
    assert "step 's' asks 'k', so the step would run again with the answer; ask before" in str(outcome.error)
    assert call.journal.steps == call.journal.pending == {}


async def test_the_result_of_a_step_is_recorded_even_if_the_leg_has_ended(begin: Begin, integer: Integer) -> None:
    """Its effect has happened: without the result, the step would run again for no reason."""

    async def tool(leg: Leg) -> Any:
        ended = asyncio.Event()

        async def slow() -> str:
            await ended.wait()
            return "sent"

        async def ask() -> None:
            try:
                await leg.ask({"k": integer()})
            finally:
                ended.set()

        await asyncio.gather(leg.step("mail", slow, ()), ask(), return_exceptions=True)

    call = begin(tool)
    assert asked(await call.leg()) == ["k"]
    assert call.journal.steps == {"mail": "sent"}


async def test_changing_what_a_step_returned_does_not_change_the_journal(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def tool(leg: Leg) -> Any:
        found = await leg.step("find", lambda: {"ids": [1, 2]}, ())
        assert isinstance(found, dict)
        ids = found["ids"]
        assert isinstance(ids, list)
        ids.append(3)
        await leg.ask({"k": integer()})
        return found

    call = begin(tool)
    await call.leg()
    await call.leg()
    assert value_of(await call.leg({"k": accept(0)})) == {"ids": [1, 2, 3]}
    assert call.journal.steps == {"find": {"ids": [1, 2]}}


async def test_a_step_has_one_id_in_every_leg_and_another_in_other_calls(begin: Begin) -> None:
    async def tool(leg: Leg) -> Any:
        return leg.step_id("pay")

    call, other = begin(tool), begin(tool)
    other.rest["flow"] = "another"
    first = value_of(await call.leg())
    assert first == value_of(await call.leg())
    assert first == f"{call.journal.flow_id}:pay"
    assert first != value_of(await other.leg())


# Rule 6, as far as checkpoints go


async def test_a_later_leg_resumes_from_the_last_checkpoint(begin: Begin, integer: Integer) -> None:
    starts: list[Any] = []

    async def tool(leg: Leg) -> Any:
        done = leg.resumed({"units": 0})
        starts.append(done["units"])
        for _ in range(3):
            done["units"] += 1
            await leg.checkpoint(done)
        done["units"] = 999
        await leg.ask({"k": integer()})

    call = begin(tool)
    await call.leg()
    await call.leg()
    await call.leg()
    assert starts == [0, 3, 6]


async def test_a_checkpoint_always_yields_once(begin: Begin) -> None:
    seen: list[str] = []

    async def tool(leg: Leg) -> Any:
        asyncio.get_running_loop().call_soon(seen.append, "others ran")
        await leg.checkpoint(1)
        seen.append("went on")

    await begin(tool).leg()
    assert seen == ["others ran", "went on"]


async def test_changing_what_resumed_returned_does_not_change_the_checkpoint(begin: Begin) -> None:
    async def tool(leg: Leg) -> Any:
        leg.resumed({"units": []})["units"].append(1)
        return leg.resumed(None)

    call = begin(tool)

    async def first(leg: Leg) -> Any:
        await leg.checkpoint({"units": []})

    await call.leg(function=first)
    assert value_of(await call.leg()) == {"units": []}


async def test_an_older_checkpoint_is_migrated_step_by_step(begin: Begin) -> None:
    async def saves(leg: Leg) -> Any:
        await leg.checkpoint({"v": [1]})

    async def resumes(leg: Leg) -> Any:
        return leg.resumed("nothing"), leg.resumed("nothing")

    def to_2(value: Any) -> Any:
        value["v"].append(2)
        return value

    def to_4(value: Any) -> Any:
        return {"w": (*value["v"], 4)}

    call = begin(resumes)
    await call.leg(function=saves)
    migrated = await call.leg(version=4, migrations={1: (2, to_2), 2: (4, to_4)})
    assert value_of(migrated) == ({"w": [1, 2, 4]}, {"w": [1, 2, 4]})
    assert value_of(await call.leg(version=4, migrations={2: (4, to_4)})) == ("nothing", "nothing")
    assert value_of(await call.leg(version=1)) == ({"v": [1]}, {"v": [1]})


async def test_a_checkpoint_of_a_newer_version_is_dropped_and_the_rest_is_kept(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def saves(leg: Leg) -> Any:
        await leg.ask({"k": integer()})
        await leg.step("s", lambda: "kept", ())
        await leg.checkpoint(5)

    async def resumes(leg: Leg) -> Any:
        return leg.resumed(0), await leg.ask({"k": integer()}), await leg.step("s", lambda: "again", ())

    call = begin(resumes)
    await call.leg({"k": accept(1)}, function=saves, version=2)
    assert value_of(await call.leg(version=1)) == (0, {"k": 1}, "kept")


async def test_the_result_of_a_migration_must_be_json(begin: Begin) -> None:
    async def saves(leg: Leg) -> Any:
        await leg.checkpoint(1)

    async def resumes(leg: Leg) -> Any:
        return leg.resumed(0)

    call = begin(resumes)
    await call.leg(function=saves)
    error = error_of(await call.leg(version=2, migrations={1: (2, lambda _value: object())}))
    assert "migrated from version 1 to 2" in str(error)


# Return style


async def test_an_answer_can_be_looked_at_without_asking(begin: Begin, integer: Integer, accept: Accept) -> None:
    async def tool(leg: Leg) -> Any:
        return leg.answer("a", integer("a"), "none yet"), leg.answer("b", integer("b"), "none yet")

    assert value_of(await begin(tool).leg({"b": accept(2)})) == ("none yet", 2)
    assert value_of(await begin(tool).leg({"b": accept("two")})) == ("none yet", "none yet")
    declined = await begin(tool).leg({"b": {"result": {"action": "decline"}}})
    assert isinstance(error_of(declined), Declined)


async def test_required_questions_that_have_answers_are_not_asked_again(
    begin: Begin, integer: Integer, accept: Accept
) -> None:
    async def tool(leg: Leg) -> Any:
        leg.require({"a": integer(), "b": integer()})

    call = begin(tool)
    assert asked(await call.leg({"a": accept(1)})) == ["b"]
    error = error_of(await call.leg({"b": accept(2)}))
    assert "asks questions that already have answers: a, b" in str(error)
    assert "is not declared in" in str(error_of(await begin(tool).leg(declared={})))


# Rule 6, as far as progress and logs go


class Told:
    """Collects the progress and log messages of legs."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self.told.append((done, total, message))

    def log(self, level: str, data: Any, logger: str | None) -> None:
        self.told.append((level, data, logger))


async def test_replayed_progress_and_logs_are_not_sent_again(begin: Begin, integer: Integer, accept: Accept) -> None:
    async def tool(leg: Leg) -> Any:
        leg.log("info", "began", None)
        leg.progress(1, 2, "half")
        leg.progress(0.5, 2, "less")
        await leg.ask({"k": integer()})
        leg.log("info", {"went": "on"}, "tool")
        leg.progress(2, 2, None)

    call, told = begin(tool), Told()
    await call.leg(notices=told)
    assert told.told == [("info", "began", None), (1, 2, "half")]
    await call.leg(notices=told)
    assert len(told.told) == 2
    await call.leg({"k": accept(1)}, notices=told)
    assert told.told[2:] == [("info", {"went": "on"}, "tool"), (2, 2, None)]


async def test_a_computation_resumed_from_a_checkpoint_sends_the_logs_after_it(begin: Begin, integer: Integer) -> None:
    async def tool(leg: Leg) -> Any:
        done = leg.resumed(0)
        for unit in range(done, done + 2):
            leg.log("info", unit, None)
        await leg.checkpoint(done + 2)
        await leg.ask({"k": integer()})

    call, told = begin(tool), Told()
    for _ in range(3):
        await call.leg(notices=told)
    assert [data for _, data, _ in told.told] == [0, 1, 2, 3, 4, 5]


async def test_without_a_listener_progress_and_logs_are_counted_all_the_same(begin: Begin) -> None:
    async def tool(leg: Leg) -> Any:
        leg.progress(1, None, None)
        leg.log("info", "x", None)

    call, told = begin(tool), Told()
    assert value_of(await call.leg()) is None
    await call.leg(notices=told)
    assert told.told == []


@pytest.mark.parametrize("number", [float("nan"), float("inf"), True, "1", Decimal("0.5"), None])
async def test_progress_that_is_not_a_finite_number_is_an_error(begin: Begin, number: Any) -> None:
    async def tool(leg: Leg) -> Any:
        leg.progress(1, number, None)
        leg.progress(2 if number is None else number, None, None)

    outcome = await begin(tool).leg()
    assert isinstance(outcome, Completed if number is None else Failed)


async def test_a_log_message_is_json(begin: Begin) -> None:
    async def tool(leg: Leg) -> Any:
        leg.log("info", object(), None)

    assert "the log message: object is not" in str(error_of(await begin(tool).leg()))


# Rule 7: JSON values, nothing else


async def test_a_step_returns_the_same_json_in_the_first_leg_and_in_every_replay(begin: Begin) -> None:
    async def tool(leg: Leg) -> Any:
        return await leg.step("s", lambda: {"t": (1, (2,)), "n": 2**70, "f": 1.5}, ())

    call = begin(tool)
    first, again = value_of(await call.leg()), value_of(await call.leg())
    assert first == again == {"t": [1, [2]], "n": 2**70, "f": 1.5}


async def test_a_value_that_is_not_json_is_named(begin: Begin) -> None:
    async def step(leg: Leg) -> Any:
        return await leg.step("fetch", lambda: {"rows": [1, {2, 3}]}, ())

    async def checkpoint(leg: Leg) -> Any:
        await leg.checkpoint([b"bytes"])

    assert "the result of step 'fetch'.rows[1]: set" in str(error_of(await begin(step).leg()))
    assert "the checkpoint[0]: bytes" in str(error_of(await begin(checkpoint).leg()))


async def test_integers_beyond_64_bits_are_exact_in_answers(begin: Begin, integer: Integer, accept: Accept) -> None:
    async def tool(leg: Leg) -> Any:
        return {**await leg.ask({"a": integer()}), **await leg.ask({"b": integer()})}

    call = begin(tool)
    await call.leg({"a": accept(2**200)})
    assert value_of(await call.leg({"b": accept(-(2**200))})) == {"a": 2**200, "b": -(2**200)}


# Every rule at once

KEYS = ("a", "b", "c", "d", "e", "f")


@given(
    groups=st.lists(st.sampled_from((1, 2, 3)), min_size=6, max_size=6),
    splits=st.lists(st.sets(st.sampled_from(KEYS)), max_size=8),
    numbers=st.lists(st.integers(), min_size=6, max_size=6),
)
def test_however_the_answers_are_split_over_legs_the_call_ends_alike_and_each_step_runs_once(
    groups: list[int], splits: list[set[str]], numbers: list[int]
) -> None:
    answers = {
        key: {"result": {"action": "accept", "content": {"n": number}}}
        for key, number in zip(KEYS, numbers, strict=True)
    }

    async def call(legs: list[set[str]]) -> tuple[Any, list[str]]:
        host = AsyncioHost(None, "replica", threads=1)
        ran: list[str] = []

        async def function(leg: Leg) -> Any:
            got: dict[str, Any] = {}
            left = list(KEYS)
            for size in groups:
                keys, left = left[:size], left[size:]
                got.update(await leg.ask({key: _integer(key) for key in keys}))
                name = f"step {','.join(keys)}"

                async def record(name: str = name) -> int:
                    ran.append(name)
                    return sum(got.values())

                if keys:
                    got[name] = await leg.step(name, record, ())
            return got, leg.random("r")

        rest = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map()
        outcome: Outcome | None = None
        for given_now in legs:
            journal = Journal.from_map(unpack(pack(rest)))
            leg = Leg(journal, {key: answers[key] for key in given_now}, host, POLICY, supports=lambda _path: True)
            outcome = await run_leg(function, leg)
            rest = leg.journal.to_map()
            if isinstance(outcome, Completed):
                break
        host.close()
        assert outcome is not None
        return value_of(outcome), ran

    whole = asyncio.run(call([set(KEYS)]))
    # Answers that came too early are dropped, so the last legs carry all of them, each question at most once.
    split = asyncio.run(call([*splits, *[set(KEYS)] * len(KEYS)]))
    assert split == whole
    assert len(whole[1]) == len(set(whole[1]))


@given(
    junk=st.dictionaries(
        st.sampled_from(("result", "error", "x")),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
            max_leaves=8,
        ),
    )
)
def test_a_junk_answer_is_asked_again(junk: dict[str, Any]) -> None:
    async def function(leg: Leg) -> Any:
        return await leg.ask({"a": _integer("a")})

    async def call() -> Outcome:
        host = AsyncioHost(None, "replica", threads=1)
        journal = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes)
        outcome = await run_leg(function, Leg(journal, {"a": junk}, host, POLICY, supports=lambda _path: True))
        host.close()
        return outcome

    assert asked(asyncio.run(call())) == ["a"]


def _integer(_key: str) -> Question:
    def read(answer: Answer) -> Any:
        result = answer.get("result")
        content = result.get("content") if isinstance(result, dict) else None
        if not isinstance(content, dict) or type(content.get("n")) is not int:
            raise InvalidAnswer
        return content["n"]

    params = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    return Question(ELICIT, params, (("elicitation", "form"),), question_digest(ELICIT, params), read)


def test_reading_many_answers_without_asking_costs_in_proportion_to_their_number() -> None:
    def read(count: bytes) -> None:
        host = AsyncioHost(None, "replica", threads=1)
        journal = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes)
        leg = Leg(journal, {}, host, POLICY, supports=lambda _path: True)
        question = _integer("a")
        for number in range(int(count)):
            assert leg.answer(f"delete-{number}", question, None) is None
        host.close()

    assert least_seconds(read, b"32000") < 100 * least_seconds(read, b"2000")


class Jumping(AsyncioHost):
    """A host whose clock jumps past its limit between two readings, as if a tool had blocked."""

    def __init__(self) -> None:
        super().__init__(3600, "replica-1")
        self._now = 0.0

    def time(self) -> float:
        self._now += 3601
        return self._now


async def test_the_time_limit_counts_what_a_function_blocks_before_it_waits(begin: Begin) -> None:
    async def function(leg: Leg) -> None:
        await leg.host.park()

    host = Jumping()
    outcome = await asyncio.wait_for(begin(function, host).leg(), 60)
    host.close()
    assert isinstance(error_of(outcome), LegTimedOut)
