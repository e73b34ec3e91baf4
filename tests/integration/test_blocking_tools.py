"""The log of a replica names what blocks its event loop, a tool or the gateway itself, once each time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.blocking_tools import GATES_VARIABLE
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, headers_of, post_bytes, request

pytestmark = pytest.mark.slow

BLOCKED = "a tool blocks the event loop"
BLOCKED_BY_US = "the gateway blocks the event loop"


class Watched:
    """A replica, and calls that wait at gates."""

    def __init__(self, replica: Replica, gates: Path, threads: ThreadPoolExecutor) -> None:
        self.replica, self._gates, self._threads = replica, gates, threads

    def ask(self, method: str, name: str, gate: str) -> Future[Answer]:
        message = request(method, {"name": name, "arguments": {"gate": gate}})
        headers = {**headers_of(message), "mcp-name": name}
        return self._threads.submit(post_bytes, self.replica, msgspec.json.encode(message), headers)

    def call(self, name: str, gate: str) -> Future[Answer]:
        return self.ask("tools/call", name, gate)

    def open(self, gate: str) -> None:
        (self._gates / gate).touch()

    def wait_until_it_runs_again(self) -> None:
        told = (BLOCKED, "event loop runs again")

        def last_said() -> str:
            return [str(line["message"]) for line in self.replica.log_lines() if line.get("message") in told][-1]

        wait_until(lambda: last_said() != BLOCKED, "the end of it")

    def wait_accused(self, times: int = 1, message: str = BLOCKED) -> None:
        wait_until(lambda: len(self.replica.logged(message)) == times, "an accusation")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    environ = {"GATEWAY_TOOLS": "tests.integration.blocking_tools", GATES_VARIABLE: str(tmp_path)}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet, ThreadPoolExecutor(4) as threads:
        watched = Watched(fleet["r1"], tmp_path, threads)
        yield watched
        watched.open("at the end")


def test_it_is_named_with_its_line_once_for_each_time(watched: Watched) -> None:
    for times, gate in enumerate(("first", "second"), 1):
        answer = watched.call("block", gate)
        watched.wait_accused(times)
        watched.open(gate)
        assert answer.result().text == gate
        watched.wait_until_it_runs_again()
    for record in watched.replica.logged(BLOCKED):
        assert record["tool"] == "block"
        assert "wait_at" in record["where"]
        assert "blocking_tools.py" in record["where"]
    ends = watched.replica.logged("event loop runs again")
    legs = [line["flow"] for line in watched.replica.wait_for_log(audit="leg", count=2)]
    assert [record["flow"] for record in watched.replica.logged(BLOCKED)] == [end["flow"] for end in ends] == legs
    assert len(watched.replica.logged(BLOCKED)) == 2


def test_of_many_that_run_only_the_one_that_blocks_is_named(watched: Watched) -> None:
    waiting = [watched.call("wait", "at the end"), watched.call("wait_in_a_thread", "at the end")]
    wait_until(lambda: watched.replica.metric("gateway_legs_in_flight") == 2, "two tools that wait")
    blocking = watched.call("block", "gate")
    watched.wait_accused()
    watched.open("gate")
    watched.open("at the end")
    assert [record["tool"] for record in watched.replica.logged(BLOCKED)] == ["block"]
    assert {answer.result().text for answer in (*waiting, blocking)} == {"gate", "at the end"}


def test_so_is_a_tool_whose_arguments_take_long_to_check(watched: Watched) -> None:
    answer = watched.call("check", "gate")
    watched.wait_accused()
    assert watched.replica.wait_for_log(BLOCKED)[0]["tool"] == "check"
    watched.open("gate")
    assert answer.result().text == "gate"


def test_and_a_prompt(watched: Watched) -> None:
    answer = watched.ask("prompts/get", "recite", "gate")
    watched.wait_accused()
    assert watched.replica.wait_for_log(BLOCKED)[0]["tool"] == "recite"
    watched.open("gate")
    assert answer.result().status == 200


def test_the_gateway_is_named_where_its_own_work_for_a_tool_takes_long(watched: Watched) -> None:
    answer = watched.call("ask_much", "gate")
    watched.wait_accused(message=BLOCKED_BY_US)
    watched.open("gate")
    assert answer.result().text == "gate"
    wait_until(lambda: bool(watched.replica.logged("event loop runs again")), "the end of it")
    (record,) = watched.replica.wait_for_log(BLOCKED_BY_US)
    assert record["tool"] == "ask_much"
    assert "blocking_tools.py" not in record["where"].partition(" < ")[0]
    (leg,) = watched.replica.wait_for_log(audit="leg")
    assert record["flow"] == leg["flow"] == watched.replica.wait_for_log("event loop runs again")[0]["flow"]
