"""Pure: the authority of a URI, `user:password@host:port`, in its canonical form.

WHATWG's URL parser changes nothing in this form, and whatever that parser refuses is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

DEFAULT_PORTS: Final[Mapping[str, int | None]] = {
    "file": None,
    "ftp": 21,
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
}
"""The "special" schemes (WHATWG URL, 4.2) with their default ports. Their hosts are names or addresses of machines."""

MAX_PORT: Final = 65535

_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label like this makes WHATWG's parser read the whole host as an IPv4 address."""
_IN_USER: Final[Mapping[int, str]] = {ord(";"): "%3B", ord("="): "%3D"}
_IN_PASSWORD: Final[Mapping[int, str]] = {**_IN_USER, ord(":"): "%3A"}
_GROUPS: Final = 8


class NotCanonical(ValueError):
    """A text has no canonical form. The message is the end of a sentence that begins with the URI."""


def canonical_authority(scheme: str, text: str) -> str:
    """Return the canonical form of an authority.

    The scheme is in lower case. The text has characters of RFC 3986 without `/`, `?` and `#`; percent encodings are in
    upper case, none of unreserved ones. If servers may read it in several ways, or not at all, it is `NotCanonical`.
    """
    if scheme == "file":
        if "@" in text or ":" in text:
            raise NotCanonical("has a user, a port or an address, which a file cannot have")
        host = _host(scheme, text)
        return "" if host == "localhost" else host
    user, _, place = text.rpartition("@")
    if not {"@", "[", "]"}.isdisjoint(user):
        raise NotCanonical("has an @ or brackets in its user")
    host, port = _split(place)
    host, port = _host(scheme, host), _port(scheme, port)
    user = _user(user)
    if not host and (user or port or scheme in DEFAULT_PORTS):
        raise NotCanonical("has no host")
    return f"{user}{host}{port}"


def _split(place: str) -> tuple[str, str]:
    """Return host and port of `host:port`. The host of an IPv6 address has its brackets."""
    address, bracket, rest = place.partition("]")
    if bracket:
        host, port = address + bracket, rest.removeprefix(":")
        if rest == port and rest:
            raise NotCanonical("has text between its address and its port")
        return host, port
    host, _, port = place.partition(":")
    return host, port


def _port(scheme: str, port: str) -> str:
    """Return a port as it is written, with its colon; "" for the default one."""
    if not port:
        return ""
    digits = port.lstrip("0") or "0"
    if not port.isdigit() or len(digits) > len(str(MAX_PORT)) or int(digits) > MAX_PORT:
        raise NotCanonical(f"has a port that is not a number from 0 to {MAX_PORT}")
    return "" if int(digits) == DEFAULT_PORTS.get(scheme) else f":{digits}"


def _user(text: str) -> str:
    """Return user and password as they are written, with their `@`; "" if both are empty."""
    user, _, password = text.partition(":")
    if not user and not password:
        return ""
    return f"{user.translate(_IN_USER)}{':' if password else ''}{password.translate(_IN_PASSWORD)}@"


def _host(scheme: str, host: str) -> str:
    if host.startswith("["):
        return f"[{_ipv6(host[1:-1])}]"
    if "[" in host or "]" in host:
        raise NotCanonical("has brackets in its host")
    return _machine(host.lower()) if scheme in DEFAULT_PORTS else host


def _machine(host: str) -> str:
    """Return the name or IPv4 address of a machine. Names beyond ASCII have several encodings, so they are refused."""
    if "%" in host:
        raise NotCanonical("has a host with encoded characters or letters beyond ASCII; write it in ASCII (xn--…)")
    name = host.removesuffix(".")
    labels = name.split(".")
    if host and "" in labels:
        raise NotCanonical("has an empty part in its host")
    if not _NUMBER.fullmatch(labels[-1]):
        return name
    try:
        return str(IPv4Address(name))
    except AddressValueError:
        raise NotCanonical("has an address that is not written as four decimal numbers") from None


def _ipv6(text: str) -> str:
    """Return an IPv6 address as RFC 5952 writes it, except that none of it is written as an IPv4 address."""
    try:
        address = IPv6Address(text)
    except AddressValueError:
        address = None
    if address is None or address.scope_id:
        raise NotCanonical("has brackets in its host without an IPv6 address in them")
    digits = f"{int(address):032x}"
    groups = [digits[start : start + 4].lstrip("0") or "0" for start in range(0, len(digits), 4)]
    start, length = _longest_zeros(groups)
    if length < 2:  # one group is not shortened (RFC 5952 section 4.2.2)
        return ":".join(groups)
    return f"{':'.join(groups[:start])}::{':'.join(groups[start + length :])}"


def _longest_zeros(groups: list[str]) -> tuple[int, int]:
    """Return where the longest run of zeros begins, and its length; the first one of equally long runs."""
    best, start = (0, 0), 0
    for index in range(_GROUPS + 1):
        if index == _GROUPS or groups[index] != "0":
            if index - start > best[1]:
                best = (start, index - start)
            start = index + 1
    return best
