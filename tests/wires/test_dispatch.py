"""A call from request to answer, in one process and with a clock of the test's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.calls import runner as calls
from gateway.engine import driver
from gateway.process import replica, services
from gateway.process.app import GatewayApp
from tests.asgi import HOST, Client, make_app
from tests.clocks import Clock
from tests.integration.raw import META_CAPABILITIES, Answer, accept, request, tool_call

FLOW_MAX, TTL = 1000, 100


@pytest.fixture(scope="module")
def clock() -> Iterator[Clock]:
    clock = Clock(1_700_000_000.0)
    with pytest.MonkeyPatch.context() as patch:
        for module in (replica, services):
            patch.setattr(module, "time", SimpleNamespace(time=clock, monotonic=clock))
        yield clock


@pytest.fixture(scope="module")
def app(clock: Clock) -> GatewayApp:
    return make_app(flow_max_seconds=FLOW_MAX, state_ttl_seconds=TTL, state_max_bytes=4096)


async def call(app: GatewayApp, name: str, arguments: Mapping[str, Any] | None = None, /, **params: Any) -> Answer:
    return await Client(app).post(tool_call(name, arguments, **params))


async def name_next(app: GatewayApp, number: int, state: str) -> Answer:
    """Answer the `number`-th question of a call that asks without end."""
    answers = {f"name{number}": {"action": "accept", "content": {"name": "Ada"}}}
    return await call(app, "introduce", inputResponses=answers, requestState=state)


REFUSED = (400, -32602)


@pytest.mark.setting("state_ttl_seconds")
async def test_a_state_expires_after_its_time_to_live(app: GatewayApp, clock: Clock) -> None:
    state = (await call(app, "greet")).state
    clock.now += TTL - 0.01
    assert (await call(app, "greet", requestState=state, inputResponses=accept(name="Ada"))).text == "Hello Ada"
    clock.now += 0.01
    assert (await call(app, "greet", requestState=state, inputResponses=accept(name="Ada"))).error == REFUSED


@pytest.mark.setting("flow_max_seconds")
async def test_each_leg_gives_the_user_the_whole_time_again_until_the_flow_is_over(
    app: GatewayApp, clock: Clock
) -> None:
    answer = await call(app, "introduce")
    for number in range(11):
        clock.now += 90
        answer = await name_next(app, number, answer.state)
    clock.now += 9.99
    assert (await name_next(app, 11, answer.state)).state
    clock.now += 0.01
    assert (await name_next(app, 11, answer.state)).error == REFUSED


async def test_a_flow_whose_deadline_passes_while_its_tool_runs_ends_in_a_clear_error(
    app: GatewayApp, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = (await call(app, "greet")).state

    async def run_slowly(*arguments: Any, **options: Any) -> Any:
        outcome = await driver.run_leg(*arguments, **options)
        clock.now += FLOW_MAX
        return outcome

    monkeypatch.setattr(calls, "run_leg", run_slowly)
    answer = await call(app, "greet", requestState=state)
    assert answer.result["isError"] is True
    assert answer.text == "This call has taken longer than the server allows; start it again."


async def test_nothing_is_bound_or_sealed_for_a_call_that_asks_nothing(
    app: GatewayApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise AssertionError("the digest costs time and is needed by nobody")

    monkeypatch.setattr(calls, "arguments_digest", fail)
    assert (await call(app, "echo", {"text": "hello"})).text == "hello"


async def test_a_retry_without_its_answer_is_asked_again_with_a_new_state(app: GatewayApp) -> None:
    first = await call(app, "greet")
    again = await call(app, "greet", requestState=first.state)
    assert again.result["inputRequests"] == first.result["inputRequests"]
    assert again.state != first.state
    assert (await call(app, "greet", requestState=again.state, inputResponses=accept(name="Ada"))).text == "Hello Ada"


@pytest.mark.parametrize(
    "response",
    [
        *(None, 7, "Ada", [], {}),
        {"action": "accept"},
        {"action": "accept", "content": None},
        {"action": "accept", "content": {"name": 7}},
        {"action": "accept", "content": {"name": None}},
        {"action": "accept", "content": {"other": "Ada"}},
        {"action": "maybe", "content": {"name": "Ada"}},
        {"result": {"action": "accept", "content": {"name": "Ada"}}},
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_again(app: GatewayApp, response: Any) -> None:
    state = (await call(app, "greet")).state
    again = await call(app, "greet", requestState=state, inputResponses={"who": response})
    assert list(again.result["inputRequests"]) == ["who"]
    assert (await call(app, "greet", requestState=again.state, inputResponses=accept(name="Ada"))).text == "Hello Ada"


async def test_answers_that_nobody_asked_for_are_ignored(app: GatewayApp) -> None:
    state = (await call(app, "greet")).state
    answers = {"other": {"action": "accept", "content": {}}, **accept(name="Ada")}
    assert (await call(app, "greet", requestState=state, inputResponses=answers)).text == "Hello Ada"


async def test_a_question_looks_as_the_protocol_wants_it(app: GatewayApp) -> None:
    result = (await call(app, "greet")).result
    assert set(result) == {"resultType", "inputRequests", "requestState", "_meta"}
    assert result["inputRequests"] == {
        "who": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Who are you?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        }
    }


async def test_nothing_of_a_state_can_be_read(app: GatewayApp) -> None:
    """Two states of one call share the label and the id of the key, and no more than chance would have it."""
    first, second = [(await call(app, "greet", {"greeting": "a secret"})).state for _leg in range(2)]
    assert first[:8] == second[:8] == "s1." + first[3:8]
    shared = sum(one == other for one, other in zip(first[24:], second[24:], strict=True))
    assert shared < len(first) / 4
    assert "secret" not in first


async def test_the_state_is_judged_although_the_arguments_do_not_fit(app: GatewayApp) -> None:
    assert (await call(app, "greet", {"greeting": 7}, requestState="s1.")).error == REFUSED
    assert "greeting: " in (await call(app, "greet", {"greeting": 7})).text


async def test_what_the_client_can_do_counts_for_each_request_alone(app: GatewayApp) -> None:
    state = (await call(app, "greet")).state
    message = copy.deepcopy(tool_call("greet", requestState=state))
    message["params"]["_meta"] = {**message["params"]["_meta"], META_CAPABILITIES: {}}
    assert (await Client(app).post(message)).error == (400, -32021)


async def test_a_retry_has_an_id_of_its_own(app: GatewayApp) -> None:
    state = (await call(app, "greet")).state
    message = {**tool_call("greet", requestState=state, inputResponses=accept(name="Ada")), "id": "another"}
    assert (await Client(app).post(message)).message["id"] == "another"


async def test_another_process_with_the_same_key_continues(clock: Clock) -> None:
    key = "ab" * 32
    left, right = (make_app(seal_keys=key, replica_id=name) for name in ("left", "right"))
    state = (await call(left, "greet")).state
    answer = await call(right, "greet", requestState=state, inputResponses=accept(name="Ada"))
    assert (answer.text, answer.headers["x-gateway-replica"]) == ("Hello Ada", "right")


async def test_lists_are_the_same_each_time_and_say_how_long_to_keep_them(app: GatewayApp) -> None:
    first, second = [(await Client(app).post(request("tools/list"))).result for _time in range(2)]
    assert first == second
    assert first["ttlMs"] > 0
    assert first["cacheScope"] == "public"
    assert "echo" in [tool["name"] for tool in first["tools"]]


@pytest.mark.parametrize("request_id", ["seven", 7, None])
@pytest.mark.parametrize(("session", "refusal"), [("gone", (404, -32001)), (None, (400, -32600))])
async def test_a_message_without_a_known_session_is_refused_with_its_own_id(
    app: GatewayApp, request_id: str | int | None, session: str | None, refusal: tuple[int, int]
) -> None:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    if request_id is not None:
        message = {**message, "method": "tools/list", "id": request_id}
    headers = [HOST, (b"content-type", b"application/json")]
    if session is not None:
        headers.append((b"mcp-session-id", session.encode()))
    answer = await Client(app).send([msgspec.json.encode(message)], headers)
    assert (answer.error, answer.message["id"]) == (refusal, request_id)
    assert "initialize" in answer.message["error"]["message"]
