"""A deployment in one process whose seal keys come from a file, and helpers that find which keys are in use."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import redis
import uvicorn

from gateway.auth.tokens import mint
from gateway.engine.leg_policy import LegPolicy
from gateway.process.app import GatewayApp
from gateway.process.replica import build
from gateway.process.services import watch_key_file
from gateway.runtime.file_watcher import FileWatcher
from gateway.sealing import base64url
from gateway.sealing.cipher import Cipher
from gateway.sealing.envelope import Sealer
from gateway.sealing.hop import BOOT_BYTES, NONCE_BYTES
from gateway.sealing.keyring import KeyRing, SealKey
from gateway.sealing.list_cursor import CursorMaker
from gateway.settings.model import Settings
from gateway_workers.heartbeats import Heart
from gateway_workers.metrics import WorkerTelemetry
from gateway_workers.services import WorkerServices, build_worker
from gateway_workers.worker import Work, Worker
from tests.asgi import HOST, Client
from tests.integration.raw import META_CAPABILITIES, META_VERSION, VERSION, Answer, request
from tests.storage.deployments import eventually
from tests.storage.servers import Server

SECRET: Final = "a secret that only this test knows, 32 bytes"
LEGACY: Final = "2025-11-25"
HOLDERS: Final = frozenset({Sealer, CursorMaker, KeyRing, Cipher, SealKey})
"""The types of all objects that hold a key, or something derived from it."""
HOP_HEAD_BYTES: Final = 3 + 2 * BOOT_BYTES + NONCE_BYTES + 8
META: Final = {
    META_VERSION: VERSION,
    META_CAPABILITIES: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}


def key_id(entry: str) -> str:
    return KeyRing.parse(entry).sealing_key.key_id.hex()


def sealed_with(token: str) -> str:
    """Return the id of the key that sealed a token: its first four bytes."""
    label, _, body = token.partition(".")
    assert label in {"s1", "c1"}
    return base64url.decode(body)[:4].hex()


def sealed_message_with(message: bytes) -> str:
    """Return the id of the key that sealed a message between replicas."""
    return sealed_with(message[HOP_HEAD_BYTES:].decode())


def sealing_with(entry: str) -> list[object]:
    """Return all live objects that would seal with a key."""
    wanted = KeyRing.parse(entry).sealing_key.key_id
    return list(_live(lambda each: _sealing_key_id(each) == wanted))


def holding(entry: str) -> list[object]:
    """Return all live objects that hold a key, or something derived from it."""
    key = KeyRing.parse(entry).sealing_key
    wanted, secret = key.key_id, key.secret
    del key
    return list(_live(lambda each: wanted in _key_ids(each) or _secret(each) == secret))


def _live(is_wanted: Callable[[object], bool]) -> Iterator[object]:
    gc.collect()
    return (each for each in gc.get_objects() if type(each) in HOLDERS and is_wanted(each))


def _sealing_key_id(each: object) -> bytes:
    if type(each) is Sealer:
        return each.key_id
    if type(each) is CursorMaker:
        return each._key_id
    return each.sealing_key.key_id if type(each) is KeyRing else b""


def _key_ids(each: object) -> set[bytes]:
    if type(each) is Sealer:
        return set(each._ciphers)
    if type(each) is CursorMaker:
        return set(each._keys)
    return {key.key_id for key in each.keys} if type(each) is KeyRing else set()


def _secret(each: object) -> bytes:
    if type(each) is Cipher:
        return each._key
    return each.secret if type(each) is SealKey else b""


class Rotating:
    """Two replicas and a worker that follow one file of seal keys, on a real store.

    Attributes:
        first: a replica that others reach over HTTP.
        second: another replica.
        worker: runs tasks.
        messages: the messages from other replicas to the first one.
    """

    def __init__(self, directory: Path, server: Server, tools: str, *entries: str) -> None:
        self.file = directory / "keys"
        self.file.write_text(",".join(entries))
        self.server = server
        self.messages: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._tools = tools
        url = "http://{}:{}".format(*self._socket.getsockname())
        self.first, self.second = self._app("first", GATEWAY_REPLICA_URL=url), self._app("second")
        self.worker = build_worker(self._settings("worker"))
        self._watchers: list[FileWatcher[KeyRing]] = []
        for services in (self.first._services, self.second._services, self.worker):
            self._watchers += watch_key_file(services.settings, services.keys)
        assert len(self._watchers) == 3

    def _settings(self, name: str, **more: str) -> Settings:
        environ = {
            "GATEWAY_SEAL_KEYS_FILE": str(self.file),
            "GATEWAY_AUDIENCE": "tests",
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWT_SECRET": SECRET,
            "GATEWAY_REDIS_URL": self.server.url,
            "GATEWAY_TASK_PARTITIONS": "1",
            "GATEWAY_REPLICA_ID": name,
            **more,
        }
        return Settings.load(environ, tools=(self._tools,))

    def _app(self, name: str, **more: str) -> GatewayApp:
        return GatewayApp(build(self._settings(name, **more)))

    async def rotate(self, *entries: str) -> None:
        """Replace the content of the file, and have all three processes read it."""
        await asyncio.to_thread(self.file.write_text, ",".join(entries))
        for watcher in self._watchers:
            await watcher.look()
            await watcher.look()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve the first replica and let the worker work while the context is open."""
        server = uvicorn.Server(uvicorn.Config(self._noting, interface="asgi3", lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[self._socket]))
        async with working(self.worker):
            yield
        server.should_exit = True
        await serving
        for app in (self.first, self.second):
            assert app._services.store is not None
            await app._services.store.aclose()
            app._services.host.close()
        self.worker.host.close()

    async def _noting(self, scope: Any, receive: Any, send: Any) -> None:
        async def noted() -> MutableMapping[str, Any]:
            event: MutableMapping[str, Any] = await receive()
            self.messages.append(event.get("body", b""))
            return event

        await self.first(scope, noted, send)

    async def ask(self, method: str, **params: Any) -> Answer:
        """Send a request of the released wire to the first replica."""
        message = request(method, {"_meta": META, **params})
        return await Client(self.first).post(message, authorization=bearer())

    def at_rest(self) -> dict[tuple[str, str], str]:
        """Return all sealed values in the store."""
        found: dict[tuple[str, str], str] = {}
        with redis.Redis.from_url(self.server.url, decode_responses=True) as client:
            store: Any = client
            for name in store.scan_iter(count=1000):
                found |= {(name, field): value for field, value in _fields(store, name) if value.startswith("s1.")}
        return found


def _fields(store: Any, name: str) -> list[tuple[str, str]]:
    match store.type(name):
        case "string":
            return [("", store.get(name))]
        case "hash":
            return list(store.hgetall(name).items())
        case "stream":
            return [(entry, value) for entry, fields in store.xrange(name) for value in fields.values()]
    return []


@contextlib.asynccontextmanager
async def working(services: WorkerServices) -> AsyncIterator[None]:
    """Let a worker work while the context is open."""
    telemetry = WorkerTelemetry(services.registry.tools, 4)
    queue = services.make_queue(telemetry)
    work = Work(
        tools=services.registry.tools,
        queue=queue,
        host=services.host,
        telemetry=telemetry,
        audit=services.audit.log,
        policy=LegPolicy.of(services.settings),
    )
    heart = Heart(
        partial(services.make_queue, telemetry), services.settings.task_lease_seconds, asyncio.get_running_loop()
    )
    worker = Worker(work, heart, 4)
    heart.start(worker.end)
    run = asyncio.create_task(worker.run(1.0))
    yield
    worker.leave()
    worker.hurry()
    await run
    await heart.stop()
    await queue.aclose()


def session_request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request of a wire that has sessions."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def bearer() -> str:
    return "Bearer " + mint(SECRET, "ada", "tests")


class Session:
    """A client of the 2025-11-25 wire that has shaken hands.

    Attributes:
        session_id: its session.
        headers: those of its requests.
    """

    def __init__(self, session_id: str, headers: Mapping[str, str]) -> None:
        self.session_id = session_id
        self.headers = {**headers, "mcp-session-id": session_id}

    @classmethod
    async def begin(cls, app: GatewayApp) -> Session:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": LEGACY,
            "authorization": bearer(),
        }
        about = {"capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}
        message = session_request("initialize", {"protocolVersion": LEGACY, **about})
        answer = await Client(app).send([msgspec.json.encode(message)], _raw(headers))
        return cls(answer.headers["mcp-session-id"], headers)

    async def send(self, app: GatewayApp, message: Mapping[str, Any]) -> Answer:
        return await Client(app).send([msgspec.json.encode(message)], _raw(self.headers))

    @contextlib.asynccontextmanager
    async def calling(self, app: GatewayApp, tool: str) -> AsyncIterator[Events]:
        """Call a tool, and read the answer while the context is open."""
        client = Client(app)
        message = session_request("tools/call", {"name": tool, "arguments": {}})
        running = asyncio.create_task(client.run([msgspec.json.encode(message)], _raw(self.headers)))
        yield Events(client)
        await running


class Events:
    """The messages in the response to a request that is still running."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def message(self, number: int) -> dict[str, Any]:
        """Wait for the n-th message, and return it."""
        messages: list[dict[str, Any]] = await eventually(partial(self._first, number))
        return messages[-1]

    async def _first(self, number: int) -> list[dict[str, Any]]:
        """Return that many messages, or nothing while there are fewer."""
        text = b"".join(event.get("body", b"") for event in self._client.sent).decode()
        lines = (line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:"))
        messages = [msgspec.json.decode(line) for line in lines if line.startswith("{")]
        return messages[:number] if len(messages) >= number else []


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [HOST, *((name.encode(), value.encode()) for name, value in headers.items())]
