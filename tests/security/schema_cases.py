"""Every keyword of JSON Schema 2020-12, each with values of any size that match it or break it in a given place.

A value is made as JSON text: texts of a megabyte are made in a millisecond, and a client can send what it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

LEVELS: Final = 25
"""How many nested nodes the deepest values have."""

CHAIN: Final = 60
"""The depth of a value of a recursive schema. With the nodes around it, it stays within the limit for a body."""


class Shape(Enum):
    """Where a value is wrong."""

    VALID = "valid"
    FIRST = "first wrong"
    ALL = "all wrong"
    LAST = "last wrong"
    DEEPEST = "deepest wrong"


Make: TypeAlias = Callable[[Shape, int], str]
"""Makes the JSON text of a value of some shape and about some size in bytes."""


@dataclass(frozen=True)
class Case:
    """Keywords of a schema, with the values to check.

    Args:
        name: what the test is called.
        schema: judges one value.
        make: makes values of it, except the deepest one.
        definitions: what `schema` refers to.
        may_refuse: whether a check may refuse values that fit, as too much to check. The smallest are never refused,
            unless the schema multiplies.
        judged: whether values that break the schema are refused at all; `format` and `content…` only inform.
    """

    name: str
    schema: Mapping[str, Any]
    make: Make
    definitions: Mapping[str, Any] = field(default_factory=dict)
    may_refuse: bool = False
    judged: bool = True

    @property
    def tool(self) -> str:
        """The name of the tool that has it as its input schema."""
        return "check_" + "".join(letter if letter.isalnum() else "_" for letter in self.name)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The schema of arguments: a chain of nodes, each of which has a value."""
        node = {"$ref": "#/$defs/node"}
        properties = {"value": self.schema, "next": node}
        definitions = {"node": {"type": "object", "properties": properties, "required": ["value"]}, **self.definitions}
        return {"type": "object", "properties": {"v": node}, "required": ["v"], "$defs": definitions}

    def arguments(self, shape: Shape, size: int) -> str:
        """Return the JSON text of arguments of about this size."""
        if shape is not Shape.DEEPEST:
            return f'{{"v":{{"value":{self.make(shape, size)}}}}}'
        good, bad = self.make(Shape.VALID, size // LEVELS), self.make(Shape.LAST, size // LEVELS)
        return '{"v":' + f'{{"value":{good},"next":' * (LEVELS - 1) + f'{{"value":{bad}}}' + "}" * LEVELS


def in_list(goods: Callable[[int], list[str]], bads: Callable[[int], list[str]]) -> Callable[[Shape, int], list[str]]:
    """Return a function that makes the members of a list or an object: good ones, bad ones, or both."""

    def members(shape: Shape, count: int) -> list[str]:
        if shape is Shape.ALL:
            return bads(count)
        members = goods(count)
        if shape is Shape.FIRST:
            members[0] = bads(1)[0]
        elif shape is Shape.LAST:
            members[-1] = bads(count)[-1]
        return members

    return members


def _bytes(text: str) -> int:
    return len(text.encode())


def items(good: str, bad: str) -> Make:
    """Make an array of as many equal items as fit in."""
    members = in_list(lambda count: [good] * count, lambda count: [bad] * count)
    longest = max(_bytes(good), _bytes(bad)) + 1
    return lambda shape, size: f"[{','.join(members(shape, max(2, size // longest)))}]"


def properties(good: str, bad: str) -> Make:
    """Make an object of as many properties as fit in. A `#` in a property's text becomes its number."""

    def numbered(text: str) -> Callable[[int], list[str]]:
        before, after = text.split("#", 1)
        return lambda count: [f"{before}{number}{after}" for number in range(count)]

    members = in_list(numbered(good), numbered(bad))
    longest = max(len(good), len(bad)) + 6
    return lambda shape, size: f"{{{','.join(members(shape, max(2, size // longest)))}}}"


def distinct(text: str) -> Make:
    """Make an array of different items: the first two, all, or the last two are equal where it is wrong.

    A `#` in an item's text becomes its number.
    """
    before, after = text.split("#", 1)

    def make(shape: Shape, size: int) -> str:
        count = max(3, size // (len(text) + 6))
        members = [f"{before}{10 + number}{after}" for number in range(count)]
        if shape is Shape.FIRST:
            members[1] = members[0]
        elif shape is Shape.LAST:
            members[-1] = members[-2]
        elif shape is Shape.ALL:
            members = [members[0]] * count
        return f"[{','.join(members)}]"

    return make


def counted(other: str, wanted: str, *, valid: int, wrong: int) -> Make:
    """Make an array with this many matching items, at its end, or at its start where the first is wrong."""

    def make(shape: Shape, size: int) -> str:
        count = max(4, size // (max(len(other), len(wanted)) + 1))
        if shape is Shape.ALL:
            return f"[{','.join([wanted if wrong > valid else other] * count)}]"
        found = [wanted] * (valid if shape is Shape.VALID else wrong)
        rest = [other] * (count - len(found))
        return f"[{','.join(found + rest if shape is Shape.FIRST else rest + found)}]"

    return make


def text(good: str, bad: str) -> Make:
    """Make one long text."""
    members = in_list(lambda count: [good] * count, lambda count: [bad] * count)
    longest = max(_bytes(good), _bytes(bad))
    return lambda shape, size: f'"{"".join(members(shape, max(2, size // longest)))}"'


def chains(good: str, bad: str, before: str = '{"a":', after: str = "}") -> Make:
    """Make an array of values that are nested deeply around a leaf."""
    return items(before * CHAIN + good + after * CHAIN, before * CHAIN + bad + after * CHAIN)


def each(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an array whose items fit another one."""
    return {"type": "array", "items": schema}


def of_items(name: str, schema: Mapping[str, Any], good: str, bad: str, **more: Any) -> Case:
    """Return a case of many small values."""
    return Case(name, each(schema), items(good, bad), **more)


def of_chains(
    name: str, schema: Mapping[str, Any], good: str = "1", bad: str = '"x"', *, may_refuse: bool = False
) -> Case:
    """Return a case of a schema that refers to itself as `#/$defs/r`."""
    return Case(name, each({"$ref": "#/$defs/r"}), chains(good, bad), {"r": schema}, may_refuse=may_refuse)


_R: Final = {"$ref": "#/$defs/r"}
_DYNAMIC: Final = {"$dynamicRef": "#r"}
_INTEGER: Final = {"type": "integer"}
_STRING: Final = {"type": "string"}


def branch(inner: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": inner}, "required": ["a"], **more}


_APPLICATORS: Final = (
    of_items("allOf", {"allOf": [_INTEGER, {"minimum": 0}]}, "1", "-1"),
    of_items("anyOf", {"anyOf": [_INTEGER, _STRING, {"type": "null"}]}, "null", "[]"),
    of_items("oneOf", {"oneOf": [_INTEGER, {"type": "number", "maximum": 5}]}, "1.5", "1"),
    of_items("not", {"not": _STRING}, "1", '"x"'),
    of_items("if", {"if": _STRING, "then": {"minLength": 2}, "else": {"minimum": 0}}, '"xx"', "-1"),
    of_items("dependentSchemas", {"dependentSchemas": {"a": {"required": ["b"]}}}, '{"a":1,"b":1}', '{"a":1}'),
    of_items("prefixItems", {"prefixItems": [_INTEGER, _STRING]}, '[1,"x"]', "[1,1]"),
    of_items("items", _INTEGER, "1", "[]"),
    of_items("properties", {"properties": {"a": _INTEGER, "b": _STRING}}, '{"a":1,"b":"x"}', '{"a":1,"b":1}'),
    Case("contains", {"contains": {"const": 1}}, counted("0", "1", valid=1, wrong=0)),
    Case("contains objects", {"contains": {"const": {"a": 1}}}, counted('{"a":0}', '{"a":1}', valid=1, wrong=0)),
    Case("patternProperties", {"patternProperties": {"^k": _INTEGER}}, properties('"k#":1', '"k#":"x"')),
    Case("additionalProperties", {"additionalProperties": _INTEGER}, properties('"k#":1', '"k#":"x"')),
    Case(
        "no additionalProperties",
        {"patternProperties": {"^k": True}, "additionalProperties": False},
        properties('"k#":1', '"x#":1'),
    ),
    Case("propertyNames", {"propertyNames": {"pattern": "^k"}}, properties('"k#":1', '"x#":1')),
    Case(
        "unevaluatedProperties",
        {"anyOf": [{"patternProperties": {"^k": True}}, {"properties": {"a": True}}], "unevaluatedProperties": False},
        properties('"k#":1', '"x#":1'),
    ),
    Case(
        "unevaluatedProperties in allOf",
        {"allOf": [{"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": _INTEGER}]},
        properties('"k#":1', '"k#":"x"'),
    ),
    Case("unevaluatedItems", {"prefixItems": [_INTEGER], "unevaluatedItems": _INTEGER}, items("1", '"x"')),
    Case(
        "unevaluatedItems and contains",
        {"contains": _STRING, "minContains": 0, "unevaluatedItems": _INTEGER},
        items("1", "[]"),
    ),
)

_VALIDATION: Final = (
    of_items("type", {"type": ["integer", "string"]}, "1", "[]"),
    of_items("enum", {"enum": ["red", "green", "blue"]}, '"blue"', '"pink"'),
    of_items(
        "enum of objects", {"enum": [{"a": number} for number in range(8)]}, '{"a":7}', '{"a":8}', may_refuse=True
    ),
    of_items("const", {"const": "blue"}, '"blue"', '"pink"'),
    of_items("const object", {"const": {"a": [1, 2]}}, '{"a":[1,2]}', '{"a":[1,3]}'),
    of_items("multipleOf", {"multipleOf": 3}, "6", "7"),
    of_items("multipleOf a fraction", {"multipleOf": 0.25}, "6.75", "6.7", may_refuse=True),
    of_items("maximum", {"maximum": 5}, "5", "6"),
    of_items("exclusiveMaximum", {"exclusiveMaximum": 5}, "4.5", "5"),
    of_items("minimum", {"minimum": 5}, "5", "4"),
    of_items("exclusiveMinimum", {"exclusiveMinimum": 5}, "5.5", "5"),
    of_items("maxLength", {"maxLength": 3}, '"abc"', '"abcd"'),
    of_items("minLength", {"minLength": 3}, '"äöü"', '"äö"'),
    of_items("maxItems", {"maxItems": 2}, "[1,2]", "[1,2,3]"),
    of_items("minItems", {"minItems": 2}, "[1,2]", "[1]"),
    of_items("maxProperties", {"maxProperties": 1}, '{"a":1}', '{"a":1,"b":1}'),
    of_items("minProperties", {"minProperties": 1}, '{"a":1}', "{}"),
    of_items("required", {"required": ["a", "b"]}, '{"a":1,"b":1}', '{"a":1}'),
    of_items("dependentRequired", {"dependentRequired": {"a": ["b"]}}, '{"a":1,"b":1}', '{"a":1}'),
    Case("uniqueItems numbers", {"uniqueItems": True}, distinct("#")),
    Case("uniqueItems texts", {"uniqueItems": True}, distinct('"#"')),
    Case("uniqueItems objects", {"uniqueItems": True}, distinct('{"a":#}')),
    Case("uniqueItems arrays", {"uniqueItems": True}, distinct("[[#]]")),
    Case("uniqueItems big integers", {"uniqueItems": True}, distinct("#73786976294838206464"), may_refuse=True),
    Case(
        "uniqueItems big integers inside",
        {"uniqueItems": True},
        distinct('{"a":[#73786976294838206464]}'),
        may_refuse=True,
    ),
    Case(
        "minContains",
        {"contains": _STRING, "minContains": 2},
        counted("0", '"x"', valid=2, wrong=1),
    ),
    Case(
        "maxContains",
        {"contains": _STRING, "minContains": 0, "maxContains": 1},
        counted("0", '"x"', valid=1, wrong=2),
    ),
    Case("pattern nested quantifiers", {"pattern": "^(a+)+$"}, text("a", "!")),
    Case("pattern alternatives", {"pattern": "^(a|a)*$"}, text("a", "!")),
    of_items("pattern mail", {"pattern": "^([a-zA-Z0-9._-]+)+@[a-z]+$"}, f'"{"ab." * 12}cd@ef"', f'"{"ab." * 13}cd"'),
    Case("pattern counted", {"pattern": "^([^!]{0,300}a)*$"}, text("a", "!"), may_refuse=True),
    of_items("pattern short", {"pattern": "^(a+)+$"}, f'"{"a" * 40}"', f'"{"a" * 40}!"'),
)

_REFERENCES: Final = (
    of_chains("$ref in properties", {"type": ["object", "integer"], "properties": {"a": _R}}),
    of_chains("$ref in anyOf", {"anyOf": [_INTEGER, branch(_R), branch(_R, maxProperties=3)]}),
    of_chains("$ref in oneOf", {"oneOf": [_INTEGER, branch(_R), branch(_R, minProperties=2)]}),
    of_chains(
        "$ref in allOf",
        {"type": ["object", "integer"], "allOf": [{"properties": {"a": _R}}, {"properties": {"a": _R}}]},
    ),
    of_chains("$ref in not", {"type": ["object", "integer"], "not": branch({"not": _R}), "properties": {"a": _R}}),
    of_chains(
        "$ref in if",
        {"type": ["object", "integer"], "if": branch(_R), "then": {"properties": {"a": _R}}, "else": _INTEGER},
    ),
    of_chains(
        "$ref in dependentSchemas",
        {"type": ["object", "integer"], "dependentSchemas": {"a": branch(_R)}, "properties": {"a": _R}},
    ),
    of_chains(
        "$ref in patternProperties",
        {"type": ["object", "integer"], "patternProperties": {"^a": _R, "a$": _R}, "properties": {"a": _R}},
    ),
    of_chains(
        "$ref in unevaluatedProperties",
        {
            "type": ["object", "integer"],
            "anyOf": [{"properties": {"b": _R}}, {"properties": {"a": _R}}],
            "unevaluatedProperties": _R,
        },
        may_refuse=True,
    ),
    Case(
        "$ref in items and contains",
        each(_R),
        chains("1", '"x"', "[", "]"),
        {"r": {"type": ["array", "integer"], "items": _R, "contains": _R, "minContains": 0}},
        may_refuse=True,
    ),
    Case(
        "$ref in unevaluatedItems",
        each(_R),
        chains("1", '"x"', "[", "]"),
        {"r": {"type": ["array", "integer"], "anyOf": [{"prefixItems": [_R]}, True], "unevaluatedItems": _R}},
        may_refuse=True,
    ),
    Case(
        "$dynamicRef",
        each(_R),
        chains("1", '"x"'),
        {"r": {"$dynamicAnchor": "r", "anyOf": [_INTEGER, branch(_DYNAMIC), branch(_DYNAMIC, maxProperties=3)]}},
    ),
    Case(
        "$anchor",
        each(_R),
        chains("1", '"x"'),
        {"r": {"$anchor": "r", "anyOf": [_INTEGER, branch({"$ref": "#r"}), branch({"$ref": "#r"}, maxProperties=3)]}},
    ),
    Case(
        "$id",
        each({"$ref": "https://schemas.example/r"}),
        chains("1", '"x"'),
        {"r": {"$id": "https://schemas.example/r", "anyOf": [_INTEGER, branch({"$ref": "#"})]}},
    ),
    Case(
        "$defs",
        each({"$ref": "https://schemas.example/d#/$defs/n"}),
        items("1", '"x"'),
        {"r": {"$id": "https://schemas.example/d", "$defs": {"n": _INTEGER}}},
    ),
)

_FORMATS: Final = {
    "date-time": ("2026-07-28T12:00:00Z", "2026-07-28"),
    "date": ("2026-07-28", "28.7."),
    "time": ("12:00:00Z", "noon"),
    "duration": ("P1DT2H", "P"),
    "email": ("a@b.example", "a@"),
    "idn-email": ("ä@b.example", "ä@"),
    "hostname": ("a.example", "-a"),
    "idn-hostname": ("ä.example", "-ä"),
    "ipv4": ("127.0.0.1", "127.0.0.256"),
    "ipv6": ("::1", ":::"),
    "uri": ("https://a.example/%41", "%"),
    "uri-reference": ("/a?b#c", "\\\\\\\\"),
    "iri": ("https://ä.example/", "%"),
    "iri-reference": ("/ä", "\\\\\\\\"),
    "uuid": ("2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8"),
    "uri-template": ("/{a}", "/{a"),
    "json-pointer": ("/a~0", "~"),
    "relative-json-pointer": ("1/a", "/a"),
    "regex": ("(a*)*", "("),
}

_INFORMING: Final = (
    *(
        of_items(f"format {name}", {"format": name}, f'"{good}"', f'"{bad}"', judged=False)
        for name, (good, bad) in _FORMATS.items()
    ),
    *(
        Case(f"format {name} long", {"format": name}, text(good, bad), judged=False)
        for name, (good, bad) in {
            "email": ("a.", "@"),
            "hostname": ("a.", "xn--"),
            "idn-hostname": ("ä", "a\u0316\u0301"),
            "uri": ("a:", "%"),
            "uri-template": ("{a}", "{"),
            "regex": ("[a-z]*", "("),
            "ipv6": (":", "0"),
            "json-pointer": ("/~0", "~"),
        }.items()
    ),
    of_items("contentEncoding", {"contentEncoding": "base64"}, '"YQ=="', '"?"', judged=False),
    of_items("contentMediaType", {"contentMediaType": "application/json"}, '"{}"', '"{"', judged=False),
    of_items(
        "contentSchema",
        {"contentMediaType": "application/json", "contentSchema": {"type": "array"}},
        '"[]"',
        '"{}"',
        judged=False,
    ),
    of_items(
        "annotations",
        {
            "title": "T",
            "description": "D",
            "default": 1,
            "examples": [1],
            "$comment": "C",
            "deprecated": True,
            "readOnly": True,
            "writeOnly": True,
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$vocabulary": {"https://json-schema.org/draft/2020-12/vocab/core": True},
            "$id": "https://schemas.example/annotated",
        },
        "1",
        "2",
        judged=False,
    ),
)

CASES: Final = (*_APPLICATORS, *_VALIDATION, *_REFERENCES, *_INFORMING)
"""The grid, without sizes and shapes."""
