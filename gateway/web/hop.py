"""Posts a sealed message to another process of the deployment, and reads its reply.

Everything is bounded, whatever the other side does: the time, the bytes that are read, and the messages in flight.
It connects directly to the other process, without a proxy, and follows no redirects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

from gateway.http_client.client import HttpClient, HttpResponse
from gateway.http_client.failures import HttpFailure
from gateway.http_client.lookups import Resolve, resolve_with_system
from gateway.tokens.hop_messages import HOP_PATH, NoReply

HOP_TYPE: Final = b"application/vnd.sealed-gateway.hop"
"""The content type of messages and of replies."""

MAX_REPLY_BYTES: Final = 65536
MAX_POSTS: Final = 32
"""How many messages may be in flight to one URL. More wait within their time limit, so a silent process ties up few
connections."""

_HEADERS: Final = ((b"Content-Type", HOP_TYPE),)
_FRAMES: Final = frozenset({"content-length", "transfer-encoding"})


class HopClient:
    """Posts messages to other processes. Use it only on the event loop."""

    def __init__(self) -> None:
        # A client is needed only while messages are in flight, and there are as many as processes ever had addresses.
        self._clients: WeakValueDictionary[str, HttpClient] = WeakValueDictionary()

    async def post(self, url: str, message: bytes, *, address: str = "", seconds: float = 2.0) -> bytes:
        """Post a sealed message, and return the sealed reply, or raise `NoReply`.

        The URL must come from our own settings or tokens. `address` is one of the addresses of its host; "" for any.
        `seconds` is the time limit for everything.
        """
        place = f"{url} at {address}" if address else url
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            client = self._client(place, url, address)
            async with client.post(_HEADERS, message, deadline=deadline) as response:
                status = response.status
                reply = await _body_of(response) if status == 200 else b""
        except (HttpFailure, ValueError) as error:
            raise NoReply("no process answers at the URL", url=place, reason=str(error)) from None
        if status != 200:
            raise NoReply("something else answers at the URL", url=place, status=status)
        return reply

    def _client(self, place: str, url: str, address: str) -> HttpClient:
        client = self._clients.get(place)
        if client is None:
            # A message may be sent only once, so each gets a connection that the other side has no reason to end.
            client = self._clients[place] = HttpClient(
                url.rstrip("/") + HOP_PATH,
                max_connections=MAX_POSTS,
                idle_seconds=0,
                resolve=_always(address) if address else resolve_with_system,
            )
        return client


async def _body_of(response: HttpResponse) -> bytes:
    """Return a reply. A replica always says how long it is, and one to a message for everybody is empty."""
    if _FRAMES.isdisjoint(response.headers):
        raise ValueError("the reply may be cut off")
    return await response.body(MAX_REPLY_BYTES)


def _always(address: str) -> Resolve:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return [address]

    return resolve
