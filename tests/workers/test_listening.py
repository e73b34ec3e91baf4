"""A replica's notifications about a task that another replica created, with real processes: all states, even the last.

The official conformance suite does not check `notifications/tasks` yet. The tools here are those it has for tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.raw import META, META_CAPABILITIES, request
from tests.integration.streams import META_SUBSCRIPTION_ID, Stream
from tests.workers.conftest import serving
from tests.workers.site import EXTENSION, Site

CAN: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
FINAL = ("completed", "failed", "cancelled")
SUBSCRIPTION = "sub-1"
RACES = 12


@pytest.fixture(scope="module")
def served() -> Iterator[Site]:
    """Two replicas. The client of the site asks r1."""
    with serving("r1", "r2", GATEWAY_TOOLS="tests.workers.tools,tests.conformance.task_fixtures") as served:
        yield served


class Listening:
    """A stream of r2 about tasks. Entering it checks the acknowledgement."""

    def __init__(self, site: Site, *task_ids: str) -> None:
        meta = {**META, META_CAPABILITIES: CAN}
        params = {"notifications": {"taskIds": list(task_ids)}, "_meta": meta}
        message = request("subscriptions/listen", params, request_id=SUBSCRIPTION)
        self._stream = Stream(site.replicas[1], message)
        self._task_ids = list(task_ids)

    def __enter__(self) -> Listening:
        message = self._stream.__enter__().next()
        assert message["method"] == "notifications/subscriptions/acknowledged"
        assert message["params"]["notifications"] == {"taskIds": self._task_ids}
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.__exit__(None, None, None)

    def next(self) -> dict[str, Any]:
        """Return the next `DetailedTask`, without the fields about the message."""
        message = self._stream.next()
        assert (message["jsonrpc"], message["method"], "id" in message) == ("2.0", "notifications/tasks", False)
        task: dict[str, Any] = message["params"]
        assert task.pop("_meta")[META_SUBSCRIPTION_ID] == SUBSCRIPTION
        return task

    def until_final(self) -> Iterator[dict[str, Any]]:
        """Yield notifications until each task has ended."""
        going_on = set(self._task_ids)
        while going_on:
            task = self.next()
            yield task
            if task["status"] in FINAL:
                going_on.remove(task["taskId"])


def read(site: Site, task_id: str) -> dict[str, Any]:
    """Return the response of r1 to `tasks/get`, in the same form."""
    task = site.get(task_id)
    assert task.pop("resultType") == "complete"
    task.pop("_meta", None)
    return task


def timeless(task: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields that depend on the time of the request."""
    return {name: value for name, value in task.items() if name != "pollIntervalMs"}


def test_each_state_is_sent_as_tasks_get_returns_it(site: Site) -> None:
    task_id = site.create("multi_input")
    with Listening(site, task_id) as listening:
        assert listening.next()["status"] == "working"
        site.worker("w1")
        while (task := listening.next())["status"] == "working":
            pass
        assert timeless(task) == timeless(read(site, task_id))
        assert (task["status"], list(task["inputRequests"])) == ("input_required", ["first", "second"])
        site.answer(task_id, "second", name="Bob")
        task = listening.next()
        assert (task["status"], list(task["inputRequests"])) == ("input_required", ["first"])
        site.answer(task_id, "first", name="Ada")
        *before, final = listening.until_final()
    assert {task["status"] for task in before} <= {"working"}
    assert final["result"]["content"] == [{"type": "text", "text": "Hello, Ada and Bob!"}]
    assert timeless(final) == timeless(read(site, task_id))


def test_every_kind_of_final_state_is_sent_once_and_in_full(site: Site) -> None:
    wanted = {
        site.create("say", text="hello"): "completed",
        site.create("failing_job"): "completed",
        site.create("protocol_error_job"): "failed",
        site.create("slow_compute", seconds=60, label="never done"): "cancelled",
    }
    with Listening(site, *wanted) as listening:
        assert [listening.next()["status"] for _ in wanted] == ["working"] * 4
        site.worker("w1")
        site.request("tasks/cancel", {"taskId": list(wanted)[-1]})
        finals = {task["taskId"]: task for task in listening.until_final() if task["status"] in FINAL}
    assert {task_id: task["status"] for task_id, task in finals.items()} == wanted
    for task_id, task in finals.items():
        assert timeless(task) == timeless(read(site, task_id))
    completed, is_error, failed, cancelled = (finals[task_id] for task_id in wanted)
    assert (completed["result"].get("isError", False), is_error["result"]["isError"]) == (False, True)
    assert (failed["error"]["code"], "result" in failed) == (-32603, False)
    assert {"result", "error"}.isdisjoint(cancelled)


def race(site: Site) -> None:
    """Clients that listen to tasks learn how each one ended, whether it ends before or after the stream begins."""
    for number in range(RACES):
        task_id = site.create("slow_compute", seconds=number / 1000, label=f"race {number}")
        with Listening(site, task_id) as listening:
            *_, final = listening.until_final()
        assert final["result"]["content"][0]["text"].startswith(f"race {number}:")


def test_the_final_state_is_sent_whenever_the_stream_begins(site: Site) -> None:
    site.worker("w1")
    ended = site.create("say", text="long ago")
    site.wait_for(ended, "completed")
    race(site)
    with Listening(site, ended) as listening:
        assert listening.next()["status"] == "completed"
        # By now r2 is notified of all tasks of this caller.
        with Listening(site, ended) as another:
            assert another.next()["status"] == "completed"
        race(site)


def test_the_final_state_is_sent_although_its_hint_was_lost(site: Site) -> None:
    site.worker("w1")
    task_id = site.create("wait")
    site.wait_for_line("started")
    with Listening(site, task_id) as listening:
        assert listening.next()["status"] == "working"
        site.server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        site.open()
        *_, final = listening.until_final()
    assert final["status"] == "completed"
