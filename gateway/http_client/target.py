"""The parts of a URL that requests to it need."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_KEPT: Final = "/?:@!$&'()*+,;=-._~%[]"
"""Characters of a path and query that stay as they are. Others are encoded, as browsers do."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go.

    The host is a name, or an address without brackets. `authority` is the value of the `Host` header. The path includes
    the query, and is percent-encoded.
    """

    is_tls: bool
    host: str
    port: int
    authority: str
    path: str


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy.

    `is_tls` tells whether the connection to the proxy itself is encrypted. The host is a name, or an address without
    brackets. `authorization` is the value of the `Proxy-Authorization` header.
    """

    is_tls: bool
    host: str
    port: int
    authorization: str | None


def target_of(url: str) -> Target:
    """Take a URL apart. If requests cannot go there, raise `ValueError`, which says why, without the URL."""
    parts, host, port = _split(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("the URL must start with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL must not contain a user name or password; put credentials in headers")
    path = quote(parts.path or "/", safe=_KEPT)
    if parts.query:
        path += "?" + quote(parts.query, safe=_KEPT)
    authority = authority_of(host.partition("%")[0], port, default=_DEFAULT_PORTS[parts.scheme])
    return Target(parts.scheme == "https", host, port, authority, path)


def proxy_of(url: str) -> Proxy:
    """Take the URL of a proxy apart. It may contain a user name and password.

    Another URL raises `ValueError`, which says why, without the URL.
    """
    parts, host, port = _split(url)
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("the URL of the proxy must start with http:// or https://")
    if url.count("@") > (parts.username is not None):
        # The host may have ended within an unencoded password, so a part of it would be looked up.
        raise ValueError("the URL of the proxy may have one @, before its host; percent-encode its password")
    authorization = None
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + b64encode(credentials.encode()).decode()
    return Proxy(parts.scheme == "https", host, port, authorization)


def proxy_of_environment(url: str) -> str | None:
    """Return the proxy that the environment names for a URL: `HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`; None if none."""
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc):
        return None
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def authority_of(host: str, port: int, *, default: int | None = None) -> str:
    """Return a host and port as a URL writes them; the default port is left out."""
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port == default else f"{bracketed}:{port}"


def _split(url: str) -> tuple[SplitResult, str, int]:
    if _UNPRINTABLE.search(url):
        raise ValueError("the URL must not contain spaces or control characters")
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
        host = (parts.hostname or "").encode("ascii" if ":" in (parts.hostname or "") else "idna").decode()
    except ValueError:  # a UnicodeError too
        raise ValueError("the URL is not valid") from None
    if not host:
        raise ValueError("the URL names no host")
    return parts, host, port
