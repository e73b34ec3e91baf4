"""Questions of other servers, passed on as they are: what distinguishes them, and how their answers are read."""

from __future__ import annotations

import copy
import json
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.forwarded import forwarded, forwarded_digest
from gateway.engine.questions import ELICIT, ROOTS, SAMPLE, InvalidAnswer
from gateway.registry.relayed import MAX_CHECKED_SCHEMA_BYTES, forwarded_question

FORM: dict[str, Any] = {
    "message": "Delete 3?",
    "requestedSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
URL: dict[str, Any] = {"mode": "url", "message": "Sign in", "url": "https://id.example/3"}
MESSAGES: list[Any] = [{"role": "user", "content": {"type": "text", "text": "3"}}]
USES_TOOL = {"role": "assistant", "content": [{"type": "text"}, {"type": "tool_use", "id": "1", "name": "n"}]}
RESULT_OF_TOOL = {"role": "user", "content": {"type": "tool_result", "toolUseId": "1", "content": []}}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (ELICIT, FORM),
        (ELICIT, URL),
        (SAMPLE, {"messages": MESSAGES, "maxTokens": 9}),
        (ROOTS, {"_meta": {"com.example/n": "3"}}),
    ],
)
def test_a_request_changed_by_one_digit_is_another_question(method: str, params: dict[str, Any]) -> None:
    asked = forwarded(method, params)
    changed = json.loads(json.dumps(params).replace("3", "300"))
    assert forwarded(method, changed).digest != asked.digest
    assert forwarded(method, copy.deepcopy(params)).digest == asked.digest


def test_a_digest_stays_the_same_in_every_release() -> None:
    assert forwarded_digest(ELICIT, FORM).hex() == "cc7d2adeb0a639ff9dc5468a"


@given(JSON)
def test_the_order_of_members_is_no_difference_and_any_other_value_is_one(value: Any) -> None:
    params = {"messages": [], "x": value, "y": 1}
    backwards = dict(reversed(params.items()))
    assert forwarded_digest(SAMPLE, params) == forwarded_digest(SAMPLE, backwards)
    assert forwarded_digest(SAMPLE, {**params, "x": [value]}) != forwarded_digest(SAMPLE, params)


ANSWERS = [
    {"result": {"action": "decline"}},
    {"result": {"action": "cancel", "content": 7}},
    {"result": {"action": "perhaps"}},
    {"result": {"action": "accept", "content": {"n": 1, "more": 2}, "x": [1], "_meta": {"com.example/x": 1}}},
    {"error": {"code": -1, "message": "no screen", "data": {"x": 1}}},
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_returned_as_it_came(answer: dict[str, Any]) -> None:
    before = copy.deepcopy(answer)
    assert forwarded_question(ELICIT, FORM).read(answer) == before


@pytest.mark.parametrize("content", [{}, {"n": "x"}, [], None])
def test_the_content_of_an_accepted_form_must_fit_its_schema(content: Any) -> None:
    with pytest.raises(InvalidAnswer) as invalid:
        forwarded_question(ELICIT, FORM).read({"result": {"action": "accept", "content": content}})
    assert str(invalid.value)


def test_why_a_form_does_not_fit_quotes_the_answer_for_its_user_alone() -> None:
    schema = {"type": "object", "properties": {"n": {"enum": ["a"]}}}
    with pytest.raises(InvalidAnswer) as invalid:
        forwarded_question(ELICIT, {"message": "", "requestedSchema": schema}).read(
            {"result": {"action": "accept", "content": {"n": "secret"}}}
        )
    assert "secret" in str(invalid.value)
    assert "secret" not in invalid.value.unquoted


@pytest.mark.parametrize("schema", [{"type": "no type"}, {"$ref": "https://x.example/y"}, {"pattern": "(?=x)"}])
def test_a_schema_that_does_not_compile_leaves_the_answer_to_the_server_that_asked(schema: Any) -> None:
    answer = {"result": {"action": "accept", "content": {"anything": 1}}}
    assert forwarded_question(ELICIT, {**FORM, "requestedSchema": schema}).read(answer) == answer


def test_many_large_forms_take_little_memory() -> None:
    before = resident_bytes()
    for number in range(100):
        values = [{"const": f"{number}-{value}"} for value in range(MAX_CHECKED_SCHEMA_BYTES // 22)]
        schema = {"type": "object", "properties": {"x": {"anyOf": values}}}
        assert len(json.dumps(schema, separators=(",", ":"))) < MAX_CHECKED_SCHEMA_BYTES
        with pytest.raises(InvalidAnswer):
            forwarded_question(ELICIT, {"message": "", "requestedSchema": schema}).read(
                {"result": {"action": "accept", "content": {"x": "other"}}}
            )
    assert resident_bytes() - before < 30_000_000


def test_a_very_large_form_is_left_to_the_server_that_asked() -> None:
    schema = {"type": "object", "required": ["n"], "title": "a" * MAX_CHECKED_SCHEMA_BYTES}
    answer = {"result": {"action": "accept", "content": {}}}
    assert forwarded_question(ELICIT, {"message": "", "requestedSchema": schema}).read(answer) == answer


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_the_content_of_an_accepted_url_is_not_checked() -> None:
    answer = {"result": {"action": "accept", "content": {"n": "x"}}}
    assert forwarded_question(ELICIT, {**FORM, **URL}).read(answer) == answer


@pytest.mark.parametrize("answer", [{}, {"result": None}, {"result": "yes"}])
def test_what_is_no_answer_at_all_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer):
        forwarded_question(ROOTS, {}).read(answer)


@pytest.mark.parametrize(
    ("method", "params", "capabilities"),
    [
        (ELICIT, FORM, (("elicitation", "form"),)),
        (ELICIT, {**FORM, "mode": "form"}, (("elicitation", "form"),)),
        (ELICIT, URL, (("elicitation", "url"),)),
        (SAMPLE, {"messages": MESSAGES}, (("sampling",),)),
        (SAMPLE, {"messages": MESSAGES, "tools": []}, (("sampling", "tools"),)),
        (SAMPLE, {"messages": MESSAGES, "toolChoice": {"mode": "none"}}, (("sampling", "tools"),)),
        (SAMPLE, {"messages": [*MESSAGES, USES_TOOL]}, (("sampling", "tools"),)),
        (SAMPLE, {"messages": [*MESSAGES, RESULT_OF_TOOL]}, (("sampling", "tools"),)),
        (SAMPLE, {"messages": [1, {}, {"content": [1, {"type": []}]}]}, (("sampling",),)),
        (SAMPLE, {"messages": MESSAGES, "includeContext": "none"}, (("sampling",),)),
        (SAMPLE, {"messages": MESSAGES, "includeContext": "thisServer"}, (("sampling", "context"),)),
        (SAMPLE, {"messages": MESSAGES, "includeContext": ["future"]}, (("sampling", "context"),)),
        (
            SAMPLE,
            {"messages": MESSAGES, "includeContext": "allServers", "tools": [{}]},
            (("sampling", "tools"), ("sampling", "context")),
        ),
        (ROOTS, {}, (("roots",),)),
    ],
)
def test_the_capabilities_that_a_question_needs_follow_from_its_request(
    method: str, params: dict[str, Any], capabilities: tuple[tuple[str, ...], ...]
) -> None:
    assert forwarded(method, params).capabilities == capabilities


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("ping", {}),
        (ELICIT, {}),
        (ELICIT, {"message": "x"}),
        (ELICIT, {"message": 1, "requestedSchema": {}}),
        (ELICIT, {**FORM, "mode": "other"}),
        (ELICIT, {**FORM, "mode": ["form"]}),
        (ELICIT, {"mode": "url", "message": "x"}),
        (SAMPLE, {}),
        (ROOTS, {"_meta": 1}),
    ],
)
def test_what_no_client_can_be_asked_is_refused(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        forwarded_question(method, params)


def test_a_form_whose_patterns_take_seconds_to_compile_is_left_to_the_server_that_asks() -> None:
    fields = {f"f{number}": {"type": "string", "pattern": rf"\pL{{90}}{number}"} for number in range(200)}
    began = time.process_time()
    question = forwarded_question(ELICIT, {"message": "?", "requestedSchema": {"type": "object", "properties": fields}})
    assert time.process_time() - began < 1
    answer = {"result": {"action": "accept", "content": {"f1": 1}}}
    assert question.read(answer) == answer


def test_a_form_with_a_very_large_schema_is_left_to_the_server_that_asks() -> None:
    fields = {f"f{number}": {"type": "string"} for number in range(2000)}
    question = forwarded_question(ELICIT, {"message": "?", "requestedSchema": {"type": "object", "properties": fields}})
    answer = {"result": {"action": "accept", "content": {"f1": 1}}}
    assert question.read(answer) == answer
