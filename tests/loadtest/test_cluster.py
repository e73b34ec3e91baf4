"""The cluster on this machine: real replicas and workers behind a real balancer, with a real Redis."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from loadtest.cluster import (
    REPOSITORY,
    Cluster,
    ClusterError,
    RedisServer,
    Replica,
    clean_environment,
    free_port,
    wait_until,
)
from loadtest.cluster.common import find_program
from tests.integration.raw import Answer, post, request, tool_call

QUICK = {"GATEWAY_DRAIN_NOTICE_SECONDS": "0"}
CRUNCH = tool_call("crunch", {"units": 1, "unitMs": 1})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two replicas behind a balancer."""
    with Cluster(tmp_path, environ=QUICK) as cluster:
        yield cluster


def served_by(cluster: Cluster) -> str:
    answer = post(cluster, CRUNCH)
    assert answer.status == 200, answer
    return answer.headers["x-gateway-replica"]


def refuses(address: tuple[str, int]) -> bool:
    """Return whether nothing listens there."""
    try:
        socket.create_connection(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_requests_go_to_the_replicas_in_turn(cluster: Cluster) -> None:
    served = [served_by(cluster) for _ in range(6)]
    assert sorted(served[:2]) == ["r1", "r2"]
    assert served == served[:2] * 3


def test_a_killed_replica_costs_no_call_is_noticed_and_comes_back_at_its_address(cluster: Cluster) -> None:
    assert cluster.balancer is not None
    url, pid = cluster["r1"].url, cluster["r1"].pid
    cluster["r1"].kill()
    assert refuses(cluster["r1"].address)
    assert {served_by(cluster) for _ in range(6)} == {"r2"}
    cluster.balancer.wait_down("r1")
    cluster["r1"].restart()
    cluster.balancer.wait_up("r1")
    wait_until(lambda: served_by(cluster) == "r1", "the replica that came back to serve")
    assert (cluster["r1"].url, cluster["r1"].alive) == (url, True)
    assert cluster["r1"].pid != pid


def test_replicas_come_and_go(cluster: Cluster) -> None:
    assert cluster.add_replica(GATEWAY_DEMO_RELEASE="2").name == "r3"
    wait_until(lambda: served_by(cluster) == "r3", "the new replica to serve")
    assert cluster.remove_replica("r1") == 0
    assert {served_by(cluster) for _ in range(6)} == {"r2", "r3"}
    assert cluster.add_replica().name == "r1"


def test_more_replicas_than_the_configuration_has_places_for_are_refused(cluster: Cluster) -> None:
    assert cluster.balancer is not None
    with pytest.raises(ClusterError, match="places for 16 replicas, not for 17"):
        cluster.balancer.set_servers({str(number): ("127.0.0.1", 1) for number in range(17)})


def test_a_rolling_restart_loses_no_call_and_gives_every_process_the_new_settings(tmp_path: Path) -> None:
    events: list[tuple[str, str]] = []
    answers: list[Answer] = []
    over = threading.Event()

    def call_all_the_time() -> None:
        while not over.is_set():
            answers.append(post(restarted, CRUNCH))

    with Cluster(tmp_path, workers=1, redis=True) as restarted, ThreadPoolExecutor(4) as pool:
        before = {process.name: process.pid for process in (*restarted.replicas, *restarted.workers)}
        callers = [pool.submit(call_all_the_time) for _ in range(4)]
        try:
            codes = restarted.rolling_restart(
                {"GATEWAY_DEMO_RELEASE": "2"}, on_event=lambda event, name: events.append((event, name))
            )
        finally:
            over.set()
        for caller in callers:
            caller.result()
        assert codes == {"r1": 0, "r2": 0, "w1": 0}
        assert events == [(event, name) for name in codes for event in ("leaving", "left", "ready")]
        assert all(restarted[name].alive and restarted[name].pid != before[name] for name in ("r1", "r2"))
        assert restarted.worker("w1").alive
        assert restarted.worker("w1").pid != before["w1"]
        asked = [post(restarted, tool_call("link_accounts")).result["inputRequests"] for _ in range(4)]
        assert all("microsoft_login" in questions for questions in asked)
    assert {answer.status for answer in answers} == {200}
    assert {answer.headers["x-gateway-replica"] for answer in answers} == {"r1", "r2"}


def test_a_worker_runs_tasks_and_redis_keeps_what_it_has_acknowledged(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=1, workers=1, redis=True, environ=QUICK) as cluster:
        assert cluster.redis is not None
        cluster.redis.ask("SET", "kept", "1")
        cluster.redis.kill()
        cluster.redis.restart()
        assert cluster.redis.ask("GET", "kept") == b"1"
        create = tool_call("echo", {}, _meta=tasks_meta())
        task_id = post(cluster, create).result["taskId"]
        get = request("tasks/get", {"taskId": task_id, "_meta": tasks_meta()})
        wait_until(lambda: post(cluster, get).result["status"] == "input_required", "the worker to ask")
        worker = cluster.worker("w1")  # it counts a leg when it has stored the question
        wait_until(lambda: worker.metric("gateway_task_legs_total", tool="echo") == 1, "the worker to count the leg")
        cluster.add_worker()
        assert [worker.name for worker in cluster.workers] == ["w1", "w2"]


def tasks_meta() -> dict[str, Any]:
    """Return the metadata of a client with tasks and forms."""
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    prefix = "io.modelcontextprotocol"
    return {f"{prefix}/protocolVersion": "2026-07-28", f"{prefix}/clientCapabilities": capabilities}


def test_a_paused_redis_answers_when_it_continues(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        server.start()
        server.wait_ready()
        server.pause()
        replies: list[object] = []
        asks = threading.Thread(target=lambda: replies.append(server.ask("PING")))
        asks.start()
        server.resume()
        asks.join()
        assert replies == [True]
        assert server.terminate() == 0
        server.restart()
    finally:
        server.stop()
    assert refuses(("127.0.0.1", server.port))


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, workers=1, redis=True, environ=QUICK)
    assert cluster.balancer is not None
    assert cluster.redis is not None
    processes = [*cluster.replicas, *cluster.workers, cluster.balancer, cluster.redis]
    with contextlib.suppress(ZeroDivisionError), cluster:
        assert all(process.alive for process in processes)
        raise ZeroDivisionError
    assert not any(process.alive for process in processes)
    assert all(refuses(replica.address) for replica in cluster.replicas)


def test_nothing_is_left_after_a_start_that_fails_and_the_error_shows_the_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, redis=True, environ=QUICK, own={"r2": {"GATEWAY_TOOLS": "no.such.module"}})
    assert cluster.balancer is not None
    assert cluster.redis is not None
    with pytest.raises(ClusterError, match=r"r2 did not start:\n.*no\.such\.module"), cluster:
        pass
    assert not any(process.alive for process in (*cluster.replicas, cluster.balancer, cluster.redis))


def test_nothing_is_left_when_the_end_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_self: Replica) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Cluster(tmp_path, environ=QUICK) as cluster:
        monkeypatch.setattr(Replica, "stop", interrupt)
    assert cluster.balancer is not None
    assert not any(process.alive for process in (*cluster.replicas, cluster.balancer))


def test_a_paused_process_is_ended_too(tmp_path: Path) -> None:
    with Cluster(tmp_path, replicas=1, balancer=False, environ=QUICK) as cluster:
        assert cluster.url == cluster["r1"].url
        cluster["r1"].pause()
    assert cluster["r1"].wait() == 0


def test_the_log_of_every_process_is_kept(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=1, redis=True, environ=QUICK) as cluster:
        logs = dict(cluster.logs())
    assert list(logs) == ["r1", "r2", "w1", "haproxy", "redis"]
    assert all(logs.values())


def test_a_port_is_kept_for_its_process_only(tmp_path: Path) -> None:
    replica = Replica("r1", {}, tmp_path / "log", hold=False)
    _, port = replica.address
    assert refuses(replica.address)
    assert port not in {free_port() for _ in range(100)}
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(replica.address)
    with pytest.raises(ClusterError, match="was never started"):
        replica.terminate()
    replica.stop()


def test_programs_are_the_system_s_also_in_an_active_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(own))
    assert Path(find_program("redis-server", package="redis-server")).parent != own
    with pytest.raises(ClusterError, match=r"no-such-program is missing: install it .* is such-a-package"):
        find_program("no-such-program", package="such-a-package")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_where_everything_is_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "loadtest.cluster", "--workers", "1", "--directory", str(tmp_path)]
    command += ["--set", "GATEWAY_DRAIN_NOTICE_SECONDS=0"]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, env=clean_environment({}), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        said = "".join(itertools.takewhile(lambda line: not line.startswith("Press Ctrl-C"), process.stdout))
        urls = [urlsplit(url) for url in re.findall(r"(?:http|redis)://\S+", said)]
        assert len(urls) == 6
        assert not any(refuses((str(url.hostname), int(str(url.port)))) for url in urls)
        process.send_signal(number)
        assert process.wait(60) == 0
        assert all(refuses((str(url.hostname), int(str(url.port)))) for url in urls)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]  # it is a pipe
