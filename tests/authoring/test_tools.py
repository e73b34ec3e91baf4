"""The `tool` decorator and what it makes of a function."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, cast

import mcp_types
import pytest
from pydantic import BaseModel, Field

from gateway import Context, Elicit, Sample, prompt, tool
from gateway.authoring.content import ToolResult, error
from gateway.authoring.tools import Tool
from gateway.engine.journal import Journal
from gateway.errors import AuthoringError


class Login(BaseModel):
    name: str


class Report(BaseModel):
    total: int


async def greet(ctx: Context, name: str) -> str:
    """Greet somebody."""
    return f"Hello {name} from {ctx.replica_id}"


def test_every_form_of_the_decorator_makes_a_tool() -> None:
    bare = tool(greet)
    named = tool("other.name-1")(greet)
    versioned = tool(version=2, title="Greeter", description="Says hello.")(greet)
    empty = tool()(greet)
    assert [made.name for made in (bare, named, versioned, empty)] == ["greet", "other.name-1", "greet", "greet"]
    assert [made.version for made in (bare, named, versioned, empty)] == [1, 1, 2, 1]
    assert bare.description == "Greet somebody."
    assert (versioned.title, versioned.description) == ("Greeter", "Says hello.")
    assert repr(versioned) == "<tool greet version 2>"
    assert bare.__doc__ == "Greet somebody."
    assert cast("Any", bare).__wrapped__ is greet


async def test_calling_the_tool_calls_the_function_as_it_was_written() -> None:
    @tool
    async def add(a: int, b: int = 2) -> int:
        return a + b

    assert await add(1) == 3
    assert await add(a=1, b=1) == 2


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 128])
def test_a_name_the_protocol_allows(name: str) -> None:
    assert tool(name)(greet).name == name


@pytest.mark.parametrize("name", ["", "a b", "é", "a/b", "x" * 129, "a\n", 5], ids=repr)
def test_a_name_the_protocol_does_not_allow(name: Any) -> None:
    with pytest.raises(AuthoringError, match="is not a valid tool name"):
        tool(name)(greet)


def test_what_has_no_name_of_its_own_needs_one() -> None:
    with pytest.raises(AuthoringError):
        tool(functools.partial(greet, name="x"))
    with pytest.raises(AuthoringError, match="is not a valid tool name"):
        tool(lambda: None)


@pytest.mark.parametrize("version", [0, -1, 1.0, "2", True, None])
def test_versions_count_from_one(version: Any) -> None:
    with pytest.raises(AuthoringError, match="use 1, 2, 3"):
        tool(version=version)(greet)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_state_lives_for_some_time(seconds: float) -> None:
    with pytest.raises(AuthoringError, match="greater than 0"):
        tool(state_ttl_seconds=seconds)(greet)
    assert tool(state_ttl_seconds=0.5)(greet).state_ttl_seconds == 0.5


def test_an_unknown_option_is_reported_at_once() -> None:
    with pytest.raises(AuthoringError, match="@tool has no option 'verson'; did you mean 'version'"):
        cast("Any", tool)(verson=2)
    with pytest.raises(AuthoringError, match="@prompt has no option 'nme'; did you mean 'name'"):
        cast("Any", prompt)(nme="x")
    with pytest.raises(AuthoringError, match="@tool has no option 'tags'; its options are annotations, asks, "):
        cast("Any", tool)(tags=["x"])


def test_a_functions_own_attributes_do_not_become_the_tools() -> None:
    async def marked() -> None: ...

    marked.version = 9  # type: ignore[attr-defined]
    marked.name = "stolen"  # type: ignore[attr-defined]
    made = tool(marked)
    assert (made.name, made.version) == ("marked", 1)


def test_declared_questions_are_models_schemas_or_any_question() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    made = tool(asks={"a": Login, "b": schema, "c": Elicit("?", Login), "d": Sample("?", 1)})(greet)
    assert made.asks is not None
    assert made.asks["a"] == made.asks["b"] == made.asks["c"] != made.asks["d"]
    assert tool(greet).asks is None
    assert tool(asks={})(greet).asks == {}
    with pytest.raises(AuthoringError, match="neither a type"):
        tool(asks={"a": 5})(greet)


def test_migrations_rise_to_the_tools_own_version() -> None:
    made = tool(version=3)(greet)

    @made.migrate(from_=1, to=2)
    def first(value: Any) -> Any:
        return value

    made.migrate(from_=2, to=3)(first)
    assert {version: to for version, (to, _) in made.migrations.items()} == {1: 2, 2: 3}
    assert first("x") == "x"
    for from_, to in ((0, 1), (2, 2), (3, 2), (2, 4)):
        with pytest.raises(AuthoringError, match="cannot have a migration"):
            made.migrate(from_=from_, to=to)
    with pytest.raises(AuthoringError, match="already"):
        made.migrate(from_=1, to=3)


def test_the_catalogue_entry_is_what_the_protocol_says() -> None:
    made = tool(title="Greeter", annotations={"readOnlyHint": True}, icons=[{"src": "https://a.example/i.png"}])(greet)
    told = mcp_types.Tool.model_validate(made.catalogue_entry())
    assert (told.name, told.title, told.description) == ("greet", "Greeter", "Greet somebody.")
    assert told.annotations is not None
    assert told.annotations.read_only_hint
    assert list(told.input_schema["properties"]) == ["name"]
    assert tool(meta={"a": 1})(greet).catalogue_entry()["_meta"] == {"a": 1}
    assert tool("bare", description="")(greet).catalogue_entry().keys() == {"name", "inputSchema"}


def test_scopes_are_a_list_of_what_a_token_can_carry() -> None:
    assert tool(scopes=["a", "b:c"])(greet).scopes == {"a", "b:c"}
    with pytest.raises(AuthoringError, match="not a string"):
        tool(scopes="admin")(greet)
    with pytest.raises(AuthoringError, match="no token can carry"):
        tool(scopes=["two words"])(greet)


# Results


def returning(annotation: Any, **options: Any) -> Tool:
    async def function() -> None: ...

    function.__annotations__["return"] = annotation
    return tool("t", **options)(function)


def test_a_model_as_return_hint_is_the_output_schema() -> None:
    made = returning(Report)
    assert made.output_schema == {
        "type": "object",
        "properties": {"total": {"type": "integer"}},
        "required": ["total"],
    }
    assert made.catalogue_entry()["outputSchema"] == made.output_schema
    assert made.result(Report(total=1), "t")["structuredContent"] == {"total": 1}
    assert made.result({"total": 1}, "t")["structuredContent"] == {"total": 1}
    for wrong in ({"total": "x"}, None, "text"):
        with pytest.raises(AuthoringError, match="did not return a valid Report"):
            made.result(wrong, "t")


def test_a_result_spelled_out_needs_no_model_only_if_it_is_an_error() -> None:
    made = returning(Report)
    assert made.result(error("no"), "t")["isError"] is True
    spelled = ToolResult(content=[], structured={"total": 1})
    assert made.result(spelled, "t")["structuredContent"] == {"total": 1}
    with pytest.raises(AuthoringError, match="no structured value"):
        made.result(ToolResult(content=[]), "t")
    assert returning(ToolResult).output_schema is None


def test_an_output_schema_of_the_authors_is_checked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    made = returning(str, output_schema=schema)
    assert made.output_schema == schema
    assert made.result({"n": 1}, "t")["structuredContent"] == {"n": 1}
    with pytest.raises(AuthoringError, match="output schema does not allow: n: 'x'"):
        made.result({"n": "x"}, "t")


def test_an_authors_own_input_schema_is_listed_unchanged() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "title": "Name", "x-mine": 1}}}
    assert tool(input_schema=schema)(greet).catalogue_entry()["inputSchema"] == schema


def test_a_header_that_cannot_be_is_an_authors_error() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "x-mcp-header": "no header"}}}
    with pytest.raises(AuthoringError, match="the tool 'greet'"):
        tool(input_schema=schema)(greet)


def test_a_name_may_be_given_as_a_keyword_too() -> None:
    @tool(name="say.again")
    async def echo(text: str) -> str:
        return text

    assert echo.name == "say.again"


# Tasks


def test_a_tool_never_becomes_a_task_by_default() -> None:
    made = tool(greet)
    assert (made.task, made.start, made.max_attempts, made.single_use) == ("forbidden", "task", 3, False)
    assert not made.starts_as_task
    assert not made.needs_store


@pytest.mark.parametrize(
    ("options", "starts", "needs"),
    [
        ({"task": "optional"}, True, False),
        ({"task": "optional", "start": "call"}, False, False),
        ({"task": "required"}, True, True),
        ({"task": "required", "start": "call"}, False, True),
        ({"single_use": True}, False, True),
    ],
)
def test_what_a_tool_starts_as_and_needs(options: Any, starts: bool, needs: bool) -> None:
    made = tool(**options)(greet)
    assert (made.starts_as_task, made.needs_store) == (starts, needs)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"task": "always"}, "has task='always'; use one of 'forbidden', 'optional', 'required'"),
        ({"task": True}, "has task=True"),
        ({"task": ["optional"]}, "has task="),
        ({"task": "optional", "start": "later"}, "has start='later'; use one of 'task', 'call'"),
        ({"start": "call"}, "has start='call' but never becomes a task"),
        *(({"max_attempts": given}, "has max_attempts=") for given in (0, -1, 1.5, True, "3", None)),
        ({"single_use": 1}, "has single_use=1"),
        ({"task": "optional", "streams": 1}, "has streams=1"),
        ({"leg_seconds": 0}, "has leg_seconds=0; use a number greater than 0"),
        ({"leg_seconds": float("nan")}, "has leg_seconds=nan; use a number greater than 0"),
        ({"streams": True}, "has streams=True, but only tasks can stream"),
    ],
)
def test_options_that_make_no_sense_are_reported_at_once(options: Any, problem: str) -> None:
    with pytest.raises(AuthoringError, match=re.escape(problem)):
        tool(**options)(greet)


def test_emitted_blocks_come_before_the_returned_value() -> None:
    made = tool(greet)
    journal = Journal.begin(now_ms=1, flow_max_ms=1, random_bytes=bytes)
    assert made.whole_result("two", "greet", journal)["content"] == [{"type": "text", "text": "two"}]
    journal.segments = [{"type": "text", "text": "one"}]
    assert made.whole_result("two", "greet", journal)["content"] == [*journal.segments, {"type": "text", "text": "two"}]


@pytest.mark.parametrize("pattern", [r"^\d+\-\d+$", r"\p{L}+", "(?P<year>a)", r"\Aa"])
def test_a_result_with_a_pattern_that_some_client_cannot_read_is_an_authors_error(pattern: str) -> None:
    with pytest.raises(
        AuthoringError, match=r"output schema of .* is not for all clients: .* pattern .* do not agree on"
    ):
        returning(dict[str, Annotated[str, Field(pattern=pattern)]])
    with pytest.raises(AuthoringError, match="is not for all clients"):
        returning(str, output_schema={"type": "object", "properties": {"x": {"pattern": pattern}}})


def test_clients_cannot_take_the_result_of_one_tool_for_that_of_another() -> None:
    schema = {"$id": "https://a.example/s", "type": "object"}
    assert returning(dict, output_schema=schema).output_schema == {"type": "object"}
