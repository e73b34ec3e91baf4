"""Requests that a deployment must refuse, and others that load test users do not send: visitors of all kinds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self

import httpx
import msgspec

from loadtest.cluster import Cluster
from tests.integration.raw import META, META_CAPABILITIES, SECONDS, post, tool_call

LEGACY: Final = "2025-11-25"
TASKS: Final[dict[str, Any]] = {
    **META,
    META_CAPABILITIES: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}
ASKED: Final[dict[str, Any]] = {**META, META_CAPABILITIES: {"elicitation": {"form": {}}}}
CROWD: Final = 16
PAUSE_SECONDS: Final = 0.3
CRUNCH: Final = {"units": 12, "unitMs": 10}


class Session:
    """A client of 2025-11-25 with a session, at the balancer."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self._url = cluster.url
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {token}",
            "mcp-protocol-version": LEGACY,
        }
        beginning = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "visitor", "version": "1"}}
        answer = self.send({"id": 1, "method": "initialize", "params": beginning})
        assert answer.status_code == 200, answer.text
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]

    def send(self, message: dict[str, Any], **headers: str) -> httpx.Response:
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.post(
            self._url, content=body, headers=self._headers | own, timeout=SECONDS, trust_env=False, verify=False
        )

    def ping(self) -> int:
        return self.send({"id": 2, "method": "ping"}).status_code


class Visitors:
    """Sends requests from separate threads until the context ends; their failures are raised here.

    Args:
        busy: the name of the replica that a crowd calls, with more than it may accept.
    """

    def __init__(self, cluster: Cluster, token: str, busy: str) -> None:
        self._cluster = cluster
        self._token = token
        self._busy = cluster[busy]
        self._threads = ThreadPoolExecutor(CROWD + 4)
        self._over = threading.Event()
        self._crowd_over = threading.Event()
        self._session_over = threading.Event()
        self._running: list[Future[None]] = []

    def __enter__(self) -> Self:
        first = Session(self._cluster, self._token)
        self._begin(self._misbehave, self._over)
        self._begin(self._be_asked, self._over)
        self._begin(self._come_in_a_crowd, self._crowd_over)
        self._begin(lambda: self._stay(first), self._session_over)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and fail if a request did."""
        for event in (self._over, self._crowd_over, self._session_over):
            event.set()
        self._threads.shutdown()
        for running in self._running:
            running.result()

    def disperse(self) -> None:
        self._crowd_over.set()

    def end_first_session(self) -> None:
        """Let the first session expire."""
        self._session_over.set()

    def _begin(self, visit: Callable[[], None], over: threading.Event) -> None:
        def visits() -> None:
            while not over.is_set():
                visit()
                over.wait(PAUSE_SECONDS)

        self._running.append(self._threads.submit(visits))

    def _stay(self, session: Session) -> None:
        assert session.ping() == 200

    def _misbehave(self) -> None:
        """Send one request of each kind that is refused or fails."""
        cluster, token = self._cluster, self._token
        assert post(cluster, tool_call("fail"), token="no token at all").status == 401
        assert post(cluster, tool_call("no such tool"), token=token).error[1] == -32602
        assert post(cluster, tool_call("fail"), token=token).result["isError"]
        assert post(cluster, tool_call("fail_later", _meta=TASKS), token=token).result["resultType"] == "task"
        assert not post(cluster, tool_call("up__echo", {"text": "hello"}), token=token).result.get("isError")
        assert post(cluster, tool_call("down__echo"), token=token).result["isError"]
        session = Session(cluster, token)
        assert session.ping() == 200
        assert session.send({"id": 3, "method": "ping"}, mcp_session_id="made up").status_code == 404
        session.send({"id": "made up", "result": {}})

    def _be_asked(self) -> None:
        """Answer all questions of a call, and none of another one."""
        for has_time in (True, False):
            asked: dict[str, Any] = {}
            while True:
                answer = post(self._cluster, tool_call("asks__delete", _meta=ASKED, **asked), token=self._token)
                if not has_time or answer.result["resultType"] != "input_required":
                    break
                content = {"action": "accept", "content": {"sure": "yes"}}
                asked = {
                    "requestState": answer.state,
                    "inputResponses": dict.fromkeys(answer.result["inputRequests"], content),
                }
            assert not answer.result.get("isError"), answer.result

    def _come_in_a_crowd(self) -> None:
        """Send one replica more than it may accept."""
        crunch = tool_call("crunch", CRUNCH)
        asked = [self._threads.submit(post, self._busy, crunch, token=self._token) for _ in range(CROWD)]
        assert {answer.result().status for answer in asked} <= {200, 503}
