"""The estimate of the memory that objects take is not below what they take."""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import resource
import sys
import tracemalloc
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Network
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AnyUrl,
    Base64Bytes,
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    FilePath,
    HttpUrl,
    IPvAnyInterface,
    Json,
    PlainValidator,
    PostgresDsn,
    PrivateAttr,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    model_validator,
)

from gateway.authoring.arguments import Arguments


class Row(BaseModel):
    name: str = ""
    count: int = 0


class Rows(BaseModel):
    rows: list[Row] = []


class Many(BaseModel):
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: int = 0
    j: int = 0
    k: int = 0
    l: int = 0  # noqa: E741 - one of many


class Copied(BaseModel):
    numbers: list[int] = [1, 2, 3]
    names: dict[str, int] = {"a": 1, "b": 2}
    row: Row = Row()


class Tree(BaseModel):
    children: list[Tree] = []


@dataclasses.dataclass
class Point:
    x: int = 0
    y: int = 0


class Named(TypedDict, total=False):
    name: str


class Pair(NamedTuple):
    x: int = 0
    y: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0
    _seen: int = PrivateAttr(default=3)


class Made(BaseModel):
    tags: set[str] = Field(default_factory=set)
    queue: deque[int] = Field(default_factory=deque)
    rows: list[Row] = Field(default_factory=list)
    identifier: str = Field(default_factory=lambda: "x" * 500)


class Priced(BaseModel):
    price: Decimal


class Checked(BaseModel):
    name: str = ""

    @model_validator(mode="after")
    def checked(self) -> Checked:
        return self


class Hidden(BaseModel):
    _a: int = 3
    _b: int = 3
    _c: int = 3
    _d: int = 3
    _e: dict[str, int] = PrivateAttr(default_factory=dict)
    _f: list[int] = PrivateAttr(default=[1, 2, 3])


class Validated(BaseModel):
    prices: tuple[Decimal, ...] = Field(default=("1",) * 10, validate_default=True)


class Money:
    def __init__(self, text: str) -> None:
        self.amount, self.currency, self.text = 3.5, "EUR", f"money {text}"


class Nest(BaseModel):
    times: list[datetime] = []
    inner: list[Nest] = []


def taking(annotation: Any) -> Arguments:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = annotation
    return Arguments(function)


def many(annotation: Any, value: Any, count: int = 3000) -> tuple[Any, list[Any]]:
    """Return the type and the value of a list of so many values."""
    return list[annotation], [value] * count


ROWS: list[dict[str, Any]] = [{} for _ in range(3000)]
KINDS: dict[str, tuple[Any, Any]] = {
    "models": (list[Row], ROWS),
    "models with values": (list[Row], [{"name": "a", "count": 7} for _ in ROWS]),
    "models of many fields": (list[Many], ROWS),
    "copied defaults": (list[Copied], ROWS),
    "models in a dict": (dict[str, Row], {str(number): {} for number in range(3000)}),
    "models in models": (Rows, {"rows": ROWS}),
    "a tree": (Tree, {"children": [{"children": [{}]} for _ in ROWS]}),
    "dataclasses": (list[Point], ROWS),
    "typed dicts": (list[Named], ROWS),
    "a choice of models": (list[Row | Many], ROWS),
    "a text of JSON": (Json[list[Row]], f"[{','.join(['{}'] * 3000)}]"),
    "a text in a text": (Json[Json[list[Row]]], '"[' + ",".join(["\\u007b}"] * 3000) + ']"'),
    "models with further fields": (list[Open], [{"b": 1} for _ in ROWS]),
    "models with many further fields": (list[Open], [dict.fromkeys("bcdefghijkl", 1) for _ in ROWS]),
    "defaults that functions make": (list[Made], ROWS),
    "models of dear values": (list[Priced], [{"price": 9.123} for _ in ROWS]),
    "checked models": (list[Checked], ROWS),
    "models with private values": (list[Hidden], ROWS),
    "models whose defaults are validated": (list[Validated], ROWS),
    "root models": many(RootModel[int], 1),
    "root models of dear values": many(RootModel[set[Decimal]], [1]),
    "named tuples": (list[Pair], ROWS),
    "a tree of times": (Nest, {"inner": [{"times": ["2020-01-01T00:00Z"], "inner": [{}]} for _ in ROWS[::3]]}),
    "decimals of integers": many(Decimal, 1),
    "decimals of numbers": many(Decimal, 9.123),
    "decimals of text": many(Decimal, "1" * 40),
    "fractions": many(Fraction, 1),
    "fractions of numbers": many(Fraction, 0.1),
    "complex numbers": many(complex, 1),
    "bytes": many(bytes, "ab"),
    "dates": many(date, "2020-01-01"),
    "times": many(time, "10:00Z"),
    "datetimes": many(datetime, 1),
    "datetimes of a zone": many(datetime, "2020-01-01T00:00+01:07"),
    "durations": many(timedelta, 1),
    "UUIDs": many(UUID, "12345678123456781234567812345678"),
    "URLs": many(AnyUrl, "a:"),
    "addresses": many(IPv4Address, 1),
    "addresses with a scope": many(IPv6Address, "::1%abc"),
    "networks": many(IPv6Network, "::/8"),
    "interfaces": many(IPv4Interface, "10.0.0.1/8"),
    "interfaces of any version": many(IPvAnyInterface, "::1/8"),
    "paths": many(Path, "a"),
    "long paths": many(Path, "a/b/c/d/e/f"),
    "a path of many segments": (Path, "/".join(map(str, range(50_000, 100_000)))),
    "files": many(FilePath, "/etc/passwd"),
    "secrets": many(SecretStr, "ab"),
    "secret bytes": many(SecretBytes, "ab"),
    "secrets of dear values": many(Secret[Decimal], 1),
    "encoded bytes": many(Base64Bytes, "YWI="),
    "sizes": many(ByteSize, "1kb"),
    "an author's type": many(Annotated[Money, PlainValidator(Money)], "ab"),
    "an author's function": many(Annotated[str, AfterValidator(Money)], "ab"),
    "empty sets": many(set[str], []),
    "small sets": many(set[int], [1, 2, 3, 4, 5]),
    "larger sets": many(set[int], list(range(20)), 500),
    "frozen sets": many(frozenset[int], [1]),
    "one set": (set[str], [str(number) for number in range(5000)]),
    "a set of dear values": (set[Decimal], list(range(5000))),
    "deques": many(deque[int], []),
    "deques of dear values": many(deque[timedelta], [1]),
    "iterators": many(Iterable[int], []),
    "iterators over dicts": many(Iterable[str], {"a": 1}),
    "ordered dicts": many(OrderedDict[str, int], {"a": 1}),
    "ordered dicts of many": many(OrderedDict[str, int], dict.fromkeys("abcdefghijk", 1)),
    "counters": many(Counter[str], {"a": 1}),
    "counters of many": many(Counter[str], dict.fromkeys("abcdef", 1)),
    "dicts with defaults": many(defaultdict[str, list[int]], {"a": [1]}),
    "dear keys": (dict[Decimal, int], {str(number): 1 for number in range(3000)}),
    "dear keys and values": (dict[Decimal, UUID], {str(each): f"{each:032}" for each in range(3000)}),
    "tuples of dear values": many(tuple[Decimal, ...], [1]),
    "a choice of dear values": many(bool | list[Decimal] | dict[str, deque[int]], {"a": []}),
    "a text of dear values": (Json[list[Decimal]], f"[{','.join(['1'] * 3000)}]"),
    "texts of dear values": many(Json[datetime], "1"),
    "escaped texts of dear values": (Json[Json[list[Decimal]]], '"[' + "\\u002c".join(["1"] * 3000) + ']"'),
    "a text of sets": (Json[list[set[int]]], f"[{','.join(['[1]'] * 3000)}]"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_objects_take_no_more_memory_than_is_counted(kind: str) -> None:
    annotation, value = KINDS[kind]
    arguments = taking(annotation)
    arguments.read({"value": value})  # what pydantic keeps for itself
    tracemalloc.start()
    try:
        read = arguments.read({"value": value})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read
    copied = sys.getsizeof(value) if isinstance(value, dict) else 0  # the body counts a copy
    assert taken - copied <= arguments.memory_of({"value": value}) < 20 * taken


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(list[Row], [{}] * 50), (list[dict[str, int]], [{}] * 3000), (list[int], [1] * 3000), (str, "{" * 3000)],
)
def test_few_objects_and_plain_values_count_as_their_body(annotation: Any, value: Any) -> None:
    assert taking(annotation).memory_of({"value": value}) == 0


class Left(BaseModel):
    rights: list[Right] = []


class Right(BaseModel):
    lefts: list[Left] = []
    many: Many | None = None


@pytest.mark.parametrize(("value", "tree"), [(Left, {"rights": [{}] * 1000}), (Right, {"lefts": [{}] * 1000})])
def test_types_that_contain_one_another_count_alike_in_any_order(value: Any, tree: Any) -> None:
    def function(value: Any, other: Any) -> None: ...

    function.__annotations__.update(value=value, other=Left if value is Right else Right)
    first = Arguments(function).memory_of({"value": tree})
    function.__annotations__.update(value=Left if value is Right else Right, other=value)
    assert Arguments(function).memory_of({"other": tree}) == first


def growth(kind: str, sender: Connection) -> None:
    """Send how much larger this process becomes with what is read of a value, in bytes."""
    annotation, value = HOSTED[kind]
    arguments = taking(annotation)
    arguments.read({"value": value})
    gc.collect()
    before = resident()
    kept = [arguments.read({"value": value}) for _ in range(5)]
    sender.send((resident() - before) // len(kept))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


HOSTED: dict[str, tuple[Any, Any]] = {
    "URLs": many(AnyUrl, "a:", 10_000),
    "longer URLs": many(HttpUrl, "https://u:p@example.com:800/a/b?c=d#e", 10_000),
    "URLs of two hosts": many(PostgresDsn, "postgres://h,h", 10_000),
    "URLs of six hosts": many(PostgresDsn, "postgres://u:p@h:1,h,h,h,h,h", 10_000),
    "a URL of many hosts": (PostgresDsn, "postgres://" + ",".join(["h"] * 100_000)),
    "a text of a URL of many hosts": (Json[PostgresDsn], '"postgres://' + ",".join(["h"] * 100_000) + '"'),
    "keys of many hosts": (dict[PostgresDsn, int], {"postgres://" + ",".join(["h"] * 100_000): 1}),
}


@pytest.mark.parametrize("kind", HOSTED)
def test_urls_make_a_process_no_larger_than_is_counted(kind: str) -> None:
    annotation, value = HOSTED[kind]
    arguments = taking(annotation)
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # A fork would inherit this process's free memory, and would read the values into that.
    process = multiprocessing.get_context("spawn").Process(target=growth, args=(kind, sender))
    process.start()
    taken = receiver.recv()
    process.join()
    assert 0 < taken <= arguments.memory_of({"value": value}) < 20 * taken


def test_a_few_dear_values_count_as_their_body_and_a_few_more_do_not() -> None:
    arguments = taking(list[Decimal])
    assert arguments.memory_of({"value": [1] * 500}) == 0
    assert arguments.memory_of({"value": [1] * 1000}) > 100_000
