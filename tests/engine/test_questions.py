"""The differences between questions that count, and those that do not."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engine.questions import DIGEST_BYTES, ELICIT, ROOTS, SAMPLE, question_digest


def form(schema: dict[str, Any], message: str = "?") -> bytes:
    return question_digest(ELICIT, {"mode": "form", "message": message, "requestedSchema": schema})


def field(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"n": {"type": "string", **keywords}}, "required": ["n"]}


def test_a_digest_is_short_and_stable_across_releases() -> None:
    """Journals store it: with a different value, every running call would ask again."""
    assert form(field()).hex() == "418d941fc0de7a9605f1cb72"
    assert len(form(field())) == DIGEST_BYTES


def test_titles_descriptions_and_defaults_do_not_count_at_any_depth() -> None:
    bare = field(enum=["a", "b"])
    noted = {
        **field(enum=["a", "b"], title="T", description="D", default="a"),
        "title": "Form",
        "description": "Fill in",
    }
    assert form(bare) == form(noted)
    assert form(field(oneOf=[{"const": "a", "title": "A"}])) == form(field(oneOf=[{"const": "a", "title": "B"}]))
    assert form(field(items={"type": "string", "title": "A"})) == form(field(items={"type": "string"}))


def test_the_order_of_fields_does_not_count() -> None:
    one = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a", "b"]}
    other = {"required": ["b", "a"], "properties": {"b": {"type": "number"}, "a": {"type": "string"}}, "type": "object"}
    assert form(one) == form(other)


def test_the_order_of_choices_counts() -> None:
    assert form(field(enum=["a", "b"])) != form(field(enum=["b", "a"]))


def test_the_message_never_counts() -> None:
    assert form(field(), "How?") == form(field(), "Why?")


@pytest.mark.parametrize(
    "schema",
    [
        field(maxLength=5),
        field(enum=["a"]),
        field(const="title"),
        {**field(), "required": []},
        {"type": "object", "properties": {"m": {"type": "string"}}, "required": ["n"]},
        {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    ],
)
def test_everything_else_in_a_form_counts(schema: dict[str, Any]) -> None:
    assert form(schema) != form(field())


@pytest.mark.parametrize("name", ["title", "description", "default", "properties", "enum", "items"])
def test_a_property_may_be_called_like_a_keyword_and_counts(name: str) -> None:
    without: dict[str, Any] = {"type": "object", "properties": {}}
    texts = {"type": "object", "properties": {name: {"type": "string"}}}
    numbers = {"type": "object", "properties": {name: {"type": "number"}}}
    assert len({form(without), form(texts), form(numbers)}) == 3
    titled = {"type": "object", "properties": {name: {"type": "string", "title": "T"}}}
    assert form(titled) == form(texts)


@pytest.mark.parametrize("keyword", ["$defs", "patternProperties", "dependentSchemas"])
def test_names_in_other_maps_of_schemas_count_too(keyword: str) -> None:
    assert form({**field(), keyword: {"title": {"type": "string"}}}) != form({**field(), keyword: {}})


def test_data_in_a_schema_counts_whatever_it_is_called() -> None:
    assert form({**field(), "dependentRequired": {"title": ["n"]}}) != form({**field(), "dependentRequired": {}})
    assert form(field(enum=[{"title": 1}])) != form(field(enum=[{"title": 2}]))


def test_a_form_without_a_mode_is_a_form() -> None:
    assert question_digest(ELICIT, {"message": "?", "requestedSchema": field()}) == form(field())


def test_urls_and_roots_count_by_their_method_alone() -> None:
    one = question_digest(ELICIT, {"mode": "url", "message": "a", "url": "https://a.example"})
    other = question_digest(ELICIT, {"mode": "url", "message": "b", "url": "https://b.example"})
    assert one == other
    assert len({one, question_digest(ROOTS, {}), question_digest(SAMPLE, {}), form(field())}) == 4


def test_sampling_counts_by_its_tools_alone() -> None:
    tools = [{"name": "add", "inputSchema": {"type": "object"}}]
    plain = question_digest(SAMPLE, {"messages": [1], "maxTokens": 1})
    assert plain == question_digest(SAMPLE, {"messages": [2], "maxTokens": 2, "systemPrompt": "x"})
    assert plain != question_digest(SAMPLE, {"messages": [1], "maxTokens": 1, "tools": tools})
