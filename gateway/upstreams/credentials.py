"""How the gateway proves itself to an upstream.

The caller's own token is never sent to an upstream: `ExchangedCredentials` uses the caller's `exchange`, which sends it
to the identity provider only. No error and no log line contains a token.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from typing_extensions import override

from gateway.auth.fetch import FetchFailed, post_form
from gateway.auth.token_answers import MAX_ANSWER_BYTES, NoToken, basic, read_token, seconds_of
from gateway.errors import TokenExchangeError
from gateway.protocol.caller import TokenWanted
from gateway.runtime.sources import Clock
from gateway.settings.hosts import place_of
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.failures import Reason, UpstreamFailure
from gateway.upstreams.ports import UpstreamCaller

TOKEN_SECONDS: Final = 10.0
"""The time limit of a request to a token endpoint."""
LEEWAY_SECONDS: Final = 30.0
"""How long before its end a token is replaced; half of its life if that is shorter."""
DEFAULT_LIFETIME_SECONDS: Final = 300.0
"""How long a token is used whose lifetime the endpoint does not say."""
MIN_RENEWAL_SECONDS: Final = 10.0
"""A token that is younger than this is not replaced, however often an upstream refuses it."""

AUTHORIZATION: Final = b"authorization"

_RESERVED: Final = frozenset(
    {
        *(b"host", b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect"),
        *(b"content-length", b"content-type", b"content-encoding", b"accept", b"accept-encoding", b"traceparent"),
    }
)
"""Header fields that the transport and the protocol write."""
_RESERVED_PREFIX: Final = b"mcp-"
_NEVER_FORWARDED: Final = frozenset({AUTHORIZATION, b"proxy-authorization", b"cookie"})
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
"""RFC 9110 section 5.5."""

RawHeaders = list[tuple[bytes, bytes]]

log = logging.getLogger(__name__)


class CredentialHeaders:
    """Writes the header fields that a definition adds to each request."""

    async def headers(self, caller: UpstreamCaller) -> RawHeaders:
        """Return the header fields for a request of this caller, names in lower case.

        Without a credential for this caller, this raises `UpstreamFailure` (`CREDENTIALS`).
        """
        raise NotImplementedError

    async def renew(self, _caller: UpstreamCaller, _refused: Sequence[tuple[bytes, bytes]], /) -> bool:
        """Replace a credential that the upstream refused, and return whether `headers` now returns another one.

        The second argument is what `headers` returned. Without another credential, this raises `UpstreamFailure`
        (`CREDENTIALS`).
        """
        return False

    async def token_to_keep(self, _caller: UpstreamCaller, /) -> str | None:
        """Return a token that a task must keep, because it cannot be had without the caller; None if it needs none.

        Without a credential for this caller, this raises `UpstreamFailure` (`CREDENTIALS`).
        """
        return None


def credentials_of(definition: Definition) -> CredentialHeaders:
    """Return the credentials that a definition describes."""
    wanted = definition.credentials
    plain = PlainHeaders(definition.headers, definition.forward_headers, authorizes=wanted.kind == "headers")
    if wanted.kind == "client_credentials":
        fields = {"scope": wanted.scope, "audience": wanted.audience, "resource": wanted.resource}
        client = OAuthClient(wanted.token_url, wanted.client_id, wanted.client_secret, fields)
        return ClientCredentials(definition.name, client, plain)
    if wanted.kind == "token_exchange":
        token = TokenWanted(wanted.audience or "", wanted.scope or "", wanted.resource or "")
        return ExchangedCredentials(definition.name, token, plain)
    return plain


class PlainHeaders(CredentialHeaders):
    """Header fields of the definition, and those of the caller's request that it passes on, which win.

    `Authorization` and `Cookie` are never taken from the caller; `authorizes` tells whether `fields` may contain
    `Authorization`. Fields that the protocol or HTTP itself writes are left out.
    """

    def __init__(
        self, fields: Iterable[tuple[str, str]] = (), forwarded: Iterable[str] = (), *, authorizes: bool = True
    ) -> None:
        taken = (_field(name, value.encode()) for name, value in fields)
        self._fields = [field for field in taken if field and (authorizes or field[0] != AUTHORIZATION)]
        names = dict.fromkeys(name.lower() for name in forwarded)
        self._forwarded = tuple(name for name in names if name.encode("latin-1") not in _NEVER_FORWARDED)

    @override
    async def headers(self, caller: UpstreamCaller) -> RawHeaders:
        return self.of(caller)

    def of(self, caller: UpstreamCaller) -> RawHeaders:
        """Return the header fields for a caller."""
        if not self._forwarded:
            return self._fields
        given = ((name, caller.headers.get(name)) for name in self._forwarded)
        found = ((name, value.encode("latin-1", "replace")) for name, value in given if value is not None)
        passed = [field for name, value in found if (field := _field(name, value))]
        names = {name for name, _ in passed}
        return [*(field for field in self._fields if field[0] not in names), *passed]


class OAuthClient:
    """The gateway as a client of a token endpoint (RFC 6749 section 4.4). Redirects are not followed.

    `fields` are further fields of the request; those without a value are left out.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        fields: Mapping[str, str | None],
        *,
        seconds: float = TOKEN_SECONDS,
    ) -> None:
        self._url = url
        self._headers = {"Authorization": basic(client_id, client_secret)}
        self._form = {name: value for name, value in fields.items() if value}
        self._seconds = seconds

    @property
    def place(self) -> str:
        """The endpoint, to show to operators."""
        return place_of(self._url)

    async def token(self) -> tuple[str, float]:
        """Return a token and its lifetime in seconds, or raise `NoToken`, whose text contains no secret."""
        form = {"grant_type": "client_credentials", **self._form}
        try:
            answer = await post_form(self._url, form, self._headers, seconds=self._seconds, max_bytes=MAX_ANSWER_BYTES)
        except FetchFailed as error:
            raise NoToken(str(error)) from None
        token, stated = read_token(answer)
        return token, seconds_of(stated) or DEFAULT_LIFETIME_SECONDS


@dataclass(frozen=True, slots=True)
class _HeldToken:
    token: str = field(repr=False)
    begun: float
    until: float


class ClientCredentials(CredentialHeaders):
    """A token for the gateway itself, the same for all callers. It is replaced shortly before it expires.

    One request for a token is in progress at a time, and everyone waits for it. `plain` has further header fields.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(
        self, upstream: str, client: OAuthClient, plain: PlainHeaders, *, clock: Clock = time.monotonic
    ) -> None:
        self._upstream = upstream
        self._client = client
        self._plain = plain
        self._clock = clock
        self._held: _HeldToken | None = None
        self._running: asyncio.Task[_HeldToken] | None = None

    @override
    async def headers(self, caller: UpstreamCaller) -> RawHeaders:
        held = self._held
        if held is None or self._clock() >= held.until:
            held = await self._next()
        return _bearing(held.token, self._plain.of(caller))

    @override
    async def renew(self, _caller: UpstreamCaller, refused: Sequence[tuple[bytes, bytes]], /) -> bool:
        held = self._held
        if held is None or _is_other(held.token, refused):
            return True  # another request has replaced it
        if self._clock() < held.begun + MIN_RENEWAL_SECONDS:
            return False
        return _is_other((await self._next()).token, refused)

    async def _next(self) -> _HeldToken:
        if self._running is None:
            self._running = asyncio.create_task(self._fetch())
            self._running.add_done_callback(self._ended)
        try:
            # A caller that leaves must not end the request for the others.
            return await asyncio.shield(self._running)
        except NoToken as error:
            raise UpstreamFailure(self._upstream, Reason.CREDENTIALS, sent=False, detail=str(error)) from None

    async def _fetch(self) -> _HeldToken:
        begun = self._clock()
        try:
            token, lifetime = await self._client.token()
        except NoToken as error:
            place = {"upstream": self._upstream, "url": self._client.place, "reason": str(error)}
            log.warning("no token for an upstream", extra=place)
            raise
        self._held = _HeldToken(token, begun, begun + lifetime - min(LEEWAY_SECONDS, lifetime / 2))
        return self._held

    def _ended(self, done: asyncio.Task[_HeldToken]) -> None:
        self._running = None
        if not done.cancelled():
            done.exception()  # the callers have raised it, or nobody waits any more


class ExchangedCredentials(CredentialHeaders):
    """The caller's token, exchanged for one that the upstream accepts (RFC 8693). In a task, the one that it keeps."""

    def __init__(self, upstream: str, wanted: TokenWanted, plain: PlainHeaders) -> None:
        self._upstream = upstream
        self._wanted = wanted
        self._plain = plain

    @override
    async def headers(self, caller: UpstreamCaller) -> RawHeaders:
        if caller.may_lack_token:
            return self._plain.of(caller)
        return _bearing(caller.token or await self._exchange(caller, self._wanted), self._plain.of(caller))

    @override
    async def renew(self, caller: UpstreamCaller, refused: Sequence[tuple[bytes, bytes]], /) -> bool:
        if caller.token is not None:  # that of a task, whose caller is not there
            return False
        token = await self._exchange(caller, self._wanted)
        if not _is_other(token, refused):
            token = await self._exchange(caller, replace(self._wanted, renewed=True))
        return _is_other(token, refused)

    @override
    async def token_to_keep(self, caller: UpstreamCaller) -> str | None:
        return caller.token or await self._exchange(caller, self._wanted)

    async def _exchange(self, caller: UpstreamCaller, wanted: TokenWanted) -> str:
        if caller.exchange is None:
            raise self._failed("there is no token of the caller to exchange")
        try:
            exchanged = await caller.exchange(wanted)
        except TokenExchangeError as error:
            raise self._failed(str(error)) from None
        return exchanged.get_secret_value()

    def _failed(self, detail: str) -> UpstreamFailure:
        return UpstreamFailure(self._upstream, Reason.CREDENTIALS, sent=False, detail=detail)


def _field(name: str, value: bytes) -> tuple[bytes, bytes] | None:
    """Return a header field as it is sent, or None if it may not be sent."""
    key, content = name.lower().encode("latin-1", "replace"), value.strip(b" \t")
    if key in _RESERVED or key.startswith(_RESERVED_PREFIX) or not _VALUE.fullmatch(content):
        return None
    return key, content


def _bearing(token: str, plain: RawHeaders) -> RawHeaders:
    return [*plain, (AUTHORIZATION, _bearer(token))]


def _is_other(token: str, refused: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether a token differs from the one in these header fields."""
    return (AUTHORIZATION, _bearer(token)) not in refused


def _bearer(token: str) -> bytes:
    return b"Bearer " + token.encode("ascii")
