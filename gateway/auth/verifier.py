"""Verifies bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519), following RFC 8725.

A verified token is cached until it expires, because verifying one costs more than running a short tool. Every refused
token gets the same answer. The log has the reason, but never the token.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import jwt

from gateway.auth.claim_forms import Audiences, RefusedToken, check_type, instant_of, scopes_of, text_of
from gateway.auth.keys import Keys, KeysUnavailable, SharedSecret, UnknownKey
from gateway.auth.providers import RETRY_SECONDS, FileKeys, UrlKeys
from gateway.auth.token_exchange import TokenExchange
from gateway.errors import HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.protocol import challenges
from gateway.protocol.caller import Exchange
from gateway.protocol.challenges import Challenges
from gateway.sealing import base64url
from gateway.sealing.principal import NO_CLAIMS, Claims, Principal
from gateway.settings.model import Settings

MAX_HEADER_CHARACTERS: Final = 8192
DEFAULT_LEEWAY_SECONDS: Final = 30.0
DEFAULT_CACHE_ENTRIES: Final = 4096
MAX_CLAIM_BYTES: Final = 4096
"""How large the claims that tools see may be, as JSON."""

_USUAL: Final = re.compile(r"Bearer [^ \t]+")
_ONE_TOKEN: Final = re.compile(r"[^ \t,;\"']+")
_NOT_VALID: Final = "The access token is not valid"

# A JSON parser raises the last two on hostile text; not every release of PyJWT wraps them.
_WHAT_DECODING_RAISES: Final = (jwt.PyJWTError, ValueError, RecursionError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a request's credentials prove.

    Attributes:
        principal: the caller; None is the anonymous one.
        scopes: what the token allows (RFC 8693 section 4.2).
        expires_at: when the token expires, in seconds since the epoch, without leeway.
        ends_at: when it is no longer accepted: the same with leeway.
        key: the name of the key that signed it, b"" for a key that never changes.
        exchange: exchanges the token, None if the deployment exchanges none.
    """

    principal: Principal | None
    scopes: frozenset[str]
    expires_at: float
    ends_at: float
    key: bytes
    exchange: Exchange | None = None

    def grants(self, scopes: frozenset[str]) -> bool:
        """Return whether the token allows all of these scopes; the anonymous caller may do everything."""
        return self.principal is None or scopes <= self.scopes


class AnonymousVerifier:
    """Accepts every request as the anonymous caller, whatever it contains. For `GATEWAY_AUTH=none`."""

    _ANYBODY: Final = VerifiedToken(principal=None, scopes=frozenset(), expires_at=math.inf, ends_at=math.inf, key=b"")

    def known(self, _authorization_header: str | None) -> VerifiedToken:
        """Return the anonymous caller."""
        return self._ANYBODY

    async def authenticate(self, _authorization_header: str | None) -> VerifiedToken:
        """Return the anonymous caller."""
        return self._ANYBODY

    def running(self) -> AbstractAsyncContextManager[None]:
        """Do nothing: there are no keys."""
        return nullcontext()

    def has_left(self, _key: bytes) -> bool:
        """Return False: there are no keys."""
        return False

    def on_change(self, tell: Callable[[], None]) -> None:
        """Do nothing: there are no keys."""


class TokenVerifier:
    """Verifies the tokens of one deployment.

    Never mix algorithms for secrets and for public keys: then a public key could be used as a secret (RFC 8725 section
    2.1). A token's `aud` must contain one of the audiences; without an issuer, any `iss` is accepted. Clocks may differ
    by `leeway_seconds`. The clock returns seconds since the epoch. Of `cache_entries` verified tokens, the least
    recently used one is dropped first. Tools see only these claims.

    Not thread-safe: it belongs to one event loop.
    """

    def __init__(
        self,
        keys: Keys,
        audiences: tuple[str, ...],
        *,
        algorithms: Iterable[str] = ("HS256",),
        issuer: str | None = None,
        leeway_seconds: float = DEFAULT_LEEWAY_SECONDS,
        clock: Callable[[], float] = time.time,
        cache_entries: int = DEFAULT_CACHE_ENTRIES,
        challenges: Challenges | None = None,
        claims: Iterable[str] = (),
        scope_claim: str | None = None,
        client_ids: Iterable[str] = (),
        exchange: TokenExchange | None = None,
    ) -> None:
        self._keys = keys
        self._named = audiences
        self._audiences = Audiences(audiences, client_ids)
        self._algorithms = frozenset(algorithms)
        self._issuer = issuer
        self._leeway_seconds = leeway_seconds
        self._clock = clock
        self._cache_entries = cache_entries
        self._challenges = challenges or Challenges()
        self._claims = tuple(claims)
        self._scope_claim = scope_claim
        self._exchange = exchange
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()
        # A token whose key is gone must not stay in the cache.
        keys.on_change(self._verified.clear)

    def __repr__(self) -> str:
        return f"TokenVerifier(audiences={self._named!r}, issuer={self._issuer!r})"

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the keys fresh while the context is open."""
        return self._keys.running()

    def known(self, authorization_header: str | None) -> VerifiedToken | None:
        """Return the caller if this token was verified before, or None."""
        if not authorization_header:
            return None
        # On the hot path: the digest covers the scheme too, so a known header in its usual spelling needs no parsing.
        digest = _digest(authorization_header)
        known = self._verified.get(digest)
        if known is None:
            usual = _usual_spelling(authorization_header)
            if usual == authorization_header:
                return None
            digest = _digest(usual)
            known = self._verified.get(digest)
        if known is None:
            return None
        if self._clock() >= known.ends_at:
            del self._verified[digest]
            return None
        self._verified.move_to_end(digest)
        return known

    def has_left(self, key: bytes) -> bool:
        """Return whether the key with this name used to verify tokens and no longer does."""
        return self._keys.has_left(key)

    def on_change(self, tell: Callable[[], None]) -> None:
        """Call `tell` each time the keys have changed."""
        self._keys.on_change(tell)

    async def authenticate(self, authorization_header: str | None) -> VerifiedToken:
        """Verify the token in an `Authorization` header.

        Raises:
            HttpRefusal: 401, with `error="invalid_token"` only if a token was sent (RFC 6750 section 3.1). 503 while
                there are no keys to verify it with.
            Overloaded: too many requests wait for keys.
        """
        if not authorization_header:
            raise self._no_token()
        known = self.known(authorization_header)
        if known is not None:
            return known
        try:
            return await self._judge(authorization_header)
        except RefusedToken as refused:
            # Every refused token gets this answer; the reason goes to the log.
            log.info("bearer token refused", extra={"reason": refused.reason})
            raise HttpRefusal(
                401, _NOT_VALID, [(challenges.HEADER, self._challenges.invalid_token(_NOT_VALID))]
            ) from None

    async def _judge(self, header: str) -> VerifiedToken:
        token = parse_bearer(header)
        if token is None:
            raise self._no_token()
        _check_spelling(token)
        algorithm, key_id = self._read_header(token)
        try:
            key = await self._keys.find(algorithm, key_id)
        except UnknownKey:
            raise RefusedToken("no matching key") from None
        except KeysUnavailable:
            log.info("bearer token not checked", extra={"reason": "no keys yet"})
            retry = ("retry-after", f"{RETRY_SECONDS:.0f}")
            raise HttpRefusal(503, "The identity provider's keys cannot be read right now", [retry]) from None
        # Nothing is awaited from here on, so the key is still current when the result enters the cache.
        verified = self._verify(token, algorithm, key)
        # Other spellings take no entries of their own: they could push out the tokens of other callers.
        self._verified[_digest(_usual_spelling(header))] = verified
        if len(self._verified) > self._cache_entries:
            self._verified.popitem(last=False)
        return verified

    def _read_header(self, token: str) -> tuple[str, str | None]:
        """Return the algorithm and the key id in a token's header. Keys in the token are ignored."""
        try:
            header = jwt.get_unverified_header(token)
        except _WHAT_DECODING_RAISES as error:
            raise RefusedToken(type(error).__name__) from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise RefusedToken("its algorithm is not accepted")
        if "crit" in header:  # extensions that must be understood (RFC 7515 section 4.1.11); we know none
            raise RefusedToken("critical extensions")
        if key_id is not None and not isinstance(key_id, str):
            raise RefusedToken("kid is not a string")
        check_type(header.get("typ"))
        return algorithm, key_id

    def _verify(self, token: str, algorithm: str, key: Any) -> VerifiedToken:
        try:
            # `_check_times` checks the times, against our own clock, and `Audiences` what PyJWT compares as text.
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._issuer,
                options={
                    "require": ["exp"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                },
            )
        except _WHAT_DECODING_RAISES as error:
            raise RefusedToken(type(error).__name__) from None
        self._audiences.check(claims)
        expires_at = self._check_times(claims)
        ends_at = expires_at + self._leeway_seconds
        selected = _selected(claims, self._claims) if self._claims else NO_CLAIMS
        principal = _caller(claims).holding(scopes=scopes_of(claims, self._scope_claim), claims=selected)
        exchange = None
        if self._exchange is not None:
            exchange = self._exchange.for_token(token, principal, lambda: ends_at - self._clock())
        return VerifiedToken(principal, principal.scopes, expires_at, ends_at, self._keys.name_of(key), exchange)

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        now = self._clock()
        expires_at = instant_of(claims, "exp")
        if now >= expires_at + self._leeway_seconds:
            raise RefusedToken("expired")
        for name in ("nbf", "iat"):
            if name in claims and instant_of(claims, name) > now + self._leeway_seconds:
                raise RefusedToken(f"{name} is in the future")
        return expires_at

    def _no_token(self) -> HttpRefusal:
        return HttpRefusal(401, "Authentication required", [(challenges.HEADER, self._challenges.no_token())])


Verifier: TypeAlias = TokenVerifier | AnonymousVerifier
"""Identifies the caller by the `Authorization` header."""


def make_verifier(
    settings: Settings,
    telemetry: Telemetry,
    challenges: Challenges | None = None,
    clock: Callable[[], float] = time.time,
) -> Verifier:
    """Build the verifier for `GATEWAY_AUTH`. `Settings.check_serving` has checked that the settings are complete.

    If the key file has no usable key, this raises `ConfigurationError`; if a setting is missing, `ValueError`.
    """
    if settings.auth == "none":
        return AnonymousVerifier()
    if not settings.token_audiences:
        raise ValueError("a token verifier needs an audience")
    return TokenVerifier(
        _keys(settings, telemetry),
        settings.token_audiences,
        algorithms=settings.token_algorithms,
        issuer=settings.jwt_issuer,
        leeway_seconds=settings.jwt_leeway_seconds,
        clock=clock,
        challenges=challenges,
        claims=settings.jwt_claims,
        scope_claim=settings.jwt_scope_claim,
        client_ids=settings.jwt_client_ids,
        exchange=TokenExchange.of(settings),
    )


def _keys(settings: Settings, telemetry: Telemetry) -> Keys:
    if settings.jwt_secret is not None:
        return SharedSecret(settings.jwt_secret.get_secret_value())
    if settings.jwks_file is not None:
        return FileKeys(Path(settings.jwks_file), settings.token_algorithms, telemetry)
    if settings.jwks_url is not None:
        return UrlKeys(
            settings.jwks_url, settings.token_algorithms, telemetry, refresh_seconds=settings.jwks_refresh_seconds
        )
    raise ValueError("a token verifier needs a secret or a key set")


def _digest(header: str) -> bytes:
    return sha256(header.encode("utf-8", "surrogatepass")).digest()


def parse_bearer(header: str) -> str | None:
    """Return the token from `Bearer <token>` (RFC 9110 section 11.4); the scheme's case does not matter.

    Another scheme is treated like a missing token, so it gives None.
    """
    if len(header) > MAX_HEADER_CHARACTERS:
        raise RefusedToken("the header is too long")
    scheme, _, rest = header.strip(" \t").partition(" ")
    if scheme.lower() != "bearer":
        return None
    token = rest.strip(" ")
    if not token.isascii() or not _ONE_TOKEN.fullmatch(token):
        raise RefusedToken("not exactly one token")
    return token


def _usual_spelling(header: str) -> str:
    """Return the header with the usual scheme and blanks, or as it is if it has no single bearer token."""
    if _USUAL.fullmatch(header):
        return header
    try:
        token = parse_bearer(header)
    except RefusedToken:
        return header
    return header if token is None else f"Bearer {token}"


def _check_spelling(token: str) -> None:
    """Refuse other spellings of a token that a lenient decoder accepts: a list of revoked tokens would miss them."""
    try:
        for segment in token.split("."):
            base64url.decode(segment)
    except ValueError:
        raise RefusedToken("not unpadded base64url") from None


def _caller(claims: Mapping[str, Any]) -> Principal:
    issuer, subject = text_of(claims, "iss"), text_of(claims, "sub")
    client_id = text_of(claims, "client_id") or text_of(claims, "azp")
    if not subject and not client_id:
        raise RefusedToken("neither sub nor client_id")
    return Principal(issuer, subject, client_id)


def _selected(claims: Mapping[str, Any], names: Sequence[str]) -> Claims:
    """Return the claims with these names. Tasks store them, so their size has a limit."""
    try:
        selected = Claims.of({name: claims[name] for name in names if name in claims})
    except ValueError:
        raise RefusedToken("a claim of GATEWAY_JWT_CLAIMS is not JSON") from None
    if len(selected.text.encode()) > MAX_CLAIM_BYTES:
        raise RefusedToken(f"the claims of GATEWAY_JWT_CLAIMS take more than {MAX_CLAIM_BYTES} bytes")
    return selected
