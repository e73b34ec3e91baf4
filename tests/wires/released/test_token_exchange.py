"""Tools exchange their caller's token on every wire, and the token reaches nothing but the token endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from gateway import Context, ExchangedToken, TokenExchangeError, content, tool
from gateway.auth.tokens import mint
from gateway.errors import AuthoringError
from gateway.protocol.versions import DRAFT
from gateway.sealing.envelope import Sealer
from gateway.testing import run
from tests.asgi import Client, make_app
from tests.integration.raw import Answer, tool_call
from tests.storage.servers import Server
from tests.token_endpoint import TokenEndpoint
from tests.wires.draft.messages import accept, call_params
from tests.wires.legacy.speaking import BEFORE_TASKS, LEGACY
from tests.wires.legacy.test_one_process import Asking, Session
from tests.wires.released.conftest import SECRET, World

USED: Final[list[str]] = []
"""The tokens that tools sent to another service."""

AGREE: Final = {"sure": {"action": "accept", "content": {"value": True}}}
NO_FIELDS: Final = {"type": "object", "properties": {"value": {"type": "boolean"}}}


async def send_order(ctx: Context) -> str:
    """Send an order, as the caller."""
    token = await ctx.exchange_token("orders", scopes=["write", "read"])
    USED.append(token.get_secret_value())
    return "order 1"


@tool
async def order(ctx: Context) -> str:
    """Order at once."""
    return await ctx.step("send", send_order, ctx)


@tool(task="optional", start="call")
async def order_then_wait(ctx: Context) -> str:
    """Order, ask, and continue as a task."""
    number = await ctx.step("send", send_order, ctx)
    await ctx.elicit("sure", "Sure?", NO_FIELDS)
    await ctx.detach()
    return number


@tool(task="optional")
async def order_late(ctx: Context) -> str:
    """Order in a task."""
    return await send_order(ctx)


@tool
async def ask_then_order(ctx: Context) -> str:
    """Order before and after a question."""
    await ctx.step("send", send_order, ctx)
    await ctx.elicit("name", "Who?", str)
    return await send_order(ctx)


@tool
async def try_to_order(ctx: Context) -> str:
    """Return why no order was sent."""
    try:
        return await send_order(ctx)
    except TokenExchangeError as error:
        return f"{error.code} - {error}"


@tool
async def leak(ctx: Context, how: str) -> Any:
    """Try to store a token, or to show it."""
    token = await ctx.exchange_token("orders")
    match how:
        case "step":
            await ctx.step("token", lambda: token)
        case "nested step":
            await ctx.step("token", lambda: {"tokens": [token]})
        case "checkpoint":
            await ctx.checkpoint(token)
        case "emit":
            await ctx.emit(token)
        case "log":
            ctx.log("info", token)
        case "text":
            return f"{token} {token!r} {token.audience} {ctx!r} {dir(ctx)} {ctx.principal!r}"
        case "block":
            return content.text(token)  # type: ignore[arg-type]
    return token


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    USED.clear()
    with TokenEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
async def world(server: Server, endpoint: TokenEndpoint) -> AsyncIterator[World]:
    server.ask("FLUSHALL")
    made = World(server.url, __name__, **endpoint.settings)
    yield made
    await made.close()


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that this process seals: states, and all fields of tasks."""
    texts: list[bytes] = []
    seal: Any = Sealer.seal

    def noting(self: Sealer, plaintext: bytes, *rest: Any, **more: Any) -> Any:
        texts.append(bytes(plaintext))
        return seal(self, plaintext, *rest, **more)

    monkeypatch.setattr(Sealer, "seal", noting)
    return texts


def shown(text: str, *secrets: str) -> list[str]:
    return [secret for secret in secrets if secret in text or secret.rpartition(".")[2] in text]


async def test_a_call_a_question_and_a_task_use_one_token_that_nothing_keeps(
    world: World, endpoint: TokenEndpoint, sealed: list[bytes], caplog: pytest.LogCaptureFixture, server: Server
) -> None:
    caplog.set_level(logging.DEBUG)
    token = mint(SECRET, "ada", "tests")
    headers = {"authorization": f"Bearer {token}"}
    params: dict[str, Any] = {"name": "order_then_wait", "arguments": {}}
    asked = await world.request("tools/call", params, headers=headers)
    answers = {"requestState": asked.state, "inputResponses": AGREE}
    created = await world.request("tools/call", {**params, **answers}, headers=headers)
    await world.work()
    view = await world.get(created.result["taskId"])
    assert view["result"]["content"][0]["text"] == "order 1"
    assert USED == ["issued-1-for-orders"]
    assert [form["subject_token"] for form in endpoint.forms] == [token]
    assert endpoint.forms[0]["scope"] == "read write"
    assert any(b"order 1" in text for text in sealed)
    names: Any = server.ask("KEYS", "*")
    dumps = b"".join(server.ask("DUMP", name) for name in names)  # type: ignore[misc]
    logged = " ".join(repr(vars(record)) for record in caplog.records)
    everything = f"{b''.join(sealed)!r} {dumps!r} {logged} {asked!r} {created!r} {view!r}"
    assert shown(everything, token, "issued-1-for-orders", endpoint.settings["token_exchange_client_secret"]) == []


async def test_two_callers_never_share_a_token_and_one_caller_asks_once(world: World, endpoint: TokenEndpoint) -> None:
    app = world.apps[0]
    tokens = [mint(SECRET, name, "tests") for name in ("ada", "bob")]
    for token in tokens * 2:
        answer = await Client(app).post(tool_call("order"), authorization=f"Bearer {token}")
        assert answer.text == "order 1"
    assert USED == ["issued-1-for-orders", "issued-2-for-orders"] * 2
    assert [form["subject_token"] for form in endpoint.forms] == tokens


@pytest.mark.parametrize("version", [LEGACY, BEFORE_TASKS, DRAFT])
async def test_other_wires_exchange_the_token_of_the_request_too(
    world: World, endpoint: TokenEndpoint, version: str
) -> None:
    token = mint(SECRET, "ada", "tests")
    session = Session(world.apps[0])
    session.headers.append((b"authorization", f"Bearer {token}".encode()))
    await session.begin(version)
    answer = await session.post({"id": 1, "method": "tools/call", "params": call_params("order")})
    assert b"order 1" in answer.body
    assert [form["subject_token"] for form in endpoint.forms] == [token]


@pytest.mark.parametrize("version", [LEGACY, BEFORE_TASKS])
async def test_a_call_that_asked_its_client_still_exchanges_the_token_of_its_request(
    world: World, endpoint: TokenEndpoint, version: str
) -> None:
    token = mint(SECRET, "ada", "tests")
    session = Session(world.apps[0])
    session.headers.append((b"authorization", f"Bearer {token}".encode()))
    await session.begin(version)
    call = Asking(session, call_params("ask_then_order"))
    await session.post({"id": await call.question(), "result": accept(value="ada")})
    assert (await call.result())["content"][0]["text"] == "order 1"
    assert USED == ["issued-1-for-orders"] * 2
    assert [form["subject_token"] for form in endpoint.forms] == [token]


async def test_a_refusal_can_be_caught_and_read(world: World, endpoint: TokenEndpoint) -> None:
    endpoint.answer(lambda request: endpoint.refuse(request, "invalid_target"))
    token = mint(SECRET, "ada", "tests")
    answer = await Client(world.apps[0]).post(tool_call("try_to_order"), authorization=f"Bearer {token}")
    assert answer.text.startswith("invalid_target - The token could not be exchanged for one for 'orders'")
    assert shown(answer.text, token) == []


async def test_a_task_has_no_token_and_its_author_reads_what_to_do(
    world: World, endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    task = await world.start("order_late")
    await world.work()
    assert (await world.get(task))["result"]["isError"]
    (error,) = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert str(error) == (
        'a task has no token of its caller; with start="call", exchange it before `await ctx.detach()`, in a step '
        "that also makes the request. The task replays what the step returned"
    )
    assert endpoint.requests == 0


@pytest.mark.parametrize("how", ["step", "nested step", "checkpoint", "emit", "log", "result", "block"])
def test_a_token_is_not_a_value_that_anything_stores_or_returns(how: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        run(leak, {"how": how}, tokens={"orders": "the-orders-token"})
    assert "the-orders-token" not in str(caught.value)
    if how not in ("result", "emit", "block"):
        assert "an exchanged token is a secret, and nothing may store it" in str(caught.value)


def test_neither_text_nor_the_context_shows_a_token() -> None:
    text = run(leak, {"how": "text"}, tokens={"orders": "the-orders-token"}).text
    assert text.startswith("<exchanged token for 'orders'> <exchanged token for 'orders'> orders ")
    assert "the-orders-token" not in text


async def refusal(answer: Answer) -> str:
    return answer.text.partition(" - ")[2]


async def test_without_identity_or_settings_the_error_names_what_is_missing() -> None:
    anonymous = make_app(__name__)
    assert await refusal(await Client(anonymous).post(tool_call("try_to_order"))) == (
        "The caller is anonymous, so there is no token to exchange; set GATEWAY_AUTH=jwt"
    )
    bare = make_app(__name__, auth="jwt", jwt_secret=SECRET)
    token = mint(SECRET, "ada", "tests")
    answer = await Client(bare).post(tool_call("try_to_order"), authorization=f"Bearer {token}")
    assert await refusal(answer) == (
        "This deployment exchanges no tokens; set GATEWAY_TOKEN_EXCHANGE_URL, GATEWAY_TOKEN_EXCHANGE_CLIENT_ID and "
        "GATEWAY_TOKEN_EXCHANGE_CLIENT_SECRET"
    )


@pytest.mark.parametrize(("audience", "scopes"), [("", ()), (None, ()), ("orders", "read")])
def test_arguments_that_cannot_be_meant_are_refused(audience: Any, scopes: Any) -> None:
    @tool
    async def wrong(ctx: Context) -> str:
        """Ask for a token that nobody can issue."""
        exchanged: ExchangedToken = await ctx.exchange_token(audience, scopes=scopes)
        return exchanged.audience

    with pytest.raises(AuthoringError, match="exchange_token"):
        run(wrong, tokens={"orders": "t"})


async def test_requests_that_run_at_once_share_one_exchange(world: World, endpoint: TokenEndpoint) -> None:
    token = mint(SECRET, "ada", "tests")
    app = world.apps[0]
    calls = [Client(app).post(tool_call("order"), authorization=f"Bearer {token}") for _ in range(5)]
    assert [answer.text for answer in await asyncio.gather(*calls)] == ["order 1"] * 5
    assert endpoint.requests == 1
