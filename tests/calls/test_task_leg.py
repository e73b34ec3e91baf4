"""One leg of a task, as a worker runs it, and what it reports to the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from gateway import Context, ProtocolError, tool
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.tools import Tool
from gateway.calls.failures import Failures
from gateway.calls.task_leg import Finished, HandedBack, TaskLeg, TaskOutcome, Waiting, error_of, run_task_leg
from gateway.engine.journal import Checkpoint, Journal
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.errors import LeaseLost, MissingCapability
from gateway.protocol.caller import Requester
from gateway.registry.relayed import Relayed, RelayedTool, forwarded_question
from gateway.sealing.principal import Principal
from tests.calls.policies import POLICY

ADA = Principal("https://id.example.com", "ada", "shell")


class Who(BaseModel):
    name: str


class Keeper:
    """Stores blocks; the `lost` one raises."""

    def __init__(self, *, lost: bool = False, sheds: bool = False) -> None:
        self.emitted: list[tuple[int, str]] = []
        self.slots: list[dict[str, Any]] = []
        self.lost, self.sheds = lost, sheds

    async def keep_step(self, key: str, value: Any) -> None:
        if self.lost:
            raise LeaseLost(cancelled=False)

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        self.emitted.append((number, block["text"]))

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        return self.sheds

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        if self.lost:
            raise LeaseLost(cancelled=False)
        self.slots.append(slot)


@pytest.fixture
def host() -> Iterator[AsyncioHost]:
    made = AsyncioHost(20, "worker-1")
    yield made
    made.close()


def rest(**more: Any) -> dict[str, Any]:
    return {**Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes).to_map(), **more}


async def run(
    served: Tool,
    host: AsyncioHost,
    *,
    arguments: Mapping[str, Any] | None = None,
    capabilities: Mapping[str, Any] | None = None,
    journal: Mapping[str, Any] | None = None,
    segments: Sequence[Mapping[str, Any]] = (),
    keeper: Keeper | None = None,
    strict_asks: bool = False,
    show_errors: bool = False,
) -> TaskOutcome:
    can = {"elicitation": {}} if capabilities is None else capabilities
    leg = TaskLeg(served, arguments or {}, ADA, can, journal or rest(), segments)
    policy = replace(POLICY, strict_asks=strict_asks, show_errors=show_errors)
    failures = Failures(bytes, policy)
    return await run_task_leg(leg, keeper=keeper or Keeper(), host=host, failures=failures, policy=policy)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


async def test_a_finished_tool_has_its_blocks_then_its_value(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> str:
        await ctx.emit("one")
        return f"{ctx.principal.subject if ctx.principal else ''} {await ctx.detach()}"

    assert await run(t, host) == Finished({"content": [text("one"), text("ada True")], "isError": False})


async def test_a_tool_that_asks_waits_with_its_journal(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> str:
        await ctx.step("s", lambda: 5)
        return (await ctx.elicit("who", "Who?", Who)).name

    waiting = await run(t, host)
    assert isinstance(waiting, Waiting)
    question = waiting.questions["who"]
    assert (question.method, question.params["message"]) == ("elicitation/create", "Who?")
    assert waiting.journal["steps"] == {"s": 5}
    answered = [[question.digest, {"result": {"action": "accept", "content": {"name": "Ada"}}}]]
    done = await run(t, host, journal={**waiting.journal, "answers": {"who": answered}})
    assert done == Finished({"content": [text("Ada")], "isError": False})


async def test_blocks_that_the_call_emitted_before_it_was_a_task_are_stored_first(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> None:
        for number in range(4):
            await ctx.emit(f"{number}")

    brought = rest(segments=[text("0"), text("1")])
    keeper = Keeper()
    done = await run(t, host, journal=brought, keeper=keeper)
    assert done == Finished({"content": [text(f"{number}") for number in range(4)], "isError": False})
    assert keeper.emitted == [(1, "0"), (2, "1"), (3, "2"), (4, "3")]
    # A worker was lost after three blocks.
    keeper = Keeper()
    again = await run(t, host, journal=brought, segments=[text("0"), text("1"), text("2")], keeper=keeper)
    assert again == done
    assert keeper.emitted == [(4, "3")]


async def test_values_stored_separately_are_not_in_the_journal_too(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> None:
        await ctx.emit("one")
        await ctx.elicit("who", "Who?", Who)

    waiting = await run(t, host)
    assert isinstance(waiting, Waiting)
    assert "segments" not in waiting.journal


async def test_a_worker_that_leaves_gets_the_journal_with_the_checkpoint(host: AsyncioHost) -> None:
    @tool(task="required", version=3)
    async def t(ctx: Context) -> None:
        await ctx.emit("one")
        await ctx.checkpoint("here")

    handed_back = await run(t, host, keeper=Keeper(sheds=True))
    assert isinstance(handed_back, HandedBack)
    assert Checkpoint.from_map(handed_back.journal["checkpoint"]) == Checkpoint(3, "here", emits=1)


async def test_an_error_of_the_keeper_is_raised(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> str:
        with contextlib.suppress(Exception):
            await ctx.step("s", lambda: 1)
        return "done"

    with pytest.raises(LeaseLost):
        await run(t, host, keeper=Keeper(lost=True))


async def test_cancellation_passes_through(host: AsyncioHost) -> None:
    running = asyncio.Event()

    @tool(task="required")
    async def t() -> None:
        running.set()
        await asyncio.Event().wait()

    leg = asyncio.create_task(run(t, host))
    await running.wait()
    leg.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leg


async def test_an_exception_is_a_result_with_a_reference_that_is_in_the_log(
    host: AsyncioHost, caplog: pytest.LogCaptureFixture
) -> None:
    @tool("fragile", task="required")
    async def t(ctx: Context) -> None:
        await ctx.emit("one")
        raise LookupError("hunter2")

    with caplog.at_level(logging.ERROR):
        done = await run(t, host)
    assert done == Finished(
        {"content": [text("one"), text("fragile failed (reference 000000000000)")], "isError": True}
    )
    assert caplog.records[-1].__dict__["reference"] == "000000000000"


async def test_a_time_limit_is_a_result_too() -> None:
    host = AsyncioHost(0.01, "worker")

    @tool("slow", task="required")
    async def t() -> None:
        await asyncio.Event().wait()

    done = await run(t, host)
    host.close()
    assert isinstance(done, Finished)
    assert done.result is not None
    assert "did not finish within 0.01 seconds" in done.result["content"][0]["text"]


async def test_a_json_rpc_error_is_one(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t() -> None:
        raise ProtocolError(-32000, "Out of tea", {"tea": 0})

    assert await run(t, host) == Finished(error={"code": -32000, "message": "Out of tea", "data": {"tea": 0}})


async def test_a_question_that_the_client_cannot_be_asked_is_one(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> None:
        await ctx.elicit("who", "Who?", Who)

    done = await run(t, host, capabilities={"sampling": {}})
    assert done == Finished(error=error_of(MissingCapability(("elicitation", "form"))))


async def test_arguments_that_a_newer_release_does_not_take_are_a_result(host: AsyncioHost) -> None:
    @tool("t", task="required")
    async def t(number: int) -> None:
        """Take a number."""

    done = await run(t, host, arguments={"number": "seven"})
    assert isinstance(done, Finished)
    assert done.result is not None
    assert done.result["content"][0]["text"].startswith("Invalid arguments for t: number")


async def test_a_journal_that_nobody_can_read_ends_the_task(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t() -> None:
        raise AssertionError("it ran")

    for journal in ({"flow": 5}, rest(steps=[])):
        done = await run(t, host, journal=journal)
        assert isinstance(done, Finished)
        assert done.error is not None
        assert done.error["code"] == -32603


@pytest.mark.setting("strict_asks")
@pytest.mark.parametrize("strict", [True, False])
async def test_declared_questions_are_checked_if_asked_for(host: AsyncioHost, strict: bool) -> None:
    @tool(task="required", asks={})
    async def t(ctx: Context) -> None:
        await ctx.elicit("who", "Who?", Who)

    assert isinstance(await run(t, host, strict_asks=strict), Finished if strict else Waiting)


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1, object()}}], ids=["object", "nan", "set"])
async def test_a_value_without_a_form_in_json_is_a_failure(host: AsyncioHost, value: Any) -> None:
    @tool(task="required")
    async def t() -> Any:
        return value

    done = await run(t, host)
    assert isinstance(done, Finished)
    assert done.result is not None
    assert done.result["isError"] is True


async def test_a_question_without_a_form_in_json_is_a_failure(host: AsyncioHost) -> None:
    @tool(task="required")
    async def t(ctx: Context) -> None:
        await ctx.elicit("who", "\ud800", Who)

    done = await run(t, host)
    assert isinstance(done, Finished)
    assert done.result is not None
    assert done.result["isError"] is True


async def test_an_authors_mistake_is_shown_only_if_asked_for(
    host: AsyncioHost, caplog: pytest.LogCaptureFixture
) -> None:
    def write() -> None:
        raise LookupError("no such table")

    @tool(task="required")
    async def save(ctx: Context) -> None:
        try:
            await ctx.step("save", write)
        except LookupError as error:
            raise RuntimeError("not saved") from error

    hidden = await run(save, host)
    assert isinstance(hidden, Finished)
    assert hidden.result == {"content": [text("save failed (reference 000000000000)")], "isError": True}
    assert "gateway/engine/driver" in caplog.text
    caplog.clear()
    shown = await run(save, host, show_errors=True)
    line = int(save.place.rpartition(":")[2]) + 5
    assert isinstance(shown, Finished)
    assert shown.result is not None
    (block,) = shown.result["content"]
    assert re.fullmatch(
        rf"save failed: RuntimeError: not saved \(\S*test_task_leg\.py:{line}, reference 0{{12}}\)", block["text"]
    )
    files = re.findall(r'File "(.+)", line \d+, in (\w+)', caplog.text)
    assert files == [(__file__, "save"), (__file__, "write"), (__file__, "save")]


@pytest.mark.setting("show_errors")
async def test_a_mistake_without_a_line_of_the_authors_is_shown_with_the_tools_place(host: AsyncioHost) -> None:
    @tool(task="required")
    async def odd() -> Any:
        return object()

    shown = await run(odd, host, show_errors=True)
    assert isinstance(shown, Finished)
    assert shown.result is not None
    assert f"({odd.place}, reference " in shown.result["content"][0]["text"]


class Asking:
    """A relay of a server that asks one form in two rounds; its result has the answers, or it fails."""

    upstream = "bugs"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.requesters: list[Requester] = []

    def bind(
        self, served: Relayed, target: str, arguments: dict[str, Any], requester: Requester, journal: Journal
    ) -> RelayFunction:
        self.requesters.append(requester)

        async def run(leg: RelayLeg) -> dict[str, Any]:
            if self.error is not None:
                raise self.error
            slot = leg.slot or {"round": 1, "answers": []}
            while slot["round"] <= 2:
                await leg.keep_slot(slot)
                answers = await leg.ask_forwarded({"k": forwarded_question("elicitation/create", ASKED)})
                leg.forget_round(slot["round"])
                slot = {"round": slot["round"] + 1, "answers": [*slot["answers"], answers]}
            return {"content": [{"type": "hologram"}], "answers": slot["answers"], "x": [target, arguments]}

        return run

    async def abandon(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """See `Relay`."""

    async def prepare_task(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        raise AssertionError("the task exists already")


ASKED = {"message": "Who?", "requestedSchema": {"type": "object"}}


def relayed(relay: Asking) -> RelayedTool:
    return RelayedTool(relay, {"name": "bugs__t", "inputSchema": {"type": "object"}}, task="optional")


async def test_a_relay_asks_in_a_task_under_the_servers_keys_and_records_them_by_round(host: AsyncioHost) -> None:
    relay, keeper = Asking(), Keeper()
    declined = {"result": {"action": "decline"}}
    journal: Mapping[str, Any] = rest()
    for number in (1, 2):
        waiting = await run(relayed(relay), host, journal=journal, keeper=keeper, arguments={"a": 1})
        assert isinstance(waiting, Waiting)
        (question,) = waiting.questions.values()
        assert (list(waiting.questions), question.recorded_as) == (["k"], f"{number}:k")
        assert keeper.slots[-1]["round"] == waiting.journal["slot"]["round"] == number
        assert list(waiting.journal["pending"]) == [f"{number}:k"]
        journal = {**waiting.journal, "answers": {question.recorded_as: [[question.digest, declined]]}}
    done = await run(relayed(relay), host, journal=journal, keeper=keeper, arguments={"a": 1})
    assert done == Finished(
        {"content": [{"type": "hologram"}], "answers": [{"k": declined}] * 2, "x": ["bugs__t", {"a": 1}]}
    )
    assert {requester.in_task for requester in relay.requesters} == {True}
    assert {requester.principal for requester in relay.requesters} == {ADA}


async def test_a_relay_has_no_time_limit_in_a_task_either(host: AsyncioHost) -> None:
    class Slow(Asking):
        def bind(self, *_: Any) -> RelayFunction:
            async def run(_leg: RelayLeg) -> dict[str, Any]:
                await asyncio.sleep(0.05)
                return {"content": []}

            return run

    hurried = AsyncioHost(0.01, "worker-2")
    assert await run(relayed(Slow()), hurried) == Finished({"content": []})
    hurried.close()


async def test_a_relay_whose_slot_cannot_be_stored_ends_the_leg_with_that_error(host: AsyncioHost) -> None:
    with pytest.raises(LeaseLost):
        await run(relayed(Asking()), host, keeper=Keeper(lost=True))


@pytest.mark.parametrize("data", [None, {"x": 1}, [1], "text"])
async def test_the_error_of_another_server_ends_a_task_as_it_came(host: AsyncioHost, data: Any) -> None:
    done = await run(relayed(Asking(ProtocolError(-7, "no", data))), host)
    told = {} if data is None else {"data": data}
    assert done == Finished(error={"code": -7, "message": "no", **told})


async def test_a_task_that_asks_under_a_new_key_in_each_leg_is_named_in_the_log(
    host: AsyncioHost, caplog: pytest.LogCaptureFixture
) -> None:
    legs: list[int] = []

    @tool(task="required")
    async def t(ctx: Context) -> str:
        legs.append(1)
        return (await ctx.elicit(f"who-{len(legs)}", "Who?", Who)).name

    waiting = await run(t, host)
    assert isinstance(waiting, Waiting)
    answered = [[waiting.questions["who-1"].digest, {"result": {"action": "accept", "content": {"name": "Ada"}}}]]
    await run(t, host, journal={**waiting.journal, "answers": {"who-1": answered}})
    assert [vars(record)["keys"] for record in caplog.records if record.msg == "answer not used"] == [["who-1"]]


async def test_an_error_of_a_task_keeps_no_traceback_after_it_was_reported(host: AsyncioHost) -> None:
    wrong = ValueError("wrong")

    @tool(task="required")
    async def t() -> None:
        raise wrong

    assert isinstance(await run(t, host), Finished)
    assert wrong.__traceback__ is None
