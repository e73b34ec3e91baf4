"""An MCP client on Locust's fast HTTP session. It runs calls and tasks to their end, and checks and reports every leg.

It behaves like a patient client. A call that was handed on is resumed at once. A refused request is retried when the
refusal says so, and a request whose connection was lost is retried too. All of it is counted.
Each leg is a Locust request. For more about legs and calls, add a function to `leg_listeners` or `call_listeners`.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import gevent
from locust.contrib.fasthttp import FastHttpSession

from loadtest import wire
from loadtest.errand import CallEndedError, Errand
from loadtest.following import FollowedTask
from loadtest.legs import SegmentCounts
from loadtest.rawdata import Call, Leg
from loadtest.replies import Notice, read_reply
from loadtest.segmented import SegmentedCall
from loadtest.tokens import Tokens
from loadtest.wire import Answer, Reply, Request

MAX_LEGS: Final = 40
"""More legs than any call needs, not counting refused ones. A call with more is in a loop."""
MAX_RETRIES: Final = 3
"""How often a call retries a request whose connection was lost."""
RETRY_SECONDS: Final = 0.2
"""The wait before the first such retry; it doubles each time."""
TASK_SECONDS: Final = 120.0
"""How long a task is followed, despite refusals and lost connections."""

CUT_OFF: Final = "the run ended before the call did"
"""The reason for an unfinished call."""

Read: TypeAlias = Callable[[Reply], Answer]

leg_listeners: Final[list[Callable[[Leg], object]]] = []
"""Called with each request that was answered or lost."""
call_listeners: Final[list[Callable[[Call], object]]] = []
"""Called with each call, however it ended."""

_call_numbers = itertools.count(1)


class McpClient:
    """One user's client.

    Args:
        session: sends requests and reports them to Locust.
        user: the kind of user.
        clock: returns the seconds since the run began.
        refusals: how often a call may be refused for load before the user gives up.
    """

    def __init__(
        self,
        session: FastHttpSession,
        endpoint: str,
        user: str,
        *,
        clock: Callable[[], float],
        tokens: Tokens,
        refusals: int,
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._tokens = tokens
        self.user = user
        self.clock = clock
        self.refusals = refusals

    def call(self, errand: Errand) -> Answer | None:
        """Run an errand to its end, and return the final answer, or None.

        Every answer is recorded; none raises.
        """
        with Flow(self, errand) as flow:
            flow.answer = flow.run()
        return flow.answer

    def spoil(self, errand: Errand, spoil: Callable[[str], str]) -> Answer | None:
        """Run an errand, and send a spoiled state once. It must be rejected, and the call must still succeed.

        Args:
            errand: asks at least one question.
            spoil: turns a good state into a bad one.
        """
        with Flow(self, errand) as flow:
            flow.answer = flow.run(spoil)
        return flow.answer

    def exchange(
        self, request: Request, request_id: int, label: str, read: Read, on_notice: Notice
    ) -> tuple[float, Answer]:
        """Send one request, report it to Locust, and return when it was sent, and the answer."""
        body, headers = request.body(request_id).decode(), request.headers(self._tokens.current())
        sent = self.clock()
        began = time.perf_counter()
        with self._session.request(
            "POST",
            self._endpoint,
            data=body,
            headers=headers,
            catch_response=True,
            stream=True,
        ) as response:
            listening = request.method == "subscriptions/listen"
            told = response.request_meta["response_time"] if listening else None
            answer = read(read_reply(response, request, request_id, on_notice))
            elapsed = (time.perf_counter() - began) * 1000
            response.request_meta.update(
                request_type="leg",
                name=label,
                response_time=elapsed if told is None else told,
                response_length=len(answer.reply.body),
            )
            if answer.outcome in {"refused", "failed", "wrong"}:
                response.failure(f"{answer.outcome}: {answer.reason}")
            else:
                response.success()
        return sent, answer


def endpoint_of(host: str) -> str:
    """Return the URL of the MCP endpoint: the host itself if it has a path, otherwise `/mcp` on it."""
    return host if urlsplit(host).path.strip("/") else host.rstrip("/") + wire.PATH


class Flow:
    """One call in progress: its legs and its counters.

    Attributes:
        counts: the counters of its segments.
        answer: the final one, once it is there.
    """

    def __init__(self, client: McpClient, errand: Errand) -> None:
        self._client = client
        self.errand = errand
        self._id = f"{os.getpid():x}-{next(_call_numbers)}"
        self._began = client.clock()
        self._numbers = itertools.count(1)
        self._legs = self._hops = self._sheds = self._refusals = self._retries = 0
        self._replica = ""
        self._asked: Counter[str] = Counter()
        self._deadline = float("inf")
        self.counts = SegmentCounts()
        self.answer: Answer | None = None

    def __enter__(self) -> Flow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, CallEndedError):
            self._tell_end(error.outcome, error.reason)
            return True
        if isinstance(error, Exception):
            self._tell_end("failed", type(error).__name__)
        else:
            self._tell_end(*(("finished", "") if error is None else ("unfinished", CUT_OFF)))
        return False

    def _tell_end(self, outcome: str, reason: str) -> None:
        call = Call(
            t=round(self._began, 6),
            seconds=self.elapsed(),
            user=self._client.user,
            call=self._id,
            tool=self.errand.tool,
            legs=self._legs,
            hops=self._hops,
            sheds=self._sheds,
            refusals=self._refusals,
            retries=self._retries,
            asked=dict(self._asked),
            outcome=outcome,
            reason=reason,
            **asdict(self.counts),
        )
        for listener in call_listeners:
            listener(call)

    def run(self, spoil: Callable[[str], str] | None = None) -> Answer:
        """Call the tool leg by leg until it is done."""
        if self.errand.breaks is not None:
            return SegmentedCall(self, self.errand.breaks).run()
        state, stage = "", "first"
        answers: Mapping[str, Mapping[str, Any]] = {}
        while True:
            answer = self.leg(self._call(state, answers), stage, self._read_call)
            if answer.outcome == "shed":
                state, stage, answers = answer.state, "shed", {}
            elif answer.outcome == "input_required":
                answers = self.fill_in(answer.questions)
                if spoil is not None:
                    self.leg(self._call(spoil(answer.state), answers), "retry", wire.read_state_refusal)
                    spoil = None
                state, stage = answer.state, "retry"
            elif answer.outcome == "task_created":
                self.begin_task()
                task = FollowedTask(self, str(answer.result["taskId"]))
                return task.listen() if self.errand.listens else task.poll()
            else:
                return answer

    def _call(self, state: str, answers: Mapping[str, Mapping[str, Any]]) -> Request:
        errand = self.errand
        return wire.call_tool(
            errand.tool,
            errand.arguments,
            state=state,
            answers=answers,
            tasks=errand.tasks,
            progress=errand.progress,
        )

    def fill_in(self, questions: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Think, and return the answer to each question.

        Raises:
            CallEndedError: one of them is not expected.
        """
        for key in questions:
            self._asked[wire.author_key(key)] += 1
            if wire.author_key(key) not in self.errand.answers:
                raise CallEndedError(f"unexpected question {key}")
        gevent.sleep(self.errand.think())
        return {key: self.errand.answers[wire.author_key(key)] for key in questions}

    def elapsed(self) -> float:
        """Return how long the call has taken so far, in seconds."""
        return round(self._client.clock() - self._began, 6)

    def begin_task(self) -> None:
        """Follow the call as a task from now on. It is stored, so it survives lost connections."""
        self._deadline = min(self._deadline, self._client.clock() + TASK_SECONDS)

    def is_late(self) -> bool:
        """Whether its task has run for too long."""
        return self._client.clock() > self._deadline

    def give_up_late_task(self) -> None:
        """End the call if it `is_late`.

        Raises:
            CallEndedError: it is.
        """
        if self.is_late():
            raise CallEndedError(f"the task did not end within {TASK_SECONDS:g} seconds")

    def _read_call(self, reply: Reply) -> Answer:
        answer = wire.read_answer(reply)
        return self.checked(answer) if answer.outcome == "completed" else answer

    def leg(
        self,
        request: Request,
        stage: str = "",
        read: Read = wire.read_answer,
        on_notice: Notice = lambda _message: False,
        again: Callable[[], Request] | None = None,
    ) -> Answer:
        """Send a request until it is answered, for as long as a patient client would.

        Args:
            request: the request.
            stage: its place in the call, if it calls the tool.
            read: returns the meaning of the reply.
            on_notice: called with each message before the response.
            again: returns the request to send after a refusal or a lost connection; by default the same one.

        Raises:
            CallEndedError: it was refused or lost too often, or the answer says that the call has failed.
        """
        while True:
            label = f"{self.errand.tool} {stage if request.method == 'tools/call' else request.method}"
            answer = self._send(request, label, read, on_notice)
            if answer.outcome == "refused":
                self._refusals += 1
                self._give_up_if(self._refusals > self._client.refusals, answer)
                gevent.sleep(answer.reply.retry_after * random.uniform(1.0, 1.5))
            elif answer.lost:
                self._retries += 1
                self._give_up_if(self._retries > MAX_RETRIES, answer)
                gevent.sleep(RETRY_SECONDS * min(2 ** (self._retries - 1), 8) * random.uniform(0.5, 1.5))
            elif answer.outcome in {"failed", "wrong"}:
                prefix = "wrong: " if answer.outcome == "wrong" else ""
                raise CallEndedError(prefix + answer.reason)
            else:
                self._sheds += answer.outcome == "shed"
                return answer
            request = again() if again is not None else request

    def _give_up_if(self, often: bool, answer: Answer) -> None:
        """Give up a call that was refused or lost this often. A task is stored: poll it until its time is over."""
        if self.is_late() or (often and self._deadline == float("inf")):
            raise CallEndedError(answer.reason, "refused" if answer.outcome == "refused" else "failed")

    def _send(self, request: Request, label: str, read: Read, on_notice: Notice) -> Answer:
        """Send a request once, check the reply, and record it."""
        number = next(self._numbers)
        if number - self._refusals > MAX_LEGS and self._deadline == float("inf"):
            raise CallEndedError(f"no end after {MAX_LEGS} legs")
        sent, answer = self._client.exchange(request, number, label, read, on_notice)
        reply = answer.reply
        self._legs += 1
        if reply.replica and answer.outcome not in {"refused", "failed"}:
            self._hops += self._replica not in ("", reply.replica)
            self._replica = reply.replica
        leg = Leg(
            t=round(sent, 6),
            seconds=round(self._client.clock() - sent, 6),
            user=self._client.user,
            call=self._id,
            leg=number,
            method=request.method,
            tool=self.errand.tool,
            replica=reply.replica,
            status=reply.status,
            outcome=answer.outcome,
            reason=answer.reason,
            state_bytes=len(answer.state),
        )
        for listener in leg_listeners:
            listener(leg)
        return answer

    def checked(self, answer: Answer) -> Answer:
        """Check the content of a tool's result; return a `wrong` answer if it is not as expected."""
        problem = self.errand.check(answer)
        return answer if problem is None else Answer("wrong", answer.reply, problem, answer.result)
