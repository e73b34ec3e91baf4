"""The arguments of `ctx.exchange_token`, and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gateway.engine.exchanged_token import ExchangedToken
from gateway.errors import AuthoringError, GatewayError, TokenExchangeError
from gateway.protocol.caller import Exchange, TokenWanted
from gateway.sealing.principal import Principal


def token_wanted(audience: str, scopes: Iterable[str], resource: str | None) -> TokenWanted:
    """Return the token that a tool asks for.

    Raises:
        AuthoringError: an argument is not valid.
    """
    if type(audience) is not str or not audience:
        raise AuthoringError(f"exchange_token needs the audience as text, not {audience!r}")
    if isinstance(scopes, str):
        raise AuthoringError(f"exchange_token has scopes={scopes!r}; use a list of scopes, not a string")
    return TokenWanted(audience, " ".join(sorted(set(scopes))), resource or "")


def no_exchange(principal: Principal | None, *, in_task: bool) -> GatewayError:
    """Return the error of a leg that cannot exchange its caller's token."""
    if in_task:
        return AuthoringError(
            'a task has no token of its caller; with start="call", exchange it before `await ctx.detach()`, in a step '
            "that also makes the request. The task replays what the step returned"
        )
    if principal is None:
        return TokenExchangeError("The caller is anonymous, so there is no token to exchange; set GATEWAY_AUTH=jwt")
    return TokenExchangeError(
        "This deployment exchanges no tokens; set GATEWAY_TOKEN_EXCHANGE_URL, GATEWAY_TOKEN_EXCHANGE_CLIENT_ID and "
        "GATEWAY_TOKEN_EXCHANGE_CLIENT_SECRET"
    )


def exchange_of(tokens: Mapping[str, str]) -> Exchange:
    """Return an exchange for tests, which gives out these tokens by audience and refuses every other audience."""

    async def exchange(wanted: TokenWanted) -> ExchangedToken:
        if wanted.audience not in tokens:
            raise TokenExchangeError(f"The test has no token for {wanted.audience!r}", "invalid_target")
        return ExchangedToken(tokens[wanted.audience], wanted.audience)

    return exchange
