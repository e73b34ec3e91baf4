"""The values of steps and checkpoints: recorded as JSON, and restored by their type."""

from __future__ import annotations

import asyncio
import enum
import functools
import gc
import operator
import typing
import weakref
from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    LiteralString,
    NamedTuple,
    NotRequired,
    Protocol,
    TypeVar,
)
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from pydantic import AfterValidator, BaseModel, Field, PrivateAttr, SecretStr, field_validator, model_validator
from typing_extensions import TypedDict

from gateway import Context, PlainContext, content, tool
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.content import Content
from gateway.authoring.types import recorded as recorded_values
from gateway.authoring.types.recorded import result_recorder
from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed, Failed
from gateway.errors import AuthoringError
from gateway.sealing.packing import pack, unpack
from gateway.testing import run_async
from tests.calls.policies import POLICY

if TYPE_CHECKING:
    from collections.abc import MutableMapping

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    text: str
    at: datetime


class Invoice(BaseModel):
    number: Annotated[int, Field(alias="Number")]
    lines: list[Line] = []
    total: Decimal = Decimal(0)

    model_config = {"populate_by_name": True}


@dataclass
class Point:
    x: float
    when: date
    tags: set[str] = field(default_factory=set)


class Row(TypedDict):
    id: UUID
    took: timedelta


class Pair(NamedTuple):
    first: int
    second: date


class Page(BaseModel, Generic[T]):
    items: list[T]
    more: bool = False


NOON = datetime(2026, 3, 1, 12, 0, 0, 250, tzinfo=UTC)
SOME_ID = UUID("12345678-1234-5678-1234-567812345678")


class Call:
    """Runs a function leg by leg, with the journal packed in between as in a sealed state."""

    def __init__(self, function: Callable[[Context], Any]) -> None:
        self.tool = tool(function)
        self.rest: Any = Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=bytes).to_map()

    async def leg(self, function: Callable[[Context], Any] | None = None) -> Any:
        """Return what the function returned, or raise what it raised."""
        host = AsyncioHost(None, "test")
        journal = Journal.from_map(unpack(pack(self.rest)))
        served = self.tool if function is None else tool(function)
        try:
            leg = Leg(journal, {}, host, POLICY, supports=lambda _path: True, version=served.version)
            outcome = await run_leg(served.bind({}, None), leg)
        finally:
            host.close()
        self.rest = journal.to_map()
        if isinstance(outcome, Failed):
            raise outcome.error
        assert isinstance(outcome, Completed)
        return outcome.value


def step_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Call:
    async def t(ctx: Context) -> Any:
        return await ctx.step("it", function, *args, **kwargs)

    return Call(t)


def returning(annotation: Any, value: Any) -> Callable[[], Any]:
    def make() -> Any:
        return value

    make.__annotations__["return"] = annotation
    return make


async def both_legs(call: Call) -> Any:
    """Return the value of the first leg, after checking that a replay gets an equal one of the same type."""
    first, again = await call.leg(), await call.leg()
    assert first == again
    assert type(first) is type(again)
    return first


# Steps


def make_line() -> Line:
    return Line(text="tea", at=NOON)


def make_invoice(number: int) -> Invoice:
    return Invoice(number=number, lines=[Line(text="tea", at=NOON)], total=Decimal("1.10"))


async def make_invoices(count: int = 1) -> list[Invoice]:
    return [make_invoice(number) for number in range(count)]


def make_point() -> Point:
    return Point(0.5, date(2026, 1, 2), {"a", "b"})


def make_row() -> Row:
    return {"id": SOME_ID, "took": timedelta(seconds=1.5)}


def make_pair() -> Pair:
    return Pair(1, date(2026, 1, 2))


def make_tuple() -> tuple[int, bytes]:
    return 1, b"\xff\x00"


def make_many() -> dict[Colour, set[date]]:
    return {Colour.RED: {date(2026, 1, 2)}, Colour.BLUE: set()}


def make_page() -> Page[Line] | None:
    return Page[Line](items=[Line(text="tea", at=NOON)])


def make_big() -> tuple[int, float]:
    return 2**80, 0.1


def make_path() -> PurePosixPath:
    return PurePosixPath("/a")


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (make_point, make_point()),
        (make_row, make_row()),
        (make_pair, make_pair()),
        (make_tuple, make_tuple()),
        (make_many, make_many()),
        (make_page, make_page()),
        (make_big, make_big()),
        (make_path, make_path()),
    ],
)
async def test_a_step_returns_what_its_function_returns(function: Callable[[], Any], value: Any) -> None:
    got = await both_legs(step_of(function))
    assert got == value
    assert type(got) is type(value)


async def test_a_model_with_aliases_dates_and_decimals_is_restored() -> None:
    assert await both_legs(step_of(make_invoice, 7)) == make_invoice(7)


async def test_the_first_leg_gets_the_value_that_was_read_back() -> None:
    made: list[Invoice] = []

    def make() -> Invoice:
        made.append(make_invoice(1))
        return made[0]

    assert (first := await step_of(make).leg()) == made[0]
    assert first is not made[0]


async def test_the_journal_holds_json_by_field_name() -> None:
    call = step_of(make_invoice, 7)
    await call.leg()
    line = {"text": "tea", "at": "2026-03-01T12:00:00.000250Z"}
    assert call.rest["steps"] == {"it": {"number": 7, "lines": [line], "total": "1.10"}}


class Shop:
    def sell(self, number: int) -> Invoice:
        return make_invoice(number)

    @classmethod
    def open(cls) -> Invoice:
        return make_invoice(2)

    @staticmethod
    def close() -> Invoice:
        return make_invoice(3)


@dataclass
class Seller:
    """An object that can be called, whose class has annotations of its own."""

    number: int

    async def __call__(self) -> Invoice:
        return make_invoice(self.number)


def repeated(function: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        return function(*args, **kwargs)

    return wrapper


@functools.cache
def cached(number: int) -> Invoice:
    return make_invoice(number)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (Shop().sell, (1,)),
        (Shop.open, ()),
        (Shop.close, ()),
        (Seller(4), ()),
        (functools.partial(make_invoice, 5), ()),
        (functools.partial(functools.partial(make_invoices), count=1), ()),
        (repeated(make_invoice), (6,)),
        (repeated(repeated(Shop().sell)), (6,)),
        (cached, (7,)),
        (Line, ()),
    ],
)
async def test_the_annotation_is_found_whatever_is_called(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    keywords = {"text": "tea", "at": NOON} if function is Line else {}
    got = await both_legs(step_of(function, *args, **keywords))
    assert type(got[0] if isinstance(got, list) else got) in (Invoice, Line)


async def test_a_function_inside_another_is_restored_by_a_name_that_it_uses() -> None:
    class Local(BaseModel):
        n: int

    def make() -> Local:
        return Local(n=1)

    assert await both_legs(step_of(make)) == Local(n=1)


# Plain JSON


def make_untyped(value):  # type: ignore[no-untyped-def]
    return value


def make_any(value: Any) -> Any:
    return value


def make_same(value: T) -> T:
    return value


def make_lazy(value: Any) -> Iterable[Any]:
    items: Iterable[Any] = value
    return items


def make_mapping(value: Any) -> MutableMapping[str, Any]:
    found: MutableMapping[str, Any] = value
    return found


UNTYPED = [make_untyped, make_any, make_same, lambda value: value, functools.partial(make_untyped)]


@pytest.mark.parametrize("function", [*UNTYPED, make_lazy])
async def test_without_a_type_a_step_returns_json_with_tuples_as_lists(function: Callable[..., Any]) -> None:
    call = step_of(function, (1, ({"a": (2,)},)))
    assert await both_legs(call) == [1, [{"a": [2]}]]
    assert call.rest["steps"]["it"] == [1, [{"a": [2]}]]


@pytest.mark.parametrize("function", UNTYPED)
async def test_without_a_type_another_value_is_refused_with_the_way_out(function: Callable[..., Any]) -> None:
    call = step_of(function, [Line(text="secret", at=NOON)])
    with pytest.raises(AuthoringError) as refused:
        await call.leg()
    assert str(refused.value) == (
        "the result of step 'it'[0]: Line is not a JSON value; return JSON (a dict, a list, text, a number), "
        "or a model or dataclass that the function's return type names"
    )


async def test_an_annotation_for_type_checkers_alone_means_json() -> None:
    assert await both_legs(step_of(make_mapping, {"a": 1})) == {"a": 1}
    with pytest.raises(AuthoringError, match=r"Line is not a JSON value; .*'MutableMapping' is not defined"):
        await step_of(make_mapping, {"a": Line(text="a", at=NOON)}).leg()


def make_object() -> dict[str, list[int | None]]:
    return {"a": [1, None]}


def make_floats() -> list[float]:
    return [1, 2.5]


class Node(TypedDict):
    name: str
    children: NotRequired[list[Node]]


def make_node() -> Node:
    return {"name": "a", "children": [{"name": "b", "more": 1}]}  # type: ignore[typeddict-unknown-key]


def make_optional() -> Mapping[str, Sequence[T] | None]:
    return {"a": None}


def make_wrong() -> str:
    return {"not": "text"}  # type: ignore[return-value]


@pytest.mark.parametrize("function", [make_object, make_floats, make_node, make_optional, make_wrong])
async def test_json_types_are_recorded_unchanged(function: Callable[..., Any]) -> None:
    call = step_of(function)
    assert await both_legs(call) == function()
    assert call.rest["steps"]["it"] == function()
    assert [type(item) for item in call.rest["steps"]["it"]] == [type(item) for item in function()]
    assert result_recorder(function) is None


@pytest.mark.parametrize(
    ("function", "args", "value"),
    [
        (str, (1,), "1"),
        (str.upper, ("a",), "A"),
        (sorted, ([2, 1],), [1, 2]),
        ((1).__add__, (2,), 3),
        ([].append, (1,), None),
        (operator.itemgetter(1), ((1, 2),), 2),
        (dict, ([("a", 1)],), {"a": 1}),
    ],
)
async def test_functions_of_python_itself_return_json(function: Any, args: tuple[Any, ...], value: Any) -> None:
    assert await both_legs(step_of(function, *args)) == value


def make_limited() -> list[Annotated[int, ["not hashable"]]]:
    return [1]


async def test_an_annotation_need_not_be_hashable() -> None:
    for _ in range(2):
        assert await both_legs(step_of(make_limited)) == [1]


def make_sequence() -> Sequence[int]:
    return (1, 2)


async def test_a_sequence_is_a_list() -> None:
    assert await both_legs(step_of(make_sequence)) == [1, 2]


class Bag(dict[str, Any]):
    """A dict that pydantic does not know."""


class Named(str):
    __slots__ = ()


class HasKeys(Protocol):
    def keys(self) -> Any: ...


class Client:
    """Something that pydantic does not know."""


BARE: Any = [typing.Dict, typing.Mapping, typing.List, typing.List[typing.Dict], typing.Dict | None]  # type: ignore[type-arg]  # noqa: UP006


@pytest.mark.parametrize("bare", BARE, ids=str)
async def test_a_generic_without_its_parts_is_json(bare: Any) -> None:
    value = [{"a": 1}] if "typing.List" in str(bare) else {"a": 1}
    assert await both_legs(step_of(returning(bare, value))) == value


@pytest.mark.parametrize(
    ("unknown", "value", "plain"),
    [
        (Content, content.text("hi"), {"type": "text", "text": "hi"}),
        (list[Content], [content.text("hi")], [{"type": "text", "text": "hi"}]),
        (Content | None, None, None),
        (Bag, Bag(a=1), {"a": 1}),
        (Named, Named("a"), "a"),
        (MappingProxyType, MappingProxyType({"a": 1}), {"a": 1}),
        (ChainMap[str, int], ChainMap({"a": 1}), {"a": 1}),
        (Collection[str], ["a"], ["a"]),
        (LiteralString, "a", "a"),
        (HasKeys, {"a": 1}, {"a": 1}),
    ],
    ids=str,
)
async def test_json_of_a_type_that_pydantic_does_not_know_is_recorded(unknown: Any, value: Any, plain: Any) -> None:
    call = step_of(returning(unknown, value))
    assert await both_legs(call) == plain
    assert type(call.rest["steps"]["it"]) is type(plain)


async def test_a_type_that_pydantic_does_not_know_explains_why_only_json_is_recorded() -> None:
    with pytest.raises(
        AuthoringError, match=r"it'\.a: Line is not a JSON value; the result .*type Bag has no JSON form"
    ):
        await step_of(returning(Bag, Bag(a=make_line()))).leg()


@pytest.mark.parametrize("unknown", [Client, list[list[Client]], dict[str, Client], Client | None], ids=str)
def test_a_type_whose_values_are_never_json_is_refused_before_the_step_runs(unknown: Any) -> None:
    with pytest.raises(AuthoringError, match="the type Client"):
        result_recorder(returning(unknown, None))


@pytest.mark.parametrize("value", [Bag(a=1), defaultdict(int, a=1), content.text("hi")])
async def test_a_checkpoint_of_a_dict_that_pydantic_does_not_know_is_json(value: Any) -> None:
    async def t(ctx: Context) -> Any:
        reached = ctx.resumed(type(value)())
        await ctx.checkpoint(value)
        return reached

    call = Call(t)
    await call.leg()
    assert await call.leg() == dict(value)


@pytest.mark.parametrize(
    "kind",
    [
        Iterable[Line],
        Iterator[Line],
        Generator[Line, None, None],
        Collection[Line],
        Annotated[Iterator[Line], "documented"],
        Iterator[Line] | None,
    ],
    ids=str,
)
async def test_what_can_be_read_once_is_a_list(kind: Any) -> None:
    for value in ([make_line()], iter([make_line()])):
        assert await both_legs(step_of(returning(kind, value))) == [make_line()]


async def test_an_iterable_inside_another_type_is_a_list() -> None:
    assert await both_legs(step_of(returning(dict[int, Iterable[date]], {1: [NOON.date()]}))) == {1: [NOON.date()]}


@pytest.mark.parametrize("kind", [Iterable[int], Iterator[Any], Generator[int, None, None], Iterator], ids=str)
async def test_json_that_can_be_read_once_is_a_list(kind: Any) -> None:
    call = step_of(returning(kind, (n for n in (1, 2))))
    assert await both_legs(call) == [1, 2]
    assert call.rest["steps"]["it"] == [1, 2]


# Values that cannot be recorded


def make_client() -> Client:
    ran.append("client")
    return Client()


ran: list[str] = []


async def test_a_type_that_pydantic_does_not_know_is_refused_before_the_step_runs() -> None:
    ran.clear()
    with pytest.raises(AuthoringError, match=r"make_client: the type Client .*; use a pydantic"):
        await step_of(make_client).leg()
    assert ran == []


async def test_a_broken_rule_is_final_even_if_the_tool_catches_it() -> None:
    async def t(ctx: Context) -> str:
        for attempt in (lambda: ctx.step("s", make_client), lambda: ctx.checkpoint(Client())):
            with pytest.raises(AuthoringError):
                await attempt()
        return "survived"

    with pytest.raises(AuthoringError, match="the type Client"):
        await Call(t).leg()


def make_not_an_invoice() -> Invoice:
    return {"number": "secret"}  # type: ignore[return-value]


async def test_a_value_of_another_type_is_refused_without_being_quoted() -> None:
    call = step_of(make_not_an_invoice)
    with pytest.raises(AuthoringError, match=r"^the result of step 'it' is not a valid Invoice: ") as refused:
        await call.leg()
    assert "secret" not in str(refused.value)
    assert call.rest.get("steps", {}) == {}


def make_day_or_text() -> date | str:
    return "2026-01-02"


def make_any_member() -> dict[int, Any]:
    return {1: Line(text="tea", at=NOON)}


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    name: str


def make_dog() -> list[Cat | Dog]:
    return [Cat(name="Tom"), Dog(name="Rex")]


def make_set() -> set[Any]:
    return {NOON}


@dataclass
class Holder:
    held: Any


def make_holder() -> Holder:
    return Holder(SOME_ID)


class Login(BaseModel):
    password: SecretStr


def make_login() -> Login:
    return Login(password=SecretStr("hidden"))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (make_day_or_text, "would restore str as date; use a type that tells them apart"),
        (make_any_member, "would restore Line as dict"),
        (make_dog, "would restore Dog as Cat"),
        (make_set, "would restore datetime as str"),
        (make_holder, "would restore UUID as str"),
        (make_login, "hides secrets; do not record them"),
    ],
)
async def test_a_value_that_would_come_back_as_another_is_refused_at_once(
    function: Callable[..., Any], reason: str
) -> None:
    with pytest.raises(AuthoringError, match=f"the result of step 'it' is annotated as .*, which {reason}"):
        await step_of(function).leg()


@dataclass
class Order:
    id: int
    status: str = field(init=False, default="new")


def make_order() -> Order:
    order = Order(1)
    order.status = "secret"
    return order


class Draft(BaseModel):
    _id: UUID = PrivateAttr(default_factory=uuid4)


class Hidden(BaseModel):
    token: str = Field(default="", exclude=True)


class Hashed(BaseModel):
    password: str

    @field_validator("password")
    @classmethod
    def hash(cls, value: str) -> str:
        return f"hash({value})"


class Counted(BaseModel):
    n: int = 0

    @model_validator(mode="after")
    def count(self) -> Counted:
        self.n += 1
        return self


class Puppy(Dog):
    weeks: int


@dataclass
class Place(Point):
    name: str = ""


class Open(BaseModel, extra="allow"):
    a: int


LOST = "which its JSON lacks; make it an ordinary field"
AGAIN = "validators run again on each reading"


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Order, make_order(), f"would lose Order.status, {LOST}"),
        (list[Order], [Order(2), make_order()], f"would lose Order.status, {LOST}"),
        (Draft, Draft(), f"would lose Draft._id, {LOST}"),
        (Hidden, Hidden(token="secret"), f"would lose Hidden.token, {LOST}"),
        (Hashed, Hashed(password="secret"), f"would restore another str; {AGAIN}"),
        (Hashed, {"password": "secret"}, f"would restore another str; {AGAIN}"),
        (Counted, Counted(), f"would restore another int; {AGAIN}"),
        (Dog, Puppy(name="secret", weeks=1), "would restore Puppy as Dog"),
        (dict[str, list[Dog]], {"a": [Puppy(name="secret", weeks=1)]}, "would restore Puppy as Dog"),
        (Point, Place(1, NOON.date()), "would restore Place as Point"),
        (Open, Open(a=1, at=NOON), "would restore datetime as str"),  # type: ignore[call-arg]
        (
            set[Annotated[str, AfterValidator(lambda text: text + "!")]],
            {"secret"},
            f"would restore another set; {AGAIN}",
        ),
    ],
)
async def test_a_value_that_would_lose_something_is_refused_at_once(kind: Any, value: Any, reason: str) -> None:
    call = step_of(returning(kind, value))
    with pytest.raises(AuthoringError) as refused:
        await call.leg()
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
    assert call.rest.get("steps", {}) == {}


checked: list[int] = []


class Checked(BaseModel):
    n: int

    @model_validator(mode="after")
    def check(self) -> Checked:
        checked.append(id(self))
        return self


async def test_validators_do_not_run_again_on_the_object_of_the_author() -> None:
    value = Checked(n=1)
    checked.clear()
    assert await step_of(returning(Checked, value)).leg() == value
    assert id(value) not in checked


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, Order(1)),
        (Hidden, Hidden()),
        (Point, Point(1, NOON.date(), {str(n) for n in range(50)})),
        (Dog | Puppy, Puppy(name="Rex", weeks=1)),
        (Open, Open(a=1, b={"c": [1]})),  # type: ignore[call-arg]
        (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))),
        (tuple[float, ...], (1, 2.5)),
    ],
)
async def test_a_value_that_is_restored_whole_is_recorded(kind: Any, value: Any) -> None:
    got = await both_legs(step_of(returning(kind, value)))
    assert str(got) == str(value) or got == value


async def test_not_a_number_is_restored() -> None:
    call = step_of(returning(Annotated[Decimal, Field(allow_inf_nan=True)], Decimal("nan")))
    assert [str(await call.leg()) for _ in range(2)] == ["NaN", "NaN"]


class Kind(BaseModel):
    colour: Literal[Colour.RED] = Colour.RED


async def test_a_literal_of_an_enum_names_the_way_out() -> None:
    with pytest.raises(AuthoringError, match=r"colour: .* which JSON lacks; use a `str` enum"):
        await step_of(returning(Kind, Kind())).leg()


# Earlier releases


def make_pair_list() -> tuple[int, str]:
    return 1, "a"


async def test_a_tuple_that_an_earlier_release_recorded_as_a_list_is_a_tuple() -> None:
    call = step_of(make_pair_list)
    call.rest["steps"] = {"it": [2, "b"]}
    assert await call.leg() == (2, "b")


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ({"id": "secret"}, "an object"),
        (["secret"], "an array"),
        ("secret", "a string"),
        (True, "a boolean"),
        (7, "a number"),
        (7.5, "a number"),
        (None, "null"),
    ],
)
async def test_a_recorded_value_that_no_longer_fits_is_a_clear_error(recorded: Any, kind: str) -> None:
    call = step_of(make_invoice, 1)
    call.rest["steps"] = {"it": recorded}
    with pytest.raises(AuthoringError) as refused:
        await call.leg()
    message = str(refused.value)
    assert message.startswith(
        f"step 'it' was recorded earlier in this call, or by an earlier release, as {kind}; "
        "it cannot be read as Invoice: "
    )
    assert message.endswith("; let its type accept the old form too, or give the step a new key")
    assert "secret" not in message


# Checkpoints


class Progress(BaseModel):
    day: date
    done: int = 0


async def test_a_checkpoint_is_restored_by_the_class_of_the_default() -> None:
    @tool
    async def t(ctx: Context) -> Any:
        reached = ctx.resumed(Progress(day=date(2026, 1, 1)))
        await ctx.checkpoint(reached.model_copy(update={"done": reached.done + 1}))
        await ctx.elicit(f"more-{reached.done}", "?", Cat) if reached.done < 2 else None
        return reached

    done = await run_async(t, answers=lambda _key, _question: {"name": "x"})
    assert done.value == Progress(day=date(2026, 1, 1), done=2)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([Progress(day=date(2026, 1, 1))], list[Progress]),
        ({date(2026, 1, 1): SOME_ID}, dict[date, UUID]),
        ((1, NOON), tuple[int, datetime]),
        ({1, 2}, set[int]),
        (make_row(), Row),
        ([1, 2], list[int]),
    ],
)
async def test_a_container_is_restored_by_the_type_that_is_given(value: Any, kind: Any) -> None:
    async def t(ctx: Context) -> Any:
        reached = ctx.resumed(None, kind)
        await ctx.checkpoint(value, kind)
        return reached

    call = Call(t)
    assert await call.leg() is None
    got = await call.leg()
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "value",
    [Progress(day=date(2026, 1, 1)), make_point(), make_pair(), Colour.BLUE, NOON, SOME_ID, b"\xff", Decimal(1)],
)
async def test_a_value_of_a_class_needs_no_type(value: Any) -> None:
    async def t(ctx: Context) -> Any:
        reached = ctx.resumed(None, type(value))
        await ctx.checkpoint(value)
        return reached

    call = Call(t)
    await call.leg()
    assert await call.leg() == value


async def test_a_default_tuple_or_set_restores_one() -> None:
    async def t(ctx: Context) -> Any:
        seen = ctx.resumed(())
        await ctx.checkpoint((*seen, 1))
        return seen

    call = Call(t)
    assert [await call.leg() for _ in range(3)] == [(), (1,), (1, 1)]


async def test_plain_functions_resume_too() -> None:
    def plain(ctx: PlainContext) -> Any:
        return ctx.resumed(None, Progress)

    async def first(ctx: Context) -> Any:
        await ctx.checkpoint(Progress(day=date(2026, 1, 1)))

    call = Call(first)
    await call.leg()
    assert await call.leg(plain) == Progress(day=date(2026, 1, 1))


async def test_a_container_of_models_without_its_type_is_refused_with_the_way_out() -> None:
    async def t(ctx: Context) -> Any:
        await ctx.checkpoint([Progress(day=date(2026, 1, 1))])

    with pytest.raises(AuthoringError) as refused:
        await Call(t).leg()
    assert str(refused.value) == (
        "the checkpoint[0]: Progress is not a JSON value; pass its type too, as in `checkpoint(value, list[Model])`"
    )


async def test_a_default_that_is_not_a_value_only_stands_for_nothing() -> None:
    nothing = Client()

    async def t(ctx: Context) -> Any:
        reached = ctx.resumed(nothing)
        await ctx.checkpoint({"a": 1})
        return reached

    call = Call(t)
    assert await call.leg() is nothing
    assert await call.leg() == {"a": 1}


async def test_a_checkpoint_that_no_longer_fits_is_a_clear_error() -> None:
    async def earlier(ctx: Context) -> Any:
        await ctx.checkpoint({"secret": "2026"})

    async def now(ctx: Context) -> Any:
        return ctx.resumed(Progress(day=date(2026, 1, 1)))

    call = Call(earlier)
    await call.leg()
    with pytest.raises(AuthoringError) as refused:
        await call.leg(now)
    assert str(refused.value) == (
        "the checkpoint was recorded earlier in this call, or by an earlier release, as an object; "
        "it cannot be read as Progress: day: Field required; "
        "let its type accept the old form too, or increase the tool's `version` and add a migration"
    )


async def test_a_migration_converts_the_json_of_a_checkpoint() -> None:
    @tool(version=2)
    async def t(ctx: Context) -> Any:
        return ctx.resumed(None, Progress)

    @t.migrate(from_=1, to=2)
    def add_day(done: Any) -> Any:
        return {"day": "2026-01-01", "done": done}

    assert (await run_async(t, checkpoint=(1, 5))).value == Progress(day=date(2026, 1, 1), done=5)


# The cache


def test_recorders_are_made_once_for_each_function_and_type() -> None:
    assert result_recorder(make_invoice) is result_recorder(make_invoice) is not None
    assert result_recorder(Shop().sell) is result_recorder(Shop().sell) is result_recorder(make_invoice)


def test_unions_that_differ_in_order_are_different_types() -> None:
    def one() -> date | datetime:
        return NOON

    def other() -> datetime | date:
        return NOON

    assert result_recorder(one) is not result_recorder(other)


def test_functions_that_are_made_in_each_call_are_not_remembered() -> None:
    before = len(recorded_values._BY_FUNCTION)
    references = []
    for _ in range(100):
        local: Any = lambda: 1  # noqa: E731 - as in a tool

        def typed() -> Invoice:
            return make_invoice(1)

        result_recorder(local)
        result_recorder(typed)
        result_recorder(functools.partial(typed))
        references.append(weakref.ref(typed))
    del local, typed
    gc.collect()
    assert len(recorded_values._BY_FUNCTION) == before
    assert not any(reference() for reference in references)


async def test_steps_of_several_types_run_side_by_side() -> None:
    async def t(ctx: Context) -> Any:
        return await asyncio.gather(
            ctx.step("a", make_invoice, 1), ctx.step("b", make_point), ctx.step("c", lambda: [1])
        )

    assert await both_legs(Call(t)) == [make_invoice(1), make_point(), [1]]


def test_mapping_is_known() -> None:
    def make() -> Mapping[str, date]:
        return {}

    assert result_recorder(make) is not None
