"""Schemas of results, and patterns in them, by whether the validators of all clients can read them."""

from __future__ import annotations

from typing import Any


def taking(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def referring(reference: str, **others: Any) -> dict[str, Any]:
    """Return a schema with a reference to another part of it."""
    return {"type": "object", "properties": {"x": {"$ref": reference}}, **others}


def repeating(parts: int, references: int, **others: Any) -> dict[str, Any]:
    """Return a schema that refers to a large part of it again and again."""
    large = taking(**{f"p{number}": {"type": "string"} for number in range(parts)})
    return {
        **taking(**{f"q{number}": {"$ref": "#/$defs/a"} for number in range(references)}),
        "$defs": {"a": {**large, **others}},
    }


def chained(count: int) -> dict[str, Any]:
    """Return a schema whose definitions refer to one another, in a row."""
    steps = {f"a{number}": {"allOf": [{"$ref": f"#/$defs/a{number + 1}"}]} for number in range(count)}
    return referring("#/$defs/a0", **{"$defs": {**steps, f"a{count}": {}}})


BAD: dict[str, Any] = {"type": "strng", "pattern": "("}
TEXT = {"type": "string"}

_CLEAR = r"""
a ^a$ && é+ a{2}? (a|)* () (?:a)? \d+\D\w\W\s\S \bab\B \{2\} a\/b \x41\u00e9 [a-z0-9_.-]{1,64} [\w-]
[\]\[\\\-/^] [-] [^-a] [^-A] [a^] [\t-\x20] [z-Ā]+ [.*+?$()|{}] ^(?!a).*$ (?=.*[A-Z]).{8,64} (\(?i)?
^.{0,4096}$ ^(\d{1,3}\.){3}\d{1,3}$ ^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$
"""
"""The last one is pydantic's own for decimals."""
_UNCLEAR = r"""
a{5,2} \p{Bogus} \p{L} \k<x> \u{110000} \u{61} \ud800 \z \A \Z \c \cA \8 \0 (a)\1 x{99999999999} [[a]
[[:alpha:]] [a&&b] [a--b] [\]&&a] a++ a*+ a{2}{3} a??? (?:a)++ (?<=a+)b (?<!a)b (?>a) (?i)a (?i:a) (?#a)
(?P<n>a) (?<n>a) (?=a)* (?!a)+ ^* $* \b* *a (+a) a|* a{2}{ a{ a{,3} } ] ( a) [ [] [^] [a [z-a] [\x61-\t] [a-\d]
[\d-z] [a-c-e] [\b] [\B] \R \X \h \K \G \g1 \x \x{41} \_ \- \é \a \e \ a\ ([a-z]{100}){100} (?!a)\w{256}
"""
CLEAR_PATTERNS = ["", "[Ā-\U0010ffff]", *_CLEAR.split()]
UNCLEAR_PATTERNS = ["\\\0", "a" * 300, *_UNCLEAR.split()]

CLEAR: dict[str, dict[str, Any]] = {
    "nothing": {},
    "dialect": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
    "older dialect": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
    "notes of others": taking(x={"x-a": {"b": [1]}, "example": 3, "discriminator": {"propertyName": "a"}, "xml": {}}),
    "nullable": taking(x={"type": "string", "nullable": True}, y={"type": "string", "nullable": False}),
    "names": taking(**{"$id": TEXT, "id": TEXT, "$ref": TEXT, "__proto__": TEXT, "constructor": TEXT, "enum": TEXT}),
    "unknown format": taking(x={"type": "string", "format": "int33"}, y={"format": "toString"}),
    "root": referring("#"),
    "definition": referring("#/$defs/a.b-c_D", **{"$defs": {"a.b-c_D": TEXT}}),
    "older definition": referring("#/definitions/a", definitions={"a": TEXT}),
    "escaped": referring("#/$defs/a~1b~0c", **{"$defs": {"a/b~c": TEXT}}),
    "of a list": referring("#/anyOf/1/items", anyOf=[{}, {"items": TEXT}]),
    "a boolean": referring("#/additionalProperties", additionalProperties=False),
    "a tree": referring("#/$defs/a", **{"$defs": {"a": taking(b={"anyOf": [{"$ref": "#/$defs/a"}, {}]})}}),
    "a chain": referring("#/$defs/a", **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": TEXT}}),
    "repeated": repeating(20, 50),
    "a row": chained(90),
    "choices": {"type": "object", "oneOf": [{"const": number} for number in range(400)]},
    "a repeated tree": {
        **repeating(0, 900), "$defs": {"a": taking(**{f"p{n}": TEXT for n in range(99)}, b={"$ref": "#"})}},
}  # fmt: skip

UNCLEAR: dict[str, dict[str, Any]] = {
    "no value": referring("#/default", default=BAD),
    "no keyword": referring("#/foo", foo=BAD),
    "no schema": referring("#/properties", **taking(x={"$ref": "#/properties"}, type=TEXT)),
    "of no keyword": referring("#/foo/bar", foo={"bar": TEXT}),
    "of an enum": referring("#/enum/0", enum=[{}]),
    "a name": referring("#/type"),
    "content": referring("#/contentSchema", contentSchema=BAD),
    "nothing": referring("#/$defs/a"),
    "outside": referring("https://a.example/s"),
    "empty step": referring("#/", **{"": BAD}),
    "empty name": referring("#/$defs/", **{"$defs": {"": TEXT}}),
    "encoded": referring("#/%24defs/a", **{"$defs": {"a": TEXT}}),
    **{f"index {index!r}": referring(f"#/anyOf/{index}", anyOf=[TEXT])
       for index in ("-1", "00", " 0", "%D9%A0", "1", "\u0660")},
    "itself": referring("#/$defs/a", **{"$defs": {"a": {"$ref": "#/$defs/a"}}}),
    "itself, with a note": referring("#/$defs/a", **{"$defs": {"a": {"title": "t", "$ref": "#/$defs/a"}}}),
    "each other": referring("#/$defs/a", **{"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
    "itself beside": {"type": "object", "allOf": [{"if": {"$ref": "#"}}]},
    "itself by name": {"type": "object", "dependentSchemas": {"a": {"not": {"$ref": "#"}}}},
    "too much": repeating(900, 100),
    "too much, with a name of a reference": repeating(900, 100, required=["$ref"]),
    "many choices": {"type": "object", "oneOf": [{"type": "null"}] * 2500},
    "many choices within each other": {"oneOf": [{}] * 300 + [{"anyOf": [{"type": "null"}] * 300}]},
    "many patterns of names": {"patternProperties": {f"a{number}": TEXT for number in range(1800)}},
    "a long chain": chained(300),
    "inner $id": taking(x={"$id": "http://a.example/z"}, y={"$id": "http://a.example/z", "type": "number"}),
    "$id of a metaschema": taking(x={"$id": "http://json-schema.org/draft-07/schema"}),
    "$id where no schema is": {"type": "object", "x-a": [{"$id": "http://a.example/z"}]},
    "$id as a name": referring("#/$defs/$id", **{"$defs": {"$id": TEXT}}),
    "$anchor": taking(x={"$anchor": "a"}, y={"$anchor": "a", "type": "number"}),
    "odd $anchor": {"type": "object", "x-a": {"$anchor": "??"}},
    "$dynamicAnchor": taking(x={"$dynamicAnchor": "a"}, y={"$dynamicAnchor": "a", "type": "number"}),
    "$dynamicRef": taking(x={"$dynamicRef": "#a"}),
    "$recursiveRef": taking(x={"$recursiveRef": "#"}),
    "inner $schema": taking(x={"$schema": "http://a.example/"}),
    "$schema": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
    "$schema of no draft": {"$schema": "http://a.example/", "type": "object"},
    "dependencies": {"type": "object", "dependencies": {"a": {"$ref": "#/nope"}}},
    "dependencies with a pattern": {"type": "object", "dependencies": {"a": {"pattern": "("}}},
    "additionalItems": taking(x={"items": TEXT, "additionalItems": BAD}),
    "items of draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "items": [BAD]},
    "definition of another draft": {
        **referring("#/$defs/a", **{"$defs": {"a": BAD}}), "$schema": "http://json-schema.org/draft-07/schema#"},
    "inner id": taking(x={"id": "x"}),
    "$async": {"type": "object", "$async": True},
    "inner $async": taking(x={"$async": True}),
    "formatMinimum": taking(x={"formatMinimum": "a"}),
    "formatMaximum": taking(x={"format": "email", "formatMaximum": "a"}),
    "empty enum": taking(x={"enum": []}),
    "nullable": taking(x={"nullable": True}),
    "odd nullable": taking(x={"type": "string", "nullable": "yes"}),
    "nullable without null": taking(x={"type": ["null"], "nullable": False}),
    "pattern of names": {"type": "object", "patternProperties": {"a++": {}}},
    "pattern of a name": {"type": "object", "propertyNames": {"pattern": "a{3,1}"}},
    "pattern in a definition": {"type": "object", "definitions": {"a": {"pattern": r"\A"}}},
    "type": taking(x={"type": "strng"}),
}  # fmt: skip
