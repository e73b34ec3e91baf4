"""A mistake in a test is an error that names the fix; a mistake in the tool is not hidden by the helper."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from gateway import AuthoringError, Context, Elicit, ElicitUrl, tool
from gateway.errors import CannotContinue, JournalTooLarge
from gateway.settings.model import Settings
from gateway.testing import DECLINE, RunError, crash_after, lose_response, run, run_async
from gateway.testing.calls import STATE_MAX_BYTES, Setting
from gateway.testing.running import Options


class Resolution(BaseModel):
    resolution: Literal["Fixed", "Later"]
    note: str = ""


@tool
async def resolve(ctx: Context) -> str:
    """Resolve a bug."""
    return (await ctx.elicit("resolution", "How?", Resolution)).resolution


def mistake(*args: Any, **kwargs: Any) -> str:
    """Return the message of the error that `run` raises."""
    with pytest.raises(RunError) as caught:
        run(*args, **kwargs)
    return str(caught.value)


# Answers


def test_an_answer_that_does_not_fit_is_an_error_at_once_in_pydantics_words() -> None:
    assert mistake(resolve, answers={"resolution": {"resolution": "fixed"}}) == (
        "the answer to 'resolution' does not fit: resolution: Input should be 'Fixed' or 'Later'. "
        "The answer was {'resolution': 'fixed'}. Correct it. To test that the tool asks again, pass a list of answers."
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Fixed", "the answer to 'resolution' does not fit: "),
        ({"result": {"action": "acept"}}, "the client must send a dict with the fields of the form, an instance"),
        (Resolution, "pass what a client sends: a dict with the fields of the form"),
        ({"resolution": "Fixed", "note": object()}, "pass what a client sends"),
        ({"resolution": "Fixed", "noet": ""}, "the form 'resolution' has no field 'noet'; did you mean 'note'?"),
        ({"resolution": "Fixed", "x": ""}, "has no field 'x'; its fields are: 'resolution', 'note'"),
    ],
)
def test_an_answer_that_no_client_could_give_names_what_one_gives(answer: Any, expected: str) -> None:
    assert expected in mistake(resolve, answers={"resolution": answer})


def test_other_kinds_of_questions_say_what_they_take() -> None:
    @tool
    async def asks(ctx: Context, what: str) -> None:
        if what == "url":
            await ctx.elicit_url("k", "Visit", "https://example.com")
        elif what == "sample":
            await ctx.sample("k", "Write", max_tokens=1)
        else:
            await ctx.roots("k")

    assert "{}, DECLINE or DISMISS" in mistake(asks, {"what": "url"}, answers={"k": {"result": {"action": "go"}}})
    assert "role: Field required" in mistake(asks, {"what": "sample"}, answers={"k": {}})
    assert "a list of URIs, not 'file:///a'" in mistake(asks, {"what": "roots"}, answers={"k": "file:///a"})


def test_a_list_answers_each_time_that_the_question_is_asked() -> None:
    done = run(resolve, answers={"resolution": [{"resolution": "fixed"}, {}, {"resolution": "Fixed"}]})
    assert (done.value, done.asked) == ("Fixed", ["resolution"] * 3)
    with pytest.raises(CannotContinue, match="do not match what was asked"):
        run(resolve, answers={"resolution": [{}] * 3})


def test_a_list_that_is_used_up_gives_the_reason_for_the_next_question() -> None:
    said = mistake(resolve, answers={"resolution": [{}]})
    assert said == (
        "question 'resolution' was asked 2 times, and its list has 1 answers. "
        "The last one does not fit: resolution: Field required."
    )
    assert "its list has 0 answers" in mistake(resolve, answers={"resolution": []})


def test_a_list_of_roots_is_one_answer_and_a_list_of_lists_is_several() -> None:
    @tool
    async def rooted(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots("k")]

    assert run(rooted, answers={"k": ["file:///a", "file:///b"]}).value == ["file:///a", "file:///b"]
    assert run(rooted, answers={"k": [[{}], ["file:///b"]]}).value == ["file:///b"]


def test_a_misspelt_key_is_an_error_that_names_the_question() -> None:
    said = mistake(resolve, answers={"resolutoin": {"resolution": "Fixed"}})
    assert said == "no question 'resolutoin' was asked; did you mean 'resolution'?"


def test_an_unused_answer_is_an_error_that_names_the_questions() -> None:
    answers = {"resolution": {"resolution": "Fixed"}, "owner": {"name": "Ada"}}
    assert mistake(resolve, answers=answers) == "no question 'owner' was asked; the call asked: 'resolution'"

    @tool
    async def silent() -> None:
        """Ask nothing."""

    assert mistake(silent, answers={"k": {}}) == "no question 'k' was asked; the call asked: none"


def test_a_tool_that_raises_hides_no_error_of_its_own_behind_an_unused_answer() -> None:
    @tool
    async def broken(ctx: Context) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(broken, answers={"k": {}})


def test_declining_fits_every_question_to_a_user() -> None:
    @tool
    async def asks(ctx: Context) -> dict[str, Any]:
        return await ctx.ask(
            a=Elicit("?", Resolution, default=None), b=ElicitUrl("?", "https://x.example", default=None)
        )

    assert run(asks, answers={"a": DECLINE, "b": DECLINE}).value == {"a": None, "b": None}


# Calls


class Desk:
    async def book(self) -> None: ...


def test_what_is_not_a_tool_is_refused_with_what_to_do() -> None:
    def plain() -> None: ...

    assert mistake(plain) == (
        "run() takes a tool, prompt or resource, but 'plain' is a plain function; decorate it with @tool"
    )
    assert mistake(Desk().book).endswith("but 'book' is a method; write book = tool(my_object.book)")
    assert "not run(resolve(…))" in mistake(resolve(None))  # type: ignore[arg-type]
    assert "not an object of type 'str'" in mistake("resolve")


async def test_each_function_names_itself() -> None:
    with pytest.raises(RunError, match=r"run_async\(\) takes a tool"):
        await run_async(len)  # type: ignore[call-overload]


def test_arguments_and_answers_of_another_type_are_refused() -> None:
    assert "takes the arguments as a dict" in mistake(resolve, ["x"])
    assert "`answers` is a dict by the key of the question, or a function, not a list" in mistake(resolve, answers=[1])


def test_an_unknown_option_is_refused_with_the_one_that_is_meant() -> None:
    assert mistake(resolve, lose_response=True) == "run() has no option 'lose_response'; did you mean 'lose_responses'?"
    assert "its options are: 'answers', 'principal', 'tokens'" in mistake(resolve, xyz=1)


def test_a_time_without_a_zone_is_refused() -> None:
    assert "`now` needs a time zone" in mistake(resolve, now=datetime(2026, 1, 31))  # noqa: DTZ001 - the mistake


def test_every_option_is_known_to_the_call() -> None:
    others = {"faults", "lose_responses"}
    assert set(Setting.__dataclass_fields__) | others == set(Options.__annotations__)


# The state


@tool(task="optional", start="call")
async def collects(ctx: Context, size: Annotated[int, Field(ge=0)]) -> str:
    """Collect data, then ask."""
    await ctx.step("data", lambda: "x" * size)
    return (await ctx.elicit("resolution", "How?", Resolution)).resolution


ANSWERS = {"resolution": {"resolution": "Fixed"}}


def test_a_state_that_a_server_would_refuse_is_refused_with_its_message() -> None:
    with pytest.raises(JournalTooLarge, match=r"than it can carry to its next round: \d+ bytes; the limit is 65536\."):
        run(collects, {"size": 200_000}, answers=ANSWERS, as_task=False)
    assert run(collects, {"size": 200_000}, answers=ANSWERS, as_task=False, state_max_bytes=2**20).value == "Fixed"


def test_the_limit_is_the_default_of_the_setting() -> None:
    assert Settings.model_fields["state_max_bytes"].default == STATE_MAX_BYTES


def test_a_call_with_too_large_a_state_becomes_a_task_where_it_can() -> None:
    done = run(collects, {"size": 200_000}, answers=ANSWERS)
    assert (done.value, done.became_task) == ("Fixed", True)


# Faults


def test_a_fault_that_never_happens_is_an_error() -> None:
    answers = ANSWERS
    said = mistake(collects, {"size": 1}, answers=answers, faults=[crash_after("dta")])
    assert said == "crash_after('dta'): no such step ran; did you mean 'data'?"
    said = mistake(collects, {"size": 1}, answers=answers, faults=[lose_response(3)])
    assert said == "lose_response(3): the call had 2 legs, so this one never ran"
    assert "is not a fault" in mistake(collects, {"size": 1}, answers=answers, faults=["crash"])
    assert "is not a fault" in mistake(collects, {"size": 1}, answers=answers, faults=[lose_response(0)])


def test_a_broken_rule_of_the_tool_stays_an_authoring_error() -> None:
    @tool(asks={})
    async def undeclared(ctx: Context) -> None:
        await ctx.elicit("resolution", "?", Resolution)

    with pytest.raises(AuthoringError, match="not declared"):
        run(undeclared, answers=ANSWERS)
