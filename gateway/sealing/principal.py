"""Pure: the identity of a caller, and the scopes and claims of its token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

import msgspec


class Claims(Mapping[str, Any]):
    """Claims of a token: a read-only mapping of JSON values.

    It holds text, and each access makes new values. So a tool cannot change what other calls of the same caller see.

    Args:
        text: a JSON object.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text: Final = text

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the claims with these values.

        Raises:
            ValueError: a value is not JSON, or nested too deeply.
        """
        if not values:
            return cls("{}")
        try:
            text = json.dumps(dict(values), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            text.encode()  # raises for text with a lone surrogate
        except (TypeError, RecursionError) as error:
            raise ValueError(f"a claim is not JSON: {type(error).__name__}") from None
        return cls(text)

    def __getitem__(self, name: str) -> Any:
        return json.loads(self.text)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(json.loads(self.text))

    def __len__(self) -> int:
        return 0 if self.text == "{}" else len(json.loads(self.text))

    def __repr__(self) -> str:
        return f"<{len(self)} claims>"


NO_CLAIMS: Final = Claims("{}")


class Principal(msgspec.Struct, frozen=True, cache_hash=True, dict=True):
    """The authenticated caller. An anonymous caller is `None`, never a principal of empty strings.

    Two principals are equal if issuer, subject and client id are. Scopes and claims belong to the token, not to the
    identity: a user whose token was renewed is the same caller. So they are kept beside the fields, which are compared.

    Attributes:
        issuer: the authority that vouches for the caller (`iss`), "" when absent.
        subject: the caller's identity at that issuer (`sub`), "" when absent.
        client_id: the software that calls (`client_id`, else `azp`), "" when absent.
    """

    issuer: str
    subject: str
    client_id: str

    @property
    def scopes(self) -> frozenset[str]:
        """What the token allows."""
        scopes: frozenset[str] = self.__dict__.get("scopes", frozenset())
        return scopes

    @property
    def claims(self) -> Claims:
        """The claims that the deployment selects, as far as the token has them."""
        claims: Claims = self.__dict__.get("claims", NO_CLAIMS)
        return claims

    def holding(self, *, scopes: Iterable[str] = (), claims: Mapping[str, Any] = NO_CLAIMS) -> Principal:
        """Return the same caller with a token that grants these scopes and has these claims.

        Raises:
            ValueError: a claim is not JSON.
        """
        principal = Principal(self.issuer, self.subject, self.client_id)
        held = principal.__dict__
        held["scopes"] = frozenset(scopes)
        if claims is not NO_CLAIMS:
            held["claims"] = claims if isinstance(claims, Claims) else Claims.of(claims)
        return principal
