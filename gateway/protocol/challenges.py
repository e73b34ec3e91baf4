"""Pure: what `WWW-Authenticate` tells a client whose token is missing, not valid, or not enough.

RFC 6750 section 3 with `resource_metadata` of RFC 9728 section 5.1, as MCP "Authorization" asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

HEADER: Final = "www-authenticate"

_REALM: Final = "mcp"
# RFC 6750 section 3 lets this stand in `error_description` and, with blanks between, in `scope`. No quote and no
# backslash: nothing ever needs an escape, and no reader can take one value for two.
_TEXT: Final = re.compile(r"[ !#-\[\]-~]+")
_SCOPE: Final = re.compile(r"[!#-\[\]-~]+")


class Challenges:
    """Writes the values of `WWW-Authenticate` of one server.

    Args:
        resource_metadata: the URL of the protected-resource metadata, or None where there is none.

    Raises:
        ValueError: the URL holds what no URL and no quoted text may hold.
    """

    __slots__ = ("_metadata",)

    def __init__(self, resource_metadata: str | None = None) -> None:
        self._metadata = [] if resource_metadata is None else [_parameter("resource_metadata", resource_metadata)]

    def no_token(self, scopes: Iterable[str] = ()) -> str:
        """Return the challenge to a request without a token: no error code (RFC 6750 section 3.1).

        Args:
            scopes: those that a token would need; none leaves `scope` away.
        """
        return self._challenge(scopes)

    def invalid_token(self, description: str, scopes: Iterable[str] = ()) -> str:
        """Return the challenge to a token that is not accepted, for 401.

        Args:
            description: for developers; printable ASCII without quotes and backslashes.
            scopes: those that a token would need; none leaves `scope` away.

        Raises:
            ValueError: the description has other characters.
        """
        return self._challenge(scopes, error="invalid_token", error_description=description)

    def insufficient_scope(self, description: str, scopes: Iterable[str]) -> str:
        """Return the challenge to a valid token that grants too little, for 403.

        Args:
            description: for developers; printable ASCII without quotes and backslashes.
            scopes: everything that the request needs, granted or not.

        Raises:
            ValueError: the description has other characters, or a scope is none (RFC 6749 section 3.3).
        """
        return self._challenge(scopes, error="insufficient_scope", error_description=description)

    def _challenge(self, scopes: Iterable[str], **parameters: str) -> str:
        told = [_parameter("realm", _REALM), *(_parameter(name, value) for name, value in parameters.items())]
        wanted = sorted(set(scopes))
        for scope in wanted:
            if not _SCOPE.fullmatch(scope):
                raise ValueError(f"{scope!r} is not a scope")
        if wanted:
            told.append(_parameter("scope", " ".join(wanted)))
        return "Bearer " + ", ".join([*told, *self._metadata])


def _parameter(name: str, value: str) -> str:
    if not _TEXT.fullmatch(value):
        raise ValueError(f"{value!r} cannot be told in {name}")
    return f'{name}="{value}"'
