"""Makes bearer tokens for development, like an authorization server. Used by `gateway token`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jwt


def mint(
    secret: str,
    sub: str,
    audience: str,
    *,
    scopes: Sequence[str] = (),
    ttl_seconds: int = 3600,
    issuer: str | None = None,
    client_id: str | None = None,
    claims: Mapping[str, Any] = MappingProxyType({}),
    scope_claim: str = "scope",
    now: float | None = None,
) -> str:
    """Sign a token with HS256 that `TokenVerifier` accepts for the same secret, audience and issuer.

    The audience is a deployment. `client_id` is the client that acts for the user, if any (RFC 9068 section 2.2). The
    arguments take precedence over `claims`. The scopes are in `scope_claim`. `now` is in seconds since the epoch; None
    for the current time.
    """
    issued_at = int(time.time() if now is None else now)
    told = {**claims, "sub": sub, "aud": audience, "iat": issued_at, "exp": issued_at + ttl_seconds}
    if scopes:
        told[scope_claim] = " ".join(scopes)
    if issuer is not None:
        told["iss"] = issuer
    if client_id is not None:
        told["client_id"] = client_id
    return jwt.encode(told, secret, algorithm="HS256")
