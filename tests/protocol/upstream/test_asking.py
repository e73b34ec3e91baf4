"""Questions of upstreams: read exactly, within limits, and only those that servers may ask."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.keys import check_key
from gateway.protocol.upstream.asking import (
    MAX_CARRIED_BYTES,
    MAX_QUESTIONS,
    MAX_TASK_BYTES,
    AskedRound,
    Misasked,
    input_required,
    required_urls,
    wire_keys,
)

FORM = {
    "method": "elicitation/create",
    "params": {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}, "future": [1]},
}
KEYS = st.one_of(st.text(max_size=20), st.sampled_from(["k1", "k2", "k3", "", "a~b", "\n", "x" * 201]))


def asked(result: dict[str, Any], **options: Any) -> AskedRound:
    found = input_required({"resultType": "input_required", **result}, **options)
    assert found is not None
    return found


def refusal(result: dict[str, Any], **options: Any) -> Misasked:
    with pytest.raises(Misasked) as caught:
        asked(result, **options)
    return caught.value


@pytest.mark.parametrize("result", [{}, {"resultType": "complete", "requestState": "x"}, {"content": []}])
def test_a_final_result_asks_nothing(result: dict[str, Any]) -> None:
    assert input_required(result) is None


def test_questions_are_read_in_order_with_everything_in_them() -> None:
    found = asked({"inputRequests": {"b": FORM, "a": {"method": "roots/list"}}})
    assert [(question.key, question.method) for question in found.questions] == [
        ("b", "elicitation/create"),
        ("a", "roots/list"),
    ]
    assert found.questions[0].params == FORM["params"]
    assert found.questions[1].params == {}


@pytest.mark.parametrize("state", ["", "x", "é\u0000\u2028", " \n"])
def test_a_state_is_read_to_the_byte(state: str) -> None:
    assert asked({"inputRequests": {"a": FORM}, "requestState": state}).state == state


def test_no_state_is_not_an_empty_state() -> None:
    assert asked({"inputRequests": {"a": FORM}}).state is None
    assert asked({"requestState": ""}) == AskedRound((), "")


@given(st.lists(KEYS, unique=True, max_size=20))
def test_every_key_gets_one_of_its_own_that_clients_accept(keys: list[str]) -> None:
    wire = wire_keys(dict.fromkeys(keys))
    assert list(wire) == keys
    assert len(set(wire.values())) == len(keys)
    for key, told in wire.items():
        check_key(told)
        assert told == key or told.startswith("k")


def test_a_made_up_key_avoids_the_keys_of_the_upstream() -> None:
    assert wire_keys({"": 0, "k1": 0, "~": 0}) == {"": "k2", "k1": "k1", "~": "k3"}


def test_reserved_members_of_a_questions_meta_are_dropped() -> None:
    params = {**FORM["params"], "_meta": {"io.modelcontextprotocol/related-task": {}, "own": 1}}  # type: ignore[dict-item]
    found = asked({"inputRequests": {"a": {"method": "elicitation/create", "params": params}}})
    assert found.questions[0].params["_meta"] == {"own": 1}


MEMBERS: dict[str, Any] = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {}},
    "url": "https://example.com/",
    "elicitationId": "e",
    "messages": [],
    "maxTokens": 1,
    "systemPrompt": "p",
    "tools": [],
    "vendor": [1],
}


@pytest.mark.parametrize(
    ("method", "mode", "names"),
    [
        ("elicitation/create", {}, ["message", "requestedSchema"]),
        ("elicitation/create", {"mode": "form"}, ["mode", "message", "requestedSchema"]),
        ("elicitation/create", {"mode": "url"}, ["mode", "message", "url", "elicitationId"]),
        ("sampling/createMessage", {}, ["messages", "maxTokens", "systemPrompt", "tools"]),
        ("roots/list", {"mode": "url"}, []),
    ],
)
def test_a_question_has_nothing_of_another_kind_of_question(
    method: str, mode: dict[str, Any], names: list[str]
) -> None:
    params = {**mode, **MEMBERS}
    found = asked({"inputRequests": {"a": {"method": method, "params": params}}})
    assert found.questions[0].params == {name: params[name] for name in [*names, "vendor"]}


def test_a_form_cannot_send_the_user_to_a_url() -> None:
    params = {**FORM["params"], "url": "javascript:alert(1)"}  # type: ignore[dict-item]
    assert asked({"inputRequests": {"a": {**FORM, "params": params}}}).questions[0].params == FORM["params"]


@pytest.mark.parametrize("method", ["tools/call", "ping", "completion/complete", "notifications/progress"])
def test_other_methods_are_refused(method: str) -> None:
    assert refusal({"inputRequests": {"a": {"method": method, "params": {}}}}).refused == method


def test_a_large_state_is_refused_except_in_a_task() -> None:
    result = {"requestState": "x" * (MAX_CARRIED_BYTES + 1)}
    assert refusal(result).too_large
    assert asked(result, max_bytes=MAX_TASK_BYTES).state == result["requestState"]
    assert refusal({"requestState": "x" * (MAX_TASK_BYTES + 1)}, max_bytes=MAX_TASK_BYTES).too_large


def test_the_limit_of_a_state_is_in_bytes() -> None:
    assert asked({"requestState": "x" * MAX_CARRIED_BYTES}).state
    assert refusal({"requestState": "é" * (MAX_CARRIED_BYTES // 2 + 1)}).too_large


def test_large_questions_are_refused() -> None:
    params = {"message": "x" * MAX_CARRIED_BYTES, "requestedSchema": {}}
    assert refusal({"inputRequests": {"a": {"method": "elicitation/create", "params": params}}}).too_large


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"inputRequests": {}},
        {"inputRequests": []},
        {"inputRequests": {"a": 1}},
        {"inputRequests": {"a": {"method": "elicitation/create", "params": []}}},
        {"inputRequests": {"a": {"method": "elicitation/create"}}},
        {"inputRequests": {"a": {"method": "elicitation/create", "params": {"message": "a"}}}},
        {"inputRequests": {"a": {"method": "elicitation/create", "params": {"message": "a", "mode": "url"}}}},
        {"inputRequests": {"a": {"method": "elicitation/create", "params": {"message": "a", "mode": "x"}}}},
        {"inputRequests": {"a": {"method": "sampling/createMessage", "params": {"messages": []}}}},
        {
            "inputRequests": {
                "a": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, "task": {}}}
            }
        },
        {"requestState": 7},
        {"resultType": "task", "requestState": "x"},
        {"inputRequests": {str(number): FORM for number in range(MAX_QUESTIONS + 1)}},
    ],
)
def test_what_no_client_could_answer_is_refused(result: dict[str, Any]) -> None:
    assert str(refusal(result))


@pytest.mark.parametrize(
    "url",
    [
        *(
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "https://",
            "/login",
            "",
            "not a url",
            7,
            None,
        ),
        *(
            "https://a.example/\x1b",
            "https://bank.example@evil.example/",
            "https://bücher.example/",
            "ftp://a.example/",
        ),
    ],
)
def test_a_url_that_no_user_can_be_sent_to_is_refused(url: Any) -> None:
    params = {"mode": "url", "message": "Sign in", "url": url}
    good = {"method": "elicitation/create", "params": {**params, "url": "https://a.example/login"}}
    bad = {"method": "elicitation/create", "params": params}
    assert asked({"inputRequests": {"a": good}}).questions[0].params == good["params"]
    assert "no URL that a user" in str(refusal({"inputRequests": {"b": good, "a": bad}}))


VISIT = {"mode": "url", "elicitationId": "e1", "message": "Sign in", "url": "https://a.example/in", "_meta": {"own": 1}}


def refused_urls(data: Any, **options: Any) -> Misasked:
    with pytest.raises(Misasked) as caught:
        required_urls(data, **options)
    return caught.value


def test_the_urls_of_an_error_are_questions_under_keys_of_ours() -> None:
    found = required_urls({"elicitations": [VISIT, {**VISIT, "elicitationId": "e2", "extra": [1]}]})
    assert found.state is None
    first, second = found.questions
    assert (first.key, first.wire_key, first.method) == ("e1", "url1", "elicitation/create")
    assert (second.key, second.wire_key) == ("e2", "url2")
    assert first.params == {name: value for name, value in VISIT.items() if name != "elicitationId"}
    assert second.params == {**first.params, "extra": [1]}


@pytest.mark.parametrize("given", [{}, {"elicitationId": 7}, {"elicitationId": None}])
def test_a_url_needs_no_id_and_no_mode_of_its_own(given: dict[str, Any]) -> None:
    bare = {"message": "Sign in", "url": "https://a.example/in"}
    (question,) = required_urls({"elicitations": [{**bare, **given}]}).questions
    assert (question.key, question.params) == ("", {"mode": "url", **bare})


@pytest.mark.parametrize(
    "data",
    [
        *(None, [], {}, {"elicitations": {}}, {"elicitations": []}, {"elicitations": [7]}, {"elicitations": "e"}),
        {"elicitations": [VISIT] * (MAX_QUESTIONS + 1)},
        {"elicitations": [{**VISIT, "mode": "form", "requestedSchema": {"type": "object"}}]},
        {"elicitations": [{**VISIT, "mode": None}]},
        {"elicitations": [VISIT, {**VISIT, "url": "javascript:alert(1)"}]},
        {"elicitations": [{**VISIT, "url": "https://"}]},
        {"elicitations": [{**VISIT, "message": 7}]},
        {"elicitations": [{**VISIT, "task": {}}]},
    ],
)
def test_an_error_that_no_client_could_show_is_refused(data: Any) -> None:
    assert not refused_urls(data).too_large


def test_large_texts_beside_urls_are_refused_except_in_a_task() -> None:
    data = {"elicitations": [{**VISIT, "message": "x" * MAX_CARRIED_BYTES}]}
    assert refused_urls(data).too_large
    assert required_urls(data, max_bytes=MAX_TASK_BYTES).questions


@given(st.dictionaries(KEYS, st.one_of(st.none(), st.text(), st.fixed_dictionaries({"method": st.text()})), max_size=5))
def test_requests_of_any_shape_are_read_or_refused(requests: dict[str, Any]) -> None:
    with contextlib.suppress(Misasked):
        asked({"inputRequests": requests})
