"""An error that escapes after the body was decoded is answered under the id of its request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gateway.admission.caller_limits import CallerLimits
from gateway.errors import AuthoringError, TooManyStreams
from gateway.process.app import GatewayApp
from gateway.protocol.versions import DRAFT, LEGACY_VERSIONS, RELEASED, Wire
from gateway.wires.methods import Incoming
from gateway.wires.replies import Listening
from tests.asgi import HOST, Client, make_app
from tests.integration.raw import META, Answer

SESSIONS = (*LEGACY_VERSIONS, DRAFT)


def app_that_fails(escaped: object) -> GatewayApp:
    """Return a replica on which every request of every wire ends with an error that nobody expects, or in a stream."""

    async def fail(_incoming: Incoming) -> Any:
        if isinstance(escaped, BaseException):
            raise escaped
        return escaped

    app = make_app()
    dispatcher = app._services.wires.dispatcher
    wires: list[Any] = [dispatcher._released, *dispatcher._handshake.versions.values()]
    for wire in wires:
        wire._handlers = {**wire._handlers, "tools/list": fail}
    return app


async def send(app: GatewayApp, version: str, message: dict[str, Any], **headers: str) -> Answer:
    """Send a message that names its version in the header."""
    given = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        **headers,
    }
    raw = [HOST, *((name.encode(), value.encode()) for name, value in given.items())]
    return await Client(app).send([msgspec.json.encode({"jsonrpc": "2.0", **message})], raw)


async def ask(app: GatewayApp, version: str, request_id: Any, **headers: str) -> Answer:
    """Send a request, in a session if the version needs one and the headers have none."""
    if version in LEGACY_VERSIONS and "mcp-session-id" not in headers:
        params = {"protocolVersion": version, "capabilities": {}}
        begun = await send(app, version, {"id": 1, "method": "initialize", "params": params})
        headers["mcp-session-id"] = begun.headers["mcp-session-id"]
    message = {"id": request_id, "method": "tools/list", "params": {"_meta": META} if version == RELEASED else {}}
    if version == RELEASED:
        headers["mcp-method"] = "tools/list"
    return await send(app, version, message, **headers)


@pytest.mark.parametrize("escaped", [RuntimeError("a bug"), AuthoringError("a mistake")])
@pytest.mark.parametrize("request_id", [0, "seven", ""])
@pytest.mark.parametrize("version", [RELEASED, *SESSIONS])
async def test_a_bug_is_answered_under_the_id_and_with_status_200_in_sessions(
    version: str, request_id: Any, escaped: Exception
) -> None:
    answer = await ask(app_that_fails(escaped), version, request_id)
    assert answer.error == (500 if version == RELEASED else 200, -32603)
    assert answer.message["id"] == request_id


@pytest.mark.parametrize("version", [RELEASED, *SESSIONS])
async def test_a_request_that_is_cut_off_is_answered_alike(version: str) -> None:
    answer = await ask(app_that_fails(asyncio.CancelledError()), version, 7)
    assert answer.error == (500 if version == RELEASED else 200, -32603)
    assert (answer.message["id"], "stopped" in answer.message["error"]["message"]) == (7, True)


@pytest.mark.parametrize("session_id", [None, "s1.unknown"])
async def test_a_refused_session_keeps_its_status_and_names_the_request(session_id: str | None) -> None:
    headers = {} if session_id is None else {"mcp-session-id": session_id}
    answer = await send(make_app(), LEGACY_VERSIONS[0], {"id": 7, "method": "tools/list"}, **headers)
    assert (answer.status, answer.message["id"]) == (400 if session_id is None else 404, 7)


async def failing(error: BaseException) -> AsyncIterator[bytes]:
    yield b'{"method":"notifications/first"}'
    raise error


@pytest.mark.parametrize("escaped", [RuntimeError("a bug"), asyncio.CancelledError()])
@pytest.mark.parametrize("wire", [Wire.RELEASED, Wire.DRAFT])
async def test_an_open_stream_ends_with_the_error_of_its_request(wire: Wire, escaped: BaseException) -> None:
    answer = await ask(app_that_fails(Listening(failing(escaped), "mine", wire)), DRAFT, "mine")
    first, last = [msgspec.json.decode(event[6:]) for event in answer.body.split(b"\n\n") if event]
    assert first == {"method": "notifications/first"}
    assert (last["id"], last["error"]["code"]) == ("mine", -32603)


@pytest.mark.parametrize("wire", [Wire.RELEASED, Wire.DRAFT])
async def test_a_stream_that_the_client_does_not_accept_is_refused_under_its_id(wire: Wire) -> None:
    app = app_that_fails(Listening(failing(RuntimeError()), 7, wire))
    answer = await ask(app, DRAFT, 7, accept="application/json")
    assert (answer.status, answer.message["id"]) == (406, 7)


@pytest.mark.parametrize(("wire", "status"), [(Wire.RELEASED, 429), (Wire.DRAFT, 200)])
async def test_a_stream_too_many_ends_no_session(wire: Wire, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app = app_that_fails(Listening(failing(RuntimeError()), 7, wire))

    def refuse(*_arguments: object) -> None:
        raise TooManyStreams(32, 1)

    monkeypatch.setattr(CallerLimits, "stream", refuse)
    answer = await ask(app, DRAFT, 7)
    assert (answer.error, answer.message["id"]) == ((status, -31003), 7)
    assert "retry-after" in answer.headers
