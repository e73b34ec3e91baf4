"""Results as they are written: those of an upstream itself, and those that replicas pass on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import msgspec

from tests.upstreams.site import Site, User

OURS = frozenset({"resultType", "ttlMs", "cacheScope", "_meta"})
"""The members of a result that the gateway writes itself, as 2026-07-28 has them."""
TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
"""The texts in a JSON text. Some servers escape characters in them, which means the same."""


class Written(dict[str, bytes]):
    """The members of a result, in their order, as they are written."""

    @classmethod
    def of(cls, response: httpx.Response) -> Written:
        body = response.content
        if response.headers["content-type"].startswith("text/event-stream"):
            datas = [line.removeprefix(b"data: ") for line in re.split(b"\r?\n", body) if line.startswith(b"data: {")]
            (body,) = [data for data in datas if b'"result"' in data]
        return cls.of_message(body)

    @classmethod
    def of_message(cls, body: bytes) -> Written:
        """Return the result of a JSON-RPC response."""
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["result"]
        return cls((name, unescaped(member)) for name, member in msgspec.json.decode(members, type=Members).items())

    def with_prefix(self, prefix: str) -> Written:
        """Return the same with the URIs that clients of the gateway know."""
        uri = b'"uri":"'
        return Written((name, member.replace(uri, uri + prefix.encode() + b"+")) for name, member in self.items())

    def own(self) -> list[tuple[str, bytes]]:
        """Return what only the upstream writes."""
        return [(name, member) for name, member in self.items() if name not in OURS]

    def meta(self) -> dict[str, Any]:
        return msgspec.json.decode(self.get("_meta", b"{}"), type=dict[str, Any])


Members = dict[str, msgspec.Raw]


def unescaped(value: msgspec.Raw) -> bytes:
    return TEXTS.sub(lambda text: msgspec.json.encode(msgspec.json.decode(text[0])), bytes(value))


async def read_from_both(
    site: Site, user: User, method: str, params: Mapping[str, Any], before: Callable[[], None] = lambda: None
) -> list[Written]:
    """Return the result that each of the replicas gives. `before` is called before each request."""
    results = []
    for url in site.urls:
        before()
        body, headers = user.request(method, params)
        results.append(Written.of(await user.http.post(url, content=body, headers=headers)))
    return results
