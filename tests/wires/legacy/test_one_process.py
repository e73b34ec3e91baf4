"""Calls that ask, in one process: what limits them, and what they leave behind."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from gateway.process.app import GatewayApp
from gateway.protocol.versions import DRAFT
from gateway.sealing.binding import request_id_binding
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.request_id import TaskAddress, seal_request_id
from gateway.web.exchange import MAX_PENDING_BYTES
from gateway.wires.legacy.pending_answers import WaitingCalls
from loadtest.cluster import new_key
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import Answer
from tests.waiting import until
from tests.wires.draft.messages import accept, call_params
from tests.wires.legacy.speaking import LEGACY

CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}}
ASK: Final = call_params("ask_politely")


class Session:
    """A session with one replica, without a network."""

    def __init__(self, app: GatewayApp) -> None:
        self.app = app
        self.headers = [HOST, (b"content-type", b"application/json")]

    async def post(self, message: Mapping[str, Any], client: Client | None = None) -> Answer:
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        return await (client or Client(self.app)).send([body], self.headers)

    async def begin(self, version: str = LEGACY) -> Session:
        params = {"protocolVersion": version, "capabilities": CAPABILITIES, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.post({"id": 0, "method": "initialize", "params": params})
        self.headers.append((b"mcp-session-id", answer.headers["mcp-session-id"].encode()))
        return self


class Asking:
    """A call of a session, and what has come of its answer."""

    def __init__(self, session: Session, params: Mapping[str, Any] = ASK) -> None:
        self._client = Client(session.app)
        message = {"id": 1, "method": "tools/call", "params": params}
        self.answer = asyncio.create_task(session.post(message, self._client))

    def events(self) -> list[dict[str, Any]]:
        lines = b"".join(event.get("body", b"") for event in self._client.sent).split(b"\n")
        return [msgspec.json.decode(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]

    async def question(self) -> str:
        """Wait for the first question, and return its id."""
        await until(self._questions)
        return self._questions()[0]

    def _questions(self) -> list[str]:
        return [str(event["id"]) for event in self.events() if "method" in event and "id" in event]

    async def result(self) -> dict[str, Any]:
        await asyncio.wait_for(self.answer, 30)
        result: dict[str, Any] = self.events()[-1]["result"]
        return result


async def begin(**settings: Any) -> Session:
    return await Session(make_app("tests.wires.draft.tools", **settings)).begin()


async def respond(session: Session, question: str, status: int = 202) -> None:
    answer = await session.post({"id": question, "result": accept(name="ada")})
    assert answer.status == status


async def test_calls_that_wait_for_an_answer_take_no_place() -> None:
    session = await begin(max_inflight=1)
    calls = [Asking(session) for _ in range(3)]
    questions = [await call.question() for call in calls]
    assert (await session.post({"id": 2, "method": "tools/list"})).status == 200
    for call, question in zip(calls, questions, strict=True):
        await respond(session, question)
        assert (await call.result())["content"][0]["text"] == "ada"


@pytest.mark.parametrize("busy", [2, 3])
async def test_who_has_its_answer_waits_for_a_place_if_there_is_room_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    """Two may be worked on and one may wait. Where that one waits already, no answer of a user is lost for it."""
    monkeypatch.setenv("TEST_DIRECTORY", str(tmp_path))
    session = await begin(max_inflight=2, redis_url="redis://127.0.0.1:1")
    load = session.app._services.load
    call = Asking(session)
    question = await call.question()
    message = {"id": 2, "method": "tools/call", "params": call_params("wait", {"gate": "gate"})}
    others = [asyncio.create_task(session.post({**message, "id": number})) for number in range(2, 2 + busy)]
    await until(lambda: load.in_flight >= busy)
    await respond(session, question)
    if busy == 2:
        await until(lambda: load.waiting != 0)
        assert not call.answer.done()
        (tmp_path / "gate").touch()
    assert (await call.result())["content"][0]["text"] == "ada"
    (tmp_path / "gate").touch()
    assert [(await other).status for other in others] == [200] * busy
    assert load.in_flight == 0


@pytest.mark.setting("max_result_bytes")
async def test_a_question_over_the_limit_of_a_result_ends_its_call() -> None:
    limit = 65536
    session = await Session(make_app("tests.calls.large_tools", max_result_bytes=limit)).begin()
    small = Asking(session, call_params("asked", {"size": limit // 8}))
    assert (await session.post({"id": await small.question(), "result": {"action": "decline"}})).status == 202
    await small.result()
    large = Asking(session, call_params("asked", {"size": 2 * limit}))
    answer = await asyncio.wait_for(large.answer, 30)
    assert answer.result["isError"] is True
    assert answer.text.startswith(f"The question is too large: the limit is {limit} bytes.")


async def test_an_answer_that_is_handed_on_takes_no_place_meanwhile() -> None:
    handed_on, taken = asyncio.Event(), asyncio.Event()

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handed_on.set()
        await taken.wait()
        writer.close()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as slow:
        port = slow.sockets[0].getsockname()[1]
        settings = {"seal_keys": new_key(), "max_inflight": 1}
        asked = await begin(replica_url=f"http://127.0.0.1:{port}", **settings)
        other = await begin(replica_url="http://127.0.0.1:1", **settings)
        answering = asyncio.create_task(respond(other, await Asking(asked).question(), 200))
        await asyncio.wait_for(handed_on.wait(), 10)
        assert (await other.post({"id": 2, "method": "ping"})).result == {}
        assert not answering.done()
        taken.set()
        await answering


async def test_an_answer_for_a_task_is_refused_where_there_is_no_store(caplog: pytest.LogCaptureFixture) -> None:
    key = new_key()
    session, sealer = await begin(seal_keys=key), Sealer(KeyRing.parse(key), os.urandom)
    address = TaskAddress("t_elsewhere", "form", time.time() + 60)
    await respond(session, seal_request_id(sealer, address, aad=request_id_binding("tests", None)), 200)
    assert "answer not delivered: it is for a task" in caplog.text


async def test_a_header_that_names_the_method_takes_no_second_place() -> None:
    session = await begin(max_inflight=1)
    session.headers.append((b"mcp-method", b"ping"))
    for _ in range(3):
        assert (await asyncio.wait_for(session.post({"id": 2, "method": "ping"}), 10)).result == {}


@pytest.mark.parametrize("named", [b"initialize", b"tasks/get", b"subscriptions/listen", b"notifications/cancelled"])
async def test_a_header_that_names_another_method_spares_nobody_the_wait_for_a_place(named: bytes) -> None:
    session = await begin()
    session.headers.append((b"mcp-method", named))
    refused = await session.post({"id": 2, "method": "tools/call", "params": ASK})
    assert (refused.status, refused.message["error"]["code"]) == (200, -32020)


DEPLOY: Final = {"region": "eu", "count": 3}
ECHOED: Final = "{'region': 'eu', 'count': 3}"


@pytest.mark.parametrize("version", [LEGACY, "2025-06-18", DRAFT])
@pytest.mark.parametrize(
    ("header", "is_served"),
    [
        ((b"mcp-name", b"deploy"), True),
        ((b"mcp-name", b"=?base64?ZGVwbG95?="), True),
        ((b"mcp-name", b"announce"), False),
        ((b"mcp-name", b"Deploy"), False),
        ((b"mcp-name", b""), False),
        ((b"mcp-name", b"=?base64?ZGVwbG95"), False),
        ((b"mcp-param-region", b"eu"), True),
        ((b"mcp-param-region", b"us"), False),
        ((b"mcp-param-count", b"3"), True),
        ((b"mcp-param-count", b"03"), False),
        ((b"mcp-param-zone", b"b"), True),
    ],
)
async def test_a_header_that_a_proxy_routes_by_may_be_missing_but_not_wrong(
    version: str, header: tuple[bytes, bytes], *, is_served: bool
) -> None:
    session = await Session(make_app("tests.integration.stream_tools")).begin(version)
    call = {"id": 2, "method": "tools/call", "params": call_params("deploy", DEPLOY)}
    assert (await session.post(call)).text == ECHOED
    session.headers.append(header)
    answer = await session.post(call)
    if is_served:
        assert answer.text == ECHOED
    else:
        assert answer.message["error"]["code"] == -32020


async def test_a_superfluous_header_of_an_argument_is_refused() -> None:
    session = await Session(make_app("tests.integration.stream_tools")).begin()
    session.headers.append((b"mcp-param-region", b"eu"))
    refused = await session.post({"id": 2, "method": "tools/call", "params": call_params("deploy", {"count": 3})})
    assert refused.message["error"]["code"] == -32020


async def test_a_replica_answers_to_the_name_that_other_replicas_have_for_it() -> None:
    session = await begin(allowed_hosts=("mcp.example.com",), replica_url="http://r7.internal:8080/inner")
    for host, status in {b"R7.internal:8080": 200, b"r7.internal": 403, b"r8.internal:8080": 403}.items():
        session.headers[0] = (b"host", host)
        assert (await session.post({"id": 2, "method": "ping"})).status == status


async def test_a_request_is_cancelled_though_the_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_DIRECTORY", str(tmp_path))
    session = await Session(make_app("tests.wires.draft.tools", redis_url="redis://127.0.0.1:1")).begin(DRAFT)
    message = {"id": 1, "method": "tools/call", "params": call_params("wait", {"gate": "gate"})}
    call = asyncio.create_task(session.post(message))
    await until((tmp_path / "started-gate").exists)
    cancelled = await session.post({"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert (cancelled.status, cancelled.message["error"]["code"]) == (503, -31001)
    assert (await asyncio.wait_for(call, 10)).status == 202
    assert (tmp_path / "cancelled-gate").exists()


async def test_tasks_cannot_be_listed_without_authentication() -> None:
    session = await begin(redis_url="redis://127.0.0.1:1")
    refused = await session.post({"id": 2, "method": "tasks/list"})
    assert (refused.status, refused.message["error"]["code"]) == (200, -32601)


async def test_a_question_is_asked_however_much_was_sent_before_and_however_long_it_is() -> None:
    session = await Session(make_app("tests.wires.legacy.tools", redis_url="redis://127.0.0.1:1")).begin()
    meta = {"progressToken": 1}
    call = Asking(session, call_params("chatter_then_ask", {"chars": MAX_PENDING_BYTES}, meta=meta))
    question = await call.question()
    await respond(session, question)
    assert (await call.result())["content"][0]["text"] == "ada"


async def test_who_waits_counts_as_an_open_stream() -> None:
    session = await begin(streams_per_principal=1)
    first = Asking(session)
    question = await first.question()
    refused = (await session.post({"id": 2, "method": "tools/call", "params": ASK})).result
    assert refused["isError"] is True
    assert refused["content"][0]["text"] == "No more than 1 streams may be open at a time; call again later"
    await respond(session, question)
    assert (await first.result())["isError"] is False
    again = Asking(session)
    await respond(session, await again.question())
    assert (await again.result())["isError"] is False


async def test_where_too_many_wait_a_call_that_asks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.process.replica.WaitingCalls", functools.partial(WaitingCalls, limit=1))
    session = await begin()
    first = Asking(session)
    question = await first.question()
    refused = (await session.post({"id": 2, "method": "tools/call", "params": ASK})).result
    assert (refused["isError"], refused["content"][0]["text"]) == (True, "The server is overloaded; call again later")
    await respond(session, question)
    assert (await first.result())["isError"] is False


@pytest.mark.parametrize("limit", ["state_ttl_seconds", "flow_max_seconds"])
async def test_a_call_waits_as_long_as_a_state_would(limit: str) -> None:
    session = await begin(**{limit: 1})
    call = Asking(session)
    await call.question()
    result = await call.result()
    assert (result["isError"], result["content"][0]["text"]) == (True, "No answer came in time; call again")


async def test_a_call_is_never_handed_on_at_a_checkpoint() -> None:
    session = await Session(make_app("gateway.demo")).begin()
    session.app.drain()
    session.app.leave()
    session.app._endpoint.takes_on = True  # the call stands for one that had arrived before
    params = call_params("crunch", {"units": 3, "unitMs": 0})
    result = (await session.post({"id": 2, "method": "tools/call", "params": params})).result
    assert result["content"][0]["text"] == "Computed 3 units: 3 on r1."


async def test_a_replica_that_has_left_lets_nobody_wait() -> None:
    session = await begin()
    early = Asking(session)
    question = await early.question()
    session.app.leave()
    session.app._endpoint.takes_on = True  # the late call stands for one that had arrived before
    late = Asking(session)
    for call in (early, late):
        result = await call.result()
        assert result["isError"] is True
        assert "call again" in result["content"][0]["text"]
    await respond(session, question)
