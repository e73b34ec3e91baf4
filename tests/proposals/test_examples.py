"""The examples load and are JSON-RPC; an answer is like one of them if it has its members, types and meaning."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.proposals.examples import NAMES, Exchange, Message, assert_contains, example, fill

EXCHANGES = [(name, exchange) for name in NAMES for exchange in example(name).exchanges]
IDS = [f"{name}: {exchange.name}" for name, exchange in EXCHANGES]
OTHER_IDS = {"ephemeral: a retry without what is needed is asked again"}
"""Where the text answers a request under another id."""

ASKED = example("mrtr_update_work_item")["round 1: the first rule asks for the resolution"].answer
LISTED = example("tasks_list")["a page of a list"].answer
STREAMED = example("streaming_events")["the first response, with segments"].answer
REFUSED = example("tasks_errors")["task not found"].message
TASK_ID = "786512e2-9e0d-44bd-8f29-789f320fe840"


def changed(message: Message | None, change: Callable[[Any], object]) -> Message:
    assert message is not None
    copied = copy.deepcopy(message)
    change(copied)
    return copied


def schema(message: Any) -> Any:
    return message["result"]["inputRequests"]["resolution"]["params"]["requestedSchema"]


def properties(message: Any) -> Any:
    return schema(message)["properties"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_where_it_is_from_and_names_its_steps(name: str) -> None:
    found = example(name)
    assert found.source.text
    assert found.source.section.startswith("Specification")
    names = [exchange.name for exchange in found.exchanges]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize(("name", "exchange"), EXCHANGES, ids=IDS)
def test_a_step_shows_one_thing_or_tells_it_in_words(name: str, exchange: Exchange) -> None:
    kinds = [exchange.request, exchange.message, exchange.object]
    assert sum(kind is not None for kind in kinds) == (1 if any(kinds) else 0)
    assert any(kinds) or exchange.notes
    assert exchange.request is not None or exchange.answer is None


@pytest.mark.parametrize(("name", "exchange"), EXCHANGES, ids=IDS)
def test_every_message_is_json_rpc(name: str, exchange: Exchange) -> None:
    for message in exchange.shown:
        assert message["jsonrpc"] == "2.0"
        assert len({"method", "result", "error"} & set(message)) == 1
        assert isinstance(message.get("params", {}), dict)
        assert isinstance(message.get("result", {}), dict)
        assert type(message.get("id", "")) in {int, str}
        if "error" in message:
            assert type(message["error"]["code"]) is int
            assert isinstance(message["error"]["message"], str)
    if exchange.request is not None:
        assert "method" in exchange.request
        assert "id" in exchange.request
    if exchange.request is not None and exchange.answer is not None and exchange.name not in OTHER_IDS:
        assert exchange.answer["id"] == exchange.request["id"]


@pytest.mark.parametrize(("name", "exchange"), EXCHANGES, ids=IDS)
def test_a_message_is_like_itself(name: str, exchange: Exchange) -> None:
    for message in exchange.shown:
        assert_contains(message, message, live={})


def test_flows_that_the_text_only_describes_are_there() -> None:
    for name, steps in {"mrtr_rolling_upgrade": 3, "mrtr_load_shedding": 2}.items():
        assert [bool(exchange.notes) for exchange in example(name).exchanges] == [True] * steps


def test_an_echo_task_takes_twelve_steps() -> None:
    exchanges = example("mrtr_echo_task").exchanges
    assert sum(len(list(exchange.shown)) for exchange in exchanges) == 12


def test_what_is_live_replaces_whole_texts_only() -> None:
    message = {"a": ["id", {"b": "id"}], "id": "an id"}
    assert fill(message, {"id": "task-1"}) == {"a": ["task-1", {"b": "task-1"}], "id": "an id"}
    assert message["a"][0] == "id"


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        (ASKED, lambda message: message.update(id=7)),
        (ASKED, lambda message: message["result"].update(requestState="s1.abc")),
        (ASKED, lambda message: schema(message).update(additionalProperties=False)),
        (ASKED, lambda message: properties(message)["resolution"].update(description="another text")),
        (STREAMED, lambda message: message["result"]["partial-content"][0].update(text="another text")),
        (STREAMED, lambda message: message["result"].update(more={})),
        (REFUSED, lambda message: message["error"].update(message="another text", data={})),
        (LISTED, lambda message: message["result"]["tasks"].reverse()),
        (LISTED, lambda message: message["result"]["tasks"].append({"taskId": "x", "status": "failed"})),
        (LISTED, lambda message: message["result"]["tasks"][0].update(status="Working", pollFrequency=0.5)),
    ],
)
def test_what_may_differ_may_differ(wanted: Message, change: Callable[[Any], object]) -> None:
    assert_contains(changed(wanted, change), wanted, live={})


def test_a_state_may_be_missing() -> None:
    (answer,) = [step.answer for step in example("mrtr_get_weather").exchanges if step.name == "the first leg asks"]
    assert_contains(changed(answer, lambda message: message["result"].pop("requestState")), answer, live={})


@pytest.mark.parametrize(
    ("wanted", "change", "told"),
    [
        (ASKED, lambda message: message.pop("result"), "message.result is missing"),
        (ASKED, lambda message: message.update(result=[]), "message.result is of type array, not object"),
        (ASKED, lambda message: message["result"]["inputRequests"].update(more={}), "more is one too many"),
        (ASKED, lambda message: message["result"]["inputRequests"].clear(), "resolution is missing"),
        (ASKED, lambda message: properties(message)["resolution"].update(type="number"), "'number', not 'string'"),
        (ASKED, lambda message: properties(message)["resolution"]["enum"].reverse(), "enum is"),
        (ASKED, lambda message: properties(message).update(more={"type": "string"}), "more is one too many"),
        (ASKED, lambda message: schema(message).update(required=[]), "required is [], not ['resolution']"),
        (ASKED, lambda message: schema(message).update(type="array"), "'array', not 'object'"),
        (STREAMED, lambda message: message["result"].update(isError=True), "isError is True, not False"),
        (STREAMED, lambda message: message["result"].update(isComplete=True), "isComplete is True, not False"),
        (STREAMED, lambda message: message["result"].update(isError=0), "of type number, not boolean"),
        (STREAMED, lambda message: message["result"]["partial-content"][1].update(seqNr=3), "seqNr is 3, not 2"),
        (STREAMED, lambda message: message["result"]["partial-content"].pop(), "has 1 elements, not 2"),
        (STREAMED, lambda message: message["result"]["partial-content"].reverse(), "[0].seqNr is 2, not 1"),
        (STREAMED, lambda message: message["result"]["partial-content"][0].update(text=None), "type null, not string"),
        (REFUSED, lambda message: message["error"].update(code=-32603), "code is -32603, not -32602"),
        (REFUSED, lambda message: message["error"].update(code="-32602"), "of type string, not number"),
        (LISTED, lambda message: message["result"]["tasks"].pop(), "has nothing like"),
        (LISTED, lambda message: message["result"]["tasks"][1].update(status="failed"), "has nothing like"),
        (LISTED, lambda message: message["result"]["tasks"][1].pop("keepAlive"), "has nothing like"),
    ],
)
def test_forbidden_differences_are_reported(wanted: Message, change: Callable[[Any], object], told: str) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_contains(changed(wanted, change), wanted, live={})
    assert told in str(failure.value)


def test_every_difference_is_reported_at_once() -> None:
    with pytest.raises(AssertionError, match=r"message\.b is missing\nmessage\.c is of type") as failure:
        assert_contains({"a": 1, "c": "1"}, {"a": 2, "b": "x", "c": 1}, live={})
    assert "message.a" not in str(failure.value)


def test_what_stands_for_an_example_has_to_be_there_in_its_place() -> None:
    answer = example("tasks_get")["the state of a task"].answer
    live = {TASK_ID: "task-1"}
    assert_contains(fill(answer, live), answer, live=live)
    with pytest.raises(AssertionError, match="taskId is"):
        assert_contains(answer, answer, live=live)


def test_one_element_of_a_list_does_not_stand_for_two() -> None:
    task = {"taskId": "x", "status": "working"}
    with pytest.raises(AssertionError, match="has nothing like"):
        assert_contains({"tasks": [task]}, {"tasks": [task, task]}, live={})


def test_modes_may_be_more_but_none_may_be_missing() -> None:
    assert_contains({"modes": ["streaming", "more", "task"]}, {"modes": ["task", "streaming"]}, live={})
    with pytest.raises(AssertionError, match="has nothing like 'task'"):
        assert_contains({"modes": ["streaming"]}, {"modes": ["task", "streaming"]}, live={})
