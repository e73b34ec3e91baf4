"""Pure: arguments of a tool that clients repeat in headers.

A property of the input schema with the annotation `x-mcp-header` is also sent in `Mcp-Param-{name}`, so that proxies
can route by it. The tool must get the same value that they routed by, so header and argument are compared (2026-07-28
"Streamable HTTP", section "Custom Headers from Tool Parameters").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.errors import HeaderMismatch
from gateway.protocol.fields import quote
from gateway.protocol.headers import Headers, decode_header_value

ANNOTATION: Final = "x-mcp-header"

MAX_TOKEN_CHARACTERS: Final = 128
"""How long a header's name may be after its prefix. HTTP has no limit; other servers and proxies do."""

_PREFIX: Final = "Mcp-Param-"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""RFC 9110 section 5.6.2."""
_TYPES: Final = frozenset({"string", "integer", "boolean"})
_INTEGER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:\.0+)?")
"""A decimal integer as clients write it; `42.0` is 42. `042` is not allowed, because some readers take it as octal."""

_MAPS_OF_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
_DATA: Final = frozenset({"const", "enum", "default", "examples", "dependentRequired"})
"""Keywords whose value is not a schema: an `x-mcp-header` in it is data."""

_Path = tuple[str, ...]


class InvalidParamHeader(ValueError):
    """An `x-mcp-header` breaks a rule, so clients would not list the tool. The message is for the tool's author."""


class ParamHeader(msgspec.Struct, frozen=True):
    """An annotated property.

    `name` is the header as the author wrote it: `Mcp-Param-Region`. `key` is the same in lower case, for `Headers`.
    `path` has the names of the properties that lead to the argument.
    """

    name: str
    key: bytes
    path: tuple[str, ...]


def compile_param_headers(input_schema: Any) -> tuple[ParamHeader, ...]:
    """Return the annotated properties of a tool's input schema. Most tools have none.

    Raises:
        InvalidParamHeader: an annotation is not an RFC 9110 token of at most `MAX_TOKEN_CHARACTERS`, or equals another
            one except for case. Or its property is not a string, integer or boolean, or is not reached through
            `properties` alone.
    """
    found: dict[bytes, ParamHeader] = {}
    for path, schema in _schemas(input_schema):
        if ANNOTATION not in schema:
            continue
        header = _compile(path, schema)
        earlier = found.setdefault(header.key, header)
        if earlier is not header:
            raise InvalidParamHeader(
                f"{_where(earlier.path)} and {_where(header.path)} have the same {ANNOTATION}"
                f" {schema[ANNOTATION]!r}; case is ignored"
            )
    return tuple(found.values())


def check_param_headers(
    compiled: tuple[ParamHeader, ...], arguments: Mapping[str, Any], headers: Headers, *, optional: bool = False
) -> None:
    """Compare the headers of a call with its arguments ("Server Behavior for Custom Headers").

    Header and argument must both be present and equal, or both be absent; null counts as absent. The type of the sent
    value counts, not that of the schema: the tool itself checks its arguments. A repeated `Mcp-Param-*` is refused
    before. If they are `optional`, only headers that are present are compared.

    Raises:
        HeaderMismatch: a header is missing, superfluous or malformed, differs from its argument, or belongs to an
            argument that a header cannot hold.
    """
    for header in compiled:
        sent = headers.get(header.key)
        if sent is not None or not optional:
            _check(header, value_at(header.path, arguments), sent)


def _check(header: ParamHeader, value: Any, sent: str | None) -> None:
    where = f"arguments.{'.'.join(header.path)}"
    if value is None:
        if sent is not None:
            raise _mismatch(header, f"is {quote(sent)}, but the body has no {where}")
        return
    if not _can_be_mirrored(value):
        raise _mismatch(header, f"cannot hold {where}: only a string, an integer or a boolean can be mirrored")
    if sent is None:
        raise _mismatch(header, f"is missing, but the body has {where}")
    decoded = decode_header_value(sent)
    if decoded is None:
        raise _mismatch(header, f"value {quote(sent)} is malformed")
    if not _equal(decoded, value):
        raise _mismatch(header, f"is {quote(decoded)}, but the body has another value in {where}")


def _can_be_mirrored(value: Any) -> bool:
    return type(value) in {str, int, bool} or (type(value) is float and value.is_integer())


def _equal(text: str, value: str | int | float) -> bool:
    """Return whether header and argument are equal. Numbers are compared by digits: exact at any size, and cheap."""
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    number = _INTEGER.fullmatch(text)
    if number is None:
        return False
    digits = number[1]
    return ("0" if digits == "-0" else digits) == str(int(value))


def value_at(path: Sequence[str], arguments: Mapping[str, Any]) -> Any:
    """Return the value of an argument, None if it is absent."""
    node: Any = arguments
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _schemas(root: Any) -> Iterator[tuple[_Path | None, Mapping[str, Any]]]:
    """Yield every schema in `root` with its path of properties, or None if another keyword leads to it.

    An unknown keyword is assumed to contain a schema, because an annotation there is misplaced too.
    """
    # The list grows while we iterate over it: breadth first, with no limit of depth.
    nodes: list[tuple[_Path | None, Any]] = [((), root)]
    for path, node in nodes:
        if isinstance(node, list | tuple):
            nodes.extend((None, item) for item in node)
        elif isinstance(node, Mapping):
            yield path, node
            for keyword, value in node.items():
                nodes.extend(_inside(path, keyword, value))


def _inside(path: _Path | None, keyword: str, value: Any) -> Iterator[tuple[_Path | None, Any]]:
    """Yield what may be a schema in the value of a keyword, with its path of properties."""
    if keyword in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
        inside = path if keyword == "properties" else None
        for name, item in value.items():
            yield None if inside is None else (*inside, name), item
    elif keyword not in _DATA:
        yield None, value


def _compile(path: _Path | None, schema: Mapping[str, Any]) -> ParamHeader:
    token = schema[ANNOTATION]
    if not path:
        raise InvalidParamHeader(
            f"{ANNOTATION} {token!r} must be on a property that is reached through `properties` alone"
            " (not through items, anyOf, $ref, $defs or the like)"
        )
    where = _where(path)
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise InvalidParamHeader(
            f"{where}: {ANNOTATION} {token!r} is not a header name; use only letters, digits and !#$%&'*+-.^_`|~"
        )
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise InvalidParamHeader(
            f"{where}: {ANNOTATION} {quote(token)} has {len(token)} characters; use at most {MAX_TOKEN_CHARACTERS}"
        )
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidParamHeader(
            f"{where}: {ANNOTATION} needs a property whose type is string, integer or boolean, not {kind!r}"
            " (for an optional property, use a default of that type, not None)"
        )
    name = _PREFIX + token
    return ParamHeader(name, name.lower().encode("ascii"), path)


def _where(path: _Path) -> str:
    return f"the property {'.'.join(path)!r}"


def _mismatch(header: ParamHeader, problem: str) -> HeaderMismatch:
    return HeaderMismatch(f"Header mismatch: {header.name} {problem}")
