"""The session with a child process: what it answers is read strictly, and whatever it does harms nobody else."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.children.children import ChildProcess, Children, Program
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.upstream.cleaning import clean_line
from gateway.protocol.upstream.introductions import SessionIntroduction
from gateway.protocol.upstream.json_lines import SKIP_FACTOR
from gateway.protocol.upstream.responses import Message, read_numbered
from gateway.sealing.principal import Principal
from gateway.upstreams import readings
from gateway.upstreams.client import hearing, programs, stdio
from gateway.upstreams.client.connections import Subscribers
from gateway.upstreams.client.programs import UpstreamProgram
from gateway.upstreams.client.stdio import ChildConnection
from gateway.upstreams.failures import LostSession, Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import NOBODY, RequestOptions, UpstreamCaller
from gateway.upstreams.readings import readings_of_answers
from tests.waiting import until

SERVER = Path(__file__).parents[1] / "servers" / "stdio.py"
SECONDS = 10.0
LIMIT = 100_000


class Served:
    """The stub server as a child, and a connection to it."""

    def __init__(self, children: Children, *options: str, env: Mapping[str, str] | None = None, **more: Any) -> None:
        self.registry = CollectorRegistry()
        self.subscribers = Subscribers()
        telemetry = UpstreamMetrics(self.registry)
        program = Program([sys.executable, "-S", str(SERVER), *options], env or {}, more.pop("cwd", None))
        self.program = more.pop("program", None) or UpstreamProgram("stub", program, children, telemetry)
        self.connection = ChildConnection(
            "stub",
            self.program,
            telemetry,
            client_info={"name": "gateway", "version": "1"},
            subscribers=self.subscribers,
            **{"max_line_bytes": LIMIT, **more},
        )

    async def open(self, seconds: float = SECONDS) -> SessionIntroduction:
        return await self.connection.open(NOBODY, seconds=seconds)

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        given: RequestOptions = {"requester": NOBODY, "seconds": SECONDS, "max_bytes": LIMIT}
        return await self.connection.request(method, params or {}, **{**given, **options})

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> Any:
        result = await self.request("tools/call", {"name": tool, "arguments": arguments or {}}, **options)
        return json.loads(result["content"][0]["text"])

    async def fails(self, tool: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> UpstreamFailure:
        with pytest.raises(UpstreamFailure) as failed:
            await self.call(tool, arguments, **options)
        return failed.value

    def dropped(self, what: str) -> float:
        return self.registry.get_sample_value("gateway_upstream_dropped_total", {"upstream": "stub", "what": what}) or 0


class Factory:
    def __init__(self, stack: AsyncExitStack, children: Children) -> None:
        self._stack = stack
        self.children = children

    def make(self, *options: str, **more: Any) -> Served:
        served = Served(self.children, *options, **more)
        self._stack.push_async_callback(served.connection.aclose)
        return served


@pytest.fixture
async def factory() -> AsyncIterator[Factory]:
    children = Children(20)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(children.aclose)
        yield Factory(stack, children)


@pytest.fixture
async def served(factory: Factory) -> Served:
    served = factory.make()
    await served.open()
    return served


async def test_a_session_begins_with_the_newest_version_that_has_sessions(factory: Factory) -> None:
    served = factory.make()
    introduction = await served.open()
    assert introduction.as_discovered()["capabilities"]["tools"] == {"listChanged": True}
    assert served.subscribers.can_hear
    assert "echo" in [tool["name"] for tool in (await served.request("tools/list"))["tools"]]


async def test_requests_run_side_by_side_and_each_gets_its_own_answer(served: Served) -> None:
    slow = asyncio.create_task(served.call("slow", {"seconds": 0.5}))
    answers = await asyncio.gather(*(served.call("echo", {"number": number}) for number in range(200)))
    assert answers == [{"number": number} for number in range(200)]
    assert not slow.done()
    assert await slow == {"seconds": 0.5}


async def test_an_error_is_the_upstreams_own(served: Served) -> None:
    with pytest.raises(UpstreamError) as failed:
        await served.request("no/such")
    assert (failed.value.code, failed.value.message) == (-32601, "no no/such")


async def test_progress_goes_to_its_call_and_logs_to_the_only_one(served: Served) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    options: dict[str, Any] = {
        "on_notice": lambda *notice: heard.append(notice),
        "wants_progress": True,
        "log_level": "info",
    }
    await served.call("notices", **options)
    assert heard == [
        ("notifications/progress", {"progress": 0}),
        ("notifications/message", {"level": "info", "data": "step 0"}),
        ("notifications/progress", {"progress": 1}),
        ("notifications/message", {"level": "info", "data": "step 1"}),
    ]
    heard.clear()
    await served.call("notices", on_notice=lambda *notice: heard.append(notice))
    assert not heard
    assert served.dropped("progress") == served.dropped("log") == 2


async def test_a_large_notice_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_NOTICE_BYTES", 1000)
    heard: list[str] = []
    options: dict[str, Any] = {"on_notice": lambda method, _: heard.append(method), "log_level": "info"}
    await served.call("notices", {"more": "x" * 1000}, wants_progress=True, **options)
    assert heard == ["notifications/progress"] * 2
    assert served.dropped("log") == 2


async def test_a_log_that_may_be_about_another_call_is_dropped(served: Served) -> None:
    heard: list[str] = []
    options: dict[str, Any] = {"on_notice": lambda method, _: heard.append(method), "log_level": "info"}
    waiting = asyncio.create_task(served.call("hang"))
    await asyncio.sleep(0)
    await served.call("notices", **options)
    assert not heard
    waiting.cancel()
    await asyncio.wait({waiting})
    for name in ("ada", "bob"):
        await served.call("echo", requester=UpstreamCaller(Principal("issuer", name, "")))
    await served.call("notices", **options)
    assert not heard


async def test_changes_are_heard_outside_of_calls(served: Served) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    with served.subscribers.hearing(lambda *change: heard.append(change)):
        await served.call("change")
    assert heard == [("notifications/tools/list_changed", {})]
    await served.call("change")
    assert served.dropped("notification") == 1


async def test_what_a_server_asks_is_answered_at_once(factory: Factory) -> None:
    served = factory.make(roots=("file:///srv/data",))
    await served.open()
    methods = ["ping", "roots/list", "elicitation/create", "sampling/createMessage", "no/such"]
    said = await served.call("asks", {"methods": methods})
    assert said["ping"] == {}
    assert said["roots/list"] == {"roots": [{"uri": "file:///srv/data"}]}
    assert (await served.call("about"))["declared"] == {"roots": {}}
    assert {said[method]["code"] for method in methods[2:]} == {-32601}
    assert served.dropped("question") == 3


async def test_no_root_is_declared_by_default(served: Served) -> None:
    assert await served.call("asks", {"methods": ["roots/list"]}) == {"roots/list": {"roots": []}}
    assert (await served.call("about"))["declared"] == {}


async def test_a_caller_that_leaves_cancels_its_call_and_the_late_answer_is_dropped(served: Served) -> None:
    leaving = asyncio.create_task(served.call("slow", {"seconds": 0.3}))
    failure = await served.fails("slow", {"seconds": 0.4}, seconds=0.1)
    assert (failure.reason, failure.sent) == (Reason.TIMED_OUT, True)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert sorted((await served.call("about"))["cancelled"]) == [2, 3]
    await until(lambda: served.dropped("answer") == 2)


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc": "2.0", "id": ID, "result": NaN}\n',
        '{"jsonrpc": "2.0", "id": ID, "result": {"a": 1, "a": 2}}\n',
        '{"jsonrpc":"2.0","id":ID,"result":{"text":"\xff"}}\n',
        '{"result": {"text": "\xff"}, "jsonrpc": "2.0", "id": ID}\n',
        '{"jsonrpc": "2.0", "id": ID, "result": {}, "error": {}}\n',
        '{"jsonrpc": "2.0", "id": ID, "error": 5}\n',
        '{"jsonrpc": "2.0", "id": ID, "result": []}\n',
    ],
)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(served: Served, text: str) -> None:
    failure = await served.fails("written", {"text": text})
    assert (failure.reason, failure.sent) == (Reason.MALFORMED, True)
    assert await served.call("echo") == {}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"jsonrpc": "2.0", "id": "ID", "result": {"content": [{"text": "1"}]}}\n', "id_type"),
        ('{"jsonrpc": "2.0", "id": ID.0, "result": {"content": [{"text": "1"}]}}\n', "id_type"),
        ('[{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"text": "1"}]}}]\r\n', "batch"),
        ('{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"text": "1"}]}, "error": null}\n', "null_member"),
    ],
)
async def test_the_deviations_that_are_healed_over_http_are_healed_here(served: Served, text: str, kind: str) -> None:
    assert await served.call("written", {"text": text}) == 1
    labels = {"upstream": "stub", "kind": kind}
    assert served.registry.get_sample_value("gateway_upstream_healed_total", labels) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc": "2.0", "id": 999, "result": {}}\n',
        '{"jsonrpc": "2.0", "id": true, "error": {"code": 1, "message": "x"}}\n',
        '{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}}\n',
        '{"jsonrpc": "2.0", "id": 1, "result": {"the": "first request"}}\n',
    ],
)
async def test_an_answer_to_nobody_is_dropped(served: Served, text: str) -> None:
    answer = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"text": "1"}]}}\n'
    assert await served.call("written", {"text": text + answer}) == 1
    assert served.dropped("answer") == 1


async def test_the_first_of_two_answers_counts(served: Served) -> None:
    answer = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"text": "%d"}]}}\n'
    assert await served.call("written", {"text": answer % 1 + answer % 2}) == 1
    assert await served.call("echo") == {}
    assert served.dropped("answer") == 1


async def test_lines_that_are_not_messages_are_skipped_and_the_first_is_logged(
    factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    served = factory.make("noisy")
    await served.open()
    assert await served.call("noise") == "heard"
    assert served.dropped("noise") == 5
    (record,) = [each for each in caplog.records if "not messages" in each.message]
    assert record.__dict__["line"] == "Welcome!"


@pytest.mark.parametrize("place", ["first", "last"])
async def test_an_answer_over_the_limit_fails_its_call_alone(served: Served, place: str) -> None:
    other = asyncio.create_task(served.call("slow", {"seconds": 0.3}))
    failure = await served.fails("large", {"size": LIMIT, "id": place})
    assert (failure.reason, failure.sent) == (Reason.TOO_LARGE, True)
    assert "max_result_bytes" in failure.detail
    assert await other == {"seconds": 0.3}
    fits = {"name": "large", "arguments": {"size": LIMIT - 1000, "id": place}}
    assert len((await served.request("tools/call", fits))["content"][0]["text"]) == LIMIT - 1000


async def test_the_limit_of_a_request_counts_as_well(served: Served) -> None:
    failure = await served.fails("large", {"size": 2000}, max_bytes=2000)
    assert failure.reason is Reason.TOO_LARGE


async def test_a_large_line_that_may_answer_any_call_ends_the_program(served: Served) -> None:
    failure = await served.fails("large", {"size": LIMIT, "id": "hidden"})
    assert (failure.reason, failure.sent) == (Reason.CUT, True)
    assert "max_result_bytes" in failure.detail


async def test_a_line_without_an_end_ends_the_program_and_no_other(factory: Factory, served: Served) -> None:
    neighbour = factory.make()
    await neighbour.open()
    flooding = asyncio.create_task(served.fails("flood"))
    answers = [await neighbour.call("echo", {"number": number}) for number in range(50)]
    assert answers == [{"number": number} for number in range(50)]
    failure = await flooding
    assert (failure.reason, failure.sent) == (Reason.CUT, True)
    assert served.subscribers.ended.is_set()
    assert await neighbour.call("echo") == {}


async def test_half_an_answer_is_none(served: Served) -> None:
    other = asyncio.create_task(served.fails("hang"))
    failure = await served.fails("half")
    assert (failure.reason, failure.sent) == (Reason.CUT, True)
    assert "exit code 7" in failure.detail
    assert ((await other).reason, (await other).sent) == (Reason.CUT, True)
    with pytest.raises(LostSession) as lost:
        await served.call("echo")
    assert not lost.value.sent


async def test_a_signal_is_named(served: Served) -> None:
    assert "killed by SIGSEGV" in (await served.fails("die", {"signal": signal.SIGSEGV})).detail


async def test_what_a_program_writes_when_it_fails_to_start_is_shown(factory: Factory) -> None:
    served = factory.make("fails")
    with pytest.raises(UpstreamFailure) as failed:
        await served.open()
    assert (failed.value.reason, failed.value.sent) == (Reason.UNREACHABLE, False)
    assert failed.value.detail == (
        "its program has ended with exit code 2; it wrote: usage: stdio.py TOKEN / no token given"
    )


async def test_a_program_that_cannot_be_run_says_why(factory: Factory) -> None:
    telemetry = UpstreamMetrics(CollectorRegistry())
    missing = UpstreamProgram("stub", Program(["no-such-program"], {"PATH": "/bin"}), factory.children, telemetry)
    with pytest.raises(UpstreamFailure) as failed:
        await factory.make(program=missing).open()
    assert (failed.value.reason, failed.value.sent) == (Reason.UNREACHABLE, False)
    assert failed.value.detail.startswith("its program cannot be run: No such file or directory; no-such-program is in")


async def test_a_program_that_hangs_in_initialize_is_given_up(factory: Factory, served: Served) -> None:
    hanging = factory.make("hangs")
    with pytest.raises(UpstreamFailure) as failed:
        await hanging.open(seconds=0.3)
    assert (failed.value.reason, failed.value.sent) == (Reason.TIMED_OUT, False)
    assert await served.call("echo") == {}


async def test_an_introduction_has_a_limit_of_its_own(factory: Factory) -> None:
    with pytest.raises(UpstreamFailure) as failed:
        await factory.make("long-introduction", max_line_bytes=1_000_000).open()
    assert (failed.value.reason, failed.value.sent) == (Reason.TOO_LARGE, False)


@pytest.mark.parametrize("odd", ["twice", "early", "asks-first"])
async def test_messages_around_the_answer_to_initialize_change_nothing(factory: Factory, odd: str) -> None:
    served = factory.make(odd)
    await served.open()
    assert await served.call("echo", {"number": 1}) == {"number": 1}
    assert await served.call("echo", {"number": 2}) == {"number": 2}
    assert served.dropped("answer") == (odd != "asks-first")


async def test_a_line_without_an_end_takes_little_memory(factory: Factory) -> None:
    limit = 100 << 20
    served = factory.make(max_line_bytes=limit // SKIP_FACTOR)
    await served.open()
    before = resident_bytes()
    failure = await served.fails("flood", seconds=30)
    assert (failure.reason, failure.sent) == (Reason.CUT, True)
    assert resident_bytes() - before < limit // 2


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_the_time_of_a_call_includes_that_of_the_level_of_its_logs(factory: Factory) -> None:
    served = factory.make("slow-level")
    await served.open()
    async with asyncio.timeout(5):  # not 2.8 and 3 seconds
        failure = await served.fails("hang", log_level="info", seconds=3.0)
    assert (failure.reason, failure.sent) == (Reason.TIMED_OUT, True)


async def test_an_unknown_version_is_refused(factory: Factory) -> None:
    with pytest.raises(UpstreamFailure) as failed:
        await factory.make("unknown-version").open()
    assert (failed.value.reason, failed.value.sent) == (Reason.MALFORMED, False)


async def test_a_program_that_reads_nothing_gets_no_further_request(served: Served) -> None:
    await served.call("deaf")
    text = "x" * 200_000
    first = asyncio.create_task(served.fails("echo", {"text": text}, seconds=1))
    await asyncio.sleep(0)
    second = await served.fails("echo", {"text": text}, seconds=0.5)
    assert (second.reason, second.sent) == (Reason.TIMED_OUT, False)
    assert ((await first).reason, (await first).sent) == (Reason.TIMED_OUT, True)


async def test_a_program_that_reads_no_answers_is_ended(served: Served) -> None:
    failure = await served.fails("pester", {"requests": 20_000})
    assert (failure.reason, failure.sent) == (Reason.CUT, True)
    assert "does not read" in failure.detail


async def test_too_many_notices_end_their_call(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_NOTICES", 10)
    failure = await served.fails("notices", {"steps": 20}, wants_progress=True, on_notice=lambda *_: None)
    assert (failure.reason, failure.sent) == (Reason.TOO_LARGE, True)
    monkeypatch.undo()  # the last ones may come during the next call
    assert await served.call("echo") == {}


async def test_errors_are_logged_under_the_name_of_the_upstream_within_bounds(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await served.call("complain", {"lines": 3})
    await until(lambda: len(logged(caplog)) == 3)
    assert logged(caplog) == ["complaint 0", "complaint 1", "complaint 2"]
    await served.call("complain", {"lines": 1000, "size": 5000})
    assert await served.call("echo") == {}
    await until(lambda: served.program.last_lines[-1].startswith("complaint 999 "))  # it is read in pieces, with pauses
    await served.connection.aclose()
    assert len(logged(caplog)) < programs.LINES_AT_ONCE + 100
    assert max(map(len, logged(caplog))) == programs.LINE_CHARACTERS
    (rest,) = [each for each in caplog.records if each.message == "more output of an upstream"]
    assert rest.__dict__["lines"] + len(logged(caplog)) == 1003


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.__dict__ for each in caplog.records if each.message == "output of an upstream"]
    assert all(each["upstream"] == "stub" for each in found)
    return [str(each["line"]) for each in found]


async def test_a_program_that_ends_again_and_again_is_started_less_and_less_often(factory: Factory) -> None:
    now = [0.0]
    command = Program([sys.executable, "-S", str(SERVER), "fails"], {})
    registry = CollectorRegistry()
    program = UpstreamProgram("stub", command, factory.children, UpstreamMetrics(registry), lambda: now[0])
    pauses, shown = [], []
    for _ in range(9):
        served = factory.make(program=program)
        with pytest.raises(UpstreamFailure, match="exit code 2"):
            await served.open()
        with pytest.raises(UpstreamFailure, match=r"is started again in|exit code 2") as refused:
            await factory.make(program=program).open()
        pauses.append(refused.value.detail.rpartition(" in ")[2])
        shown.append(registry.get_sample_value("gateway_upstream_restart_pause_seconds", {"upstream": "stub"}))
        now[0] += 60
    assert pauses[1:] == [f"{seconds} seconds" for seconds in (4, 8, 16, 32, 60, 60, 60, 60)]
    assert shown[1:] == [4, 8, 16, 32, 60, 60, 60, 60]


ALICE, BOB = (UpstreamCaller(Principal("issuer", name, "")) for name in ("alice", "bob"))


@pytest.mark.parametrize("is_of_one_caller", [True, False])
async def test_a_crash_of_an_open_child_keeps_only_those_who_share_it_from_another_one(
    factory: Factory, is_of_one_caller: bool
) -> None:
    command, registry = Program([sys.executable, "-S", str(SERVER)], {}), CollectorRegistry()
    program = UpstreamProgram("stub", command, factory.children, UpstreamMetrics(registry), lambda: 0.0)

    async def opened(caller: UpstreamCaller) -> Served:
        served = factory.make(program=program, is_of_one_caller=is_of_one_caller)
        await served.connection.open(caller, seconds=SECONDS)
        return served

    for seconds in (1, 2):
        await (await opened(ALICE)).fails("die")
        assert registry.get_sample_value("gateway_upstream_restart_pause_seconds", {"upstream": "stub"}) == seconds
    with pytest.raises(UpstreamFailure, match="exit code 3; it is started again in 2 seconds"):
        await opened(ALICE)
    for other in (BOB, NOBODY):
        if is_of_one_caller:
            assert await (await opened(other)).call("echo") == {}
        else:
            with pytest.raises(UpstreamFailure, match="again in 2 seconds"):
                await opened(other)
    assert registry.get_sample_value("gateway_upstream_restart_pause_seconds", {"upstream": "stub"}) == 2


async def test_a_child_of_one_caller_that_ends_before_it_is_open_counts_for_everyone(factory: Factory) -> None:
    command = Program([sys.executable, "-S", str(SERVER), "fails"], {})
    program = UpstreamProgram("stub", command, factory.children, UpstreamMetrics(CollectorRegistry()), lambda: 0.0)
    for _ in range(2):
        with pytest.raises(UpstreamFailure, match="exit code 2"):
            await factory.make(program=program, is_of_one_caller=True).connection.open(ALICE, seconds=SECONDS)
    with pytest.raises(UpstreamFailure, match="again in 2 seconds"):
        await factory.make(program=program, is_of_one_caller=True).connection.open(BOB, seconds=SECONDS)


async def test_few_pauses_of_callers_are_kept_and_none_for_long(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(programs, "MAX_PAUSES", 10)
    command, registry = Program([sys.executable, "-S", str(SERVER)], {}), CollectorRegistry()
    program = UpstreamProgram("stub", command, factory.children, UpstreamMetrics(registry), lambda: now[0])
    for number in range(12):
        for _ in range(2):
            program.has_ended(0.0, "it has ended", (number,))
    await (await program.start((1,))).stop()
    for kept in (2, 11):
        with pytest.raises(UpstreamFailure, match="again in 2 seconds"):
            await program.start((kept,))
    for _ in range(9):
        program.has_ended(0.0, "it has ended", (11,))
    now[0] = 2 * programs.LONGEST_PAUSE_SECONDS + 1
    program.has_ended(0.0, "it has ended", ("another",))
    program.has_ended(0.0, "it has ended", (11,))
    assert registry.get_sample_value("gateway_upstream_restart_pause_seconds", {"upstream": "stub"}) == 1


async def test_closing_ends_the_program(factory: Factory) -> None:
    served = factory.make()
    await served.open()
    pid = (await served.call("about"))["pid"]
    hanging = asyncio.create_task(served.fails("hang"))
    await asyncio.sleep(0)
    await served.connection.aclose()
    assert (await hanging).reason is Reason.CUT
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_program_has_the_variables_and_the_folder_of_its_entry(factory: Factory, tmp_path: Path) -> None:
    served = factory.make(env={"TOKEN": "t"}, cwd=str(tmp_path))
    await served.open()
    about = await served.call("about")
    assert about["cwd"] == str(tmp_path)
    assert about["env"]["TOKEN"] == "t"
    assert not {name for name in about["env"] if name.startswith("GATEWAY_")}


@pytest.mark.parametrize(
    ("how", "kind"),
    [({"code": 0}, "code_zero"), ({}, "code_nonzero"), ({"signal": signal.SIGKILL}, "signal"), (None, "other")],
)
async def test_the_end_of_a_program_is_counted_by_kind(
    served: Served, how: Mapping[str, int] | None, kind: str
) -> None:
    if how is None:
        await served.fails("flood")
    else:
        await served.fails("die", how)
    labels = {"upstream": "stub", "kind": kind}
    assert served.registry.get_sample_value("gateway_upstream_program_exits_total", labels) == 1


async def test_a_program_that_is_stopped_has_not_ended_by_itself(served: Served) -> None:
    await served.connection.aclose()
    assert "gateway_upstream_program_exits_total{" not in generate_latest(served.registry).decode()


async def test_lines_that_the_log_has_no_room_for_are_counted(served: Served) -> None:
    await served.call("complain", {"lines": programs.LINES_AT_ONCE + 50})
    await until(lambda: served.dropped("stderr") > 0)
    await served.connection.aclose()
    assert 45 <= served.dropped("stderr") <= 50


@pytest.mark.parametrize("line", [b"\xff\n", b"\n", "\u200b\n".encode(), b" \n", 999 * b"z" + b"\n", b"no end "])
async def test_few_lines_of_a_standard_error_are_looked_at_before_others_have_their_turn(
    factory: Factory, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = most = 0

    def count(text: str) -> str:
        nonlocal looked_at
        looked_at += 1
        return clean_line(text)

    monkeypatch.setattr(programs, "clean_line", count)
    program = UpstreamProgram("stub", Program(["stub"], {}), factory.children, UpstreamMetrics(CollectorRegistry()))
    errors = asyncio.StreamReader()
    errors.feed_data(line * (10 * programs.PIECE_BYTES // len(line)) + b"\n1\n2\n3\n4\n5")
    errors.feed_eof()
    reading = asyncio.create_task(program.log_errors(errors))
    turns = 0
    while not reading.done():
        before, size = looked_at, len(errors._buffer)  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        most, turns = max(most, looked_at - before), turns + (len(errors._buffer) < size)  # type: ignore[attr-defined]
    assert most <= programs.LINES_AT_ONCE + programs.LAST_LINES
    assert turns >= 10
    assert list(program.last_lines) == ["1", "2", "3", "4", "5"]


async def test_a_program_that_ends_before_anything_is_written_says_how_it_ended(factory: Factory) -> None:
    command = Program(["/bin/sh", "-c", "echo out of luck >&2; kill -9 $$"], {})
    program = UpstreamProgram("stub", command, factory.children, UpstreamMetrics(CollectorRegistry()))
    served = factory.make(program=program)
    start, subscribers = program.start, served.subscribers

    async def start_and_see_the_end(owner: programs.Owner = ()) -> ChildProcess:
        child = await start(owner)
        await child.exited.wait()
        subscribers.ended.set()
        return child

    program.start = start_and_see_the_end  # type: ignore[method-assign]
    with pytest.raises(UpstreamFailure) as failed:
        await served.open()
    assert failed.value.reason is Reason.UNREACHABLE
    assert failed.value.detail == "its program was killed by SIGKILL; it wrote: out of luck"


async def test_a_large_answer_counts_until_nobody_uses_it(factory: Factory) -> None:
    counted = readings_of_answers()
    served = factory.make(readings=counted)
    await served.open()
    kept: list[Callable[[], None]] = []
    large = {"name": "large", "arguments": {"size": 90_000}}
    await served.request("tools/call", large, keep=kept.append)
    assert counted.memory > 90_000
    for release in kept:
        release()
    assert counted.memory == 0
    await served.request("tools/call", large)
    assert counted.memory == 0, "nobody says when it is not used any more"
    failure = await served.fails("large", {"size": 90_000}, keep=kept.append, max_bytes=80_000)
    assert failure.reason is Reason.TOO_LARGE
    kept[-1]()
    assert counted.memory == 0


async def test_a_large_answer_that_comes_too_late_or_is_an_announcement_does_not_count(factory: Factory) -> None:
    counted = readings_of_answers()
    served = factory.make(readings=counted)
    await served.open()
    text = "x" * 90_000
    late = '{"jsonrpc":"2.0","id":99,"result":{"a":"' + text + '"}}\n'
    announced = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"a":"' + text + '"}}\n'
    answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"text":"1"}]}}\n'
    await served.call("written", {"text": late + announced + answer})
    assert served.dropped("answer") == 1
    assert counted.memory == 0


async def test_an_answer_that_takes_too_much_with_others_fails_its_call_alone(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "MAX_BYTES_OF_UPSTREAM", 85_000)
    served = factory.make()
    await served.open()
    failure = await served.fails("large", {"size": 90_000})
    assert (failure.reason, failure.sent) == (Reason.TOO_LARGE, True)
    assert "too much memory together" in failure.detail
    assert await served.call("echo") == {}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"jsonrpc":"2.0","method":"notifications/progress","params":{"a":"LONG', "progress"),
        ('{"method":"notifications/message","params":{"a":"LONG"},"jsonrpc":"2.0"}', "log"),
        ('{"method":"notifications/other","params":{"a":"LONG"},"jsonrpc":"2.0","id":ID}', "notification"),
        ('{"jsonrpc":"2.0","id":99,"result":{"a":"LONG"}}', "answer"),
        ('{"jsonrpc": "2.0", "id": 99, "error": {"a": "LONG"}}', "answer"),
    ],
)
async def test_a_large_line_that_answers_no_waiting_call_is_dropped_without_being_decoded(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, line: str, what: str
) -> None:
    decoded = decoded_sizes(monkeypatch)
    served = factory.make(max_line_bytes=2**20)
    await served.open()
    answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"1"}]}}'
    text = line.replace("LONG", "x" * (hearing.MAX_NOTICE_BYTES + 20_000)) + "\n" + answer + "\n"
    assert await served.call("written", {"text": text}) == 1
    assert served.dropped(what) == 1
    assert max(decoded) < 1000


@pytest.mark.parametrize(
    "line", ['{"result":{"a":"LONG"},"id":99,"jsonrpc":"2.0"}', '{"params":{"a":"LONG"},"method":"n"}']
)
async def test_no_large_line_is_decoded_while_no_call_waits(
    factory: Factory, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    decoded = decoded_sizes(monkeypatch)
    served = factory.make(max_line_bytes=2**20)
    await served.open()
    answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"1"}]}}'
    text = answer + "\n" + line.replace("LONG", "x" * (hearing.MAX_NOTICE_BYTES + 20_000)) + "\n"
    assert await served.call("written", {"text": text}) == 1
    await until(lambda: served.dropped("answer") == 1)
    assert await served.call("echo") == {}
    assert max(decoded) < 1000


async def test_an_answer_to_initialize_over_its_limit_is_not_decoded(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = decoded_sizes(monkeypatch)
    with pytest.raises(UpstreamFailure, match="the answer has more than 262144 bytes"):
        await factory.make("long-introduction", max_line_bytes=2**20).open()
    assert decoded == []


def decoded_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how large the messages are that are decoded from now on."""
    sizes, decode = list[int](), read_numbered

    def decoding(body: bytes, *more: Any) -> tuple[int | None, Message]:
        sizes.append(len(body))
        return decode(body, *more)

    monkeypatch.setattr("gateway.upstreams.client.stdio.read_numbered", decoding)
    return sizes


@pytest.mark.parametrize("line", ['{"jsonrpc":"2.0","id":ID,"result":{"a":"', '{"result":{"a":"'])
async def test_the_line_that_a_program_is_writing_counts_until_it_ends(factory: Factory, line: str) -> None:
    counted = readings_of_answers()
    served = factory.make(readings=counted)
    await served.open()
    waiting = asyncio.create_task(served.fails("written", {"text": line + "x" * 90_000}))
    await until(lambda: counted.memory > 90_000)
    await served.connection.aclose()
    assert (await waiting).reason is Reason.CUT
    assert counted.memory == 0


async def test_an_unfinished_line_gives_way_and_its_call_alone_fails(
    factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = readings_of_answers()
    served = factory.make(readings=counted)
    await served.open()
    begin = '{"jsonrpc":"2.0","id":ID,"result":{"a":"' + "x" * 90_000
    waiting = asyncio.create_task(served.fails("written", {"text": begin}))
    await until(lambda: counted.memory > 90_000)
    monkeypatch.setattr(readings, "MAX_BYTES_OF_UPSTREAM", 99_000)
    count, release = counted.hold("stub", None, lambda: None)
    count(9_000)
    assert counted.memory == 9_000
    release()
    noise = asyncio.create_task(served.call("noise", {"text": '"}}\n'}))
    failure = await waiting
    assert (failure.reason, failure.detail) == (Reason.TOO_LARGE, counted.problem)
    assert await noise == "heard"
    assert counted.memory == 0
