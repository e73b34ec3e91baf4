"""A mistake in a test is an error that names the fix; a mistake in the tool is not hidden by the helper."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from gateway import AuthoringError, Context, Elicit, ElicitUrl, tool
from gateway.errors import CannotContinue, JournalTooLarge
from gateway.settings.model import Settings
from gateway.testing import DECLINE, RunError, crash_after, lose_response, record, replay, run, run_async
from gateway.testing.calls import STATE_MAX_BYTES, Setting
from gateway.testing.options import _VALUES
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
        ({"result": {"action": "acept"}}, "the client must send a dict with the fields of the form, or an instance"),
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


class Tags(BaseModel):
    tags: list[Literal["a", "b"]]


@tool
async def tag(ctx: Context) -> list[str]:
    """Tag a page."""
    return list((await ctx.elicit("tags", "Which?", Tags)).tags)


@pytest.mark.parametrize("answer", [["a", "b"], [["a"], ["b"]]])
def test_a_list_for_a_form_whose_only_field_is_a_list_says_how_to_pass_one(answer: list[Any]) -> None:
    assert mistake(tag, answers={"tags": answer}) == (
        "the list for 'tags' has one answer for each time it is asked, and none fits; "
        "to answer with a list, pass {'tags': […]}"
    )
    assert run(tag, answers={"tags": [{"tags": ["z"]}, Tags(tags=["a"])]}).value == ["a"]
    with pytest.raises(CannotContinue, match="do not match what was asked"):
        run(tag, answers={"tags": [{"tags": ["z"]}] * 3})


def test_a_question_without_a_model_takes_its_value() -> None:
    @tool
    async def old(ctx: Context) -> int:
        return await ctx.elicit("age", "How old?", int)

    assert mistake(old, answers={"age": object()}).endswith("pass what a client sends: the value, or {'value': …}")


def test_unused_answers_of_a_list_are_an_error() -> None:
    answers = {"resolution": [{"resolution": "Fixed"}, {"bogus": 1}]}
    assert mistake(resolve, answers=answers) == "the list for 'resolution' has 2 answers, but the call used 1 of them"


def test_a_function_for_one_question_says_where_functions_go() -> None:
    assert mistake(resolve, answers={"resolution": lambda _key, _question: {}}) == (
        "the answer to 'resolution' is a function; pass one function for all answers: answers=lambda key, question: …"
    )


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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"principal": "ada"}, "`principal` is a Principal, such as Principal(issuer="),
        ({"can": {"sampling"}}, "`can` is a function of the name of a capability, such as lambda name:"),
        ({"now": "2026-01-01"}, "`now` is a datetime with a time zone, such as datetime(2026, 1, 31, tzinfo=UTC), not"),
        ({"checkpoint": 3}, "`checkpoint` is a tuple of a version and a value, such as (1, {'done': 5}), not 3"),
        ({"checkpoint": ("1", {})}, "`checkpoint` is a tuple of a version and a value"),
        ({"limit_seconds": "1"}, "`limit_seconds` is a number of seconds or None, not '1'"),
        ({"tokens": ["a"]}, "`tokens` is a dict of tokens by audience"),
        ({"tokens": {"https://api.example.com": 1}}, "`tokens` is a dict of tokens by audience"),
        ({"lose_responses": 2}, "`lose_responses` is True or False, not 2"),
        ({"as_task": "yes"}, "`as_task` is True, False or None, not 'yes'"),
        ({"seed": 0.5}, "`seed` is a whole number or a text, not 0.5"),
        ({"state_max_bytes": "1M"}, "`state_max_bytes` is a number of bytes, not '1M'"),
        ({"faults": lose_response("resolution")}, "is not a fault; use crash_after('step') or lose_response(leg=1)"),  # type: ignore[arg-type]
        ({"faults": [crash_after(1)]}, "is not a fault"),  # type: ignore[arg-type]
        ({"faults": crash_after("data", "2")}, "is not a fault"),  # type: ignore[arg-type]
        ({"faults": None}, "None is not a fault"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_with_one_that_it_can(
    options: dict[str, Any], expected: str
) -> None:
    assert expected in mistake(resolve, answers=ANSWERS, **options)
    with pytest.raises(RunError, match=re.escape(expected)):
        record(resolve, answers=ANSWERS, **options)


def test_the_value_of_every_option_is_checked() -> None:
    assert {*_VALUES, "faults"} == set(Options.__annotations__)


def test_a_checkpoint_of_a_newer_version_is_refused_as_the_tool_would_drop_it() -> None:
    assert mistake(resolve, answers=ANSWERS, checkpoint=(9, 3)) == (
        "`checkpoint` has version 9, but the tool 'resolve' has version 1 and would drop it; "
        "pass a version up to the tool's"
    )
    assert run(resolve, answers=ANSWERS, checkpoint=(1, 3)).value == "Fixed"


def test_a_replay_checks_its_options_too() -> None:
    recording = record(resolve, answers=ANSWERS)
    with pytest.raises(RunError, match="`principal` is a Principal"):
        replay(resolve, recording, principal="ada")  # type: ignore[arg-type]


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
