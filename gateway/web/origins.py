"""Decides which hosts and web pages may call: protection against DNS rebinding, and CORS.

An `Origin` that is not allowed is refused with 403 (2026-07-28 "Streamable HTTP", Security & Endpoint). A `Host` that
is not ours is refused too, because it is the sign of a rebound name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Final

from gateway.errors import GatewayError, HttpRefusal
from gateway.protocol.headers import Headers
from gateway.settings.hosts import is_loopback, plain_host, without_port

RawHeaders = list[tuple[bytes, bytes]]

PREFLIGHT_SECONDS = 600
MAX_KNOWN_HOSTS = 1024
EXPOSED: Final = b"mcp-session-id, mcp-protocol-version, www-authenticate, retry-after, allow, x-gateway-replica"
"""The headers of responses that clients read. A page sees only these, and those that are safe everywhere."""
METHODS: Final = b"GET, POST, DELETE"
"""The methods that clients send. A method that is not allowed here never arrives, so its page gets no answer at all."""
ALLOWED_HEADERS = (
    "authorization, content-type, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id"
)

_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#@\\\s]+)")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


class OriginPolicy:
    """Checks `Host` and `Origin`.

    Args:
        hosts: the hosts of this server: `name` for any port, or `name:port`. None allows any host. A final dot of a
            name does not count.
        origins: the origins of web pages that may call: `scheme://host[:port]`, or `*` for all.
        loopback: whether loopback names are allowed too, with any port, as host and as origin.
    """

    def __init__(self, hosts: Iterable[str] | None, origins: Iterable[str], *, loopback: bool) -> None:
        self._hosts = None if hosts is None else frozenset(plain_host(host) for host in hosts)
        self._origins = frozenset(_normal(origin) for origin in origins)
        self._loopback = loopback
        # Most clients send one host. The set is limited, so that hostile clients cannot fill the memory.
        self._known_hosts: set[bytes | None] = set()

    def check(self, headers: Headers) -> RawHeaders:
        """Return the CORS headers for the response. There are none unless a web page calls.

        A host or an origin that is not allowed raises `HttpRefusal` (403).
        """
        if self._hosts is not None and headers.get_bytes(b"host") not in self._known_hosts:
            self._check_host(headers, self._hosts)
        origin = headers.get(b"origin")
        if origin is None:
            return []
        if not self._is_allowed(origin):
            raise HttpRefusal(403, "Pages of that origin may not call this server; list it in GATEWAY_ALLOWED_ORIGINS")
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", EXPOSED),
            (b"vary", b"origin"),
        ]

    def readable(self, raw: RawHeaders, last: dict[bytes, bytes] | None = None) -> RawHeaders:
        """Return the CORS headers for the refusal of a request with these headers. Pages that may call can read it."""
        with contextlib.suppress(GatewayError):
            return self.check(Headers(raw, last))
        return []

    def preflight(self, headers: Headers) -> RawHeaders:
        """Return the headers that answer a CORS preflight from an allowed origin."""
        wanted = headers.get(b"access-control-request-headers") or ALLOWED_HEADERS
        return [
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", wanted.encode("latin-1")),
            (b"access-control-max-age", str(PREFLIGHT_SECONDS).encode()),
        ]

    def _check_host(self, headers: Headers, allowed: frozenset[str]) -> None:
        host = headers.get(b"host") or ""
        if not self._judge_host(plain_host(host), allowed):
            raise HttpRefusal(403, "This server does not answer for that host; list it in GATEWAY_ALLOWED_HOSTS")
        if len(self._known_hosts) < MAX_KNOWN_HOSTS:
            self._known_hosts.add(host.encode("latin-1"))  # the raw value could have any number of trailing blanks

    def _judge_host(self, host: str, allowed: frozenset[str]) -> bool:
        name = without_port(host)
        if name is None:
            return False
        return host in allowed or name in allowed or (self._loopback and is_loopback(name))

    def _is_allowed(self, origin: str) -> bool:
        if "*" in self._origins or _normal(origin) in self._origins:
            return True
        parts = _ORIGIN.fullmatch(origin.lower())
        return self._loopback and parts is not None and is_loopback(without_port(parts["host"]) or "")


def _normal(origin: str) -> str:
    """Return an origin as browsers write it: in lower case, without the default port of its scheme."""
    origin = origin.lower()
    parts = _ORIGIN.fullmatch(origin)
    return origin if parts is None else origin.removesuffix(_DEFAULT_PORTS[parts["scheme"]])
