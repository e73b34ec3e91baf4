"""From a function's type hints to its input schema, and from a caller's arguments to its keywords."""

from __future__ import annotations

import enum
import functools
import re
import time
from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ImportString,
    Json,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    with_config,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from gateway import Context, PlainContext
from gateway.authoring.arguments import (
    MAX_MESSAGE_CHARACTERS,
    MAX_PARTS_WITH_NULL,
    MAX_PROBLEMS,
    MAX_READ_PROBLEMS,
    Arguments,
    InvalidArguments,
    SchemaArguments,
)
from gateway.errors import AuthoringError

if TYPE_CHECKING:
    from somewhere import Unknown  # type: ignore[import-not-found]


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    number: int


class Search(BaseModel):
    patterns: list[dict[str, re.Pattern[str]]]


def exhaust(_value: Any) -> Any:
    raise RecursionError


def later(x: Later) -> None: ...


class Later(BaseModel):
    n: int


def test_hints_and_defaults_become_a_schema_without_titles() -> None:
    def function(
        ctx: PlainContext,
        a: int,
        b: Annotated[str, Field(description="what", min_length=1)],
        c: Literal["x", "y"] = "x",
        d: list[int] | None = None,
        *,
        e: bool = False,
    ) -> None: ...

    arguments = Arguments(function)
    assert arguments.context_name == "ctx"
    assert arguments.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "description": "what", "minLength": 1},
            "c": {"type": "string", "enum": ["x", "y"], "default": "x"},
            "d": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}], "default": None},
            "e": {"type": "boolean", "default": False},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    assert arguments.read({"a": 1, "b": "z"}) == {"a": 1, "b": "z", "c": "x", "d": None, "e": False}


def test_a_text_in_annotated_is_the_description() -> None:
    def function(width: Annotated[int, "in metres"] = 1, height: Annotated[int, "a", "b"] = 2) -> None: ...

    assert Arguments(function).schema["properties"] == {
        "width": {"type": "integer", "description": "in metres", "default": 1},
        "height": {"type": "integer", "default": 2},
    }


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    assert Arguments(lambda: None).schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert Arguments(lambda: None).read({}) == {}


def test_values_are_read_as_the_hints_say() -> None:
    def function(when: date, colour: Colour, where: Address, pair: tuple[int, str], some: set[int]) -> None: ...

    given = {
        "when": "2024-02-29",
        "colour": "red",
        "where": {"street": "High", "number": 5},
        "pair": [1, "a"],
        "some": [1, 1, 2],
    }
    assert Arguments(function).read(given) == {
        "when": date(2024, 2, 29),
        "colour": Colour.RED,
        "where": Address(street="High", number=5),
        "pair": (1, "a"),
        "some": {1, 2},
    }


@pytest.mark.parametrize("default", [Field(ge=1), Field(default=..., ge=1)])
def test_a_pydantic_field_as_default_is_not_a_default(default: Any) -> None:
    def function(n=default): ...  # type: ignore[no-untyped-def]

    function.__annotations__["n"] = int
    arguments = Arguments(function)
    assert arguments.schema["properties"] == {"n": {"type": "integer", "minimum": 1}}
    assert arguments.schema["required"] == ["n"]
    with pytest.raises(InvalidArguments, match=r"^n: "):
        arguments.read({"n": 0})


def test_a_pydantic_field_may_bring_a_default_from_either_place() -> None:
    def function(a: int = Field(default=5, le=9), b: Annotated[int, Field(default=3)] = Field(ge=1)) -> None: ...

    assert Arguments(function).read({}) == {"a": 5, "b": 3}


def test_an_alias_of_the_authors_does_not_rename_an_argument() -> None:
    def function(a: Annotated[int, Field(alias="b")]) -> None: ...

    assert Arguments(function).read({"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    "name", ["schema", "json", "copy", "dict", "model_config", "model_fields", "validate", "self", "cls", "argument_0"]
)
def test_arguments_may_be_called_like_attributes_of_a_model(name: str) -> None:
    space: dict[str, Any] = {}
    exec(f"def function({name}: int, other: str = 'x') -> None: ...", space)
    arguments = Arguments(space["function"])
    assert list(arguments.schema["properties"]) == [name, "other"]
    assert arguments.read({name: 1}) == {name: 1, "other": "x"}


def test_the_context_goes_by_its_annotation_or_its_name() -> None:
    async def annotated(call: Context, n: int) -> None: ...
    def named(ctx, n: int): ...  # type: ignore[no-untyped-def]
    def neither(n: int) -> None: ...
    def an_argument(ctx: int) -> None: ...

    assert Arguments(annotated).context_name == "call"
    assert Arguments(named).context_name == "ctx"
    assert Arguments(neither).context_name is None
    assert Arguments(an_argument).context_name is None
    assert Arguments(an_argument).read({"ctx": 1}) == {"ctx": 1}


def test_a_hint_may_name_what_is_defined_further_down() -> None:
    assert Arguments(later).read({"x": {"n": 1}}) == {"x": Later(n=1)}


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    def function(items: list[int] = []) -> None: ...  # noqa: B006 - what this is about

    arguments = Arguments(function)
    arguments.read({})["items"].append(1)
    assert arguments.read({}) == {"items": []}


def unknown(x: Unknown) -> None: ...
def star(*values: int) -> None: ...
def star_star(**values: int) -> None: ...
def positional(value: int, /) -> None: ...
def positional_context(ctx: Context, /) -> None: ...
def star_context(*ctx): ...  # type: ignore[no-untyped-def]
async def two_contexts(ctx: Context, call: Context) -> None: ...
def a_callable(x: Callable[[], int]) -> None: ...
def broken(x: int.missing) -> None: ...  # type: ignore[name-defined]
def maybe_context(ctx: Context | None) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unknown, "unknown: the annotation 'Unknown' is not defined in its module"),
        (star, "star: the parameter 'values' must be named, not positional-only, *args or **kwargs"),
        (star_star, "star_star: the parameter 'values' must be named, not positional-only, *args or **kwargs"),
        (positional, "positional: the parameter 'value' must be named, not positional-only, *args or **kwargs"),
        (
            positional_context,
            "positional_context: the parameter 'ctx' must be named, not positional-only, *args or **kwargs",
        ),
        (star_context, "star_context: the parameter 'ctx' must be named, not positional-only, *args or **kwargs"),
        (two_contexts, "two_contexts: only one parameter can take the context"),
        (a_callable, "a_callable: the parameter 'x': the type Callable[[], int] has no JSON form"),
        (broken, "broken: its annotations cannot be read"),
        (maybe_context, "maybe_context: annotate the context as `ctx: Context`, without anything else"),
        (functools.partial(later), "its annotations cannot be read"),
    ],
)
def test_a_parameter_that_json_cannot_fill_is_an_authors_error(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        Arguments(function)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def several(a: int, b: Address, c: Annotated[str, Field(max_length=2)] = "") -> None: ...


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"b": {"street": "s", "number": 1}}, ["a: "]),
        ({"a": "x", "b": {"street": "s", "number": 1}}, ["a: "]),
        ({"a": 1, "b": {"street": 5}}, ["b.street: ", "b.number: "]),
        ({"a": 1, "b": [], "c": "long"}, ["b: ", "c: "]),
        ({"a": 1, "b": {"street": "s", "number": 1}, "d": 1}, ["d: "]),
        ({"a": None, "b": None}, ["a: ", "b: "]),
    ],
    ids=str,
)
def test_wrong_arguments_are_each_named(given: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        Arguments(several).read(given)
    problems = str(caught.value).split("; ")
    assert len(problems) == len(named)
    assert all(problem.startswith(start) for problem, start in zip(problems, named, strict=True))


def test_only_so_many_problems_are_reported() -> None:
    def function(items: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        Arguments(function).read({"items": ["x"] * 1000})
    problems = str(caught.value).split("; ")
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1] == f"and {1000 - MAX_PROBLEMS} more"


def test_endless_nesting_is_a_wrong_argument() -> None:
    def function(x: Annotated[Any, AfterValidator(exhaust)]) -> None: ...

    with pytest.raises(InvalidArguments, match="nested too deeply"):
        Arguments(function).read({"x": 1})


def test_a_schema_of_the_authors_is_passed_through_and_checked() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "title": "A"}},
        "required": ["a"],
        "x-mine": True,
    }

    def named(ctx: PlainContext, a: int) -> None: ...
    def takes_all(ctx: PlainContext, **arguments: Any) -> None: ...

    for function in (named, takes_all):
        arguments = SchemaArguments(function, schema)
        assert arguments.schema == schema
        assert arguments.context_name == "ctx"
        assert arguments.read({"a": 1, "ctx": 2}) == {"a": 1}
        with pytest.raises(InvalidArguments, match=r"^a: 'x' is not of type"):
            arguments.read({"a": "x"})
    assert SchemaArguments(takes_all, schema).read({"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert SchemaArguments(named, schema).read({"a": 1, "b": 2}) == {"a": 1}


def test_a_schema_that_the_function_cannot_take_is_an_authors_error() -> None:
    def function(a: int) -> None: ...

    with pytest.raises(AuthoringError, match="must have type 'object'"):
        SchemaArguments(function, {"type": "array"})
    with pytest.raises(AuthoringError, match="the function does not take b of its schema"):
        SchemaArguments(function, {"type": "object", "properties": {"a": {}, "b": {}}})
    with pytest.raises(AuthoringError, match="not a valid JSON Schema"):
        SchemaArguments(function, {"type": "object", "properties": {"a": {"type": 5}}})


def test_a_caller_who_gets_very_much_wrong_gets_a_short_answer_all_the_same() -> None:
    """Listing each of a million problems, or repeating a huge name, would cost more than the call."""

    async def take(number: int) -> str:
        return str(number)

    too_many = {f"unknown{place}": place for place in range(MAX_READ_PROBLEMS)}
    with pytest.raises(InvalidArguments, match=f"in {MAX_READ_PROBLEMS + 1} places"):
        Arguments(take).read(too_many)
    with pytest.raises(InvalidArguments, match=r"number: Field required; x+…: ") as refused:
        Arguments(take).read({"x" * 1_000_000: 1})
    assert len(str(refused.value)) < 300


def test_a_message_that_quotes_a_huge_argument_is_cut() -> None:
    async def take(**arguments: Any) -> str:
        return str(arguments)

    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    with pytest.raises(InvalidArguments) as refused:
        SchemaArguments(take, schema).read({"number": "x" * 1_000_000})
    assert len(str(refused.value)) <= MAX_MESSAGE_CHARACTERS + 1


class Filter(BaseModel):
    limit: int = 5
    order: Literal["up", "down"] = "up"


def test_null_for_an_argument_with_a_default_that_takes_no_null_means_the_default() -> None:
    def function(
        q: str,
        *,
        limit: int = 5,
        order: Literal["up", "down"] = "up",
        note: str | None = "none",
        anything: Any = 1,
        where: Filter = Filter(),  # noqa: B008 - a default of the author's
        several: list[Filter] = [],  # noqa: B006 - the same
    ) -> None: ...

    arguments = Arguments(function)
    read = arguments.read(
        {
            "q": "tea",
            "limit": None,
            "order": None,
            "note": None,
            "anything": None,
            "where": {"limit": None, "order": "down"},
            "several": [{"order": None}],
        }
    )
    assert read == {
        "q": "tea",
        "limit": 5,
        "order": "up",
        "note": None,
        "anything": None,
        "where": Filter(order="down"),
        "several": [Filter()],
    }
    assert read == arguments.read({**read, "where": {"order": "down"}, "several": [{}]})


@pytest.mark.parametrize("sent", [{"q": None, "limit": 1}, {"q": "tea", "limit": "x", "unknown": None}])
def test_null_is_refused_where_an_argument_is_required_or_unknown(sent: dict[str, Any]) -> None:
    def function(q: str, limit: int = 5) -> None: ...

    with pytest.raises(InvalidArguments, match="q" if sent["q"] is None else "unknown"):
        Arguments(function).read(sent)


def test_an_authors_validator_may_give_null_a_meaning() -> None:
    def function(limit: Annotated[int, BeforeValidator(lambda given: 0 if given is None else given)] = 5) -> None: ...

    assert Arguments(function).read({"limit": None}) == {"limit": 0}


def test_in_large_arguments_only_outer_nulls_are_left_out() -> None:
    def function(rows: list[int], where: Filter, limit: int = 5) -> None: ...

    large = list(range(MAX_PARTS_WITH_NULL))
    read = Arguments(function).read({"rows": large, "where": {}, "limit": None})
    assert (read["rows"], read["limit"]) == (large, 5)
    with pytest.raises(InvalidArguments, match=r"where\.limit"):
        Arguments(function).read({"rows": large, "where": {"limit": None}})


_SLOW = re.compile("^(a+)+$")


class CompiledModel(BaseModel):
    given: str | None = Field(None, pattern=_SLOW)


class PythonModel(BaseModel, regex_engine="python-re"):
    given: str = Field(pattern=_SLOW.pattern)
    others: list[PythonModel] = Field(default_factory=list)


class Slug(TypedDict):
    given: Annotated[str, Field(pattern=_SLOW.pattern)]


@with_config(ConfigDict(regex_engine="python-re"))
class PythonTyped(TypedDict):
    given: Annotated[str, Field(pattern=_SLOW.pattern)]


@pydantic_dataclass(config=ConfigDict(regex_engine="python-re"))
class PythonData:
    given: Annotated[str, Field(pattern=_SLOW.pattern)]


class Around(BaseModel, regex_engine="python-re"):
    slug: Slug


class LinearModel(BaseModel):
    given: Annotated[str, Field(pattern=_SLOW.pattern)]


class AroundLinear(BaseModel, regex_engine="python-re"):
    given: LinearModel


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, Field(pattern=_SLOW)],
        Annotated[str, StringConstraints(pattern=_SLOW)],
        Annotated[SecretStr, Field(pattern=_SLOW)],
        Annotated[str | int, Field(pattern=_SLOW)],
        dict[Annotated[str, Field(pattern=_SLOW)], int],
        Json[list[Annotated[str, Field(pattern=_SLOW)]]],
        CompiledModel,
        PythonModel,
        list[PythonTyped],
        PythonData | None,
        Around,
    ],
    ids=str,
)
def test_no_pattern_runs_on_an_engine_that_may_take_any_time(annotation: Any) -> None:
    def function(given: Any) -> None: ...

    function.__annotations__["given"] = annotation
    with pytest.raises(AuthoringError, match=r"'given'.*pattern of Python's engine .*; give the pattern as a text"):
        Arguments(function)


@pytest.mark.parametrize("annotation", [LinearModel, AroundLinear, Slug])
def test_a_pattern_that_is_a_text_runs_in_linear_time(annotation: Any) -> None:
    def function(given: Any) -> None: ...

    function.__annotations__["given"] = annotation
    bad: Any = {"given": "a" * 100_000 + "!"}
    begin = time.process_time()
    with pytest.raises(InvalidArguments, match="should match pattern"):
        Arguments(function).read({"given": {"given": bad} if annotation is AroundLinear else bad})
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "annotation",
    [
        re.Pattern,
        re.Pattern[bytes],
        list[re.Pattern[str]],
        re.Pattern[str] | None,
        Annotated[re.Pattern[str], WithJsonSchema({"type": "string"})],
        Search,
        dict[str, Search],
        ImportString,
        list[ImportString[Callable[[], None]]],
    ],
    ids=str,
)
def test_no_type_compiles_or_imports_what_callers_send(annotation: Any) -> None:
    def function(given: Any) -> None: ...

    function.__annotations__["given"] = annotation
    with pytest.raises(AuthoringError, match=r"'given'.*(compile|import) what callers send.*; take a str"):
        Arguments(function)
