"""Two replicas and one worker's queue in one process, on a real server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.tokens import mint
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.calls.failures import Failures
from gateway.calls.task_leg import Finished, TaskLeg, TaskOutcome, Waiting, run_task_leg
from gateway.engine.journal import Checkpoint
from gateway.process import services as process_services
from gateway.process.app import GatewayApp
from gateway.protocol.method_table import NAMED_METHODS
from gateway.storage import RedisTaskStore, RedisWorkQueue
from gateway.tasks.model import Progress
from gateway.tasks.ports import Claim, Kept
from gateway.wires import ports as wires
from loadtest.cluster import new_key
from tests.asgi import Client, make_app
from tests.calls.policies import POLICY
from tests.integration.raw import META_CAPABILITIES, META_VERSION, VERSION, Answer
from tests.storage.servers import Server
from tests.wires.released import tools

TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CAN: dict[str, Any] = {"elicitation": {}, **TASKS}
SECRET = "a secret that only this test knows, 32 bytes"
TOOLS = "tests.wires.released.tools"
NO_CLIENT: wires.Client = object()  # type: ignore[assignment]  # its answers are read where they are made


class SimpleKeeper:
    """Writes everything at once."""

    def __init__(self, queue: RedisWorkQueue, claim: Claim) -> None:
        self.queue, self.claim = queue, claim
        self.told: list[Progress] = []

    async def keep_step(self, key: str, value: Any) -> None:
        await self.queue.keep(self.claim, Kept(steps={key: value}))

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None:
        await self.queue.emit(self.claim, number, block)

    async def keep_checkpoint(self, checkpoint: Checkpoint) -> bool:
        told = self.told.pop() if self.told else None
        await self.queue.keep(self.claim, Kept(checkpoint=checkpoint.to_map(), progress=told))
        return False

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        await self.queue.keep(self.claim, Kept(slot=slot))

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        self.told.append(Progress(done, total, message))

    def log(self, level: str, data: Any, logger: str | None) -> None:
        """Drop it."""


class World:
    """A deployment; each request goes to the next of its replicas."""

    def __init__(self, url: str, module: str = TOOLS, **more: Any) -> None:
        settings = {"redis_url": url, "seal_keys": new_key(), "task_partitions": 1, "auth": "jwt", "jwt_secret": SECRET}
        self.apps = [make_app(module, replica_id=name, **{**settings, **more}) for name in ("left", "right")]
        services = self.apps[0]._services
        self.registry = services.registry
        self.queue = process_services.make_work_queue(
            services.settings, services.redis_url, services.keys, services.telemetry
        )
        self.host = AsyncioHost(None, "worker")
        self.keepers: list[SimpleKeeper] = []
        self._turn = 0

    @property
    def store(self) -> RedisTaskStore:
        store = self.apps[0]._services.store
        assert store is not None
        return store

    def next_app(self) -> GatewayApp:
        self._turn += 1
        return self.apps[self._turn % len(self.apps)]

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        can: Mapping[str, Any] = CAN,
        sub: str = "ada",
        scopes: tuple[str, ...] = (),
        request_id: Any = 1,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request with the headers that fit it."""
        given = {"content-type": "application/json", "mcp-protocol-version": VERSION, "mcp-method": method}
        given["authorization"] = "Bearer " + mint(SECRET, sub, "tests", scopes=scopes)
        if isinstance(params.get(NAMED_METHODS.get(method, "")), str):
            given["mcp-name"] = params[NAMED_METHODS[method]]
        envelope = {META_VERSION: VERSION, META_CAPABILITIES: can}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {"_meta": envelope, **params}}
        return await Client(self.next_app()).post(message, **{**given, **(headers or {})})

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> Answer:
        """Call a tool. Keywords that `request` does not know are parameters of the call."""
        known = {"can", "sub", "scopes", "request_id"}
        params = {"name": name, "arguments": arguments or {}}
        params.update({key: value for key, value in more.items() if key not in known})
        return await self.request("tools/call", params, **{key: more[key] for key in more if key in known})

    async def start(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Call a tool that becomes a task at once; return the task's id."""
        result = (await self.call(name, arguments, **more)).result
        assert result["resultType"] == "task"
        return str(result["taskId"])

    async def started(self, name: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """Start a task and run its first leg."""
        task_id = await self.start(name, arguments, **more)
        await self.work()
        return task_id

    async def get(self, task_id: str, **more: Any) -> dict[str, Any]:
        return (await self.request("tasks/get", {"taskId": task_id}, **more)).result

    async def update(self, task_id: str, responses: Any, **more: Any) -> Answer:
        return await self.request("tasks/update", {"taskId": task_id, "inputResponses": responses}, **more)

    async def work(self) -> list[TaskOutcome]:
        """Run one leg of every queued task, and return the outcomes."""
        claims = await self.queue.claim(0, 100, wait_ms=1)
        return [await self.leg(claim) for claim in claims]

    async def leg(self, claim: Claim) -> TaskOutcome:
        """Run one leg of a task, and store its outcome."""
        keeper = SimpleKeeper(self.queue, claim)
        self.keepers.append(keeper)
        segments = await self.queue.segments(claim.owner, claim.task_id) if claim.segments else ()
        outcome = await run_task_leg(
            TaskLeg(
                self.registry.tools[claim.tool],
                claim.arguments,
                claim.principal,
                claim.capabilities,
                claim.journal,
                segments,
                claim.task_id,
            ),
            keeper=keeper,
            host=self.host,
            failures=Failures(os.urandom, POLICY),
            policy=POLICY,
            notices=keeper,
        )
        if isinstance(outcome, Finished):
            await self.queue.finish(claim, result=outcome.result, error=outcome.error)
        elif isinstance(outcome, Waiting):
            await self.queue.wait(claim, outcome.questions, outcome.journal)
        else:
            await self.queue.release(claim, outcome.journal)
        return outcome

    async def close(self) -> None:
        await self.queue.aclose()
        for app in self.apps:
            if app._services.store is not None:
                await app._services.store.aclose()
            app._services.host.close()
        self.host.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server("redis", tmp_path_factory.mktemp("redis"))
    started.start()
    yield started
    started.end()


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    server.ask("FLUSHALL")
    made = World(server.url)
    tools.RAN.clear()
    tools.PAYING.clear()
    yield made
    await made.close()
    for event in tools.GATES.values():
        event.set()
    tools.GATES.clear()


@pytest.fixture
def gate() -> Iterator[asyncio.Event]:
    """The event that a tool with the gate `g` waits for."""
    event = tools.GATES["g"] = asyncio.Event()
    yield event
    event.set()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may take away."""
    started = Server("redis", tmp_path)
    started.start()
    yield started
    started.end()
