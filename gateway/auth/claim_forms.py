"""Reads the claims of verified tokens, in the forms that identity providers issue.

A claim of another form refuses its token. It never counts as something wider, and no claim adds to another one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.protocol.uris.canonical import NotCanonical, canonical

# Parsers agree on what these mean. `'` is left out, because WHATWG's parser encodes it in a query, and a dot after the
# host, because not every parser removes it.
_PLAIN_URL: Final = re.compile(
    r"https?://(?![^/?]*\.(?:[:/?]|\Z))[A-Za-z0-9\[][^/?#@\\%]*+(?:/[^?#\\]*+)?(?:\?[^#\\']++)?",
    re.ASCII | re.IGNORECASE,
)
# RFC 6749 section 3.3.
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
_OTHER_TYPE: Final = "+jwt"


class RefusedToken(Exception):
    """A token was refused. The reason is for the log, and contains nothing of the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Audiences:
    """Decides whether a token is for this deployment.

    A token without `aud` is only for it if it is an access token of one of these clients, as Amazon Cognito writes
    them: with `token_use`.
    """

    def __init__(self, audiences: Iterable[str], client_ids: Iterable[str] = ()) -> None:
        self._audiences = frozenset(map(_comparable, audiences))
        self._client_ids = frozenset(client_ids)

    def check(self, claims: Mapping[str, Any]) -> None:
        """Raise `RefusedToken` if a token with these claims is for somebody else."""
        if "aud" in claims:
            if self._audiences.isdisjoint(map(_comparable, _texts(claims, "aud"))):
                raise RefusedToken("another audience")
        elif claims.get("token_use") != "access" or text_of(claims, "client_id") not in self._client_ids:
            raise RefusedToken("no audience")


def check_type(kind: Any) -> None:
    """Raise `RefusedToken` if the `typ` of a header says that its token is something else (RFC 8725 section 3.11).

    Types without a use, such as `JWT`, are accepted: providers write several of them, or none.
    """
    if kind is None or kind == "JWT":
        return
    if not isinstance(kind, str):
        raise RefusedToken("typ is not a string")
    name = kind.lower().removeprefix("application/")
    if _OTHER_TYPE in name and name != "at+jwt":  # RFC 9068 section 2.1
        raise RefusedToken("not an access token")


def scopes_of(claims: Mapping[str, Any], claim: str | None) -> frozenset[str]:
    """Return the scopes in a claim; without one, those in `scope`, or in `scp` if there is no `scope`.

    They are a text with blanks between them, or a list. A text that is not a scope grants nothing.
    """
    name = claim or ("scope" if "scope" in claims else "scp")
    if name not in claims:
        return frozenset()
    named = claims[name].split(" ") if isinstance(claims[name], str) else _texts(claims, name)
    return frozenset(scope for scope in named if _SCOPE.fullmatch(scope))


def text_of(claims: Mapping[str, Any], name: str) -> str:
    """Return a claim that is a text, "" if there is none."""
    value = claims.get(name, "")
    if not isinstance(value, str):
        raise RefusedToken(f"{name} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RefusedToken(f"{name} is not Unicode") from None
    return value


def instant_of(claims: Mapping[str, Any], name: str) -> float:
    """Return a NumericDate (RFC 7519 section 2)."""
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedToken(f"{name} is not a number")
    try:
        instant = float(value)
    except OverflowError:
        instant = math.inf
    if not math.isfinite(instant):
        raise RefusedToken(f"{name} is not a time")
    return instant


def _texts(claims: Mapping[str, Any], name: str) -> list[str]:
    value = claims[name]
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RefusedToken(f"{name} is neither a string nor a list of strings")
    return texts


def _comparable(audience: str) -> str:
    """Return the form in which audiences are compared: URLs as RFC 3986 normalises them (section 6.2), others as is."""
    if not _PLAIN_URL.fullmatch(audience):
        return audience
    try:
        return canonical(audience)
    except NotCanonical:
        return audience
