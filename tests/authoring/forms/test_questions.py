"""The questions an author can ask, and how their answers are read."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

import mcp_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

from gateway.authoring.forms.questions import (
    MISSING,
    Ask,
    Completion,
    Elicit,
    ElicitUrl,
    InputRequired,
    Root,
    Roots,
    Sample,
    wire_ask,
)
from gateway.engine.questions import ELICIT, ROOTS, SAMPLE, Answer, InvalidAnswer, question_digest
from gateway.errors import AskError, AuthoringError, Declined, Dismissed, Refused


class Colour(enum.Enum):
    RED = "red"


class Form(BaseModel):
    n: Annotated[int, Field(ge=0)] = 0
    number: float = 0
    yes: bool = False
    day: date | None = None
    colour: Colour = Colour.RED
    choice: Literal["a", "b"] = "a"
    many: list[Literal["a", "b"]] = []
    aliased: Annotated[int, Field(alias="anAlias")] = 0
    text: str = ""


def accept(**content: Any) -> dict[str, Any]:
    return {"result": {"action": "accept", "content": content}}


def read(ask: Ask[Any], answer: Mapping[str, Any]) -> Any:
    return ask.question("k").read(dict(answer))


@pytest.mark.parametrize(
    ("content", "field", "value"),
    [
        ({"n": 5}, "n", 5),
        ({"n": 5.0}, "n", 5),
        ({"n": 2**200}, "n", 2**200),
        ({"number": 5}, "number", 5.0),
        ({"number": 4301.0}, "number", 4301.0),
        ({"number": 1e300}, "number", 1e300),
        ({"yes": True}, "yes", True),
        ({"day": "2024-02-29"}, "day", date(2024, 2, 29)),
        ({"colour": "red"}, "colour", Colour.RED),
        ({"many": ["a", "b"]}, "many", ["a", "b"]),
        ({"anAlias": 3}, "aliased", 3),
        ({"text": "größe"}, "text", "größe"),
        ({"unknown": 1}, "n", 0),
        ({}, "n", 0),
        ({"n": None, "text": None}, "n", 0),
    ],
    ids=str,
)
def test_a_form_is_read_into_the_model(content: dict[str, Any], field: str, value: Any) -> None:
    made = read(Elicit("?", Form), accept(**content))
    assert isinstance(made, Form)
    assert getattr(made, field) == value
    assert type(getattr(made, field)) is type(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "content",
    [
        {"n": "5"},
        {"n": 5.5},
        {"n": -1},
        {"n": True},
        {"n": 1e300},
        {"number": "5"},
        {"yes": 1},
        {"yes": "true"},
        {"day": "29 February"},
        {"day": 0},
        {"colour": "blue"},
        {"choice": "c"},
        {"many": ["c"]},
        {"many": "a"},
        {"text": 5},
        pytest.param({"x": nested(5000)}, id="deep"),
        pytest.param({"x": 10**5000}, id="long number"),
        pytest.param({"x": "a" * 1_000_000, "n": "no"}, id="large"),
        pytest.param({"x": "\ud800"}, id="surrogate"),
    ],
    ids=str,
)
def test_what_does_not_fit_or_is_monstrous_is_never_passed_in(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer):
        read(Elicit("?", Form), accept(**content))


def test_a_field_without_default_must_be_there() -> None:
    class Needs(BaseModel):
        n: int

    with pytest.raises(InvalidAnswer):
        read(Elicit("?", Needs), accept())
    with pytest.raises(InvalidAnswer):
        read(Elicit("?", Needs), {"result": {"action": "accept"}})


def test_a_field_is_read_by_its_alias_only() -> None:
    assert read(Elicit("?", Form), accept(aliased=3)).aliased == 0


def test_validators_of_the_authors_refuse_with_value_errors() -> None:
    class Even(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("odd")
            return n

        @model_validator(mode="after")
        def small(self) -> Even:
            assert self.n < 10
            return self

    assert read(Elicit("?", Even), accept(n=2)).n == 2
    for n in (1, 12):
        with pytest.raises(InvalidAnswer):
            read(Elicit("?", Even), accept(n=n))


def test_a_validator_that_breaks_is_an_error_of_the_tool_and_not_asked_for_ever() -> None:
    class Breaks(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def look_up(cls, n: int) -> int:
            return {1: 1}[n]

    assert read(Elicit("?", Breaks), accept(n=1)).n == 1
    with pytest.raises(KeyError):
        read(Elicit("?", Breaks), accept(n=2))


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)
FORM_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@given(
    answer=st.dictionaries(st.sampled_from(("result", "error")), JUNK, min_size=0)
    | st.builds(lambda content: {"result": {"action": "accept", "content": content}}, JUNK)
    | st.builds(lambda result: {"result": result}, st.dictionaries(st.sampled_from(("action", "content")), JUNK)),
    ask=st.sampled_from(
        [Elicit("?", Form), Elicit("?", FORM_SCHEMA), ElicitUrl("?", "https://a"), Sample("?", 1), Roots()]
    ),
)
def test_junk_is_invalid_or_refused_or_truly_fits(answer: dict[str, Any], ask: Ask[Any]) -> None:
    try:
        value = read(ask, answer)
    except (InvalidAnswer, AskError):
        return
    assert value == "accept" or isinstance(value, (Form, dict, Completion, list))


@pytest.mark.parametrize("action", ["ACCEPT", "", None, 1, "yes", ["accept"]])
def test_an_unknown_action_is_invalid(action: Any) -> None:
    with pytest.raises(InvalidAnswer):
        read(Elicit("?", Form), {"result": {"action": action, "content": {}}})


NO_VALUE: list[tuple[dict[str, Any], type[AskError]]] = [
    ({"result": {"action": "decline"}}, Declined),
    ({"result": {"action": "cancel"}}, Dismissed),
    ({"error": {"code": -1, "message": "no screen"}}, Refused),
    ({"error": "text"}, Refused),
    ({"error": None}, Refused),
]


@pytest.mark.parametrize(("answer", "kind"), NO_VALUE, ids=str)
@pytest.mark.parametrize("ask", [Elicit("?", Form), Elicit("?", FORM_SCHEMA), ElicitUrl("?", "https://a")], ids=str)
def test_an_answer_without_a_value_raises(ask: Ask[Any], answer: dict[str, Any], kind: type[AskError]) -> None:
    with pytest.raises(kind) as caught:
        read(ask, answer)
    assert caught.value.key == "k"


@pytest.mark.parametrize(("answer", "kind"), NO_VALUE, ids=str)
@pytest.mark.parametrize("default", [None, 0, "text", Form()])
def test_a_default_stands_for_a_missing_value(answer: dict[str, Any], kind: type[AskError], default: Any) -> None:
    for ask in (Elicit("?", Form, default), Elicit("?", FORM_SCHEMA, default), ElicitUrl("?", "https://a", default)):
        assert read(ask, answer) is default


def test_a_default_does_not_stand_for_an_invalid_answer() -> None:
    with pytest.raises(InvalidAnswer):
        read(Elicit("?", Form, default=None), accept(n="x"))


def test_the_clients_reason_is_reported() -> None:
    with pytest.raises(Refused, match="no screen"):
        read(Sample("?", 1), {"error": {"message": "no screen"}})
    assert read(Sample("?", 1, default="x"), {"error": {}}) == "x"
    assert read(Roots(default=[]), {"error": {}}) == []


def test_missing_names_itself() -> None:
    assert repr(MISSING) == "MISSING"
    assert "MISSING" in repr(Elicit("?", Form))


# Forms by JSON Schema


def test_a_schema_gives_a_dict_of_the_tools_own() -> None:
    answer = accept(n=2**70, tags=["a"])
    made = read(Elicit("?", FORM_SCHEMA), answer)
    assert made == {"n": 2**70, "tags": ["a"]}
    made["tags"].append("b")
    assert answer["result"]["content"]["tags"] == ["a"]


@pytest.mark.parametrize("content", [{}, {"n": "x"}, {"n": 1.5}], ids=str)
def test_a_schema_is_checked(content: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer):
        read(Elicit("?", FORM_SCHEMA), accept(**content))


def test_a_field_that_is_null_counts_as_left_out() -> None:
    schema = {**FORM_SCHEMA, "properties": {"n": {"type": "integer"}, "text": {"type": "string"}}}
    assert read(Elicit("?", schema), accept(n=1, text=None)) == {"n": 1}
    with pytest.raises(InvalidAnswer):
        read(Elicit("?", schema), accept(n=None, text="a"))
    without_content: Answer = {"result": {"action": "accept", "content": None}}
    assert read(Elicit("?", Form), without_content) == read(Elicit("?", Form), accept())


def test_a_schema_is_asked_as_it_was_given() -> None:
    schema = {**FORM_SCHEMA, "x-mine": [1]}
    assert Elicit("?", schema).question("k").params["requestedSchema"] == schema


class NoModel: ...


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array"}, "type 'object'"),
        ({}, "type 'object'"),
        ({"type": "object", "properties": 5}, "not a valid JSON Schema"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "the pattern at"),
        ({"type": "object", "default": {1}}, "the schema of a form.default: set is not"),
        (NoModel, "NoModel: no form can ask for this type; use a flat"),
        (list[int], "list.int.: a list in a form must offer text choices"),
        (5, "neither a type, a list of choices nor a JSON Schema"),
        (None, "neither a type, a list of choices nor a JSON Schema"),
        (Form(), "neither a type, a list of choices nor a JSON Schema"),
    ],
    ids=str,
)
def test_a_form_that_cannot_be_shown_is_reported_before_anybody_is_asked(schema: Any, message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        Elicit("?", schema).question("k")


# Each question on the wire


def test_questions_are_what_the_protocol_says() -> None:
    form = Elicit("Who?", Form).question("k")
    assert (form.method, form.capabilities) == (ELICIT, (("elicitation", "form"),))
    assert mcp_types.ElicitRequestFormParams.model_validate(form.params).message == "Who?"
    url = ElicitUrl("Go", "https://a.example/").question("k")
    assert (url.method, url.capabilities) == (ELICIT, (("elicitation", "url"),))
    assert url.params == {"mode": "url", "message": "Go", "url": "https://a.example/"}
    roots = Roots().question("k")
    assert (roots.method, roots.params, roots.capabilities) == (ROOTS, {}, (("roots",),))
    sample = Sample("Hi", 9, system_prompt="Be brief", options={"temperature": 0.5}).question("k")
    assert (sample.method, sample.capabilities) == (SAMPLE, (("sampling",),))
    told = mcp_types.CreateMessageRequestParams.model_validate(sample.params)
    assert (told.max_tokens, told.system_prompt, told.temperature) == (9, "Be brief", 0.5)
    with_tools = Sample([], 9, tools=[{"name": "t", "inputSchema": {"type": "object"}}]).question("k")
    assert with_tools.capabilities == (("sampling", "tools"),)
    assert with_tools.params["tools"][0]["name"] == "t"


@pytest.mark.parametrize(
    "ask", [Elicit("?", Form), Elicit("?", FORM_SCHEMA), ElicitUrl("?", "u"), Sample("?", 1)], ids=str
)
def test_a_questions_digest_is_that_of_what_is_asked(ask: Ask[Any]) -> None:
    question = ask.question("k")
    assert question.digest == question_digest(question.method, question.params)


def test_what_the_model_said() -> None:
    one = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}
    said = read(Sample("?", 1), {"result": one})
    assert (said.text, said.model, said.stopReason) == ("Paris", "m", "endTurn")
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "data": ""}, {"type": "text", "text": "b"}, {}]
    assert read(Sample("?", 1), {"result": {**one, "content": blocks}}).text == "ab"
    for part in ("role", "content", "model"):
        with pytest.raises(InvalidAnswer):
            read(Sample("?", 1), {"result": {**one, part: 5}})


def test_the_roots_a_client_offers() -> None:
    answer = {"result": {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}}
    assert read(Roots(), answer) == [Root(uri="file:///a", name="A"), Root(uri="file:///b")]
    with pytest.raises(InvalidAnswer):
        read(Roots(), {"result": {"roots": ["file:///a"]}})


def test_agreeing_to_go_to_a_url_is_reported_in_the_word_of_the_protocol() -> None:
    assert read(ElicitUrl("?", "https://a"), {"result": {"action": "accept"}}) == "accept"


def test_the_base_of_questions_asks_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Ask[Any]().question("k")
    with pytest.raises(NotImplementedError):
        Ask[Any]()._value({})


def test_returned_questions_come_by_key() -> None:
    ask = Roots()
    assert InputRequired({"a key": ask}, other=ask).questions == {"a key": ask, "other": ask}
    with pytest.raises(AuthoringError, match="at least one"):
        InputRequired()


# Answers to what is known only by its form on the wire


@pytest.mark.parametrize(
    ("asked", "good", "bad"),
    [
        (Elicit("?", Form), accept(n=5.0), accept(n="five")),
        (Elicit("?", {"type": "object", "required": ["x"]}), accept(x=1), accept()),
        (ElicitUrl("?", "https://a.example"), {"result": {"action": "accept"}}, {"result": {}}),
        (Roots(), {"result": {"roots": [{"uri": "file:///a"}]}}, {"result": {"roots": [{}]}}),
        (
            Sample("?", 5),
            {"result": {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}},
            {"result": {"role": "assistant"}},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_is_checked_by_what_was_asked_on_the_wire(asked: Ask[Any], good: Any, bad: Any) -> None:
    question = asked.question("k")
    again = wire_ask(question.method, question.params, question.digest).question("k")
    again.read(good)
    for wrong in (bad, {}, {"result": None}):
        with pytest.raises(InvalidAnswer):
            again.read(wrong)


@pytest.mark.parametrize(("action", "kind"), [("decline", Declined), ("cancel", Dismissed)])
def test_to_say_no_is_an_answer_to_what_was_asked_on_the_wire(action: str, kind: type[Exception]) -> None:
    question = Elicit("?", Form).question("k")
    with pytest.raises(kind):
        wire_ask(question.method, question.params, question.digest).question("k").read({"result": {"action": action}})


def test_a_stored_form_that_was_made_from_a_model_is_read_by_that_model_and_no_schema() -> None:
    class OneOfItsOwn(BaseModel):
        own_name: Annotated[str, AfterValidator(str.upper)]

    question = Elicit("?", OneOfItsOwn).question("k")
    again = wire_ask(question.method, question.params, question.digest).question("k")
    value = again.read({"result": {"action": "accept", "content": {"own_name": "ada"}}})
    assert value == OneOfItsOwn(own_name="ADA")


def test_a_stored_form_that_two_models_share_is_read_by_its_schema() -> None:
    def model() -> type[BaseModel]:
        class Shared(BaseModel):
            shared_name: str

        return Shared

    question, _ = (Elicit("?", model()).question("k") for _ in range(2))
    again = wire_ask(question.method, question.params, question.digest).question("k")
    assert again.read({"result": {"action": "accept", "content": {"shared_name": "ada"}}}) == {"shared_name": "ada"}
