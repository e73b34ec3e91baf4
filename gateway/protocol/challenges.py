"""Pure: what `WWW-Authenticate` tells a client whose token is missing, not valid, or not enough.

RFC 6750 section 3 with `resource_metadata` of RFC 9728 section 5.1, as MCP "Authorization" asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HEADER: Final = "www-authenticate"
MAX_SCOPE_CHARACTERS: Final = 1024
"""For scopes that a caller has already. Proxies answer 502 for a head above their limit, 4 KiB with nginx."""

_REALM: Final = "mcp"
# RFC 6750 section 3 lets this stand in `error_description` and, with blanks between, in `scope`. No quote and no
# backslash: nothing ever needs an escape, and no reader can take one value for two.
_TEXT: Final = re.compile(r"[ !#-\[\]-~]+")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
# Clients ask for it by themselves where they want a refresh token; no resource needs it.
_REFRESH: Final = "offline_access"


class Challenges:
    """Writes the values of `WWW-Authenticate` of one server.

    Args:
        resource_metadata: the URL of the protected-resource metadata, or None where there is none.
        login_scopes: what a client needs to begin; without any, `scope` is left out until something needs one.

    Raises:
        ValueError: the URL holds what no URL and no quoted text may hold, or a scope is none.
    """

    __slots__ = ("_login_scopes", "_metadata")

    def __init__(self, resource_metadata: str | None = None, login_scopes: Iterable[str] = ()) -> None:
        self._login_scopes = _checked(login_scopes)
        self._metadata = [] if resource_metadata is None else [_parameter("resource_metadata", resource_metadata)]

    def no_token(self) -> str:
        """Return the challenge to a request without a token: no error code (RFC 6750 section 3.1)."""
        return self._challenge(self._login_scopes)

    def invalid_token(self, description: str) -> str:
        """Return the challenge to a token that is not accepted, for 401.

        Args:
            description: for developers; printable ASCII without quotes and backslashes.

        Raises:
            ValueError: the description has other characters.
        """
        return self._challenge(self._login_scopes, error="invalid_token", error_description=description)

    def insufficient_scope(self, description: str, scopes: Iterable[str], granted: Iterable[str] = ()) -> str:
        """Return the challenge to a valid token that grants too little, for 403.

        Many clients ask for a new token with the scopes of the challenge and no others. So it names those of the old
        token too, unless they would make the header longer than proxies take.

        Args:
            description: for developers; printable ASCII without quotes and backslashes.
            scopes: everything that the request needs, granted or not.
            granted: what the token grants, as its issuer wrote it.

        Raises:
            ValueError: the description has other characters, or a scope is none (RFC 6749 section 3.3).
        """
        needed = _checked(scopes)
        both = {*needed, *(scope for scope in granted if scope != _REFRESH and _SCOPE.fullmatch(scope))}
        named = both if sum(map(len, both)) + len(both) <= MAX_SCOPE_CHARACTERS else needed
        return self._challenge(named, error="insufficient_scope", error_description=description)

    def _challenge(self, scopes: frozenset[str] | set[str], **parameters: str) -> str:
        told = [_parameter("realm", _REALM), *(_parameter(name, value) for name, value in parameters.items())]
        if scopes:
            told.append(_parameter("scope", " ".join(sorted(scopes))))
        return "Bearer " + ", ".join([*told, *self._metadata])


def _checked(scopes: Iterable[str]) -> frozenset[str]:
    checked = frozenset(scopes)
    for scope in checked:
        if not _SCOPE.fullmatch(scope):
            raise ValueError(f"{scope!r} is not a scope")
    return checked


def _parameter(name: str, value: str) -> str:
    if not _TEXT.fullmatch(value):
        raise ValueError(f"{value!r} cannot be sent in {name}")
    return f'{name}="{value}"'
