"""The calls of this process that wait for their client to answer.

Such a call keeps its client's stream open. The answer arrives in another request of the client, to this replica or
through another one. The boot id of the process and the id of the call identify the waiting call.
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
    """No call waits in this process any longer, because the process is about to end."""


class Undelivered(Exception):
    """An answer for a waiting call arrived at a replica that could not deliver it."""


class Lapsed(Exception):
    """The authority of a waiting call has ended, for example because its token has expired."""


MAX_WAITING: Final = 10_000
"""How many calls may wait in one process at a time."""


class WaitingCall:
    """One call that waits for answers of its client, as often as it asks.

    Its id is 16 random bytes. It starts with this authority, and continues with that of the latest answer.
    """

    def __init__(self, call_id: bytes, authority: Authority) -> None:
        self.call_id = call_id
        self.authority = authority
        self._expected: dict[str, None] = {}  # ordered
        self._answers: dict[str, Answer] = {}
        self._is_over = asyncio.Event()
        self._ending: type[Leaving | Undelivered | Lapsed] | None = None

    def expect(self, keys: Iterable[str]) -> None:
        """Expect answers to these keys from now on, and to no others.

        A question that is asked again needs a new key. Otherwise a repeated answer would count for the new question.
        """
        self._expected = dict.fromkeys(keys)
        self._answers = {}
        self._is_over.clear()
        self._note()

    async def answers(self) -> dict[str, Answer]:
        """Wait until every expected key has an answer, and return the answers in the order of the keys.

        Raises:
            Lapsed: the authority of the call has ended.
            Leaving: the process is about to end, and answers are missing.
            Undelivered: an answer was lost on its way.
        """
        await self._is_over.wait()
        ending = self._ending
        if ending is not None and (ending is Lapsed or len(self._answers) < len(self._expected)):
            raise ending
        return {key: self._answers[key] for key in self._expected}

    def expects(self, key: str) -> bool:
        """Return whether the answer to this key is expected and still missing."""
        return key in self._expected and key not in self._answers

    def take(self, key: str, answer: Answer, authority: Authority) -> None:
        """Record an expected answer, and continue with its authority."""
        self._answers[key] = answer
        self.authority = authority
        self._note()

    def lapse(self) -> None:
        """End the wait for good, because the authority has ended."""
        self._end(Lapsed)

    def close(self) -> None:
        """End the wait for good, because the process is about to end."""
        self._end(self._ending or Leaving)

    def lose(self) -> None:
        """End the wait for good, because an answer was lost on its way."""
        self._end(self._ending or Undelivered)

    def _end(self, ending: type[Leaving | Undelivered | Lapsed]) -> None:
        self._ending = ending
        self._note()

    def _note(self) -> None:
        if self._ending is not None or len(self._answers) == len(self._expected):
            self._is_over.set()


class _Place(NamedTuple):
    """An open call, its standing, and the session in which it started."""

    call: WaitingCall
    standing: Standing
    session: bytes


class WaitingCalls:
    """Delivers answers to the calls that wait for them. Use it only on the event loop.

    `boot` is 16 random bytes, chosen when this process started. A later process at the same address has others. The
    authorities decide who may continue a call. At most `limit` calls are open at a time.
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
        """Return a call that can receive answers while the context is open.

        It starts with `authority`; `needs` returns the scopes that it requires. If too many calls are open, raise
        `Overloaded`.
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
        """Deliver the answer to one question of a call, which continues with the authority of the client that answers.

        Return False if nobody waits for the answer: it is for another process (`boot`) or from another caller, or the
        call has ended, or the question already has an answer. `key` is the wire key of the question.

        Raises:
            InsufficientScope: the token does not grant the scopes of the call, or the answer came in another session.
        """
        place = self._calls.get(call_id)
        if boot != self._boot or place is None or not place.call.expects(key):
            return False
        if not place.standing.pass_to(authority, place.session):
            return False
        place.call.take(key, answer, authority)
        return True

    def lose(self, call_id: bytes, key: str, session: bytes) -> None:
        """End the call that waits for this answer, because a replica that received the answer could not deliver it.

        `key` is the wire key of the question. Only an answer in the session of the call counts.
        """
        place = self._calls.get(call_id)
        if place is not None and place.session in (b"", session) and place.call.expects(key):
            place.call.lose()

    def close(self) -> None:
        """End all waits, including those that start later."""
        self._is_closed = True
        for place in self._calls.values():
            place.call.close()
