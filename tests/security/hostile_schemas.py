"""Schemas that make a check multiply: choices by items, references by references, digits by digits."""

from __future__ import annotations

from typing import Any, Final

from tests.security.schema_cases import Case, branch, counted, of_items, properties


def _mixed_unions() -> dict[str, Any]:
    """Return unions nested in unions: expanded, they are 2^30 schemas."""
    doubled = {
        f"u{level}": {"anyOf": [{"$ref": f"#/$defs/u{level - 1}"}, {"$ref": f"#/$defs/u{level - 1}"}]}
        for level in range(1, 31)
    }
    return {"u0": {"type": "integer"}, **doubled}


def _inherited_in_place(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"x": True}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": {"type": "integer"}}
    return schema


_THOUSAND_OBJECTS: Final = [{"a": number} for number in range(1000)]

PRODUCTS: Final = (
    of_items("enum of 1000 objects", {"enum": _THOUSAND_OBJECTS}, '{"a":999}', '{"a":-1}', may_refuse=True),
    of_items(
        "const in 1000 choices",
        {"anyOf": [{"const": choice} for choice in _THOUSAND_OBJECTS]},
        '{"a":999}',
        '{"a":-1}',
        may_refuse=True,
    ),
    of_items(
        "not enum of 1000 objects", {"not": {"enum": _THOUSAND_OBJECTS}}, '{"a":-1}', '{"a":999}', may_refuse=True
    ),
    Case(
        "contains of 1000 objects",
        {"contains": {"enum": _THOUSAND_OBJECTS}},
        counted('{"a":-1}', '{"a":999}', valid=1, wrong=0),
        may_refuse=True,
    ),
    of_items(
        "enum of 1000 fractions", {"enum": [number + 0.5 for number in range(1000)]}, "999.5", "0.25", may_refuse=True
    ),
    of_items(
        "enum of 1000 big integers",
        {"enum": [2**70 + number for number in range(1000)]},
        str(2**70 + 999),
        str(2**70 - 1),
        may_refuse=True,
    ),
    of_items("enum of 1000 texts", {"enum": [f"t{number}" for number in range(1000)]}, '"t999"', '"t"'),
    of_items(
        "enum of long arrays",
        {"enum": [[0] * 500 + [last] for last in range(500)]},
        f"[{'0,' * 500}499]",
        f"[{'0,' * 500}-1]",
        may_refuse=True,
    ),
    of_items(
        "1000 kinds of objects",
        {"anyOf": [branch({}, required=[f"k{n}"]) for n in range(1000)]},
        '{"k999":1}',
        '{"k":1}',
        may_refuse=True,
    ),
    of_items("multipleOf a hundredth", {"multipleOf": 0.01}, "1e300", "1e-300", may_refuse=True),
    of_items("multipleOf next to nothing", {"multipleOf": 1e-300}, "1e300", "{}", may_refuse=True, judged=False),
    of_items("big integers", {"multipleOf": 2.5, "minimum": 0.5}, "1" + "0" * 300, "0", may_refuse=True),
    of_items("union of unions", {"$ref": "#/$defs/u30"}, "1", '"x"', definitions=_mixed_unions(), may_refuse=True),
    of_items(
        "union of unions of arrays", {"$ref": "#/$defs/u12"}, "1", '"x"', definitions=_mixed_unions(), may_refuse=True
    ),
    Case("inherited in place", _inherited_in_place(14), properties('"k#":1', '"k#":"x"'), may_refuse=True),
    of_items(
        "100 properties that need 100",
        {"dependentRequired": {f"p{one}": [f"p{other}" for other in range(100)] for one in range(100)}},
        "{" + ",".join(f'"p{number}":1' for number in range(100)) + "}",
        "{" + ",".join(f'"p{number}":1' for number in range(99)) + "}",
        may_refuse=True,
    ),
    Case(
        "50 patterns of names",
        {"patternProperties": {f"q{number}.*z": True for number in range(50)}, "maxProperties": 10**7},
        properties('"q1q2q3#":1', '"q1q2q3z#":1'),
        may_refuse=True,
        judged=False,
    ),
)
"""Each with values that exploit it the most."""
