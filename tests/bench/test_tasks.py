"""The benchmark of tasks distinguishes right results from wrong ones, and draws the right conclusions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.clients import Answer, WrongAnswer
from bench.options import Options
from bench.report import Section
from bench.task_load import Task, read_created, read_status, text_of
from bench.tasks import FASTMCP, OURS, STEPS, Race, Step, summary

TASK = Task(7, "t_1")


def answer(result: dict[str, Any], *, number: int = 7, status: int = 200) -> Answer:
    return Answer(status, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())


def completed(text: str, **more: Any) -> Answer:
    return answer(
        {"taskId": "t_1", "status": "completed", "result": {"content": [{"type": "text", "text": text}], **more}}
    )


def test_a_new_task_is_known_by_its_id() -> None:
    assert read_created(answer({"resultType": "task", "taskId": "t_1", "status": "working"}), 7) == "t_1"


def test_a_call_that_did_not_become_a_task_is_wrong() -> None:
    with pytest.raises(WrongAnswer, match="expected a new task for request 7"):
        read_created(answer({"resultType": "complete", "content": []}), 7)


def test_a_task_is_working_waits_or_has_completed_with_its_own_text() -> None:
    assert read_status(answer({"taskId": "t_1", "status": "working"}), TASK) == "working"
    waiting = {"taskId": "t_1", "status": "input_required", "inputRequests": {"name": {}}}
    assert read_status(answer(waiting), TASK) == "input_required"
    assert read_status(completed(text_of(7)), TASK) == "completed"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(completed(text_of(8)), id="another task's text"),
        pytest.param(completed(text_of(7), isError=True), id="an error of the tool"),
        pytest.param(answer({"taskId": "t_1", "status": "failed"}), id="a failed task"),
        pytest.param(answer({"taskId": "t_2", "status": "working"}), id="another task"),
        pytest.param(answer({"taskId": "t_1", "status": "working"}, number=8), id="another request's answer"),
        pytest.param(answer({"taskId": "t_1", "status": "working"}, status=503), id="an error status"),
        pytest.param(Answer(200, b'{"jsonrpc":"2.0","id":7,"error":{"code":-32602}}'), id="an error"),
    ],
)
def test_everything_else_is_wrong(wrong: Answer) -> None:
    with pytest.raises(WrongAnswer):
        read_status(wrong, TASK)


def raced(server: str, rate: float, *, cpu_us: float, busy: float = 1.0) -> Race:
    return Race(server, 0, 100, rate, cpu_us, 50.0, busy, 1.0)


def report(*races: Race, growth: float = 1.0) -> Section:
    steps = [
        Step(store, step, 0, 100.0 * factor, 20.0 * factor, 150.0)
        for step in STEPS
        for store, factor in (("few", 1.0), ("many", growth))
    ]
    return summary(Options(rounds=1), races, steps, {"queued": 1900.0, "waiting": 2100.0, "done": 1700.0})


def verdicts(section: Section) -> list[bool | None]:
    return [verdict.met for verdict in section.verdicts]


def test_eight_times_fastmcp_by_the_clock_passes() -> None:
    passed = report(raced(FASTMCP, 100, cpu_us=9_000), raced(OURS, 800, cpu_us=1_200))
    assert verdicts(passed) == [True, True]
    assert passed.verdicts[0].measured == "8.00 × by the clock, 7.50 × by CPU time"


def test_less_than_eight_times_fails() -> None:
    assert verdicts(report(raced(FASTMCP, 100, cpu_us=9_000), raced(OURS, 799, cpu_us=1_000))) == [False, True]


def test_where_a_server_did_not_get_its_core_cpu_time_decides_and_the_report_says_so() -> None:
    disturbed = report(raced(FASTMCP, 100, cpu_us=9_000), raced(OURS, 400, cpu_us=1_000, busy=0.5))
    assert verdicts(disturbed) == [True, True]
    assert "less than 90% of its core, so CPU time decides" in disturbed.verdicts[0].measured


def test_a_step_that_grows_with_what_is_stored_fails() -> None:
    races = (raced(FASTMCP, 100, cpu_us=9_000), raced(OURS, 800, cpu_us=1_000))
    assert verdicts(report(*races, growth=1.25)) == [True, True]
    assert verdicts(report(*races, growth=1.3)) == [True, False]


def test_memory_is_shown_for_each_phase() -> None:
    section = report(raced(FASTMCP, 100, cpu_us=9_000), raced(OURS, 800, cpu_us=1_000))
    assert "| queued | 1.9 |" in section.markdown
    assert section.document["bytes_per_task"]["done"] == 1700.0
