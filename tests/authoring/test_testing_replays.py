"""A recorded call shows what a new release would ask or do again."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from pydantic import BaseModel, Field, field_validator

from gateway import Context, Elicit, InputRequired, PlainContext, Principal, tool
from gateway.authoring.served import Served
from gateway.testing import (
    Difference,
    Recording,
    ReplayDiffers,
    RunError,
    record,
    record_async,
    replay,
    replay_async,
)

T = TypeVar("T")

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


class Size(BaseModel):
    size: int


class Colour(BaseModel):
    colour: str


def order(body: Callable[[Context], Any], **options: Any) -> Served:
    """Return a release of the tool `order`."""

    @tool("order", **options)
    async def release(ctx: Context) -> Any:
        return await body(ctx)

    return release


def effect(name: str, value: T) -> T:
    ran.append(name)
    return value


def plays(*moves: str | tuple[str, type[BaseModel]]) -> Callable[[Context], Any]:
    """Return a release that runs these steps, by their keys, and asks these questions."""

    async def release(ctx: Context) -> None:
        for move in moves:
            if isinstance(move, str):
                await ctx.step(move, effect, move, 5)
            else:
                await ctx.elicit(move[0], "?", move[1])

    return release


SIZE, COLOUR = ("size", Size), ("colour", Colour)


async def first_release(ctx: Context) -> str:
    price = await ctx.step("price", effect, "price", 5)
    size = await ctx.elicit("size", "Which size?", Size)
    receipt = await ctx.step("charge", effect, "charge", f"paid {price}")
    colour = await ctx.elicit("colour", "Which colour?", Colour)
    return f"{receipt} for {size.size} in {colour.colour}"


ANSWERS: dict[str, Any] = {"size": {"size": 4}, "colour": {"colour": "red"}}


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(order(first_release), answers=ANSWERS)


def differences(
    recording: Recording, body: Callable[[Context], Any], **options: Any
) -> list[tuple[str, str | None, int]]:
    """Return what differs with a new release, after checking that the release runs no step."""
    with pytest.raises(ReplayDiffers) as caught:
        replay(order(body, **options), recording)
    assert ran == []
    return [(found.kind, found.key, found.leg) for found in caught.value.differences]


def message(recording: Recording, body: Callable[[Context], Any], **options: Any) -> str:
    with pytest.raises(ReplayDiffers) as caught:
        replay(order(body, **options), recording)
    return str(caught.value)


# Recordings


def test_the_same_code_continues_every_leg_and_runs_no_step(recording: Recording) -> None:
    ran.clear()
    replay(order(first_release), recording)
    assert ran == []
    assert [leg.ended for leg in recording.legs] == ["asked", "asked", "returned"]


def test_a_recording_survives_a_file(recording: Recording, tmp_path: Path) -> None:
    recording.save(tmp_path / "order.json")
    loaded = Recording.load(tmp_path / "order.json")
    assert loaded == recording
    replay(order(first_release), loaded)


def test_a_recording_is_readable_and_names_no_caller(tmp_path: Path) -> None:
    ada = Principal(issuer="https://id.example.com", subject="ada", client_id="shell")
    text = record(order(first_release), answers=ANSWERS, principal=ada).to_json()
    stored = json.loads(text)
    assert stored["legs"][1]["answers"] == {"size": {"result": {"action": "accept", "content": {"size": 4}}}}
    assert stored["legs"][2]["steps"] == {"price": 5, "charge": "paid 5"}
    assert "id.example.com" not in text
    assert "ada" not in text


def test_two_recordings_differ_only_in_their_times() -> None:
    first, second = (json.loads(record(order(first_release), answers=ANSWERS).to_json()) for _ in range(2))
    for stored in (first, second):
        for leg in stored["legs"]:
            del leg["journal"]["start"], leg["journal"]["deadline"]
    assert first == second


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 1, "legs": [{}]}', '{"format": 1, "legs": []}']
)
def test_another_file_is_no_recording(text: str) -> None:
    with pytest.raises(RunError, match="record the call again"):
        Recording.from_json(text)


@pytest.mark.parametrize(
    ("leg", "part", "broken"),
    [
        (0, "detaching", "sometimes"),
        (0, "journal", {}),
        (0, "reached", None),
        (1, "steps", None),
        (1, "answers", []),
        (1, "ended", "never"),
        (1, "checkpoint", {"version": 1}),
    ],
)
def test_a_recording_with_a_broken_leg_is_refused(recording: Recording, leg: int, part: str, broken: Any) -> None:
    stored = json.loads(recording.to_json())
    stored["legs"][leg][part] = broken
    with pytest.raises(RunError, match=r"this is not a recording .*; record the call again"):
        Recording.from_json(json.dumps(stored))


def test_a_recording_needs_a_leg_and_a_readable_journal(recording: Recording) -> None:
    stored = json.loads(recording.to_json())
    stored["legs"][0]["journal"]["legs"] = "one"
    for broken in (json.dumps(stored), json.dumps({**stored, "legs": []}), "[" * 100_000):
        with pytest.raises(RunError, match=r"this is not a recording .*; record the call again"):
            Recording.from_json(broken)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((content, "this is not a recording") for content in (b"\xff\xfe", b"[]")),
        *((content, ".*record the call again") for content in (b"{}", b"no JSON", b'{"format": 99}')),
    ],
)
def test_a_file_that_is_not_a_recording_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "order.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=f"{re.escape(str(path))}: {words}"):
        Recording.load(path)


def test_a_call_that_fails_in_the_test_is_not_recorded() -> None:
    with pytest.raises(RunError, match="does not fit"):
        record(order(first_release), answers={"size": {"size": "x"}})
    with pytest.raises(RunError, match=r"the arguments\.when: object"):
        record(order(first_release), {"when": object()})
    with pytest.raises(RunError, match=r"record\(\) has no option 'answer'; did you mean"):
        record(order(first_release), answer={})  # type: ignore[call-arg]


async def test_both_work_in_a_running_loop(recording: Recording) -> None:
    await replay_async(order(first_release), await record_async(order(first_release), answers=ANSWERS))
    with pytest.raises(RunError, match=r"load one from its file with Recording\.load"):
        await replay_async(order(first_release), "order.json")  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"replay_async\(\) takes a tool"):
        await replay_async(print, recording)  # type: ignore[arg-type]


# Questions


def test_another_text_is_no_difference(recording: Recording) -> None:
    class Size(BaseModel):
        size: int = Field(title="Size in cm", description="Of the box")

    async def release(ctx: Context) -> Any:
        price = await ctx.step("price", lambda: 6)
        await ctx.elicit("size", "How large is it?", Size)
        await ctx.step("charge", lambda: price)
        await ctx.elicit("colour", "Colour, please", Colour)

    replay(order(release), recording)


def test_a_question_with_another_form_would_be_asked_again(recording: Recording) -> None:
    class Other(BaseModel):
        size: int
        unit: str

    release = plays("price", ("size", Other))
    assert differences(recording, release) == [("question changed", "size", 1)]
    assert (
        "- leg 1: question 'size' has another form (new: unit), and would be asked again. Keep the form, "
        in message(recording, release)
    )


def test_a_new_question_and_a_question_that_is_gone_are_found(recording: Recording) -> None:
    async def new(ctx: Context) -> Any:
        await ctx.step("price", lambda: 5)
        await ctx.ask(size=Elicit("?", Size), why=Elicit("?", Colour))

    assert differences(recording, new) == [("question new", "why", 1)]
    assert differences(recording, plays("price", SIZE, "charge")) == [("question gone", "colour", 2)]


def test_an_answer_that_a_new_validator_refuses_is_found_with_its_reason(recording: Recording) -> None:
    class Size(BaseModel):
        size: int

        @field_validator("size")
        @classmethod
        def odd(cls, size: int) -> int:
            if size % 2 == 0:
                raise ValueError("must be odd")
            return size

    release = plays("price", ("size", Size))
    assert differences(recording, release) == [("answer no longer fits", "size", 2), ("question gone", "colour", 2)][:1]
    assert "the recorded answer to 'size' does not fit any more (size: Value error, must be odd)" in message(
        recording, release
    )


def test_the_return_style_is_compared_too() -> None:
    @tool("order")
    def first(ctx: PlainContext) -> Any:
        ask = Elicit("?", Size)
        given = ctx.answers.get("size", ask)
        return InputRequired(size=ask) if given is None else given.size

    @tool("order")
    def second(ctx: PlainContext) -> Any:
        ask = Elicit("?", Colour)
        return ctx.answers.get("size", ask) or InputRequired(size=ask)

    recording = record(first, answers={"size": {"size": 4}})
    replay(first, recording)
    with pytest.raises(ReplayDiffers, match=r"question 'size' has another form \(new: colour; gone: size\)"):
        replay(second, recording)


def test_a_refused_answer_of_the_recording_is_no_difference() -> None:
    async def asks(ctx: Context) -> Any:
        return (await ctx.elicit("size", "?", Size)).size

    recording = record(order(asks), answers={"size": [{"size": "x"}, {"size": 3}]})
    replay(order(asks), recording)


# Steps


def test_a_new_step_and_a_renamed_one_would_run(recording: Recording) -> None:
    renamed = plays("price", SIZE, "pay")

    async def as_coroutine(ctx: Context) -> Any:
        async def pay() -> None:
            ran.append("pay")

        await ctx.step("pay", pay)

    assert differences(recording, plays("price", SIZE, "charge", "ship")) == [("step new", "ship", 2)]
    assert differences(recording, renamed) == [("step renamed", "pay", 2)]
    assert "step 'charge' is now 'pay', and would run again. Keep the key 'charge'." in message(recording, renamed)
    assert differences(recording, as_coroutine) == [("step renamed", "pay", 1)]


def test_a_step_that_is_gone_and_another_order_are_found(recording: Recording) -> None:
    assert differences(recording, plays("price", SIZE, COLOUR)) == [("step gone", "charge", 2)]
    earlier = plays("price", "charge", SIZE, COLOUR)
    assert differences(recording, earlier) == [("order changed", "charge", 1), ("order changed", None, 2)]
    question_first = plays(SIZE, "price", "charge", COLOUR)
    assert differences(recording, question_first) == [("step gone", "price", 1), ("order changed", None, 2)]


def test_parallel_steps_of_the_same_code_are_no_difference() -> None:
    async def release(ctx: Context) -> Any:
        others_began = asyncio.Event()

        async def branch(name: str, work: Callable[[], Any]) -> None:
            await ctx.step(f"{name}1", work)
            await ctx.step(f"{name}2", effect, name, 1)

        async def begin() -> None:
            others_began.set()

        await asyncio.gather(branch("a", others_began.wait), branch("b", begin))

    recording = record(order(release))
    assert recording.legs[0].reached != ["a1", "a2", "b1", "b2"]
    replay(order(release), recording)


def test_questions_in_another_order_are_found(recording: Recording) -> None:
    assert ("order changed", "colour", 1) in differences(recording, plays("price", COLOUR, "charge", SIZE))


def test_a_step_that_raised_in_the_recording_ends_the_check_of_its_leg() -> None:
    def fail() -> None:
        ran.append("fail")
        raise OSError

    async def release(ctx: Context) -> Any:
        try:
            await ctx.step("fetch", fail)
        except OSError:
            return await ctx.step("fallback", lambda: 1)

    recording = record(order(release))
    ran.clear()
    replay(order(release), recording)
    assert ran == []


def test_new_code_that_raises_is_found(recording: Recording) -> None:
    async def release(ctx: Context) -> Any:
        price: Any = await ctx.step("price", lambda: 5)
        return price["amount"]

    assert differences(recording, release) == [("raises", None, 1)]
    assert "the tool raises TypeError: 'int' object is not subscriptable. With" in message(recording, release)


def test_a_return_value_that_is_no_result_any_more_is_found() -> None:
    async def first(ctx: Context) -> Any:
        return await ctx.step("charge", effect, "charge", "receipt")

    @tool("order")
    async def second(ctx: Context) -> Size:
        return cast("Size", await ctx.step("charge", effect, "charge", "receipt"))

    recording = record(order(first))
    replay(order(first), recording)
    with pytest.raises(ReplayDiffers, match=r"leg 1: the tool raises AuthoringError: the tool 'order' did not return"):
        replay(second, recording)


# Calls


def test_another_name_and_arguments_that_are_not_valid_any_more_are_found() -> None:
    @tool
    async def old(size: int) -> int:
        return size

    @tool
    async def new(size: int, unit: str) -> int:
        return size

    with pytest.raises(ReplayDiffers) as caught:
        replay(new, record(old, {"size": 3}))
    assert [found.kind for found in caught.value.differences] == ["tool renamed", "arguments no longer valid"]
    assert "unit: Field required" in str(caught.value)
    assert str(caught.value).startswith(
        "calls of 'old' that are in progress would not continue as recorded:\n- the tool"
    )


def counting(version: int) -> Served:
    @tool("count", version=version)
    async def count(ctx: Context) -> Any:
        found = ctx.resumed(0)
        await ctx.checkpoint(found)
        await ctx.elicit("size", "?", Size)

    return count


def test_a_checkpoint_without_a_migration_is_found() -> None:
    recording = record(counting(2), answers={"size": {"size": 1}})
    replay(counting(2), recording)
    with pytest.raises(ReplayDiffers, match=r"Add a migration: @count\.migrate\(from_=2, to=3\)"):
        replay(counting(3), recording)
    with pytest.raises(ReplayDiffers, match="Raise the version of the tool to 2 or more"):
        replay(counting(1), recording)

    migrating = counting(3)
    migrating.migrate(from_=2, to=3)(lambda value: value)
    replay(migrating, recording)

    failing = counting(3)
    failing.migrate(from_=2, to=3)(lambda value: value["pages"])
    with pytest.raises(ReplayDiffers, match="the migration from version 2 to 3 fails: TypeError"):
        replay(failing, recording)


def test_a_checkpoint_of_the_same_leg_is_restored_too() -> None:
    def summing(kind: type[BaseModel]) -> Callable[[Context], Any]:
        async def sums(ctx: Context) -> Any:
            found: Any = ctx.resumed(None, kind)
            await ctx.checkpoint(found or kind.model_validate({"size": 1, "unit": "cm"}), kind)

        return sums

    class Box(Size):
        unit: str

    recording = record(order(summing(Size)))
    replay(order(summing(Size)), recording)
    with pytest.raises(ReplayDiffers, match="leg 1: the tool raises AuthoringError: the checkpoint was"):
        replay(order(summing(Box)), recording)


def test_a_task_is_recorded_and_replayed_as_one() -> None:
    async def first(ctx: Context) -> Any:
        await ctx.detach()
        await ctx.emit("working")
        await ctx.step("work", lambda: 1)
        return await ctx.elicit("size", "?", Size, default=None)

    async def stays(ctx: Context) -> Any:
        await ctx.step("work", lambda: 1)

    options: dict[str, Any] = {"task": "optional", "start": "call"}
    recording = record(order(first, **options), answers={"size": {"size": 1}})
    assert [leg.ended for leg in recording.legs] == ["detached", "asked", "returned"]
    replay(order(first, **options), recording)

    async def never_detaches(ctx: Context) -> Any:
        return None

    assert ("ends differently", None, 1) in differences(recording, never_detaches, **options)


def test_a_call_that_became_a_task_because_of_its_large_state_is_no_difference() -> None:
    async def first(ctx: Context) -> Any:
        await ctx.step("load", effect, "load", random.Random(1).randbytes(2000).hex())
        await ctx.elicit("size", "?", Size)

    async def other(ctx: Context) -> Any:
        await ctx.step("load", effect, "load", "")
        await ctx.elicit("size", "?", Colour)

    call: dict[str, Any] = {"task": "optional", "start": "call"}
    recording = record(order(first, **call), answers={"size": {"size": 1}}, state_max_bytes=1000)
    assert [leg.ended for leg in recording.legs] == ["detached", "asked", "returned"]
    ran.clear()
    replay(order(first, **call), recording)
    assert differences(recording, other, **call) == [("question changed", "size", 2)]


def test_the_new_release_decides_whether_a_call_may_become_a_task() -> None:
    async def stays(ctx: Context) -> Any:
        await ctx.elicit("size", "?", Size)
        await ctx.step("work", effect, "work", 1)

    async def detaches(ctx: Context) -> Any:
        await ctx.elicit("size", "?", Size)
        await ctx.detach()
        await ctx.step("work", effect, "work", 1)

    answers = {"size": {"size": 1}}
    call: dict[str, Any] = {"task": "optional", "start": "call"}
    became_task = record(order(detaches, **call), answers=answers)
    stayed = record(order(stays), answers=answers)
    without_tasks = record(order(detaches, **call), answers=answers, as_task=False)
    ran.clear()

    replay(order(stays, **call), stayed)
    replay(order(detaches, **call), without_tasks)
    replay(order(stays, task="optional", start="task"), record(order(stays, **call), answers=answers, as_task=False))
    ran.clear()
    assert differences(became_task, detaches) == [("raises", None, 2)]
    assert differences(stayed, detaches, **call) == [("ends differently", None, 2)]
    assert differences(stayed, stays, task="optional", start="task") == [("ends differently", None, 2)]


def test_a_capability_that_the_client_lacked_is_still_lacking() -> None:
    async def release(ctx: Context) -> Any:
        if ctx.can("sampling"):
            await ctx.step("sampled", lambda: 1)
        return await ctx.step("plain", lambda: 2)

    recording = record(order(release), can=lambda capability: capability != "sampling")
    replay(order(release), recording)


def test_the_caller_may_be_given() -> None:
    async def release(ctx: Context) -> Any:
        assert ctx.principal is not None
        return ctx.principal.subject

    ada = Principal(issuer="https://id.example.com", subject="ada", client_id="shell")
    recording = record(order(release), principal=ada)
    replay(order(release), recording, principal=ada)
    with pytest.raises(ReplayDiffers, match="raises AssertionError"):
        replay(order(release), recording)


def test_exchanged_tokens_may_be_given_and_are_not_recorded() -> None:
    async def release(ctx: Context) -> Any:
        return (await ctx.exchange_token("files")).audience

    recording = record(order(release), tokens={"files": "the-token"})
    assert "the-token" not in recording.to_json()
    replay(order(release), recording, tokens={"files": "another"})


def test_a_difference_reads_as_a_line() -> None:
    assert str(Difference("step new", "ship", 2, "step 'ship' is new.")) == "leg 2: step 'ship' is new."
    assert str(Difference("tool renamed", None, 0, "x")) == "x"
