"""A step returns equal values in the leg that runs it and in each replay, whatever the annotation of its function."""

from __future__ import annotations

import asyncio
import enum
import hashlib
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, Union
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, create_model
from typing_extensions import TypedDict

from gateway import Context, tool
from gateway.authoring.asyncio_host import AsyncioHost
from gateway.authoring.types.recorded import _parts
from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg
from gateway.engine.outcomes import Completed
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.state import open_state, seal_state
from tests.calls.policies import POLICY

NOW = 1_800_000_000
SEALER = Sealer(KeyRing.parse("00" * 31 + "0a"), lambda size: hashlib.sha256(b"").digest()[:size])


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
KEYS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**70), 2**70),
    str: texts,
    bool: st.booleans(),
    date: st.dates(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=5),
    Colour: st.sampled_from(Colour),
    Level: st.sampled_from(Level),
}
LEAVES = KEYS | {
    float: st.floats(allow_nan=False, allow_infinity=False),
    time: st.times(),
    timedelta: st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999)),
    type(None): st.none(),
}

Case = tuple[Any, st.SearchStrategy[Any]]
"""A type, and its values."""

keys: st.SearchStrategy[Case] = st.sampled_from(list(KEYS.items()))
leaves: st.SearchStrategy[Case] = st.sampled_from(list(LEAVES.items()))


def records(fields: list[Case]) -> st.SearchStrategy[Case]:
    """Return classes with these fields: a model, a dataclass, a named tuple, or a typed dict."""
    types: dict[str, Any] = {f"f{number}": kind for number, (kind, _) in enumerate(fields)}
    values = st.fixed_dictionaries({f"f{number}": value for number, (_, value) in enumerate(fields)})
    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", extra="forbid")
    required: dict[str, Any] = {name: (kind, ...) for name, kind in types.items()}
    model: Any = create_model("Model", __config__=config, **required)
    made = make_dataclass("Made", types.items())
    named: Any = NamedTuple("named", types.items())  # type: ignore[misc]
    typed: Any = TypedDict("typed", types)  # type: ignore[misc]
    return st.sampled_from(
        [
            (model, values.map(lambda given: model(**given))),
            (made, values.map(lambda given: made(**given))),
            (named, values.map(lambda given: named(**given))),
            (typed, values),
        ]
    )


def of(generic: Any, *parts: Any) -> Any:
    return generic[parts]


def containers(inner: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    pairs = st.tuples(keys, inner)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda case: (of(list, case[0]), st.lists(case[1], max_size=3))),
        inner.map(lambda case: (of(tuple, case[0], ...), st.lists(case[1], max_size=3).map(tuple))),
        inner.map(lambda case: (of(Union, case[0], None), st.none() | case[1])),
        keys.map(lambda case: (of(set, case[0]), st.sets(case[1], max_size=3))),
        keys.map(lambda case: (of(frozenset, case[0]), st.frozensets(case[1], max_size=3))),
        pairs.map(lambda pair: (of(dict, pair[0][0], pair[1][0]), st.dictionaries(pair[0][1], pair[1][1], max_size=3))),
        some.map(lambda parts: (of(tuple, *[kind for kind, _ in parts]), st.tuples(*[value for _, value in parts]))),
        some.flatmap(records),
    )


cases = st.recursive(leaves, containers, max_leaves=5)


def types_in(value: Any) -> Any:
    """Return the type of a value with those of its parts. The order of a dict has no meaning."""
    if isinstance(value, dict):
        value = dict(sorted(value.items(), key=repr))
    return type(value), [types_in(part) for part in _parts(value)]


async def legs_of(function: Callable[[], Any]) -> list[Any]:
    """Return what a step gets in the leg that runs it and in a replay, with the journal sealed in between."""

    @tool
    async def t(ctx: Context) -> Any:
        return await ctx.step("it", function)

    got = []
    host = AsyncioHost(None, "test")
    rest = Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=bytes).to_map()
    for _ in range(2):
        leg = Leg(Journal.from_map(rest), {}, host, POLICY, supports=lambda _path: True)
        outcome = await run_leg(t.bind({}, None), leg)
        assert isinstance(outcome, Completed), outcome
        got.append(outcome.value)
        token = seal_state(SEALER, leg.journal.to_map(), aad=b"", now=NOW, expires_at=NOW + 1, max_bytes=2**20)
        rest = open_state(SEALER, token, aad=b"", now=NOW, max_bytes=2**20).journal
    host.close()
    return got


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_step_returns_the_same_in_every_leg(data: st.DataObject) -> None:
    annotation, values = data.draw(cases)
    value = data.draw(values)

    async def make() -> Any:
        return value

    make.__annotations__["return"] = annotation
    first, again = asyncio.run(legs_of(make))
    assert first == again == value
    assert types_in(first) == types_in(again) == types_in(value)
