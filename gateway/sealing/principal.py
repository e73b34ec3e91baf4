"""Pure: the identity of a caller."""

from __future__ import annotations

import msgspec


class Principal(msgspec.Struct, frozen=True, cache_hash=True):
    """The authenticated caller. An anonymous caller is `None`, never a principal of empty strings.

    Attributes:
        issuer: the authority that vouches for the caller (`iss`), "" when absent.
        subject: the caller's identity at that issuer (`sub`), "" when absent.
        client_id: the software that calls (`client_id`, else `azp`), "" when absent.
    """

    issuer: str
    subject: str
    client_id: str
