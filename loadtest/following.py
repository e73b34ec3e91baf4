"""A call that has become a task: polled or listened to until it ends, its questions answered on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import gevent

from loadtest import wire
from loadtest.errand import CallEndedError
from loadtest.legs import Legs
from loadtest.wire import Answer, Reply

LISTEN_AGAIN_SECONDS: Final = 0.2
"""The wait before a stream that has ended is opened again."""

_ENDED: Final = frozenset({"completed", "failed", "cancelled"})


class FollowedTask:
    """One such task.

    Args:
        flow: the call's legs.
    """

    def __init__(self, flow: Legs, task_id: str) -> None:
        self._flow = flow
        self._task_id = task_id
        self._answered: set[str] = set()

    def poll(self) -> Answer:
        """Poll the task until it has ended."""
        while True:
            task = self._flow.leg(wire.get_task(self._task_id), read=self._read)
            if task.result["status"] in _ENDED:
                return task
            self._flow.give_up_late_task()
            if not self._answer(task.questions):
                gevent.sleep(task.result.get("pollIntervalMs", 500) / 1000)

    def listen(self) -> Answer:
        """Listen to the task until it has ended, on a new stream each time one ends early."""
        task: Mapping[str, Any] = {}
        problem: CallEndedError | None = None

        def on_notice(message: Mapping[str, Any]) -> bool:
            nonlocal task, problem
            if wire.tells_of_task(message, self._task_id):
                task = wire.params_of(message)
                try:
                    self._answer(task.get("inputRequests") or {})
                except CallEndedError as error:
                    problem = error
            return task.get("status") in _ENDED or problem is not None or self._flow.is_late()

        def read(reply: Reply) -> Answer:
            if reply.body or reply.status != 200:
                return wire.read_answer(reply)
            return self._meaning(reply, task) if task.get("status") in _ENDED else Answer("completed", reply)

        while True:
            answer = self._flow.leg(wire.listen([self._task_id]), read=read, on_notice=on_notice)
            if problem is not None:
                raise problem
            if task.get("status") in _ENDED:
                return answer
            self._flow.give_up_late_task()
            gevent.sleep(LISTEN_AGAIN_SECONDS)

    def _answer(self, questions: Mapping[str, Any]) -> bool:
        """Answer the task's new questions; return whether there were any."""
        new = {key: question for key, question in questions.items() if key not in self._answered}
        if not new:
            return False
        self._flow.leg(wire.update_task(self._task_id, self._flow.fill_in(new)))
        self._answered.update(new)
        return True

    def _read(self, reply: Reply) -> Answer:
        answer = wire.read_answer(reply)
        return self._meaning(reply, answer.result) if answer.outcome == "completed" else answer

    def _meaning(self, reply: Reply, task: Mapping[str, Any]) -> Answer:
        """Return the meaning of the task's state. Once it has ended, its result is the call's and is checked."""
        match task.get("status"):
            case "completed":
                result = task.get("result") or {}
                if result.get("isError"):
                    return Answer("failed", reply, wire.error_text(result))
                return self._flow.checked(Answer("completed", reply, result={**result, "status": "completed"}))
            case "input_required":
                return Answer("input_required", reply, result=task)
            case "working":
                return Answer("completed", reply, result=task)
            case other:
                return Answer("failed", reply, f"the task is {other}: {task.get('error', {}).get('message', '')}")
