"""Pure: a token for another service, which no journal, result or log may hold."""

from __future__ import annotations

from typing import Final, NoReturn

from gateway.errors import AuthoringError

NOT_A_VALUE: Final = (
    "an exchanged token is a secret, and nothing may store it; make the request that needs it in the same step, and "
    "return what the other service answered"
)


class ExchangedToken:
    """A token for another service, from `ctx.exchange_token`.

    Use it at once. It is not a JSON value, so no step, checkpoint or result can contain it, and its `repr` hides it.

    Args:
        value: the token.
        audience: the service that it is for.
    """

    __slots__ = ("_value", "audience")

    def __init__(self, value: str, audience: str) -> None:
        self._value = value
        self.audience = audience

    def get_secret_value(self) -> str:
        """Return the token, for the `Authorization` header of a request to its audience."""
        return self._value

    def __repr__(self) -> str:
        return f"<exchanged token for {self.audience!r}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise AuthoringError(NOT_A_VALUE)
