"""The requests of a hostile and a benign caller, made from letters for a replica in this process.

Two letters make a request. The first one is the kind of JSON. The second one says how it is sent: its size and wire,
whether the size is declared, whether the client leaves before the end, and whether the call waits. After the last
letter all calls end. Everything is smaller here than in a real replica, so many requests take little time.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.auth.tokens import mint
from gateway.process.app import GatewayApp
from gateway.web.bodies import SMALL_BYTES
from tests.asgi import Client, make_app, raw_headers
from tests.integration.raw import tool_call
from tests.security.hostile_bodies import KINDS, OWN_VALUES, Kind
from tests.web.holding_tools import GATE

SECRET: Final = "a secret that only the fuzzer knows, 32 bytes"
MOST_REQUESTS: Final = 200
LARGEST: Final = 32768
SHARE: Final = 2**18
MOST_VALUES: Final = 1000
BENIGN_EVERY: Final = 8
"""How many hostile requests come between two benign ones."""

SIZES: Final = (1000, 4096, 4097, 9000, 20_000, LARGEST)
DRAFT: Final = "DRAFT-2026-v1"


@dataclass(frozen=True)
class Sending:
    """How a request is sent."""

    size: int
    is_declared: bool
    leaves: bool
    is_draft: bool
    waits: bool

    @classmethod
    def of(cls, letter: int) -> Sending:
        """Return what a letter means; each has a meaning."""
        size = SIZES[letter % len(SIZES)]
        rest = letter // len(SIZES)
        return cls(size, rest % 3 != 2, rest % 5 == 4, rest % 4 == 3, waits=rest % 2 == 0 and size > SMALL_BYTES)


def requests_of(data: bytes) -> Iterator[tuple[Kind, Sending]]:
    """Yield the hostile requests that letters make."""
    kinds = list(KINDS.values())
    for first, second in zip(data[: 2 * MOST_REQUESTS : 2], data[1::2], strict=False):
        yield kinds[first % len(kinds)], Sending.of(second)


def new_app() -> GatewayApp:
    """Return a replica. Each input has its own, so none is judged by what another one left behind."""
    return make_app(
        "tests.web.holding_tools",
        auth="jwt",
        jwt_secret=SECRET,
        max_body_bytes=LARGEST,
        max_unanswered_bytes=4 * SHARE,
        max_json_values=MOST_VALUES,
        audit_log="off",
    )


@functools.cache
def bearer(user: str) -> str:
    """Return the token of a user."""
    return f"Bearer {mint(SECRET, user, 'tests', ttl_seconds=10**8)}"


class Scene:
    """The requests of one input."""

    def __init__(self) -> None:
        self.app = new_app()

    async def play(self, data: bytes) -> None:
        """Send everything, and check what must hold at each moment, and at the end."""
        GATE.clear()
        tasks = []
        for number, (kind, sending) in enumerate(requests_of(data)):
            tasks.append(asyncio.create_task(self._hostile(kind, sending)))
            await asyncio.sleep(0)
            assert GATE.waiting * SMALL_BYTES <= SHARE, "a caller holds more than its share"
            if number % BENIGN_EVERY == 0:
                await self._benign(SIZES[number // BENIGN_EVERY % len(SIZES)])
        for _ in range(3):
            await asyncio.sleep(0)
        await self._benign(LARGEST)
        GATE.set()
        await asyncio.gather(*tasks)
        assert self.app._services.callers._bodies.held_bytes == 0, "bytes are held although everything has ended"
        load = self.app._services.load
        assert (load.in_flight, load.waiting) == (0, 0)

    async def _benign(self, size: int) -> None:
        message = tool_call("echo", {"text": "a" * (size - 500)})
        answer = await Client(self.app).post(message, authorization=bearer("benign"))
        assert answer.status == 200, f"another caller gets {answer.status}"

    async def _hostile(self, kind: Kind, sending: Sending) -> None:
        client = Client(self.app, leaves=sending.leaves)
        body, values = _body_of(kind, sending)
        headers = _headers_of(body, sending)
        if sending.leaves:
            await client.run([body[: len(body) // 2]], headers)
            return
        answer = await client.send([body[: len(body) // 2], body[len(body) // 2 :]], headers)
        code = answer.message.get("error", {}).get("code", 0)
        if values <= MOST_VALUES - OWN_VALUES:
            assert code in {0, -31001}, answer.body
        elif values > MOST_VALUES:
            assert code in {-32600, -31001}, answer.body
        assert answer.status == (503 if code == -31001 else 400 if code else 200) or sending.is_draft


def _message_of(sending: Sending) -> dict[str, Any]:
    message = tool_call("hold") if sending.waits else tool_call("echo", {"text": "a"})
    if sending.is_draft:
        message["params"]["_meta"] = {"example.com/y": 1}
    return message


def _body_of(kind: Kind, sending: Sending) -> tuple[bytes, int]:
    """Return a body, and how many values it has without those of the message itself."""
    bare = msgspec.json.encode(_message_of(sending))
    size = max(100, sending.size - len(bare) - len('"example.com/x":,'))
    value = kind.filled(size, 2 * MOST_VALUES).encode()
    body = bare.replace(b'"_meta":{', b'"_meta":{"example.com/x":' + value + b",", 1)
    return body, kind.weight * kind.count(size, 2 * MOST_VALUES)


def _headers_of(body: bytes, sending: Sending) -> list[tuple[bytes, bytes]]:
    headers = raw_headers(_message_of(sending), authorization=bearer("greedy"))
    if sending.is_draft:
        headers = [(name, text) for name, text in headers if not name.startswith(b"mcp-")]
        headers.append((b"mcp-protocol-version", DRAFT.encode()))
    if sending.is_declared:
        headers.append((b"content-length", b"%d" % len(body)))
    return headers


def play(data: bytes) -> None:
    """Send the requests that letters make, and fail if a promise is broken."""
    logging.disable(logging.CRITICAL)  # a fuzzer would print lines for each input
    try:
        asyncio.run(Scene().play(data))
    finally:
        logging.disable(logging.NOTSET)
