"""The results of own functions have a limit: the author and the client learn of it, and nothing else suffers."""

from __future__ import annotations

import logging

import pytest

from gateway.engine.values import exceeds
from gateway.process.app import GatewayApp
from tests.asgi import Client, make_app
from tests.integration.raw import META, request, tool_call

LIMIT = 65536
TOOLS = [
    *("text", "image", "structured", "numbers", "models", "whole"),
    *("emitted", "emitted_at_once", "logged", "logged_by_name", "reported"),
]
TOLD = f" is too large: the limit is {LIMIT} bytes. Try again with less."


@pytest.fixture(scope="module")
def app() -> GatewayApp:
    return make_app("tests.calls.large_tools", max_result_bytes=LIMIT)


@pytest.mark.parametrize("name", TOOLS)
async def test_a_result_under_the_limit_is_sent(app: GatewayApp, name: str) -> None:
    answer = await Client(app).post(tool_call(name, {"size": LIMIT // 2}))
    assert not answer.result.get("isError", False)


@pytest.mark.setting("max_result_bytes")
@pytest.mark.parametrize(
    "name", ["never_converted", "never_converted_block", "never_converted_behind_blocks", "never_written"]
)
async def test_what_is_too_large_is_not_converted(app: GatewayApp, name: str) -> None:
    answer = await Client(app).post(tool_call(name, {"size": 2 * LIMIT}))
    assert answer.text.endswith(TOLD)


@pytest.mark.setting("max_result_bytes")
@pytest.mark.parametrize("name", TOOLS)
async def test_a_result_over_the_limit_is_an_error_that_both_sides_understand(
    app: GatewayApp, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = tool_call(name, {"size": 4 * LIMIT}, _meta={**META, "io.modelcontextprotocol/logLevel": "info"})
    answer = await Client(app).post(message)
    assert answer.result["isError"] is True
    assert answer.text.endswith(TOLD)
    assert len(answer.body) < 1000
    (record,) = (record for record in caplog.records if record.getMessage() == "result too large")
    assert (record.levelno, record.__dict__["tool"]) == (logging.ERROR, name)
    assert record.__dict__["reason"] == answer.text


@pytest.mark.setting("max_result_bytes")
async def test_a_question_over_the_limit_ends_its_call(app: GatewayApp) -> None:
    asked = await Client(app).post(tool_call("asked", {"size": LIMIT // 8}))
    assert asked.result["resultType"] == "input_required"
    answer = await Client(app).post(tool_call("asked", {"size": 2 * LIMIT}))
    assert answer.result["isError"] is True
    assert answer.text == f"The question{TOLD}"


@pytest.mark.setting("max_result_bytes")
async def test_prompts_and_resources_get_an_error_without_internals(app: GatewayApp) -> None:
    for message in (
        request("prompts/get", {"name": "large", "arguments": {"size": str(2 * LIMIT)}}),
        request("resources/read", {"uri": f"large://{2 * LIMIT}"}),
    ):
        answer = await Client(app).post(message)
        assert answer.error == (500, -32603)
        assert answer.message["error"]["message"].endswith(TOLD)


@pytest.mark.parametrize(
    ("value", "is_large"),
    [
        ("a" * 100, False),
        ("a" * 101, True),
        (b"a" * 101, True),
        ({"a" * 101: 1}, True),
        ([["a" * 50], {"b": ["c" * 50]}], True),
        ([1] * 50, False),
        ([1] * 51, True),
        ({"a": [None, True, 1.5]}, False),
        (object(), False),
        ([object()] * 20, False),
    ],
)
def test_the_size_of_a_value_is_known_before_it_is_written(value: object, is_large: bool) -> None:
    assert exceeds(value, 100) is is_large


def test_a_value_of_very_many_parts_is_not_looked_at_completely() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert exceeds(endless, 10**9) is False
