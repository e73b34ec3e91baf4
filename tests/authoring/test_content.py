"""Content blocks, and what a function's return value becomes in a result (MCP "Tool Result")."""

from __future__ import annotations

import enum
import json
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_serializer

from gateway.authoring import content
from gateway.authoring.content import Content, ToolResult, tool_result
from gateway.errors import AuthoringError


class Colour(str, enum.Enum):  # noqa: UP042 - the kind that turns into "Colour.RED"
    RED = "red"


class Report(BaseModel):
    day: date
    total: int = Field(serialization_alias="sum")


REPORT = Report(day=date(2024, 1, 2), total=3)


@dataclass
class Place:
    at: tuple[int, Decimal]


MIXED = (
    {"id": UUID(int=1), "report": REPORT, "places": [Place((1, Decimal("2.50")))], 3: {b"x"}, "colour": Colour.RED},
    {
        "id": "00000000-0000-0000-0000-000000000001",
        "report": {"day": "2024-01-02", "sum": 3},
        "places": [{"at": [1, "2.50"]}],
        "3": ["x"],
        "colour": "red",
    },
)
"""A value without a useful annotation, and its JSON."""


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        ("hello", [text("hello")]),
        ("", [text("")]),
        (Colour.RED, [text("red")]),
        (5, [text("5")]),
        (2**70, [text(str(2**70))]),
        (1.5, [text("1.5")]),
        (True, [text("true")]),
        (None, []),
        ([], []),
        (["a", 1, None], [text("a"), text("1"), text("null")]),
        (("a", content.text("b")), [text("a"), text("b")]),
        (content.text("a"), [text("a")]),
        ([{"a": 1}, REPORT], [text('{"a":1}'), text('{"day":"2024-01-02","sum":3}')]),
        ([[1, 2]], [text("[1,2]")]),
        (date(2024, 1, 2), [text('"2024-01-02"')]),
        (b"bytes", [text('"bytes"')]),
        ({3}, [text("[3]")]),
        ([UUID(int=1), Decimal("1.50")], [text('"00000000-0000-0000-0000-000000000001"'), text('"1.50"')]),
    ],
    ids=repr,
)
def test_values_become_blocks(value: Any, blocks: list[dict[str, Any]]) -> None:
    assert tool_result(value) == {"content": blocks, "isError": False}


@pytest.mark.parametrize(
    ("value", "structured"),
    [
        (REPORT, {"day": "2024-01-02", "sum": 3}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({}, {}),
        ({"n": 2**70}, {"n": 2**70}),
        MIXED,
    ],
    ids=repr,
)
def test_a_model_or_a_dict_becomes_structured_content_and_its_json(value: Any, structured: Any) -> None:
    result = tool_result(value)
    assert result["structuredContent"] == structured
    assert [json.loads(block["text"]) for block in result["content"]] == [structured]


def test_a_result_spelled_out_stays_as_it_is() -> None:
    spelled = ToolResult(content=[content.text("a"), {"type": "x", "y": 1}], structured=REPORT)
    assert tool_result(spelled) == {
        "content": [text("a"), {"type": "x", "y": 1}],
        "structuredContent": {"day": "2024-01-02", "sum": 3},
        "isError": False,
    }
    assert tool_result(content.error("no such city")) == {"content": [text("no such city")], "isError": True}


def numbers() -> Iterator[int]:
    yield 1


class Breaks(BaseModel):
    @model_serializer
    def told(self) -> dict[str, Any]:
        raise KeyError("mine")


class Holds(BaseModel):
    thing: Any


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "the result: object is not"),
        (b"\xff", "the result: bytes is not"),
        ({object()}, "the result: set is not"),
        (numbers(), "the result: generator is not"),
        ({"a": object()}, "the result.a: object is not"),
        ({1: 2, "1": 3}, "the result: two keys of the dict are equal in JSON"),
        ({object(): 2}, "the result: a key of type object is not a JSON name"),
        ({UUID(int=1): {"a": object()}}, "the result.00000000-0000-0000-0000-000000000001.a: object is not"),
        (float("nan"), "the result: nan is not"),
        ("\ud800", "the result: text with a lone surrogate"),
        (10**5000, "the result: an integer of"),
        (LOOP, "the result[0][0]"),
        (Breaks(), "the result: Breaks cannot be converted to JSON"),
        (Holds(thing=object()), "the result: Holds cannot be converted to JSON"),
        (Holds(thing=b"\xff"), "the result: Holds cannot be converted to JSON"),
        (ToolResult(content=[{"type": object()}]), "the content[0].type: object is not"),
        (ToolResult(content=[], structured={object()}), "the result: set is not"),
        (Content(type="text", text=object()), "the block's text: object is not"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("the") else type(value).__name__,
)
def test_a_value_without_a_json_form_is_an_authors_error(value: Any, message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        tool_result(value)
    assert str(caught.value).startswith(message)


BLOCKS = [
    content.text("t"),
    content.image(b"\x00\xff", "image/png"),
    content.audio(b"\x00", "audio/wav"),
    content.resource_link("docs://a", "a"),
    content.resource_link("docs://a", "a", mime_type="text/plain", description="d"),
    content.embedded("docs://a", "text", "text/plain"),
    content.embedded("docs://a", b"\x00\xff", "application/octet-stream"),
    content.text("t").annotated(audience=["user"], priority=0.5, last_modified="2024-01-01T00:00:00Z"),
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["type"])
def test_blocks_are_what_the_protocol_says(block: Content) -> None:
    told = mcp_types.CallToolResult.model_validate(tool_result([block]))
    assert told.content[0].type == block["type"]


def test_hints_that_are_not_given_are_left_out() -> None:
    assert content.text("t").annotated(priority=1) == {"type": "text", "text": "t", "annotations": {"priority": 1}}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda i: st.lists(i) | st.tuples(i)))
def test_every_json_value_can_be_returned(value: Any) -> None:
    assert mcp_types.CallToolResult.model_validate(tool_result(value)).is_error is False


# Prompts and resources


def test_what_a_prompt_returns_becomes_messages() -> None:
    said = content.prompt_messages(["hello", content.assistant("hi"), content.user(content.text("well")), BLOCKS[1]])
    told = mcp_types.GetPromptResult.model_validate({"messages": said})
    assert [message.role for message in told.messages] == ["user", "assistant", "user", "user"]
    assert content.prompt_messages("one") == [{"role": "user", "content": text("one")}]
    with pytest.raises(AuthoringError, match="a prompt must return text"):
        content.prompt_messages(5)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("t", {"uri": "x://", "mimeType": "text/plain", "text": "t"}),
        (b"\x00", {"uri": "x://", "mimeType": "application/octet-stream", "blob": "AA=="}),
        ({"a": 1}, {"uri": "x://", "mimeType": "application/json", "text": '{"a":1}'}),
        (REPORT, {"uri": "x://", "mimeType": "application/json", "text": '{"day":"2024-01-02","sum":3}'}),
        (content.resource_text("y://", "t"), {"uri": "y://", "mimeType": "text/plain", "text": "t"}),
    ],
    ids=repr,
)
def test_what_a_resource_returns_becomes_contents(value: Any, expected: dict[str, Any]) -> None:
    assert content.resource_contents(value, "x://", None) == [expected]
    if "y://" not in expected.values():
        assert content.resource_contents(value, "x://", "a/b")[0]["mimeType"] == "a/b"


@pytest.mark.parametrize("value", [None, [], 5, ["text"], [{"uri": "x://"}]], ids=repr)
def test_a_resource_that_returns_something_else_is_an_authors_error(value: Any) -> None:
    with pytest.raises(AuthoringError):
        content.resource_contents(value, "x://", None)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("isError", "did you mean 'is_error'?"),
        ("structuredContent", "did you mean 'structured'?"),
        ("_meta", "did you mean 'meta'?"),
        ("cost", "its fields are content, is_error, meta, structured"),
    ],
)
def test_a_field_that_a_result_does_not_have_is_refused(name: str, advice: str) -> None:
    with pytest.raises(AuthoringError) as refused:
        ToolResult.model_validate({"content": [], name: {}})
    assert str(refused.value) == f"ToolResult has no field {name!r}; {advice}"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"content": "hi"}, "content: Input should be a valid list; pass blocks, such as content=[content.text('…')]"),
        ({}, "content: Field required; pass blocks, such as content=[content.text('…')]"),
        ({"content": [], "is_error": "x"}, "is_error: Input should be a valid boolean, unable to interpret input"),
    ],
)
def test_a_result_that_is_spelled_wrongly_is_refused_in_one_line(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(AuthoringError) as refused:
        ToolResult(**fields)
    assert str(refused.value) == f"ToolResult: {problem}"


def test_a_result_spelled_out_has_metadata_for_clients() -> None:
    spelled = ToolResult(content=[], meta={"example.com/asked": date(2024, 1, 2)})
    assert tool_result(spelled)["_meta"] == {"example.com/asked": "2024-01-02"}


def test_an_error_about_a_result_quotes_no_value() -> None:
    report = REPORT.model_copy(update={"total": "my secret"})
    with pytest.raises(AuthoringError) as refused:
        tool_result(report)
    assert "my secret" not in "".join(traceback.format_exception(refused.value))
    assert "the field total has a value of the wrong type" in str(refused.value)
