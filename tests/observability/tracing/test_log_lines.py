"""Each event that is logged while a leg runs has the id of its call, and is one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Any

import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.observability.tracing.calling import Calling
from tests.observability.tracing.conftest import TOOLS
from tests.wires.draft.deployment import Deployment

pytestmark = pytest.mark.slow

FLOW = re.compile(r'"?\bflow"?[=:] ?"?([0-9a-f]{32})\b')
LIMITED = {**TOOLS, "GATEWAY_LEG_SECONDS": "3"}


@pytest.fixture(params=["text", "json"], scope="module")
def replica(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """A replica that logs in one of the formats. A test that ends it must restart it."""
    settings = {**LIMITED, "GATEWAY_LOG_FORMAT": request.param}
    with Fleet(tmp_path_factory.mktemp("logs"), settings, names=["r1"]) as fleet:
        yield fleet["r1"]


def lines(replica: Replica, *words: str) -> list[str]:
    return [line for line in replica.log_text().splitlines() if all(word in line for word in words)]


def flows(replica: Replica, *words: str) -> list[str]:
    """The ids of calls of the lines with these words, in order; one that has none fails the test."""
    found = [FLOW.search(line) for line in lines(replica, *words)]
    assert all(found), lines(replica, *words)
    return [match[1] for match in found if match is not None]


def wait_for(replica: Replica, *words: str) -> None:
    wait_until(lambda: bool(lines(replica, *words)), f"a line with {words}")


def legs_of(replica: Replica, tool: str) -> list[str]:
    """The ids of the calls of a tool, one for each of their legs, as the audit log has them so far."""
    told = [line for line in lines(replica, "audit") if re.search(rf'\btarget(=|":"){tool}\b', line)]
    return [match[1] for match in map(FLOW.search, told) if match is not None]


def flow_of(replica: Replica, tool: str, **arguments: Any) -> str:
    """Call a tool and return the id of the call, as the audit log has it."""
    before = len(legs_of(replica, tool))
    Calling([replica], tasks=False).call(tool, **arguments)
    wait_until(lambda: len(legs_of(replica, tool)) > before, f"the leg of {tool} in the audit log")
    return legs_of(replica, tool)[-1]


@pytest.mark.parametrize(
    ("tool", "arguments", "messages"),
    [
        ("travel", {"purse": "full"}, ["travelling", "booked in a step"]),
        ("fail", {"how": "crash"}, ["about to fail", "tool failed"]),
        ("sleep", {"seconds": 60}, ["tool timed out"]),
        ("block", {"seconds": 2.5}, ["a tool blocks the event loop", "event loop runs again"]),
    ],
)
def test_what_a_leg_and_its_threads_and_the_watchdog_log_names_the_call(
    replica: Replica, tool: str, arguments: dict[str, Any], messages: list[str]
) -> None:
    flow = flow_of(replica, tool, **arguments)
    for message in messages:
        wait_for(replica, message, flow)


def test_a_leg_that_is_handed_on_names_its_call_too(replica: Replica) -> None:
    with ThreadPoolExecutor(1) as threads:
        call = {"name": "compute", "arguments": {}}
        answer = threads.submit(Calling([replica], tasks=False).post, "tools/call", call)
        wait_for(replica, "computing")
        assert replica.terminate() == 0
        assert "requestState" in answer.result()["result"]
    assert flows(replica, "computing") == legs_of(replica, "compute")
    assert "shed" in lines(replica, "audit", "compute")[0]
    replica.start()
    replica.wait_ready()


def test_what_belongs_to_no_call_names_none(replica: Replica) -> None:
    told = lines(replica, "serving")
    assert told
    assert not any(FLOW.search(line) for line in told)


def test_a_failure_is_one_line_or_one_line_and_what_is_indented_below_it(replica: Replica) -> None:
    flow = flow_of(replica, "fail", how="crash")
    wait_for(replica, "tool failed", flow)
    texts = replica.log_text().splitlines()
    (at,) = [number for number, line in enumerate(texts) if "tool failed" in line and flow in line]
    if texts[at].startswith("{"):
        assert "of secret cause" in texts[at]
        return
    below = texts[at + 1 :]
    trace = takewhile(lambda line: line.startswith("    "), below)
    assert "ValueError: of secret cause" in "".join(trace)
    assert not any(line.startswith("2026-01-01") for line in texts)


def test_what_a_worker_logs_of_a_leg_names_the_call(fleet: Deployment) -> None:
    Calling(fleet.replicas).call("fail_later")
    worker = fleet.worker("w1")
    (failed,) = worker.wait_for_log("tool failed", tool="fail_later")
    (ended,) = worker.wait_for_log(target="fail_later")
    assert failed["flow"] == ended["flow"]
    assert worker.wait_for_log("booked in a step", flow=ended["flow"])
    assert not any("flow" in line for line in worker.logged("working"))
