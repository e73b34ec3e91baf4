"""Verifies bearer tokens (RFC 6750) that are JSON Web Tokens (RFC 7519) signed with a shared secret.

A verified token is remembered until it expires, because verifying one costs more than running a short tool.
Every refused token gets the same answer; the reason goes to the log, the token itself nowhere.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import jwt

from gateway.errors import HttpRefusal
from gateway.sealing.binding import Principal
from gateway.settings import Settings

MAX_HEADER_CHARACTERS: Final = 8192
DEFAULT_LEEWAY_SECONDS: Final = 30.0
DEFAULT_CACHE_ENTRIES: Final = 4096

# Symmetric only. A list that also held RS256 would let a public key be used as an HMAC secret (RFC 8725 section 2.1).
_ALGORITHMS: Final = ("HS256",)
_CHALLENGE: Final = 'Bearer realm="mcp"'

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a request's credentials prove.

    Attributes:
        principal: the caller; None is the anonymous one.
        scopes: what the token allows (RFC 8693 section 4.2).
        expires_at: when it stops doing so, in seconds since the epoch, without leeway.
    """

    principal: Principal | None
    scopes: frozenset[str]
    expires_at: float

    def grants(self, scopes: frozenset[str]) -> bool:
        """Tell whether the token allows all of these; without identity there is nothing to withhold."""
        return self.principal is None or scopes <= self.scopes


class AnonymousVerifier:
    """Lets everybody in as the anonymous caller, whatever they send. For `GATEWAY_AUTH=none`."""

    _ANYBODY: Final = VerifiedToken(principal=None, scopes=frozenset(), expires_at=math.inf)

    def authenticate(self, authorization_header: str | None) -> VerifiedToken:
        """Return the anonymous caller."""
        del authorization_header
        return self._ANYBODY


class TokenVerifier:
    """Verifies HS256 tokens of one audience.

    Args:
        secret: the shared secret.
        audience: what `aud` must contain.
        issuer: what `iss` must be; None accepts any.
        leeway_seconds: how far clocks may differ.
        clock: the time in seconds since the epoch.
        cache_entries: how many verified tokens are remembered; the least recently used one goes first.

    Not safe for use from several threads: it belongs to one event loop.
    """

    def __init__(
        self,
        secret: str,
        audience: str,
        *,
        issuer: str | None = None,
        leeway_seconds: float = DEFAULT_LEEWAY_SECONDS,
        clock: Callable[[], float] = time.time,
        cache_entries: int = DEFAULT_CACHE_ENTRIES,
    ) -> None:
        self._secret = secret
        self._audience = audience
        self._issuer = issuer
        self._leeway_seconds = leeway_seconds
        self._clock = clock
        self._cache_entries = cache_entries
        self._verified: OrderedDict[bytes, VerifiedToken] = OrderedDict()

    def __repr__(self) -> str:
        return f"TokenVerifier(audience={self._audience!r}, issuer={self._issuer!r})"

    def authenticate(self, authorization_header: str | None) -> VerifiedToken:
        """Verify the token in an `Authorization` header.

        Raises:
            HttpRefusal: 401; `error="invalid_token"` only if a token was sent (RFC 6750 section 3.1).
        """
        if not authorization_header:
            raise _no_token()
        if len(authorization_header) > MAX_HEADER_CHARACTERS:
            raise _bad_token("the header is too long")
        # The digest covers the scheme too, so that a hit needs no parsing.
        digest = sha256(authorization_header.encode("utf-8", "surrogatepass")).digest()
        known = self._verified.get(digest)
        if known is not None:
            if self._clock() < known.expires_at + self._leeway_seconds:
                self._verified.move_to_end(digest)
                return known
            del self._verified[digest]
        verified = self._verify(parse_bearer(authorization_header))
        self._verified[digest] = verified
        if len(self._verified) > self._cache_entries:
            self._verified.popitem(last=False)
        return verified

    def _verify(self, token: str) -> VerifiedToken:
        try:
            # The times are checked below, against our own clock.
            claims = jwt.decode(
                token,
                self._secret,
                algorithms=list(_ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
        except (jwt.PyJWTError, ValueError, RecursionError) as error:
            # The last two are what a JSON parser raises on hostile text; not every release of PyJWT wraps them.
            raise _bad_token(type(error).__name__) from None
        expires_at = self._check_times(claims)
        return VerifiedToken(_principal(claims), _scopes(claims), expires_at)

    def _check_times(self, claims: Mapping[str, Any]) -> float:
        now = self._clock()
        expires_at = _instant(claims, "exp")
        if now >= expires_at + self._leeway_seconds:
            raise _bad_token("expired")
        for name in ("nbf", "iat"):
            if name in claims and _instant(claims, name) > now + self._leeway_seconds:
                raise _bad_token(f"{name} is in the future")
        return expires_at


def make_verifier(settings: Settings, clock: Callable[[], float] = time.time) -> TokenVerifier | AnonymousVerifier:
    """Build what `GATEWAY_AUTH` asks for. `Settings.check_serving` has seen that its parts are there.

    Raises:
        ValueError: they are not.
    """
    if settings.auth == "none":
        return AnonymousVerifier()
    if settings.jwt_secret is None or settings.jwt_audience is None:
        raise ValueError("a token verifier needs a secret and an audience")
    return TokenVerifier(
        settings.jwt_secret.get_secret_value(),
        settings.jwt_audience,
        issuer=settings.jwt_issuer,
        leeway_seconds=settings.jwt_leeway_seconds,
        clock=clock,
    )


def parse_bearer(header: str) -> str:
    """Take the token out of `Bearer <token>` (RFC 9110 section 11.4); the scheme's case does not matter.

    Raises:
        HttpRefusal: 401; another scheme counts as no token at all.
    """
    scheme, _, rest = header.strip(" \t").partition(" ")
    if scheme.lower() != "bearer":
        raise _no_token()
    token = rest.strip(" ")
    if not token or not token.isascii() or any(character in " \t,;\"'" for character in token):
        raise _bad_token("not exactly one token")
    return token


def _principal(claims: Mapping[str, Any]) -> Principal:
    issuer, subject = _text(claims, "iss"), _text(claims, "sub")
    client_id = _text(claims, "client_id") or _text(claims, "azp")
    if not subject and not client_id:
        raise _bad_token("neither sub nor client_id")
    return Principal(issuer, subject, client_id)


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(_text(claims, "scope").split(" ")) - {""}


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str):
        raise _bad_token(f"{name} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _bad_token(f"{name} is not Unicode") from None
    return value


def _instant(claims: Mapping[str, Any], name: str) -> float:
    """Read a NumericDate (RFC 7519 section 2)."""
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad_token(f"{name} is not a number")
    try:
        instant = float(value)
    except OverflowError:
        instant = math.inf
    if not math.isfinite(instant):
        raise _bad_token(f"{name} is not a time")
    return instant


def _no_token() -> HttpRefusal:
    return HttpRefusal(401, "Authentication required", [("www-authenticate", _CHALLENGE)])


def _bad_token(reason: str) -> HttpRefusal:
    """Build the one answer to every token that is not accepted, and log why it is not."""
    log.info("bearer token refused", extra={"reason": reason})
    challenge = f'{_CHALLENGE}, error="invalid_token", error_description="The access token is not valid"'
    return HttpRefusal(401, "The access token is not valid", [("www-authenticate", challenge)])
