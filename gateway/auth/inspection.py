"""Checks an identity provider for `gateway check`, using it as a replica would."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gateway.auth.fetch import FetchFailed, fetch
from gateway.auth.keys import KeySet
from gateway.auth.providers import FETCH_SECONDS, MAX_KEY_SET_BYTES, URL_SETTING, read_key_file
from gateway.auth.token_exchange import TokenExchange
from gateway.ensured import ensured
from gateway.errors import ConfigurationError
from gateway.settings.model import Settings, is_web_url

MAX_METADATA_BYTES: Final = 1 << 18


async def inspect_provider(settings: Settings) -> str:
    """Check that tokens can be verified now, and return how.

    Raises:
        ConfigurationError: no key can be used, or the provider has another issuer.
        FetchFailed: the keys cannot be read now.
    """
    if settings.auth == "none":
        return "GATEWAY_AUTH=none lets anyone on this machine call every tool"
    if settings.jwt_secret is not None:
        return "tokens are verified with the shared secret"
    if settings.jwks_file is not None:
        return _describe(read_key_file(Path(settings.jwks_file), settings.token_algorithms))
    url = ensured(settings.jwks_url, "`Settings.check_serving` has checked it")
    # In parallel: a slow provider is slow for both.
    fetched, issuer = await asyncio.gather(
        fetch(url, seconds=FETCH_SECONDS, max_bytes=MAX_KEY_SET_BYTES), _issuer(settings.jwt_issuer or "")
    )
    keys = KeySet.parse(fetched.body, settings.token_algorithms, source=URL_SETTING)
    if issuer is not None and issuer != settings.jwt_issuer:
        raise ConfigurationError(
            f"GATEWAY_JWT_ISSUER: the provider at {settings.jwt_issuer!r} issues tokens as {issuer[:200]!r}; "
            "use that value"
        )
    return _describe(keys)


async def inspect_exchange(settings: Settings) -> str | None:
    """Check that the token endpoint knows this deployment, and return a note; None if no token is ever exchanged.

    Raises:
        ConfigurationError: it refuses the client, or does not exchange tokens.
        FetchFailed: it does not answer.
    """
    exchange = None if settings.auth == "none" else TokenExchange.of(settings)
    if exchange is None:
        return None
    code = await exchange.probe()
    if code in ("invalid_client", "unauthorized_client"):
        raise ConfigurationError(
            f"GATEWAY_TOKEN_EXCHANGE_CLIENT_ID: the endpoint answers {code}; use the id and the secret of a client "
            "that may exchange tokens"
        )
    if code != "invalid_request":  # for the token that is missing (RFC 8693 section 2.2.2)
        raise ConfigurationError(
            f"GATEWAY_TOKEN_EXCHANGE_URL: the endpoint answers {code or 'no error code'}; use the token endpoint of a "
            "provider that supports RFC 8693"
        )
    return "tokens can be exchanged"


def _describe(keys: KeySet) -> str:
    count = len(keys.keys)
    return f"{count} key{'' if count == 1 else 's'} to verify tokens with"


async def _issuer(issuer: str) -> str | None:
    """Return the issuer named in a provider's metadata; None if it publishes none."""
    if not is_web_url(issuer):
        return None
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    for url in (
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",  # OpenID Connect Discovery 1.0 section 4
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",  # RFC 8414 section 3
    ):
        try:
            fetched = await fetch(url, seconds=FETCH_SECONDS, max_bytes=MAX_METADATA_BYTES)
            metadata: Any = msgspec.json.decode(fetched.body)
        except (FetchFailed, ValueError, RecursionError):
            continue
        named = metadata.get("issuer") if isinstance(metadata, dict) else None
        if isinstance(named, str):
            return named
    return None
