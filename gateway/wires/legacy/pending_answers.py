"""The calls of this process that wait for their client to answer.

Such a call keeps its client's stream open. The answer comes with another request of the client, to this replica or by
way of another one, and finds the call by the boot id of the process and the id of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from gateway.calls.authority import Authorities, Authority, Needs, Standing
from gateway.engine.questions import Answer
from gateway.errors import Overloaded
from gateway.runtime.sources import RandomBytes
from gateway.sealing.request_id import ID_BYTES


class Leaving(Exception):
    """Nobody waits in this process any more: it is about to end."""


class Lapsed(Exception):
    """The authority by which a call waited is over."""


MAX_WAITING: Final = 10_000
"""Calls that one process lets wait at a time."""


class WaitingCall:
    """One call that asks its client, as often as it likes.

    Args:
        call_id: 16 random bytes.
        authority: by which it began.

    Attributes:
        call_id: as given.
        authority: by which it goes on: that of the token which the latest answer came with.
    """

    def __init__(self, call_id: bytes, authority: Authority) -> None:
        self.call_id = call_id
        self.authority = authority
        self._expected: dict[str, None] = {}  # ordered
        self._answers: dict[str, Answer] = {}
        self._is_over = asyncio.Event()
        self._is_closed = False
        self._has_lapsed = False

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
            Lapsed: nobody may go on with the call any more.
            Leaving: there is no time to wait for those that are missing.
        """
        await self._is_over.wait()
        if self._has_lapsed:
            raise Lapsed
        if len(self._answers) < len(self._expected):
            raise Leaving
        return {key: self._answers[key] for key in self._expected}

    def expects(self, key: str) -> bool:
        """Tell whether the answer to a key is expected and not there yet."""
        return key in self._expected and key not in self._answers

    def take(self, key: str, answer: Answer, authority: Authority) -> None:
        """Take the answer to a key that is expected; go on by the authority that it came with."""
        self._answers[key] = answer
        self.authority = authority
        self._note()

    def lapse(self) -> None:
        """Go on no more, now or later."""
        self._has_lapsed = True
        self.close()

    def close(self) -> None:
        """Wait no longer, now or later."""
        self._is_closed = True
        self._note()

    def _note(self) -> None:
        if self._is_closed or len(self._answers) == len(self._expected):
            self._is_over.set()


class _Place(NamedTuple):
    """An open call, by whose authority it goes on, and the session in which it began."""

    call: WaitingCall
    standing: Standing
    session: bytes


class WaitingCalls:
    """Brings answers to the calls that wait for them. Use it on the event loop alone.

    Args:
        boot: 16 random bytes that this process took when it started: a later one at the same address has others.
        random_bytes: where the ids of the calls come from.
        authorities: tell who may go on with a call.
        limit: how many calls may be open at a time.
    """

    def __init__(
        self, boot: bytes, random_bytes: RandomBytes, authorities: Authorities, *, limit: int = MAX_WAITING
    ) -> None:
        self._boot = boot
        self._random_bytes = random_bytes
        self._authorities = authorities
        self._limit = limit
        self._calls: dict[bytes, _Place] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many calls are open."""
        return len(self._calls)

    @property
    def boot(self) -> bytes:
        """The boot id of this process."""
        return self._boot

    @contextmanager
    def open(self, authority: Authority, needs: Needs) -> Iterator[WaitingCall]:
        """Return a call that answers can be delivered to while the context lasts.

        Args:
            authority: by which it began.
            needs: the scopes that it takes.

        Raises:
            Overloaded: as many are open as may be.
        """
        if len(self._calls) >= self._limit:
            raise Overloaded
        call = WaitingCall(self._random_bytes(ID_BYTES), authority)
        if self._is_closed:
            call.close()
        with self._authorities.watching(authority, needs, call.lapse) as standing:
            self._calls[call.call_id] = _Place(call, standing, authority.session)
            try:
                yield call
            finally:
                del self._calls[call.call_id]

    def deliver(self, boot: bytes, call_id: bytes, key: str, answer: Answer, authority: Authority) -> bool:
        """Give a call the answer to one of its questions.

        Args:
            boot: the boot id of the process that it is for.
            call_id: the call.
            key: the question, by its wire key.
            answer: the answer.
            authority: by which it is given; the call goes on by it.

        Returns:
            False if nobody waits for it: it is for another process or from somebody else, the call is over, or it has
            an answer already.

        Raises:
            InsufficientScope: its token does not grant what the call takes, or it came with another session.
        """
        place = self._calls.get(call_id)
        if boot != self._boot or place is None or not place.call.expects(key):
            return False
        if not place.standing.pass_to(authority, place.session):
            return False
        place.call.take(key, answer, authority)
        return True

    def close(self) -> None:
        """End all waits, those that begin later included."""
        self._is_closed = True
        for place in self._calls.values():
            place.call.close()
