"""Measures what legs and tasks cost a replica, a worker and Redis.

Costs are CPU time of their processes, as the system reports it. Other programs and the load itself hardly change them,
and the speed of calls does not matter.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.sizing.costs import GatewayCosts, state_kib_seconds
from loadtest.cluster import Cluster, ClusterError
from loadtest.wire import PATH, Answer, Reply, Request, call_tool, get_task, read_answer

CONNECTIONS: Final = 8
"""Concurrent legs while costs are measured: as under load, the event loop finds several when it wakes."""

STATE_SIZES: Final = (100, 4000, 12000, 32000)
"""The sizes in bytes of the answer that a state carries, for the curve."""

_PATIENCE_SECONDS: Final = 60.0
_WARM_UP_SHARE: Final = 0.2
_PARTS: Final = 3
_TASKS: Final = 200


class Caller:
    """One keep-alive connection to a deployment.

    Args:
        url: its MCP endpoint.
    """

    def __init__(self, url: str) -> None:
        self._link = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE_SECONDS)

    def ask(self, request: Request) -> Answer:
        """Send a request, and return the meaning of its reply; a lost connection is a failed leg."""
        try:
            self._link.request("POST", PATH, request.body(1), request.headers())
            response = self._link.getresponse()
            return read_answer(Reply(1, response.status, response.read()))
        except (OSError, http.client.HTTPException):
            self._link.close()
            return read_answer(Reply(1, 0))

    def must(self, request: Request, *outcomes: str) -> Answer:
        """Send a request, and return its answer.

        Raises:
            ClusterError: the outcome is not one of `outcomes`.
        """
        answer = self.ask(request)
        if answer.outcome not in outcomes:
            raise ClusterError(f"{request.name or request.method} was answered with {answer.outcome}: {answer.reason}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._link.close()


def measure_costs(directory: Path, seconds: float, tell: Callable[[str], None]) -> GatewayCosts:
    """Start a replica, a worker and Redis, and measure the costs of legs and tasks.

    Args:
        directory: where their logs go.
        seconds: how long each kind of leg is measured.
        tell: called with each result.

    Raises:
        ClusterError: a process does not start, or does not answer as it should.
    """
    environ = {
        "GATEWAY_MAX_INFLIGHT": "64",
        "GATEWAY_TASKS_PER_PRINCIPAL": "100000",
        "GATEWAY_TASK_BYTES_PER_PRINCIPAL": str(2**40),
    }
    with (
        Cluster(directory, replicas=1, balancer=False, environ=environ) as cluster,
        cores_apart([cluster.replicas[0].pid]),
    ):
        first, middle, last, state_kib, state_bytes = _measure_legs(cluster, seconds, tell)
    with Cluster(directory / "tasks", replicas=1, workers=1, redis=True, balancer=False, environ=environ) as cluster:
        task, redis = _measure_tasks(cluster, tell)
    return GatewayCosts(first, middle, last, state_kib, state_bytes, task, redis, machine())


def machine() -> str:
    """Describe this machine for people."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _measure_legs(
    cluster: Cluster, seconds: float, tell: Callable[[str], None]
) -> tuple[float, float, float, float, int]:
    """Return the costs of a first, a middle and a last leg and of a KiB of state, and the smallest state's length."""
    with contextlib.closing(Caller(cluster.url)) as caller:
        asks, asks_again, finishes, state_bytes = _legs_of_a_call(caller)
        small = {"first": asks, "middle": asks_again, "last": finishes}
        costs = {name: _leg_seconds(cluster, leg, seconds) for name, leg in small.items()}
        for name, cost in costs.items():
            tell(f"a {name} leg takes {1e6 * cost:.0f} µs of CPU")
        curve: dict[int, float] = {}
        for size in STATE_SIZES:
            leg, state = _leg_with_state(caller, size)
            curve[2 * state] = cost = _leg_seconds(cluster, leg, seconds)
            tell(f"a leg that receives and returns {state} bytes of state takes {1e6 * cost:.0f} µs of CPU")
    return costs["first"], costs["middle"], costs["last"], state_kib_seconds(curve), state_bytes


def _legs_of_a_call(caller: Caller) -> tuple[Request, Request, Request, int]:
    """Return the three legs of a call with two rounds, and the length of its first state."""
    arguments = {"workItemId": 7, "fields": {"System.State": "Resolved"}}
    first = call_tool("update_work_item", arguments)
    state = caller.must(first, "input_required").state
    middle = call_tool("update_work_item", arguments, state=state, answers={"resolution": {"resolution": "Duplicate"}})
    last = call_tool(
        "update_work_item",
        arguments,
        state=caller.must(middle, "input_required").state,
        answers={"duplicate_of": {"duplicateOfId": 1}},
    )
    caller.must(last, "completed")
    return first, middle, last, len(state)


def _leg_with_state(caller: Caller, size: int) -> tuple[Request, int]:
    """Return a leg that opens and seals a state with an answer of this many bytes, and the state's length."""
    began = caller.must(call_tool("link_accounts", {}), "input_required")
    one_of_two = {"github_login": {"name": "x" * size}}
    half = caller.must(call_tool("link_accounts", {}, state=began.state, answers=one_of_two), "input_required")
    return call_tool("link_accounts", {}, state=half.state), len(half.state)


def _leg_seconds(cluster: Cluster, request: Request, seconds: float) -> float:
    """Return the replica's CPU time for one leg: the median of a few measurements, after a warm-up."""
    pid = cluster.replicas[0].pid
    _repeat(cluster.url, request, _WARM_UP_SHARE * seconds)
    costs = []
    for _ in range(_PARTS):
        before = cpu_seconds(pid)
        count = _repeat(cluster.url, request, seconds / _PARTS)
        costs.append((cpu_seconds(pid) - before) / count)
    return statistics.median(costs)


def _repeat(url: str, request: Request, seconds: float) -> int:
    """Let several connections send a request over and over, and return how often it was answered."""
    until = time.monotonic() + seconds

    def repeat() -> int:
        count = 0
        with contextlib.closing(Caller(url)) as caller:
            while count == 0 or time.monotonic() < until:
                caller.must(request, "completed", "input_required")
                count += 1
        return count

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        return sum(done.result() for done in [threads.submit(repeat) for _ in range(CONNECTIONS)])


def _measure_tasks(cluster: Cluster, tell: Callable[[str], None]) -> tuple[float, float]:
    assert cluster.redis is not None
    worker = cluster.workers[0].pid
    order = call_tool("report", {"city": "Nairobi", "sections": 1}, tasks=True)
    with contextlib.closing(Caller(cluster.url)) as caller:
        _finish_tasks(caller, order, _TASKS // 10)
        cluster.redis.ask("CONFIG", "RESETSTAT")
        before = cpu_seconds(worker)
        _finish_tasks(caller, order, _TASKS)
        task = (cpu_seconds(worker) - before) / _TASKS
        redis = _script_seconds(cluster.redis.ask("INFO", "commandstats"))
    tell(f"a task takes {1e6 * task:.0f} µs of a worker's CPU, and each script {1e6 * redis:.0f} µs of Redis")
    return task, redis


def _finish_tasks(caller: Caller, request: Request, count: int) -> None:
    ids = [str(caller.must(request, "task_created").result["taskId"]) for _ in range(count)]
    for task_id in ids:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while caller.must(get_task(task_id), "completed").result.get("status") != "completed":
            if time.monotonic() > deadline:
                raise ClusterError(f"a task did not complete within {_PATIENCE_SECONDS:g} seconds")
            time.sleep(0.05)


def _script_seconds(commandstats: Any) -> float:
    """Return how long a script takes Redis on average."""
    scripts = commandstats.get("cmdstat_evalsha")
    if not scripts:
        raise ClusterError("Redis has not run a script")
    return float(scripts["usec"]) / float(scripts["calls"]) / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that the threads of a process have used so far.

    Raises:
        ClusterError: this system does not report it.
    """
    return sum(_scheduled(f"{pid}/task/{thread}") for thread in _threads(pid))


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - only the names are needed
    except OSError as error:
        raise ClusterError(f"the threads of a process cannot be listed, which needs Linux: {error}") from None


def _scheduled(process: str) -> float:
    """Return for how many seconds a process or thread has run."""
    try:
        ran, _, _ = Path(f"/proc/{process}/schedstat").read_text(encoding="utf-8").split()
    except OSError as error:
        raise ClusterError(f"CPU time cannot be read, which needs Linux: {error}") from None
    return int(ran) / 1e9


@contextlib.contextmanager
def cores_apart(pids: Sequence[int]) -> Iterator[None]:
    """Give each process its own core, and this one the others, if there are enough and the system can."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) <= len(pids):
        yield
        return
    for pid, core in zip(pids, cores, strict=False):
        for thread in _threads(pid):
            os.sched_setaffinity(thread, {core})
    os.sched_setaffinity(0, cores[len(pids) :])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
