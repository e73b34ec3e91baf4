"""Exchanges a caller's token for one that another service accepts (RFC 8693).

Only this module sends a caller's token anywhere: to the token endpoint in the settings. Neither that token nor the one
from the endpoint appears in a log or an error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self, TypeAlias
from weakref import WeakValueDictionary

from gateway.auth.fetch import Fetched, FetchFailed, post_form
from gateway.auth.token_answers import MAX_ANSWER_BYTES, NoToken, basic, error_code, read_token, seconds_of
from gateway.engine.exchanged_token import ExchangedToken
from gateway.errors import TokenExchangeError
from gateway.protocol.caller import Exchange, TokenWanted
from gateway.runtime.sources import Clock
from gateway.sealing.principal import Principal
from gateway.settings.hosts import place_of
from gateway.settings.model import Settings

EXCHANGE_SECONDS: Final = 10.0
"""The time limit of an exchange, including the wait for its turn."""
MAX_AT_ONCE: Final = 16
"""Exchanges in progress at once. Each uses a thread."""
MAX_OF_CALLER: Final = MAX_AT_ONCE // 4
"""The same for one caller, so that those of others need not wait for all of its own."""
LEEWAY_SECONDS: Final = 30.0
"""How long before its end a token is no longer handed out, so that the other service still accepts it."""
UNSTATED_SECONDS: Final = 60.0
"""How long a token is cached whose lifetime the endpoint does not state: `expires_in` is only recommended (RFC 8693
section 2.2.1). A service that refuses it sooner causes a renewal."""
RENEWAL_SECONDS: Final = 10.0
"""How soon a renewed token can be renewed again. Otherwise a service that refuses every token would cause as many
exchanges as calls, and the endpoint may limit them for all callers together."""
CACHE_ENTRIES: Final = 4096

_TYPE: Final = "urn:ietf:params:oauth:token-type:"
_GRANT_TYPE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_BEARER_TYPES: Final = (None, f"{_TYPE}access_token", f"{_TYPE}jwt")
"""Types of issued tokens that an API accepts. Some servers omit the type."""

_Key: TypeAlias = tuple[Principal, bytes, TokenWanted]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _KeptToken:
    token: ExchangedToken
    until: float
    renewable_from: float


class TokenExchange:
    """Exchanges tokens at one endpoint, and caches what it gets until shortly before it expires.

    A cached token belongs to one caller, one token of that caller, and one audience. For each of these, one exchange is
    in progress at a time, and further requests wait for it.

    At most `cache_entries` tokens are cached; the least recently used one is dropped first.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        seconds: float = EXCHANGE_SECONDS,
        cache_entries: int = CACHE_ENTRIES,
        clock: Clock = time.monotonic,
    ) -> None:
        self._url = url
        self._place = place_of(url)
        self._authorization = basic(client_id, client_secret)
        self._seconds = seconds
        self._cache_entries = cache_entries
        self._clock = clock
        self._kept: OrderedDict[_Key, _KeptToken] = OrderedDict()
        self._running: dict[_Key, asyncio.Task[ExchangedToken]] = {}
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)
        self._turns_of = WeakValueDictionary[Principal, asyncio.Semaphore]()

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return the exchange that the settings describe; None if they describe none."""
        url, client_id, secret = (
            settings.token_exchange_url,
            settings.token_exchange_client_id,
            settings.token_exchange_client_secret,
        )
        if url is None or client_id is None or secret is None:
            return None
        return cls(url, client_id, secret.get_secret_value())

    def __repr__(self) -> str:
        return f"TokenExchange({self._place!r})"

    def for_token(self, token: str, principal: Principal, seconds_left: Callable[[], float]) -> Exchange:
        """Return a function that exchanges a caller's token. It is all that the rest of the gateway gets of the token.

        No error that it raises has the token in a frame of its traceback, and no two callers get the same error.
        `seconds_left` returns the remaining life of the token.
        """

        async def attempt(wanted: TokenWanted) -> ExchangedToken | TokenExchangeError:
            if seconds_left() <= 0:
                return TokenExchangeError("The caller's token has expired, so it cannot be exchanged")
            try:
                return await self.exchange(token, principal, wanted)
            except TokenExchangeError as error:
                return TokenExchangeError(str(error), error.code)

        async def exchange(wanted: TokenWanted) -> ExchangedToken:
            outcome = await attempt(wanted)  # its frame has the token, so it raises nothing itself
            if isinstance(outcome, TokenExchangeError):
                raise outcome
            return outcome

        return exchange

    async def exchange(self, token: str, principal: Principal, wanted: TokenWanted) -> ExchangedToken:
        """Return a token for another service.

        If the endpoint refuses, or its answer is late or not usable, this raises `TokenExchangeError`.
        """
        key = (principal, sha256(token.encode()).digest(), wanted)
        kept = self._kept.get(key)
        if kept is not None:
            now = self._clock()
            if now < kept.until and not (wanted.renewed and now >= kept.renewable_from):
                self._kept.move_to_end(key)
                return kept.token
            del self._kept[key]
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.create_task(self._exchange(key, token))
            running.add_done_callback(lambda done: self._ended(key, done))
        # A client that disconnects must not end the exchange for the others.
        return await asyncio.shield(running)

    def _ended(self, key: _Key, done: asyncio.Task[ExchangedToken]) -> None:
        del self._running[key]
        if not done.cancelled():
            done.exception()  # the callers have raised it, or nobody waits any more

    async def _exchange(self, key: _Key, token: str) -> ExchangedToken:
        wanted = key[2]
        began = self._clock()
        own = self._turns_of.setdefault(key[0], asyncio.Semaphore(MAX_OF_CALLER))
        try:
            async with asyncio.timeout(self._seconds), own, self._turns:
                answer = await self._post(_request(token, wanted))
            issued, stated = read_token(answer, _BEARER_TYPES)
        except TimeoutError:
            raise self._failed(wanted, f"no answer within {self._seconds:g} seconds") from None
        except FetchFailed as error:
            raise self._failed(wanted, str(error)) from None
        except NoToken as error:
            raise self._failed(wanted, str(error), error.code) from None
        exchanged = ExchangedToken(issued, wanted.audience)
        lifetime = UNSTATED_SECONDS + LEEWAY_SECONDS if stated is None else seconds_of(stated)
        renewable_from = began + RENEWAL_SECONDS if wanted.renewed else began
        self._keep(key, _KeptToken(exchanged, began + lifetime - LEEWAY_SECONDS, renewable_from))
        return exchanged

    async def probe(self) -> str:
        """Return the error code with which the endpoint refuses a request without a token, "" if it gives none.

        The code shows whether the endpoint knows this deployment. Without an answer, this raises `FetchFailed`.
        """
        answer = await self._post({"grant_type": _GRANT_TYPE})
        return "" if answer.status == 200 else error_code(answer)

    async def _post(self, fields: Mapping[str, str]) -> Fetched:
        headers = {"Authorization": self._authorization}
        return await post_form(self._url, fields, headers, seconds=self._seconds, max_bytes=MAX_ANSWER_BYTES)

    def _keep(self, key: _Key, kept: _KeptToken) -> None:
        if kept.until <= self._clock():
            return
        self._kept[key] = kept
        if len(self._kept) > self._cache_entries:
            self._kept.popitem(last=False)

    def _failed(self, wanted: TokenWanted, reason: str, code: str = "") -> TokenExchangeError:
        log.warning("token not exchanged", extra={"url": self._place, "audience": wanted.audience, "reason": reason})
        return TokenExchangeError(f"The token could not be exchanged for one for {wanted.audience!r}: {reason}", code)


def _request(token: str, wanted: TokenWanted) -> dict[str, str]:
    """Return the fields of the request (RFC 8693 section 2.1)."""
    access_token = f"{_TYPE}access_token"
    fields = {
        "grant_type": _GRANT_TYPE,
        "subject_token": token,
        "subject_token_type": access_token,
        "requested_token_type": access_token,
        "audience": wanted.audience,
        "scope": wanted.scope,
        "resource": wanted.resource,
    }
    return {name: value for name, value in fields.items() if value}
