"""Requests for small documents, within limits that hold whatever the server does."""

from __future__ import annotations

import asyncio
import calendar
import email.utils
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode, urlsplit

from gateway.errors import GatewayError
from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.target import proxy_of_environment
from gateway.observability.clock_watch import Reading
from gateway.runtime.version import __version__
from gateway.settings.hosts import is_loopback

HEADERS: Final = {
    "Accept": "application/jwk-set+json, application/json",
    "User-Agent": f"sealed-gateway/{__version__}",
}
_FORM: Final = "application/x-www-form-urlencoded"
_ANSWERS: Final = frozenset({200, 400, 401})
"""The statuses of a token endpoint whose body says something (RFC 6749 sections 5.1 and 5.2)."""


class FetchFailed(GatewayError):
    """The document could not be fetched. The message gives the reason, without anything that the server sent."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A response.

    `time` is that of the server, or of a cache that answered for it; None if it sent none.
    """

    body: bytes
    time: Reading | None
    status: int = 200


async def fetch(url: str, *, seconds: float, max_bytes: int) -> Fetched:
    """Return a 200 response. Redirects are not followed.

    The proxy comes from the environment (`HTTPS_PROXY`); there is none for this machine. `seconds` is for the whole
    fetch, even if the server sends slowly. Without such a response in time, this raises `FetchFailed`.
    """
    return await _exchange(_Fetch(url, HEADERS, None, frozenset({200})), seconds, max_bytes)


async def post_form(
    url: str, fields: Mapping[str, str], headers: Mapping[str, str], *, seconds: float, max_bytes: int
) -> Fetched:
    """Post a form, and return the response of an OAuth endpoint, which may be a refusal. See `fetch`.

    A status of which the body says nothing raises `FetchFailed` too.
    """
    every = {"Content-Type": _FORM, "Accept": "application/json", "User-Agent": HEADERS["User-Agent"], **headers}
    return await _exchange(_Fetch(url, every, urlencode(fields).encode(), _ANSWERS), seconds, max_bytes)


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A request: a POST if it has a form. A response counts only if it has one of the statuses."""

    url: str
    headers: Mapping[str, str]
    form: bytes | None
    statuses: frozenset[int]


async def _exchange(request: _Fetch, seconds: float, max_bytes: int) -> Fetched:
    """Send a request over a connection of its own, and return the response."""
    began = time.monotonic()
    deadline = asyncio.get_running_loop().time() + seconds
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    try:
        client = _client(request.url)
        if request.form is None:
            sending = client.get(fields, deadline=deadline)
        else:
            sending = client.post(fields, request.form, deadline=deadline)
        async with sending as response:
            reading = _reading(response.headers, time.monotonic() - began)
            if response.status not in request.statuses:
                raise FetchFailed(f"HTTP {response.status}")
            body = await response.body(max_bytes)
    except HttpFailure as failure:
        raise FetchFailed(_said(failure, seconds, max_bytes)) from None
    except ValueError as error:  # the URL
        raise FetchFailed(str(error)) from None
    return Fetched(body, reading, response.status)


def _client(url: str) -> HttpClient:
    proxy = None if is_loopback(urlsplit(url).hostname or "") else proxy_of_environment(url)
    return HttpClient(url, proxy=proxy, max_connections=1, idle_seconds=0)


def _said(failure: HttpFailure, seconds: float, max_bytes: int) -> str:
    if failure.reason is HttpReason.TIMED_OUT:
        return f"no answer within {seconds:g} seconds"
    if failure.reason is HttpReason.TOO_LARGE:
        return f"the answer is larger than {max_bytes} bytes"
    return failure.detail


def _reading(headers: Mapping[str, str], took: float) -> Reading | None:
    """Return the time according to a response that has just arrived.

    A cache answers with the server's original `Date`, and with the response's `Age` since then (RFC 9111, 5.1).
    """
    heard_at = time.time()
    try:
        date = email.utils.parsedate(headers.get("date", ""))
        age = int(headers.get("age", "0"))
        return Reading(calendar.timegm(date) + float(age), 2.0 if age else 1.0, heard_at, took) if date else None
    except (TypeError, ValueError, OverflowError):
        return None
