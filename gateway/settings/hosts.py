"""Pure: hosts, as `Host`, `Origin` and settings write them."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

MAX_PORT_DIGITS: Final = 5


def is_loopback(name: str) -> bool:
    """Return whether a host name or address, in brackets or not, always means this machine."""
    if name.lower() == "localhost":
        return True
    try:
        if name.startswith("[") and name.endswith("]"):
            return _is_loopback_6(ipaddress.IPv6Address(name[1:-1]))
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return _is_loopback_6(address) if isinstance(address, ipaddress.IPv6Address) else address.is_loopback


def _is_loopback_6(address: ipaddress.IPv6Address) -> bool:
    # A zone may be any text, and a Host never has one (RFC 9110 section 4.2.1).
    return address.scope_id is None and (address.ipv4_mapped or address).is_loopback


def place_of(url: str) -> str:
    """Return the scheme, host, port and path of a URL: the parts that hold no secret and may be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def plain_host(host: str) -> str:
    """Return a host in lower case, and without the final dot that a complete name may have (RFC 3986 section 3.2.2)."""
    name, colon, port = host.lower().partition(":")
    # The last label of a name is never a number, so this is not an address.
    is_complete = name.endswith(".") and not name[:-1].rpartition(".")[2].isdecimal()
    return (name[:-1] if is_complete else name) + colon + port


def without_port(host: str) -> str | None:
    """Return the name in a `Host` header (RFC 9110 section 7.2); None if the header is not valid."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        return host or None
    is_port = port.isascii() and port.isdecimal() and len(port) <= MAX_PORT_DIGITS
    is_name = name.endswith("]") or (name != "" and ":" not in name)
    return name if is_port and is_name else None
