"""Where a process without identity may listen."""

from __future__ import annotations

import ipaddress

from gateway.errors import ConfigurationError


def check_bind(auth: str, host: str) -> None:
    """Check that a process that verifies no tokens is reachable from this machine only.

    Args:
        auth: the setting `GATEWAY_AUTH`.
        host: the name or address that the process listens on.

    Raises:
        ConfigurationError: `auth` is `none` and the address is not a loopback one.
    """
    if auth == "none" and not _is_loopback(host):
        raise ConfigurationError(
            f"GATEWAY_AUTH=none would let anyone who reaches {host or 'any address'} call every tool; "
            "set GATEWAY_AUTH=jwt, or listen on 127.0.0.1"
        )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
