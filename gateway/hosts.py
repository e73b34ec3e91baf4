"""Pure: host names as `Host`, `Origin` and settings write them."""

from __future__ import annotations

import ipaddress


def is_loopback(name: str) -> bool:
    """Tell whether a host name or address, in brackets or not, is this machine's own and no other's."""
    if name.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def without_port(host: str) -> str | None:
    """Return the name in a `Host` (RFC 9110 section 7.2), or None if it is not one."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host or None
    return name if port.isdecimal() and name else None
