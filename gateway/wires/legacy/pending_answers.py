"""The calls of this process that wait for their client to answer.

Such a call keeps its client's stream open. The answer arrives in another request of the client, to this replica or
through another one. The boot id of the process and the id of the call identify the waiting call.

An answer stays encoded until the last one has arrived. It counts in the caller's share of the bytes that this replica
holds, until the call ends or keeps it no more. If there is no room for it, its call ends. Refusing the answer would not
help: some clients then end their session, and most do not send the answer again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple, TypeAlias

from gateway.calls.authority import Authorities, Authority, Needs, Standing
from gateway.errors import Overloaded, TooManyBodyBytes
from gateway.protocol.strict_json import weight
from gateway.runtime.sources import RandomBytes
from gateway.sealing.request_id import ID_BYTES
from gateway.wires.ports import Held


class Leaving(Exception):
    """No call waits in this process any longer, because the process is about to end."""


class Undelivered(Exception):
    """An answer for a waiting call arrived at a replica that could not deliver it."""


class Lapsed(Exception):
    """The authority of a waiting call has ended, for example because its token has expired."""


class AnswersTooLarge(Exception):
    """The answers that a waiting call keeps would take more bytes together than one body may have."""


Ending: TypeAlias = type[Leaving | Undelivered | Lapsed | AnswersTooLarge | TooManyBodyBytes]
"""Why a call waits no longer although answers are missing."""

MAX_WAITING: Final = 10_000
"""How many calls may wait in one process at a time."""


class WaitingCall:
    """One call that waits for answers of its client, as often as it asks.

    Its id is 16 random bytes. It starts with this authority, and continues with that of the latest answer. `held`
    counts the bytes of its answers, which may be `max_bytes` in all.
    """

    def __init__(self, call_id: bytes, authority: Authority, held: Held, max_bytes: int) -> None:
        self.call_id = call_id
        self.authority = authority
        self._held = held
        self._max_bytes = max_bytes
        self._bytes = 0
        self._expected: dict[str, None] = {}  # ordered
        self._answers: dict[str, bytes] = {}
        self._is_over = asyncio.Event()
        self._ending: Ending | None = None

    def expect(self, keys: Iterable[str], *, keeps: bool = True) -> None:
        """Expect answers to these keys from now on, and to no others.

        A question that is asked again needs a new key. Otherwise a repeated answer would count for the new question.
        Earlier answers still count if the call `keeps` them.
        """
        if not keeps:
            self._held.clear()
            self._bytes = 0
        self._expected = dict.fromkeys(keys)
        self._answers = {}
        self._is_over.clear()
        self._note()

    async def answers(self) -> dict[str, bytes]:
        """Wait until every expected key has an answer, and return the bodies in the order of the keys.

        Raises:
            Lapsed: the authority of the call has ended.
            Leaving: the process is about to end, and answers are missing.
            AnswersTooLarge: the answers are too large together.
            TooManyBodyBytes: the caller has its share, which left no room for an answer.
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

    def take(self, key: str, body: bytes, authority: Authority) -> None:
        """Record the body of an expected answer, and continue with its authority.

        If there is no room for it, end the wait for good.
        """
        if self._bytes + len(body) > self._max_bytes:
            self._end(self._ending or AnswersTooLarge)
            return
        try:
            self._held.keep(weight(body))
        except TooManyBodyBytes:
            self._end(self._ending or TooManyBodyBytes)
            return
        self._bytes += len(body)
        self._answers[key] = body
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

    def _end(self, ending: Ending) -> None:
        self._ending = ending
        self._note()

    def _note(self) -> None:
        if self._ending is not None or len(self._answers) == len(self._expected):
            self._is_over.set()


class _OpenCall(NamedTuple):
    """An open call, its standing, and the session in which it started."""

    call: WaitingCall
    standing: Standing
    session: bytes


@dataclass(slots=True)
class WaitingCalls:
    """Delivers answers to the calls that wait for them. Use it only on the event loop.

    `boot` is 16 random bytes, chosen when this process started. A later process at the same address has others. The
    authorities decide who may continue a call. At most `limit` calls are open at a time. The answers of each may take
    `max_bytes`.
    """

    boot: bytes
    random_bytes: RandomBytes
    authorities: Authorities
    _: KW_ONLY
    max_bytes: int
    limit: int = MAX_WAITING
    _calls: dict[bytes, _OpenCall] = field(default_factory=dict, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __len__(self) -> int:
        """Return how many calls are open."""
        return len(self._calls)

    @contextmanager
    def open(self, authority: Authority, needs: Needs, held: Held) -> Iterator[WaitingCall]:
        """Return a call that can receive answers while the context is open.

        It starts with `authority`; `needs` returns the scopes that it requires, and `held` counts the bytes of its
        answers. If too many calls are open, raise `Overloaded`.
        """
        if len(self._calls) >= self.limit:
            raise Overloaded
        call = WaitingCall(self.random_bytes(ID_BYTES), authority, held, self.max_bytes)
        if self._is_closed:
            call.close()
        with self.authorities.watching(authority, needs, call.lapse) as standing:
            self._calls[call.call_id] = _OpenCall(call, standing, authority.session)
            try:
                yield call
            finally:
                del self._calls[call.call_id]

    def deliver(self, boot: bytes, call_id: bytes, key: str, body: bytes, authority: Authority) -> bool:
        """Deliver the answer to one question of a call, which continues with the authority of the client that answers.

        Return False if nobody waits for the answer: it is for another process (`boot`) or from another caller, or the
        call has ended, or the question already has an answer. `key` is the wire key of the question, `body` the
        client's response, which has been checked.

        Raises:
            InsufficientScope: the token does not grant the scopes of the call, or the answer came in another session.
        """
        place = self._calls.get(call_id)
        if boot != self.boot or place is None or not place.call.expects(key):
            return False
        if not place.standing.pass_to(authority, place.session):
            return False
        place.call.take(key, body, authority)
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
