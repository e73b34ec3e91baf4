"""Results of the released wire, checked against the published types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types.methods import validate_server_result

from gateway.engine.questions import Question
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.released.results import ResultWriter, read_answers
from gateway.protocol.versions import RELEASED

SERVER_INFO = {"name": "gateway", "version": "1"}
META = {"io.modelcontextprotocol/serverInfo": SERVER_INFO}
WRITER = ResultWriter(SERVER_INFO)


def test_a_final_result_names_its_type_and_the_server() -> None:
    result = WRITER.complete({"content": []})
    validate_server_result("tools/call", RELEASED, result)
    assert result == {"resultType": "complete", "content": [], "_meta": META}


def test_a_final_result_keeps_its_own_metadata_but_not_another_servers_name() -> None:
    fields = {"content": [], "_meta": {"example.com/cost": 1, "io.modelcontextprotocol/serverInfo": {"name": "x"}}}
    result = WRITER.complete(fields)
    validate_server_result("tools/call", RELEASED, result)
    assert result["_meta"] == {**META, "example.com/cost": 1}
    assert WRITER.complete(fields, {"a": 2})["_meta"] == {**META, "example.com/cost": 1, "a": 2}
    assert WRITER.complete({})["_meta"] == META


def test_a_result_to_keep_says_how_long_and_for_whom() -> None:
    result = WRITER.cacheable({"tools": []}, ttl_ms=5, scope="private")
    validate_server_result("tools/list", RELEASED, result)
    assert result == {"resultType": "complete", "tools": [], "ttlMs": 5, "cacheScope": "private", "_meta": META}


def test_a_result_that_asks_carries_the_questions_and_the_state() -> None:
    params = {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
    question = Question("elicitation/create", params, (("elicitation", "form"),), b"", lambda answer: answer)
    result = WRITER.input_required({"who": question}, "s1.x")
    validate_server_result("tools/call", RELEASED, result)
    assert result == {
        "resultType": "input_required",
        "inputRequests": {"who": {"method": "elicitation/create", "params": params}},
        "requestState": "s1.x",
        "_meta": META,
    }


@pytest.mark.parametrize("subscription_id", [1, 0, "listen-1", "", 1784540000000])
def test_the_end_of_a_listen_stream_names_the_server_and_the_subscription(subscription_id: str | int) -> None:
    response = json.loads(result_response(subscription_id, WRITER.listen_closed(subscription_id)))
    validate_server_result("subscriptions/listen", RELEASED, response["result"])
    assert response["result"] == {
        "resultType": "complete",
        "_meta": {**META, "io.modelcontextprotocol/subscriptionId": subscription_id},
    }
    assert response["id"] == subscription_id


def test_one_ended_stream_leaves_no_trace_in_other_results() -> None:
    WRITER.listen_closed(5)
    assert WRITER.complete({})["_meta"] == META


def test_answers_come_in_the_form_of_the_engine_and_other_values_count_as_missing() -> None:
    responses: dict[str, Any] = {"a": {"action": "accept"}, "b": None, "c": "x", "d": [], "e": {}}
    assert read_answers(responses) == {"a": {"result": {"action": "accept"}}, "e": {"result": {}}}
