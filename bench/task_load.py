"""The cost of a batch of tasks: clients create them, poll until they complete, and check every result.

Both servers speak the same wire, so their clients send the same bytes, except for the token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench.cases import FORMS_AND_TASKS, request
from bench.clients import Answer, Client, Pause, WrongAnswer, together
from bench.servers import Program, Redis, Server

POLL_SECONDS = 0.25
"""How long a client waits after it found its oldest task unfinished, whatever the server suggests."""


class Task(NamedTuple):
    """A task as its client knows it."""

    number: int
    id: str


class Lap(NamedTuple):
    """The time between two moments, and the CPU time of each program by its role, in seconds."""

    seconds: float
    cpu: dict[str, float]


@dataclass(frozen=True, slots=True)
class TaskServer:
    """A server with its worker, its Redis and the clients that use it.

    Attributes:
        name: the name in the report.
        http: the program that serves the wire.
        redis: the store of the tasks.
        tokens: the bearer token of each client; there are as many clients as tokens.
        worker: runs the tasks, unless `http` does so itself.
    """

    name: str
    http: Server
    redis: Redis
    tokens: Sequence[str | None]
    worker: Program | None = None

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far of each program by its role."""
        programs: dict[str, Program] = {"replica": self.http, "redis": self.redis}
        if self.worker is not None:
            programs["worker"] = self.worker
        return {role: program.cpu_seconds() for role, program in programs.items()}

    def lap(self, work: Callable[[], object]) -> Lap:
        """Do `work`, and return the time it took."""
        before, start = self.cpu(), time.perf_counter()
        work()
        seconds, after = time.perf_counter() - start, self.cpu()
        return Lap(seconds, {role: after[role] - before[role] for role in before})


@dataclass(slots=True)
class Batch:
    """Tasks of one server, each client's in the order of their creation.

    Attributes:
        tool: the tool that they run; it gets a different text in each task.
        tasks: the tasks by client.
        polls: how often clients have polled.
    """

    server: TaskServer
    tool: str = "repeat"
    tasks: list[list[Task]] = field(default_factory=list)
    polls: int = 0

    def create(self, count: int) -> None:
        """Create `count` tasks; each client creates its share one after the other."""
        self.tasks = [[] for _ in self.server.tokens]
        share = -(-count // len(self.tasks))
        self._together(lambda client: self._creating(client, range(client * share, min((client + 1) * share, count))))

    def finish(self, status: str = "completed") -> None:
        """Poll all tasks until they have this status, each client its oldest first, and check them."""
        self._together(lambda client: self._finishing(client, status))

    def read(self) -> None:
        """Poll each task once more; all have completed."""
        self._together(lambda client: self._finishing(client, "completed"))

    def _together(self, client: Callable[[int], Client]) -> None:
        together(self.server.http.port, [client(number) for number in range(len(self.server.tokens))])

    def _creating(self, client: int, numbers: Sequence[int]) -> Client:
        for number in numbers:
            arguments = {} if self.tool == "wait" else {"text": text_of(number)}
            params = {"name": self.tool, "arguments": arguments}
            answer = yield self._request(client, number, "tools/call", self.tool, params)
            self.tasks[client].append(Task(number, read_created(answer, number)))

    def _finishing(self, client: int, status: str) -> Client:
        for task in self.tasks[client]:
            while True:
                self.polls += 1
                answer = yield self._request(client, task.number, "tasks/get", task.id, {"taskId": task.id})
                if read_status(answer, task) == status:
                    break
                yield Pause(POLL_SECONDS)

    def _request(self, client: int, number: int, method: str, name: str, params: dict[str, Any]) -> bytes:
        port, token = self.server.http.port, self.server.tokens[client]
        return request(port, number, method, name, params, token=token, capabilities=FORMS_AND_TASKS)


def text_of(number: int) -> str:
    """Return the text that the task of this number repeats."""
    return f"hello from task {number:06d}"


def read_created(answer: Answer | None, number: int) -> str:
    """Read the id of a new task.

    Raises:
        WrongAnswer: the answer does not create a task.
    """
    result = _result(answer, number)
    if result.get("resultType") != "task" or result.get("status") != "working" or not result.get("taskId"):
        raise WrongAnswer(f"expected a new task for request {number}, got {answer}")
    return str(result["taskId"])


def read_status(answer: Answer | None, task: Task) -> str:
    """Read the status of a task, and check the rest of the answer.

    Raises:
        WrongAnswer: it is another task, it failed, or its result is wrong.
    """
    result = _result(answer, task.number)
    status = str(result.get("status"))
    if result.get("taskId") == task.id:
        if status == "working":
            return status
        if status == "input_required" and len(result["inputRequests"]) == 1:
            return status
        texts = [block.get("text") for block in result.get("result", {}).get("content", [])]
        if status == "completed" and texts == [text_of(task.number)] and not result["result"].get("isError"):
            return status
    raise WrongAnswer(f"expected task {task.id} of request {task.number}, got {answer}")


def _result(answer: Answer | None, number: int) -> dict[str, Any]:
    if answer is not None and answer.status == 200:
        message = json.loads(answer.body)
        if message.get("id") == number and isinstance(message.get("result"), dict):
            result: dict[str, Any] = message["result"]
            return result
    raise WrongAnswer(f"expected a result for request {number}, got {answer}")
