"""How a replica drains: real processes, stopped by signals."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from gateway.http.draining_server import REPEATED_SIGNAL_SECONDS
from loadtest.cluster import Cluster, Replica, wait_until
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, RawConnection, call, head_of, tool_call
from tests.integration.streams import Stream, calling

TOOLS = {"GATEWAY_TOOLS": "tests.integration.tools"}
LONG = "3600"


class Held:
    """A call that is in flight until `release`."""

    def __init__(self, replica: Replica, directory: Path, pool: ThreadPoolExecutor) -> None:
        self._started, self._release = directory / "started", directory / "release"
        arguments = {"started": str(self._started), "release": str(self._release)}
        self.answer: Future[Answer] = pool.submit(call, replica, "hold", arguments)
        wait_until(self._started.exists, "the call to start")

    def release(self) -> None:
        self._release.touch()

    def check_cut_off(self, replica: Replica) -> None:
        check_cut_off(self.answer, replica)


def check_cut_off(future: Future[Answer], replica: Replica) -> None:
    """The client got an answer, if there was still time for it, and the log has no traceback."""
    if future.exception() is None:
        assert future.result().error == (500, -32603)
        assert future.result().message["id"] == 1
        assert future.result().headers["x-gateway-replica"] == replica.name
    else:
        assert isinstance(future.exception(), httpx.TransportError)
    assert not [line for line in replica.log_lines() if "exception" in line or line.get("level") == "error"]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def signal_twice(replica: Replica, number: signal.Signals) -> int:
    """Send a signal twice, some time apart, and return the exit code."""
    replica.signal(number)
    wait_until(lambda: bool(replica.logged("leaving")), "the replica to leave")
    heard = time.monotonic()
    # Sooner, the second signal would count as an echo of the first.
    wait_until(lambda: time.monotonic() > heard + REPEATED_SIGNAL_SECONDS, "the clock")
    assert replica.alive
    replica.signal(number)
    return replica.wait()


def check_last_line(replica: Replica, exit_code: int) -> None:
    """Check that the last thing a replica says is that it has stopped, how, and how long that took."""
    last = replica.log_lines()[-1]
    assert (last["message"], last["exit_code"]) == ("stopped", exit_code), last
    assert 0 <= last["seconds"] <= last["uptime_seconds"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_leaving_replica_finishes_what_is_in_flight_and_exits_0(
    tmp_path: Path, pool: ThreadPoolExecutor, number: signal.Signals
) -> None:
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}, names=("r1",)) as fleet:
        replica = fleet["r1"]
        held = Held(replica, tmp_path, pool)
        replica.signal(number)
        wait_until(lambda: bool(replica.logged("leaving", signal=number.name)), "the replica to leave")
        assert replica.alive
        held.release()
        assert held.answer.result().text == "released"
        assert replica.wait() == 0
        assert not [line for line in replica.log_lines() if line.get("level") in {"warning", "error"}]
        check_last_line(replica, 0)


def test_an_idle_connection_does_not_keep_a_leaving_replica(tmp_path: Path) -> None:
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}, names=("r1",)) as fleet:
        replica = fleet["r1"]
        with httpx.Client(trust_env=False, verify=False) as client, RawConnection(replica):
            assert client.get(replica.url.replace("mcp", "healthz")).status_code == 200
            assert replica.terminate() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once_with_1(
    tmp_path: Path, pool: ThreadPoolExecutor, number: signal.Signals
) -> None:
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}, names=("r1",)) as fleet:
        held = Held(fleet["r1"], tmp_path, pool)
        assert signal_twice(fleet["r1"], number) == 1
        held.check_cut_off(fleet["r1"])
        assert fleet["r1"].wait_for_log("leaving at once")
        check_last_line(fleet["r1"], 1)


def test_when_the_drain_time_is_over_the_rest_is_cut_off_with_1(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": "0.1"}, names=("r1",)) as fleet:
        held = Held(fleet["r1"], tmp_path, pool)
        assert fleet["r1"].terminate() == 1
        held.check_cut_off(fleet["r1"])
        (record,) = fleet["r1"].wait_for_log("drain time is over; work in flight is cut off")
        assert record["requests"] == 1
        check_last_line(fleet["r1"], 1)


def test_an_open_stream_gets_an_error_under_its_id_before_it_is_cut_off(tmp_path: Path) -> None:
    tools = {"GATEWAY_TOOLS": "tests.integration.stream_tools", "GATEWAY_DRAIN_SECONDS": "0.1"}
    with Fleet(tmp_path, tools, names=("r1",)) as fleet:
        with Stream(fleet["r1"], calling("work", {"release": "/never"}, token="t", id_="mine")) as stream:
            assert stream.next()["method"] == "notifications/progress"
            assert fleet["r1"].terminate() == 1
            *_, last = stream.rest()
        assert (last["id"], last["error"]["code"]) == ("mine", -32603)
        assert not [line for line in fleet["r1"].log_lines() if "exception" in line or line.get("level") == "error"]


def test_a_client_that_reads_nothing_does_not_keep_a_replica_whose_time_is_over(tmp_path: Path) -> None:
    message = tool_call("echo", {"text": "x" * 900_000})
    body = json.dumps(message).encode()
    with (
        Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": "0.1"}, names=("r1",)) as fleet,
        RawConnection(fleet["r1"]) as client,
    ):
        client.socket.settimeout(1)
        with contextlib.suppress(TimeoutError):  # the replica reads no more, as nobody reads its answers
            while True:
                client.head([*head_of(message), ("Content-Length", str(len(body)))])
                client.socket.sendall(body)
        assert fleet["r1"].terminate() == 1


def test_a_thread_that_nothing_can_stop_does_not_outlive_a_second_signal(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    started = tmp_path / "started"
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}, names=("r1",)) as fleet:
        answer = pool.submit(call, fleet["r1"], "linger_in_step", {"started": str(started)})
        wait_until(started.exists, "the step to start")
        assert signal_twice(fleet["r1"], signal.SIGTERM) == 1
        check_cut_off(answer, fleet["r1"])
        assert fleet["r1"].wait_for_log("blocking functions of tools are left behind", threads=1)
        check_last_line(fleet["r1"], 1)


def test_a_thread_whose_call_has_ended_does_not_keep_a_leaving_replica(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_LEG_SECONDS": "1"}, names=("r1",)) as fleet:
        assert "did not finish within 1 seconds" in call(fleet["r1"], "linger_in_step", {"started": str(started)}).text
        assert started.exists()
        assert fleet["r1"].terminate() == 0


def test_the_same_signal_twice_in_a_row_counts_once(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    """A supervisor may signal a process and then its whole group."""
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}, names=("r1",)) as fleet:
        held = Held(fleet["r1"], tmp_path, pool)
        fleet["r1"].signal(signal.SIGTERM)
        fleet["r1"].signal(signal.SIGINT)
        wait_until(lambda: bool(fleet["r1"].logged("leaving")), "the replica to leave")
        held.release()
        assert held.answer.result().text == "released"
        assert fleet["r1"].wait() == 0


def readiness(replica: Replica) -> int:
    return httpx.get(replica.url.replace("mcp", "readyz"), trust_env=False, verify=False).status_code


def test_a_replica_that_gets_a_signal_logs_it_and_serves_on_for_the_notice(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    environ = {**TOOLS, "GATEWAY_DRAIN_NOTICE_SECONDS": LONG}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet, httpx.Client(trust_env=False, verify=False) as client:
        replica = fleet["r1"]
        assert readiness(replica) == 200
        assert "connection" not in call(replica, "echo", {"text": "hello"}).headers
        replica.signal(signal.SIGTERM)
        wait_until(lambda: readiness(replica) == 503, "the replica to say that it leaves")
        assert client.get(replica.url.replace("mcp", "healthz")).status_code == 200
        answer = call(replica, "echo", {"text": "hello"})
        assert (answer.text, answer.headers["connection"]) == ("hello", "close")
        assert replica.metric("gateway_draining") == 1
        assert signal_twice(replica, signal.SIGTERM) == 1


def test_after_the_notice_it_listens_no_more(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    environ = {**TOOLS, "GATEWAY_DRAIN_NOTICE_SECONDS": "0.2", "GATEWAY_DRAIN_SECONDS": LONG}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        replica = fleet["r1"]
        held = Held(replica, tmp_path, pool)
        replica.signal(signal.SIGTERM)
        wait_until(lambda: not is_accepted(replica), "the replica to stop listening")
        assert replica.alive
        held.release()
        assert held.answer.result().text == "released"
        assert replica.wait() == 0


def is_accepted(replica: Replica) -> bool:
    """Tell whether the replica answers a new connection: the test keeps its socket open, so nobody is refused."""
    try:
        return (
            httpx.get(replica.url.replace("mcp", "healthz"), trust_env=False, verify=False, timeout=1).status_code
            == 200
        )
    except httpx.TransportError:
        return False


def test_a_leaving_replica_hands_a_call_on_at_its_checkpoint(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}) as fleet:
        started, release = tmp_path / "started", tmp_path / "release"
        arguments = {"started": str(started), "release": str(release)}
        answer = pool.submit(call, fleet["r1"], "hold_at_checkpoints", arguments)
        wait_until(started.exists, "the call to start")
        assert fleet["r1"].terminate() == 0
        shed = answer.result().result
        assert set(shed) == {"resultType", "requestState", "_meta"}
        release.touch()
        resumed = call(fleet["r2"], "hold_at_checkpoints", arguments, requestState=shed["requestState"])
        assert resumed.text == "released in leg 2"
        assert fleet["r2"].metric("gateway_legs_total", outcome="completed") == 1


def test_a_shed_carries_empty_requests_for_clients_that_need_them(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    environ = {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG, "GATEWAY_SHED_INPUT_REQUESTS": "on"}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        started, release = tmp_path / "started", tmp_path / "release"
        arguments = {"started": str(started), "release": str(release)}
        answer = pool.submit(call, fleet["r1"], "hold_at_checkpoints", arguments)
        wait_until(started.exists, "the call to start")
        assert fleet["r1"].terminate() == 0
        assert answer.result().result["inputRequests"] == {}


def test_a_call_whose_state_is_too_large_to_hand_on_is_finished_where_it_is(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    environ = {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG, "GATEWAY_STATE_MAX_BYTES": "1024"}
    with Fleet(tmp_path, environ, names=("r1",)) as fleet:
        started, release = tmp_path / "started", tmp_path / "release"
        arguments = {"started": str(started), "release": str(release), "ballast": "x" * 2000}
        answer = pool.submit(call, fleet["r1"], "hold_at_checkpoints", arguments)
        wait_until(started.exists, "the call to start")
        fleet["r1"].signal(signal.SIGTERM)
        wait_until(lambda: len(started.read_text()) == 2, "the call to begin again")
        release.touch()
        assert answer.result().text == "released in leg 2"
        assert fleet["r1"].wait() == 0


def test_a_client_that_is_still_sending_keeps_nobody_out(tmp_path: Path) -> None:
    message = tool_call("echo", {"text": "late"})
    body = json.dumps(message).encode()
    head = [*head_of(message), ("Content-Length", str(len(body))), ("Expect", "100-continue")]
    settings = {**TOOLS, "GATEWAY_MAX_INFLIGHT": "1"}
    with Fleet(tmp_path, settings, names=("r1",)) as fleet, RawConnection(fleet["r1"]) as slow:
        slow.head(head)
        assert slow.socket.recv(100).startswith(b"HTTP/1.1 100 ")  # it is waited for
        assert call(fleet["r1"], "echo", {"text": "hello"}).text == "hello"
        slow.socket.sendall(body)
        assert slow.answer().text == "late"


def test_a_client_that_has_just_connected_is_answered_by_a_replica_that_leaves(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """A proxy without health checks could not tell whether a request ran if the connection closed without an answer."""
    with Cluster(tmp_path, replicas=1, environ={**TOOLS, "GATEWAY_DRAIN_NOTICE_SECONDS": "0"}) as cluster:
        replica = cluster["r1"]
        held = Held(replica, tmp_path, pool)
        message = tool_call("echo", {"text": "hello"})
        with RawConnection(replica) as connected, RawConnection(replica) as silent:
            replica.signal(signal.SIGTERM)
            wait_until(lambda: call(replica, "echo", {"text": "hello"}).status == 503, "the replica to leave")
            body = msgspec.json.encode(message)
            connected.head([*head_of(message), ("Content-Length", str(len(body)))])
            connected.socket.sendall(body)
            refused = connected.answer()
            assert (refused.error, refused.headers["connection"]) == ((503, -31001), "close")
            assert refused.message["error"]["message"] == "This replica is shutting down"
            held.release()
            assert held.answer.result().text == "released"
            assert replica.wait() == 0
            assert silent.socket.recv(1) == b""


def test_an_upload_that_a_forced_stop_cuts_off_is_refused_as_never_run(tmp_path: Path) -> None:
    message = tool_call("echo", {"text": "hello"})
    body = msgspec.json.encode(message)
    with Fleet(tmp_path, {**TOOLS, "GATEWAY_DRAIN_SECONDS": LONG}, names=("r1",)) as fleet:
        replica = fleet["r1"]
        with RawConnection(replica) as slow:
            slow.head([*head_of(message), ("Content-Length", str(len(body))), ("Expect", "100-continue")])
            assert slow.socket.recv(100).startswith(b"HTTP/1.1 100 ")
            slow.socket.sendall(body[:5])
            assert signal_twice(replica, signal.SIGTERM) == 1
            answer = slow.answer()
        assert answer.error == (503, -31001)
        assert answer.message["error"]["message"] == "This replica is shutting down"
        assert replica.logged("request failed") == []
