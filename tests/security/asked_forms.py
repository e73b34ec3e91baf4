"""Forms that a live replica asks a client for: in a call, and as a task on either wire."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadtest.cluster import wait_until
from tests.integration.fleet import Fleet
from tests.security.costs import MANY_VALUES, Measured, Sent, call, measured, text_of
from tests.security.form_cases import FormCase
from tests.storage.servers import Server
from tests.wires.draft.messages import RELATED_TASK
from tests.wires.draft.messages import VERSION as DRAFT_VERSION

TOOLS: Final = "tests.security.cost_tools,tests.security.cost_form_tools"


@contextmanager
def asking_replica(logs: Path) -> Iterator[Measured]:
    """Start a replica with a store, and a worker that lets tasks ask."""
    directory = Path(tempfile.mkdtemp(prefix="gw-"))  # short, as socket names are limited
    server = Server("redis", directory)
    server.start()
    settings = {"GATEWAY_TOOLS": TOOLS, "GATEWAY_REDIS_URL": server.url, "GATEWAY_TASK_PARTITIONS": "1", **MANY_VALUES}
    try:
        with Fleet(logs, settings, names=["r1"]) as fleet:
            fleet.add_worker("w1")
            with measured(fleet["r1"]) as replica:
                yield replica
    finally:
        server.end()
        shutil.rmtree(directory)


@dataclass
class Asked:
    """A form that a client was asked for, and is asked for again after a bad answer.

    Args:
        replica: where it was asked.
        case: the form.
        kind: whether the author gave it as a `model` or as a `raw` schema.
    """

    replica: Measured
    case: FormCase
    kind: str

    def sent(self, content: str) -> Sent:
        """Return a request with the JSON text of the answer."""
        raise NotImplementedError

    def accepted(self, answer: dict[str, Any]) -> bool:
        """Return whether the answer was accepted."""
        raise NotImplementedError


@dataclass
class InCall(Asked):
    """A call that ends as input required."""

    def __post_init__(self) -> None:
        result = self.replica.send(call(self.case.tool(self.kind), "{}"))["result"]
        self._state = result["requestState"]

    def sent(self, content: str) -> Sent:
        responses = _accepted("form", content)
        return call(self.case.tool(self.kind), "{}", f',"requestState":"{self._state}","inputResponses":{responses}')

    def accepted(self, answer: dict[str, Any]) -> bool:
        return "content" in answer["result"] and text_of(answer) == "fits"


@dataclass
class AsTask(Asked):
    """A task that waits for input; after it got some, another task.

    It is answered under the key that it asks under: a worker that lost the store's reply may have asked once more.
    """

    def __post_init__(self) -> None:
        self._task_id = ""
        self._key = ""

    def waiting(self) -> str:
        """Return the id of a task that waits."""
        if self._task_id and self._status() == "input_required":
            return self._task_id
        self._task_id = self.replica.send(call(self.case.task(self.kind), "{}"))["result"]["taskId"]
        wait_until(lambda: self._status() == "input_required", "a task that asks")
        return self._task_id

    def _status(self) -> str:
        got = self.replica.send(Sent("tasks/get", f'"taskId":"{self._task_id}"', self._task_id))
        self._key = next(iter(got["result"].get("inputRequests", {})), "")
        return str(got["result"]["status"])


class Updated(AsTask):
    """Answered by `tasks/update`."""

    def sent(self, content: str) -> Sent:
        task_id = self.waiting()
        return Sent("tasks/update", f'"taskId":"{task_id}","inputResponses":{_accepted(self._key, content)}', task_id)

    def accepted(self, answer: dict[str, Any]) -> bool:
        return "result" in answer


class Responded(AsTask):
    """Answered by `tasks/input_response`, which accepts any answer; an invalid one leaves the task waiting."""

    def sent(self, content: str) -> Sent:
        task_id = self.waiting()
        meta = f'{{"{RELATED_TASK}":{{"taskId":"{task_id}"}}}}'
        responses = f'"inputResponses":{{"{self._key}":{{"result":{{"action":"accept","content":{content}}}}}}}'
        return Sent("tasks/input_response", responses, task_id, DRAFT_VERSION, meta)

    def accepted(self, answer: dict[str, Any]) -> bool:
        assert "result" in answer, answer
        return self._status() != "input_required"


def _accepted(key: str, content: str) -> str:
    return f'{{"{key}":{{"action":"accept","content":{content}}}}}'
