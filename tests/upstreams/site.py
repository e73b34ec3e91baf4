"""Replicas with other servers behind them, and clients of 2026-07-28 that turn to another replica for each request."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec

from gateway.auth.tokens import mint
from loadtest.cluster import Replica, wait_until
from tests.integration.raw import NAMED_BY
from tests.storage.servers import Server
from tests.wires.draft.deployment import AUDIENCE, SECRET, Deployment
from tests.wires.draft.messages import Answers, answer_to
from tests.wires.draft.transport import EventDecoder

META = "io.modelcontextprotocol"
VERSION = "2026-07-28"
TASKS = f"{META}/tasks"
CAPABILITIES: Mapping[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
    "extensions": {TASKS: {}},
}
WITHOUT_TASKS: Mapping[str, Any] = {name: CAPABILITIES[name] for name in ("elicitation", "sampling", "roots")}
SECONDS = 20.0
MAX_LEGS = 20


class Site(Deployment):
    """Two replicas that know their callers by tokens, with a file of upstreams, and with a worker if there is a store.

    Args:
        upstreams: the entries of the file.
        settings: of all replicas and workers; without `GATEWAY_TOOLS` there are no local tools.
    """

    def __init__(
        self,
        directory: Path,
        upstreams: Mapping[str, Any],
        server: Server | None = None,
        settings: Mapping[str, str] | None = None,
        names: Sequence[str] = ("r1", "r2"),
    ) -> None:
        self.file = directory / "upstreams.json"
        directory.mkdir(parents=True, exist_ok=True)
        self.configure(upstreams)
        given = {"GATEWAY_UPSTREAMS": str(self.file), "GATEWAY_TOOLS": "", **(settings or {})}
        super().__init__(directory, server, given, {name: {} for name in names})

    def configure(self, upstreams: Mapping[str, Any]) -> None:
        """Write the file of upstreams, which the processes watch."""
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"mcpServers": upstreams}))
        new.replace(self.file)

    def user(self, principal: str = "ada", **options: Any) -> User:
        """Return a client of 2026-07-28; `scopes` is what its token grants, the other options are those of `User`."""
        token = mint(SECRET, principal, AUDIENCE, scopes=options.pop("scopes", ()))
        return User(options.pop("urls", self.urls), token, **options)

    def wait_listed(self, *upstreams: str) -> None:
        """Wait until each replica has read the lists of these upstreams, by default of all whose lists are shared."""
        entries = json.loads(self.file.read_text())["mcpServers"]
        shared = [
            name for name, each in entries.items() if not {"forward_headers", "credentials"} & each["gateway"].keys()
        ]
        for replica in self.replicas:
            for upstream in upstreams or shared:
                wait_until(partial(_has_read, replica, upstream), f"the lists of {upstream} at {replica.name}")

    def metric(self, name: str, /, **labels: str) -> float:
        """Return the sum of a metric over all replicas."""
        return sum(replica.metric(name, **labels) for replica in self.replicas if replica.alive)

    def logged_text(self) -> str:
        return "\n".join(text for _, text in self.logs())


@dataclass
class Reply:
    """The answer to a request. `url` is the replica that answered, `notices` are the messages before the response."""

    status: int
    url: str
    headers: Mapping[str, str]
    response: dict[str, Any]
    notices: list[dict[str, Any]]

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.response, (self.status, self.response)
        result = self.response["result"]
        assert isinstance(result, dict)
        return result

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.response, self.response
        error = self.response["error"]
        assert isinstance(error, dict)
        return error

    @property
    def text(self) -> str:
        """The text of a result that is one block."""
        (block,) = self.result["content"]
        return str(block["text"])

    @property
    def said(self) -> Any:
        """The JSON value in the one block."""
        return json.loads(self.text)


@dataclass
class User:
    """A client of one user; an async context manager. The replicas at `urls` get its requests in turn."""

    urls: Sequence[str]
    token: str | None
    capabilities: Mapping[str, Any] = field(default_factory=lambda: CAPABILITIES)
    headers: dict[str, str] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    seconds: float = SECONDS
    replies: list[Reply] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._turns = itertools.cycle(range(len(self.urls)))
        self._ids = itertools.count(1)
        self.http = httpx.AsyncClient(timeout=self.seconds, trust_env=False, verify=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of a request."""
        params = dict(params or {})
        meta = {
            f"{META}/protocolVersion": VERSION,
            f"{META}/clientCapabilities": self.capabilities,
            **self.meta,
            **params.pop("_meta", {}),
        }
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            **self.headers,
        }
        if method in NAMED_BY:
            headers["mcp-name"] = encoded(params[NAMED_BY[method]])
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": meta}}
        return msgspec.json.encode(message), headers

    async def send(self, method: str, params: Mapping[str, Any] | None = None, **headers: str) -> Reply:
        """Send a request to the next replica, and return its answer."""
        body, given = self.request(method, params)
        url = self.urls[next(self._turns)]
        async with self.http.stream("POST", url, content=body, headers={**given, **headers}) as response:
            content = await response.aread()
        messages = _messages(response.headers.get("content-type", ""), content)
        last = messages[-1] if messages else {}
        reply = Reply(response.status_code, url, dict(response.headers), last, messages[:-1])
        self.replies.append(reply)
        return reply

    async def complete(self, method: str, params: Mapping[str, Any], answers: Answers | None = None) -> Reply:
        """Send a request, and again with answers as long as it asks; each leg goes to the next replica."""
        reply = await self.send(method, params)
        for _ in range(MAX_LEGS):
            if reply.response.get("result", {}).get("resultType") != "input_required":
                return reply
            reply = await self.send(method, {**params, **await self.retry(reply, answers or {})})
        raise AssertionError(f"no end after {MAX_LEGS} legs")

    async def retry(self, reply: Reply, answers: Answers) -> dict[str, Any]:
        """Return what the next leg has besides the parameters of the first."""
        result = reply.result
        more: dict[str, Any] = {}
        if result.get("inputRequests"):
            more["inputResponses"] = await answered(result["inputRequests"], answers)
        if "requestState" in result:
            more["requestState"] = result["requestState"]
        return more

    async def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, answers: Answers | None = None, **params: Any
    ) -> Reply:
        return await self.complete("tools/call", {"name": tool, "arguments": arguments or {}, **params}, answers)

    async def task(self, tool: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Call a tool that becomes a task, and return the task's id."""
        created = await self.send("tools/call", {"name": tool, "arguments": arguments or {}})
        assert created.result["resultType"] == "task", created
        return str(created.result["taskId"])

    async def asked_in_task(self, task_id: str) -> dict[str, Any]:
        """Wait until a task asks something, and return its questions."""
        async with asyncio.timeout(self.seconds):
            while (task := (await self.send("tasks/get", {"taskId": task_id})).result)["status"] != "input_required":
                assert task["status"] == "working", task
                await asyncio.sleep(0.02)
        questions = task["inputRequests"]
        assert isinstance(questions, dict)
        return questions

    async def finish(self, task_id: str, answers: Answers | None = None) -> dict[str, Any]:
        """Answer what a task asks until it ends, and return it."""
        done: set[str] = set()
        async with asyncio.timeout(self.seconds):
            while True:
                task = (await self.send("tasks/get", {"taskId": task_id})).result
                if task["status"] in {"completed", "failed", "cancelled"}:
                    return task
                open_questions = {
                    key: question for key, question in task.get("inputRequests", {}).items() if key not in done
                }
                if task["status"] == "input_required" and open_questions:
                    done |= open_questions.keys()
                    responses = await answered(open_questions, answers or {})
                    update = await self.send("tasks/update", {"taskId": task_id, "inputResponses": responses})
                    assert "result" in update.response, update
                await asyncio.sleep(0.02)

    async def names(self, kind: str = "tools") -> list[str]:
        """Return the names of a whole list; each page comes from the next replica."""
        return [entry["uri" if kind == "resources" else "name"] for entry in await self.list(kind)]

    async def list(self, kind: str = "tools") -> list[dict[str, Any]]:
        method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
        entries: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        while True:
            page = (await self.send(method, params)).result
            entries += page[kind]
            if "nextCursor" not in page:
                return entries
            params = {"cursor": page["nextCursor"]}

    @contextlib.asynccontextmanager
    async def listening(self, url: str | None = None, **wanted: Any) -> AsyncIterator[Heard]:
        """Listen to changes while the context is open; the stream is acknowledged when it opens."""
        body, headers = self.request("subscriptions/listen", {"notifications": wanted})
        async with self.http.stream(
            "POST", url or self.urls[next(self._turns)], content=body, headers=headers
        ) as response:
            heard = Heard()
            reading = asyncio.create_task(heard.read(response))
            try:
                await heard.wait_for("notifications/subscriptions/acknowledged")
                yield heard
            finally:
                reading.cancel()
                await asyncio.wait({reading})  # awaiting it would swallow a cancellation of this task too


class Heard:
    """What came on a subscription stream, in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._more = asyncio.Condition()

    async def read(self, response: httpx.Response) -> None:
        decoder = EventDecoder()
        async for chunk in response.aiter_raw():
            for data in decoder.feed(chunk):
                self.messages.append(json.loads(data))
                async with self._more:
                    self._more.notify_all()

    def of(self, method: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message.get("method") == method]

    async def wait_for(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many of these notifications have come."""
        async with asyncio.timeout(SECONDS), self._more:
            await self._more.wait_for(lambda: len(self.of(method)) >= count)
        return self.of(method)


def encoded(value: str) -> str:
    """Return the value of a header that carries any text (2026-07-28, "Value Encoding")."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


async def answered(questions: Mapping[str, Any], answers: Answers) -> dict[str, Any]:
    """Return the `inputResponses` of this wire. An answer that is an error has no form on it."""
    return {key: (await answer_to(question, answers, key))["result"] for key, question in questions.items()}


def _has_read(replica: Replica, upstream: str) -> bool:
    return replica.metric("gateway_upstream_list_refreshes_total", upstream=upstream) > 0


def _messages(kind: str, content: bytes) -> list[dict[str, Any]]:
    if kind.startswith("text/event-stream"):
        return [json.loads(data) for data in EventDecoder().feed(content)]
    return [json.loads(content)] if content else []


def entry(url: str, **options: Any) -> dict[str, Any]:
    headers = options.pop("headers", None)
    return {"url": url, **({"headers": headers} if headers else {}), "gateway": options}
