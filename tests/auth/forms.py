"""The forms of tokens that `docs/run/identity-providers.md` lists, each with the settings that it needs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gateway.auth import TokenVerifier
from gateway.auth.keys import KeySet
from gateway.auth.providers import CurrentKeys
from gateway.observability.metrics import Telemetry
from gateway.settings.model import ASYMMETRIC_ALGORITHMS, Settings
from tests.docs.markdown import rows_of, section_of
from tests.identity import AUDIENCE, ISSUER, claims_of, key_set

PAGE: Final = "docs/run/identity-providers.md"
PUBLIC: Final = {"GATEWAY_AUDIENCE": AUDIENCE, "GATEWAY_PUBLIC_URL": "https://mcp.example.com"}
_SETTING: Final = re.compile(r"`(GATEWAY_[A-Z_]+)=([^`]+)`")


class Published(CurrentKeys):
    """A key set that exists from the start."""

    def __init__(self, *keys: Any) -> None:
        super().__init__(Telemetry())
        self.take(KeySet.parse(key_set(*keys), ASYMMETRIC_ALGORITHMS, source="these tests"))

    async def find(self, algorithm: str, key_id: str | None) -> Any:
        assert self._keys is not None
        return self._keys.find(algorithm, key_id)

    def running(self) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Form:
    """A provider's form of a token.

    Attributes:
        settings: what the deployment sets, by variable, without the keys.
        header: the members of the header beside `alg` and `kid`.
        given: the claims of a good token beside `sub` and the times.
        scopes: what it grants.
    """

    provider: str
    settings: Mapping[str, str]
    header: Mapping[str, Any]
    given: Mapping[str, Any]
    scopes: frozenset[str]

    def __str__(self) -> str:
        return self.provider

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a good token, with changes; a claim with the value None is left out."""
        return claims_of(**{"aud": None, **self.given, **changes})

    def without(self, setting: str) -> Form:
        """Return the same form with a deployment that leaves a setting out."""
        return replace(self, settings={name: value for name, value in self.settings.items() if name != setting})

    def verifier(self, *keys: Any, algorithms: tuple[str, ...] = ASYMMETRIC_ALGORITHMS) -> TokenVerifier:
        """Return what verifies tokens with these settings and keys, as `make_verifier` makes it."""
        settings = Settings.load({**PUBLIC, **self.settings})
        return TokenVerifier(
            Published(*keys),
            settings.token_audiences,
            issuer=settings.jwt_issuer,
            algorithms=algorithms,
            scope_claim=settings.jwt_scope_claim,
            client_ids=settings.jwt_client_ids,
        )


PLAIN: Final = Form(
    "plain",
    {"GATEWAY_JWT_AUDIENCE": AUDIENCE, "GATEWAY_JWT_ISSUER": ISSUER},
    {},
    {"iss": ISSUER, "aud": AUDIENCE},
    frozenset(),
)
"""A token of an issuer and an audience, and of nothing that a provider adds."""


@functools.cache
def forms() -> tuple[Form, ...]:
    """Return the forms of the page, in its order."""
    places = {row[0]: row[1:] for row in rows_of(section_of(PAGE, "Where the keys are"), 3)}
    return tuple(_form(row, places[row[0]]) for row in rows_of(section_of(PAGE, "What else to set"), 5))


def _form(row: Sequence[str], place: Sequence[str]) -> Form:
    provider, settings, typ, claims, scopes = ("" if cell == "none" else cell.strip("`") for cell in row)
    issuer, keys = (cell.strip("`") for cell in place)
    environ = {"GATEWAY_JWT_ISSUER": issuer, "GATEWAY_JWKS_URL": keys, **dict(_SETTING.findall(f"`{settings}`"))}
    header = {"typ": typ} if typ else {}
    return Form(provider, environ, header, {"iss": issuer, **json.loads(claims)}, frozenset(scopes.split()))
