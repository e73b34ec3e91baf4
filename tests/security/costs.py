"""The cost of a request to a live replica: the CPU time of its process, and how long it blocks other requests."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from loadtest.cluster import Replica
from tests.integration.raw import META_CAPABILITIES, META_VERSION, NAMED_BY, VERSION
from tests.security.schema_cases import Shape

KIB: Final = 1024
SIZES: Final = (KIB, 16 * KIB, 256 * KIB)
"""The sizes of values in every shape."""

LARGEST: Final = 4 * SIZES[-1] - 4 * KIB
"""Leaves room for the rest of a body of 1 MiB. Used for valid values and for what is costly at a quarter of it."""

MANY_VALUES: Final = {"GATEWAY_MAX_JSON_VALUES": "10000000"}
"""A setting for tests of checks: what a check costs must fit its size, even where the number of values has no limit."""

BENIGN: Final = '{"a":1}'
"""A benign request has a list of these."""

FACTOR: Final = 5.0
COST_FLOOR: Final = 0.100
GAP_FLOOR: Final = 0.250
"""A request may cost, and block others for, this many times as much as a benign one, or this many seconds.

The promise is 50 ms of CPU time. A busy machine takes up to twice as long for the same work.
"""

SLOW: Final = 2.0
"""On a slow machine, a request may also cost this many times as much as a benign one of the largest of `SIZES`."""

ORDINARY: Final = 1.25
"""A request at most this costly, compared with a benign one, stays within `FACTOR` at four times the size."""

TRIES: Final = 6
"""How often a request over the limits is repeated: the machine may be busy, and the lowest cost counts."""

HOPELESS: Final = 3.0
"""No busy machine makes a process use this many times as much CPU."""

LONGEST: Final = 10.0
"""The seconds after which a request and its replica are given up."""

EVERY: Final = pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.repeats)], ids=["dearest", "every"]
)
"""Which of the shapes that are dear are sent at the largest size: the dearest, or all of them."""

ENOUGH: Final = 3
"""How many problems of a case are reported: the largest requests could take long."""

_POLL_SECONDS: Final = 0.02
_CAPABILITIES: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}},
    "extensions": {"io.modelcontextprotocol/tasks": {}},
}
_META: Final = msgspec.json.encode({META_VERSION: VERSION, META_CAPABILITIES: _CAPABILITIES}).decode()


class Stuck(Exception):
    """The replica did not answer in time."""


class Cost(NamedTuple):
    """The cost of one request, in seconds."""

    cpu: float
    gap: float

    def least(self, other: Cost) -> Cost:
        """Return the lower of both figures."""
        return Cost(min(self.cpu, other.cpu), min(self.gap, other.gap))

    def after(self, other: Cost) -> Cost:
        """Return the sum of both figures."""
        return Cost(self.cpu + other.cpu, self.gap + other.gap)

    def exceeds(self, limit: Cost) -> bool:
        """Return whether one of the figures exceeds the other's."""
        return self.cpu > limit.cpu or self.gap > limit.gap


class Judged(NamedTuple):
    """How a request exceeds the limits, if it does, its answer, what it cost, and whether that is more than usual.

    A `dear` request costs more than a benign one, so it may cost too much at a larger size.
    """

    excess: str | None
    answer: dict[str, Any]
    cpu: float
    dear: bool


def sent_largest(dear: Mapping[Shape, float], *, every: bool) -> set[Shape]:
    """Return the shapes to send at the largest size: the valid one, and of those dear at a quarter the dearest or all.

    Args:
        dear: the CPU time that each of these shapes took at a quarter of the size.
        every: whether to send all of them.
    """
    return {Shape.VALID, *(dear if every else sorted(dear, key=dear.__getitem__)[-1:])}


def limit_beside(benign: Cost, large: Cost) -> Cost:
    """Return the allowed cost of a request, given the costs of benign ones: of its size, and of the largest size."""
    return Cost(max(COST_FLOOR, SLOW * large.cpu, FACTOR * benign.cpu), max(GAP_FLOOR, FACTOR * benign.gap))


@dataclass(frozen=True)
class Sent:
    """A request as it goes over the wire.

    Args:
        method: the MCP method.
        params: JSON text of its params, without the braces and `_meta`.
        name: of the tool or task.
        version: of the protocol.
        meta: JSON text of `_meta`.
    """

    method: str
    params: str
    name: str
    version: str = VERSION
    meta: str = _META

    @property
    def body(self) -> bytes:
        """The JSON-RPC message."""
        head = f'{{"jsonrpc":"2.0","id":1,"method":"{self.method}","params":{{"_meta":{self.meta}'
        return f"{head},{self.params}}}}}".encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers that match it."""
        headers = {"content-type": "application/json", "mcp-protocol-version": self.version}
        headers["accept"] = "application/json, text/event-stream"
        if self.version == VERSION:
            headers["mcp-method"] = self.method
            if self.method in NAMED_BY:
                headers["mcp-name"] = self.name
        return headers


def call(tool: str, arguments: str, more: str = "") -> Sent:
    """Return a `tools/call` with the JSON text of its arguments."""
    return Sent("tools/call", f'"name":"{tool}","arguments":{arguments}{more}', tool)


def text_of(answer: dict[str, Any]) -> str:
    """Return the tool's text, or the reason why it was not called."""
    return str(answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]["message"])


class _Polls:
    """Polls `/healthz`, and records when it was answered."""

    def __init__(self, replica: Replica) -> None:
        self._address = replica.address
        self._answered = [time.monotonic()]
        self._news = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended = True
        self._thread.join()

    def longest_gap(self, begin: float, end: float) -> float:
        """Return the longest gap between two answers that overlaps the time between these moments."""
        with self._news:
            if not self._news.wait_for(lambda: self._answered[-1] > end, LONGEST):
                raise Stuck
            times = self._answered
            first = max((index for index, at in enumerate(times) if at <= begin), default=0)
            gaps = [after - before for before, after in zip(times[first:], times[first + 1 :], strict=False)]
            del times[:first]
        return max(gaps)

    def _run(self) -> None:
        connection = http.client.HTTPConnection(*self._address, timeout=4 * LONGEST)
        while not self._ended:
            try:
                connection.request("GET", "/healthz")
                assert connection.getresponse().read()
            except (OSError, http.client.HTTPException):  # it was killed
                connection.close()
            else:
                with self._news:
                    self._answered.append(time.monotonic())
                    self._news.notify_all()
            time.sleep(_POLL_SECONDS)
        connection.close()


@dataclass
class Measured:
    """A replica whose every request is measured.

    Args:
        replica: it serves `tests.security.cost_tools`.
    """

    replica: Replica
    _benign: dict[int, Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(*self.replica.address, timeout=LONGEST)
        self._polls = _Polls(self.replica)
        self._polls.start()

    def close(self) -> None:
        """Stop polling."""
        self._polls.end()
        self._connection.close()

    def send(self, sent: Sent) -> dict[str, Any]:
        """Send a request, and return the JSON-RPC message of the answer.

        Raises:
            Stuck: it does not come.
        """
        try:
            self._connection.request("POST", "/mcp", sent.body, sent.headers)
            said = self._connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Stuck from error
        message = msgspec.json.decode(said)
        assert isinstance(message, dict)
        return message

    def cost(self, sent: Sent) -> tuple[Cost, dict[str, Any]]:
        """Send a request, and return its cost and the answer."""
        before = self._spent()
        begin = time.monotonic()
        answer = self.send(sent)
        end = time.monotonic()
        cpu = self._spent() - before
        return Cost(cpu, self._polls.longest_gap(begin, end)), answer

    def benign(self, size: int) -> Cost:
        """Return the cost of a request of this size whose arguments are hardly checked."""
        if size not in self._benign:
            self._benign[size] = self._benign_now(size)
        return self._benign[size]

    def _benign_now(self, size: int) -> Cost:
        sent = call("benign", f'{{"v":[{",".join([BENIGN] * (size // (len(BENIGN) + 1)))}]}}')
        _, *costs = [self.cost(sent)[0] for _ in range(4)]  # the first one warms up
        return Cost(statistics.median(cost.cpu for cost in costs), statistics.median(cost.gap for cost in costs))

    def judge(self, sent: Callable[[], Sent], size: int, unchecked: Sent) -> Judged:
        """Send a request, and return how it exceeds the limits, if it does.

        Args:
            sent: makes the request; again where it has to be repeated.
            size: of what is checked.
            unchecked: the same content without a check. The time to parse it is not part of the cost of checking.
        """
        benign = self.benign(size)
        limit = limit_beside(benign, self.benign(SIZES[-1]))
        cost, answer = self.cost(sent())
        dear = cost.cpu > ORDINARY * benign.cpu
        if not cost.exceeds(limit):
            return Judged(None, answer, cost.cpu, dear)
        parsing = self.cost(unchecked)[0].least(self.cost(unchecked)[0])
        if parsing.cpu > HOPELESS * limit.cpu:
            return Judged(f"{parsing.cpu:.3f} s of CPU without a check", answer, cost.cpu, dear)
        if not cost.exceeds(limit.after(parsing)):
            return Judged(None, answer, cost.cpu, dear)
        for _ in range(TRIES):
            # The machine may be busier now than when the benign request was measured.
            limit = limit_beside(self._benign_now(size), self._benign_now(SIZES[-1])).after(parsing)
            cost = cost.least(self.cost(sent())[0])
            if not cost.exceeds(limit):
                return Judged(None, answer, cost.cpu, dear)
            if cost.cpu > HOPELESS * limit.cpu:
                break
        cpu = f"{cost.cpu:.3f} s of CPU (limit {limit.cpu:.3f})"
        return Judged(f"{cpu}, {cost.gap:.3f} s gap (limit {limit.gap:.3f})", answer, cost.cpu, dear)

    def revive(self) -> None:
        """Start the replica again after it got stuck."""
        self.replica.kill()
        self.replica.restart()

    def _spent(self) -> float:
        result = self.send(call("spent", "{}"))["result"]
        return float(result["content"][0]["text"])


@contextmanager
def measured(replica: Replica) -> Iterator[Measured]:
    """Measure the cost of requests to a replica."""
    measured = Measured(replica)
    try:
        yield measured
    finally:
        measured.close()
