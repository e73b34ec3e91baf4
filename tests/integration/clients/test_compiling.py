"""The validators of the official clients in TypeScript compile every schema of a result that the gateway shows them."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import ipaddress
import json
import pathlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway import AuthoringError, tool
from gateway.json_schema.drafts import as_2020_12
from gateway.json_schema.portable import portable
from tests.authoring.annotations.kinds import function_with
from tests.authoring.test_annotations import PLAIN
from tests.integration.clients.running import said_by
from tests.integration.frameworks.known import NODE
from tests.json_schema.portable_schemas import CLEAR, CLEAR_PATTERNS, UNCLEAR, UNCLEAR_PATTERNS, taking
from tests.json_schema.test_portable import PIECES

EXAMPLES = 3000
SCRIPT = Path(__file__).parent / "compiling_typescript.mjs"

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.just(1.5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["a", "b", "type", "items", "$id", "$ref", "id", "0", "__proto__", "constructor", "properties"])
REFERENCES = st.sampled_from(
    [
        *(
            "#",
            "#/",
            "#/$defs/a",
            "#/$defs/b",
            "#/definitions/a",
            "#/properties/x",
            "#/properties/a/items",
            "#/anyOf/0",
        ),
        *("#/$defs/a/properties/b", "#/default", "#/enum/0", "#a", "a", "#/anyOf/-1", "#/allOf/00", "#/$defs/$id"),
    ]
)
PATTERNS = st.lists(PIECES, max_size=5).map("".join) | st.sampled_from([*CLEAR_PATTERNS, *UNCLEAR_PATTERNS])
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "pattern": PATTERNS,
    "type": st.sampled_from(["string", "object", ["null", "array"], "null", ["string"], "strng", []]),
    "enum": st.lists(ANY, max_size=2, unique_by=repr),
    "const": ANY,
    "format": st.sampled_from(["date", "email", "regex", "int32", "constructor", "a"]),
    "required": st.lists(NAMES, unique=True),
    "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=2),
    "nullable": st.booleans(),
    "$schema": st.sampled_from(["http://json-schema.org/draft-07/schema#", "https://a.example/", ""]),
    **dict.fromkeys(["$id", "id", "$anchor", "$dynamicAnchor"], NAMES),
    **dict.fromkeys(["$ref", "$dynamicRef", "$recursiveRef"], REFERENCES),
    **dict.fromkeys(["$async", "uniqueItems", "$recursiveAnchor", "deprecated", "readOnly"], st.booleans()),
    **{
        f"{end}{kind}": st.integers(0, 3)
        for end in ("min", "max")
        for kind in ("Length", "Items", "Contains", "Properties")
    },
    **dict.fromkeys(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], st.sampled_from([0, -1.5, 1e300, 10**40])
    ),
    **dict.fromkeys(["multipleOf"], st.sampled_from([1, 0.1, 1e-300, 0])),
    **{f"format{limit}{end}": NAMES for limit in ("", "Exclusive") for end in ("Minimum", "Maximum")},
    **dict.fromkeys(["contentMediaType", "title", "$comment"], NAMES),
    **dict.fromkeys(["default", "examples", "x-a", "__proto__", "constructor", "discriminator"], ANY),
}
"""The keywords of Ajv and of JSON Schema that have no schema in them, with values that are right or wrong."""
OF_ONE = ["items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else",
          "unevaluatedProperties", "unevaluatedItems", "contentSchema", "x-b"]  # fmt: skip
OF_SEVERAL = ["allOf", "anyOf", "oneOf", "prefixItems"]
OF_NAMED = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]


def members(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    pairs = [st.tuples(st.just(name), value) for name, value in VALUES.items()]
    nested = [
        st.tuples(st.sampled_from(OF_ONE), inner),
        st.tuples(st.sampled_from(OF_SEVERAL), st.lists(inner, min_size=1, max_size=2)),
        st.tuples(st.sampled_from(OF_NAMED), st.dictionaries(NAMES | PATTERNS, inner, max_size=3)),
    ]
    usual = st.tuples(st.just("$ref"), st.sampled_from(["#/$defs/a", "#/$defs/b", "#/properties/x", "#"]))
    return st.lists(st.one_of(*nested, usual, st.one_of(*pairs)), max_size=3).map(dict)


PARTS = st.recursive(st.booleans() | members(st.just({})), members, max_leaves=6)
SCHEMAS = st.builds(
    lambda x, more, definitions: {"type": "object", **more, "$defs": definitions, "properties": {"x": x}},
    PARTS, members(PARTS), st.fixed_dictionaries({"a": PARTS, "b": PARTS}),
)  # fmt: skip

OWN = [
    *(pydantic.AnyUrl, pydantic.HttpUrl, pydantic.PostgresDsn, pydantic.IPvAnyAddress, pydantic.IPvAnyNetwork),
    *(pydantic.SecretStr, pydantic.Base64Bytes, pydantic.Base64UrlStr, pydantic.UUID4, pydantic.ByteSize),
    *(pydantic.FilePath, pydantic.AwareDatetime, pydantic.PastDate, pydantic.FiniteFloat, pydantic.PositiveInt),
    *(
        pydantic.Json[list[int]],
        pydantic.JsonValue,
        pydantic.conlist(int, max_length=3),
        pydantic.constr(pattern="^a$"),
    ),
    *(pydantic.condecimal(max_digits=5, decimal_places=2), dict[decimal.Decimal, set[dt.timedelta]]),
    *(
        ipaddress.IPv4Network,
        ipaddress.IPv6Interface,
        pathlib.Path,
        re.Pattern[str],
        complex,
        bytes,
        uuid.UUID,
        dt.time,
    ),
]


def returning(kind: Any) -> Callable[[], Any]:
    def gives() -> Any:
        """Return a value of a type."""

    gives.__annotations__ = {"return": kind}
    return gives


def of_own_tools() -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of results of all types that authors can return, as far as the tests of authoring know them."""
    known = [function_with(entry) for entry in PLAIN if entry.kind == "tool result"]
    for function in (*known, *map(returning, OWN)):
        try:
            schema = tool(function).output_schema
        except AuthoringError as problem:
            if "not for all clients" in str(problem):
                raise
        else:
            if schema is not None:
                yield schema


def drawn() -> Iterator[Mapping[str, Any]]:
    """Yield drawn schemas of upstreams, as clients get them."""
    found: list[Any] = [*UNCLEAR.values(), *(taking(x={"pattern": each}) for each in UNCLEAR_PATTERNS)]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(SCHEMAS | PATTERNS.map(lambda pattern: taking(x={"pattern": pattern})))
    def draw(schema: Any) -> None:
        found.append(schema)

    draw()
    for schema in found:
        with contextlib.suppress(AuthoringError):
            yield portable(as_2020_12(schema))


async def compiled(tmp_path: Path, schemas: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the validators of both SDKs refuse of some schemas."""
    file = tmp_path / "schemas"
    file.write_text("".join(json.dumps(schema) + "\n" for schema in schemas))
    output, _ = await said_by(NODE / "bin/node", SCRIPT, NODE, file)
    return dict(json.loads(output))


async def failures(tmp_path: Path, schemas: Iterable[Mapping[str, Any]], least: int) -> list[Any]:
    """Return their failures with so many schemas at least."""
    said = await compiled(tmp_path, schemas)
    assert said["count"] > least
    return list(said["failures"])


async def test_every_keyword_that_clients_know_is_drawn(tmp_path: Path) -> None:
    assert set((await compiled(tmp_path, []))["keywords"]) <= {*VALUES, *OF_ONE, *OF_SEVERAL, *OF_NAMED}


async def test_clients_compile_what_counts_as_portable(tmp_path: Path) -> None:
    clear = [*CLEAR.values(), *(taking(x={"pattern": each}) for each in CLEAR_PATTERNS)]
    assert await failures(tmp_path, [*clear, *drawn()], EXAMPLES // 10) == []


async def test_clients_compile_the_schemas_of_our_own_tools(tmp_path: Path) -> None:
    assert await failures(tmp_path, of_own_tools(), 50) == []


async def test_clients_refuse_most_of_what_does_not_count_as_portable(tmp_path: Path) -> None:
    some = {name: schema for name, schema in UNCLEAR.items() if not name.startswith("too much")}
    refused = {json.dumps(json.loads(line)) for _, line, _ in await failures(tmp_path, some.values(), 30)}
    assert len(refused) > len(some) / 2
