"""The calls of this process that wait for their client to answer.

Such a call keeps its client's stream open. The answer comes with another request of the client, to this replica or by
way of another one, and finds the call by the boot id of the process and the id of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from gateway.authority import Authority
from gateway.engine.questions import Answer
from gateway.errors import Overloaded
from gateway.ports import RandomBytes
from gateway.sealing.return_address import ID_BYTES


class Leaving(Exception):
    """Nobody waits in this process any more: it is about to end."""


MAX_WAITING: Final = 10_000
"""Calls that one process lets wait at a time."""


class WaitingCall:
    """One call that asks its client, as often as it likes.

    Attributes:
        call_id: 16 random bytes.
    """

    def __init__(self, call_id: bytes) -> None:
        self.call_id = call_id
        self._expected: dict[str, None] = {}  # ordered
        self._answers: dict[str, Answer] = {}
        self._is_over = asyncio.Event()
        self._is_closed = False

    def expect(self, keys: Iterable[str]) -> None:
        """Wait for answers to these keys from now on, and to no others.

        A question that is asked again needs another key: an answer that comes twice would be taken for the new one.
        """
        self._expected = dict.fromkeys(keys)
        self._answers = {}
        self._is_over.clear()
        self._note()

    async def answers(self) -> dict[str, Answer]:
        """Wait until every expected key has its answer; return them in the order in which they were expected.

        Raises:
            Leaving: there is no time to wait for those that are missing.
        """
        await self._is_over.wait()
        if len(self._answers) < len(self._expected):
            raise Leaving
        return {key: self._answers[key] for key in self._expected}

    def take(self, key: str, answer: Answer) -> bool:
        """Take the answer to a key; return False if it is not expected or is there already."""
        if key not in self._expected or key in self._answers:
            return False
        self._answers[key] = answer
        self._note()
        return True

    def close(self) -> None:
        """Wait no longer, now or later."""
        self._is_closed = True
        self._note()

    def _note(self) -> None:
        if self._is_closed or len(self._answers) == len(self._expected):
            self._is_over.set()


class WaitingCalls:
    """Brings answers to the calls that wait for them. Use it on the event loop alone.

    Args:
        boot: 16 random bytes that this process took when it started: a later one at the same address has others.
        random_bytes: where the ids of the calls come from.
        limit: how many calls may be open at a time.
    """

    def __init__(self, boot: bytes, random_bytes: RandomBytes, *, limit: int = MAX_WAITING) -> None:
        self._boot = boot
        self._random_bytes = random_bytes
        self._limit = limit
        self._calls: dict[bytes, WaitingCall] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many calls are open."""
        return len(self._calls)

    @property
    def boot(self) -> bytes:
        """The boot id of this process."""
        return self._boot

    @contextmanager
    def open(self) -> Iterator[WaitingCall]:
        """Return a call that answers can be delivered to while the context lasts.

        Raises:
            Overloaded: as many are open as may be.
        """
        if len(self._calls) >= self._limit:
            raise Overloaded
        call = WaitingCall(self._random_bytes(ID_BYTES))
        if self._is_closed:
            call.close()
        self._calls[call.call_id] = call
        try:
            yield call
        finally:
            del self._calls[call.call_id]

    def deliver(
        self,
        boot: bytes,
        call_id: bytes,
        key: str,
        answer: Answer,
        authority: Authority | None = None,  # noqa: ARG002
    ) -> bool:
        """Give a call the answer to one of its questions.

        Args:
            boot: the process that the answer is for.
            call_id: the call.
            key: the question.
            answer: the answer.
            authority: by which it is given.

        Returns:
            False if nobody waits for it: it is for another process, the call is over, or it has an answer already.
        """
        call = self._calls.get(call_id)
        return boot == self._boot and call is not None and call.take(key, answer)

    def close(self) -> None:
        """End all waits, those that begin later included."""
        self._is_closed = True
        for call in self._calls.values():
            call.close()
