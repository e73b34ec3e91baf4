"""Pure: the `WWW-Authenticate` header for a client whose token is missing, invalid, or grants too little.

It follows RFC 6750 section 3, with `resource_metadata` of RFC 9728 section 5.1, as MCP "Authorization" requires.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HEADER: Final = "www-authenticate"
MAX_SCOPE_CHARACTERS: Final = 1024
"""Limits the scopes in a challenge. Proxies answer 502 if the response head is too large: 4 KiB for nginx."""

_REALM: Final = "mcp"
# The characters that RFC 6750 section 3 allows in `error_description` and, separated by spaces, in `scope`. Without
# quotes and backslashes nothing needs an escape, and no reader can mistake one value for two.
_TEXT: Final = re.compile(r"[ !#-\[\]-~]+")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")
# Clients request this scope themselves if they want a refresh token; no resource needs it.
_REFRESH: Final = "offline_access"


class Challenges:
    """Writes the `WWW-Authenticate` values of one server.

    A client needs `login_scopes` to log in. Without any, `scope` is omitted until one is needed.

    Raises:
        ValueError: the URL has characters that a quoted string cannot have, or a scope is not valid.
    """

    __slots__ = ("_login_scopes", "_metadata")

    def __init__(self, resource_metadata: str | None = None, login_scopes: Iterable[str] = ()) -> None:
        self._login_scopes = _checked(login_scopes)
        self._metadata = [] if resource_metadata is None else [_parameter("resource_metadata", resource_metadata)]

    def no_token(self) -> str:
        """Return the challenge for a request without a token. It has no error code (RFC 6750 section 3.1)."""
        return self._challenge(self._login_scopes)

    def invalid_token(self, description: str) -> str:
        """Return the challenge for a token that is not accepted, to send with 401.

        The description is for developers. Anything but printable ASCII without quotes and backslashes is a
        `ValueError`.
        """
        return self._challenge(self._login_scopes, error="invalid_token", error_description=description)

    def insufficient_scope(self, description: str, scopes: Iterable[str], granted: Iterable[str] = ()) -> str:
        """Return the challenge for a valid token that grants too little, to send with 403.

        Many clients request a new token with exactly the scopes of the challenge. So the challenge also names the
        scopes of the old token, as its issuer wrote them, unless that would make the header longer than proxies accept.
        `scopes` are all that the request needs, granted or not.

        Raises:
            ValueError: as `invalid_token`, or a scope is not valid (RFC 6749 section 3.3).
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
