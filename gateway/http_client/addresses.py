"""Which addresses the gateway may connect to.

An address that carries another one, such as `::ffff:10.0.0.1`, is judged by the address that it carries. The networks
are those of the IANA special-purpose registries (RFC 6890) and the metadata services of cloud providers.
`ipaddress.is_global` is not used, because its answers differ between the Python versions that the gateway supports.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final


class AddressRule(Enum):
    """Which addresses a URL may lead to."""

    OPERATOR = "operator"
    """The operator wrote the URL: private addresses too, but no metadata service unless its address is in the URL."""
    GLOBAL = "global"
    """Somebody else wrote it: only addresses of the public Internet."""


_NEVER_NAMED_4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this machine, under another name
            "100.100.100.200/32",  # metadata of Alibaba Cloud
            "168.63.129.16/32",  # platform services of Azure
            "169.254.0.0/16",  # link-local, and metadata of most clouds
            "192.0.0.192/32",  # metadata of Oracle Cloud
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_NEVER_NAMED_6: Final = tuple(
    map(
        IPv6Network,
        (
            "::/128",  # this machine, under another name
            "fd00:ec2::/32",  # metadata of AWS
            "fd20:ce::/32",  # metadata of Google Cloud
            "fe80::/10",  # link-local
            "ff00::/8",  # multicast
        ),
    )
)
_NOT_GLOBAL_4: Final = (
    *_NEVER_NAMED_4,
    *map(
        IPv4Network,
        (
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
        ),
    ),
)
_GLOBAL_UNICAST_6: Final = IPv6Network("2000::/3")
_NOT_GLOBAL_6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))

_MAPPED: Final = IPv6Network("::ffff:0:0/96")  # RFC 4291 section 2.5.5.2
_TRANSLATED: Final = IPv6Network("::ffff:0:0:0/96")  # RFC 2765
_COMPATIBLE: Final = IPv6Network("::/96")  # RFC 4291 section 2.5.5.1
_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")  # RFC 8215
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")  # RFC 3056
_TEREDO: Final = IPv6Network("2001::/32")  # RFC 4380
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})  # RFC 5214 section 6.1
_LOW: Final = 0xFFFFFFFF


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host is written as, or None if it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_allowed(address: IPv4Address | IPv6Address, rule: AddressRule) -> bool:
    """Return whether a connection to an address is allowed. A name led to it, or somebody else wrote it."""
    if isinstance(address, IPv4Address):
        return _is_allowed_4(address, rule)
    if not all(_is_allowed_4(carried, rule) for carried in _carried(address)):
        return False
    if rule is AddressRule.OPERATOR:
        return not any(address in network for network in _NEVER_NAMED_6)
    if _is_only_a_carrier(address):
        return True
    return address in _GLOBAL_UNICAST_6 and not any(address in network for network in _NOT_GLOBAL_6)


def _is_allowed_4(address: IPv4Address, rule: AddressRule) -> bool:
    refused = _NEVER_NAMED_4 if rule is AddressRule.OPERATOR else _NOT_GLOBAL_4
    return not any(address in network for network in refused)


def _is_only_a_carrier(address: IPv6Address) -> bool:
    """Return whether packets for an IPv6 address reach the IPv4 address that it carries, and nothing else."""
    carriers = (_MAPPED, _TRANSLATED, _NAT64, _SIX_TO_FOUR, _TEREDO)
    return any(address in network for network in carriers) or _is_compatible(address)


def _is_compatible(address: IPv6Address) -> bool:
    return address in _COMPATIBLE and int(address) > 1  # `::` and `::1` are addresses of their own


def _carried(address: IPv6Address) -> Iterator[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address carries."""
    number = int(address)
    if any(address in network for network in (_MAPPED, _TRANSLATED, _NAT64)) or _is_compatible(address):
        yield IPv4Address(number & _LOW)
    if address in _LOCAL_NAT64:
        # Its prefix may have 96 bits, or 48 with the address on both sides of bits 64 to 71 (RFC 6052 section 2.2).
        readings = (number & _LOW, (number >> 48 & 0xFFFF0000) | (number >> 40 & 0xFFFF))
        yield from (IPv4Address(reading) for reading in readings if reading)
    if address in _SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & _LOW)
    if address in _TEREDO:
        yield IPv4Address(number >> 64 & _LOW)
        yield IPv4Address(~number & _LOW)
    if number >> 32 & _LOW in _ISATAP:
        yield IPv4Address(number & _LOW)
