"""The addresses on which a process without authentication may listen."""

from __future__ import annotations

from gateway.errors import ConfigurationError
from gateway.settings.hosts import is_loopback


def check_bind(auth: str, host: str) -> None:
    """Check that a process that verifies no tokens is reachable only from this machine.

    If `auth` is `none` and the host is not a loopback address, this raises `ConfigurationError`.
    """
    if auth == "none" and not is_loopback(host):
        raise ConfigurationError(
            f"GATEWAY_AUTH=none would let anyone who reaches {host or 'any address'} call every tool; "
            "set GATEWAY_AUTH=jwt, or listen on 127.0.0.1"
        )
