"""Pure: entries of an upstream's lists, as our clients may see them.

One entry that breaks the schema of the protocol makes some clients refuse the whole list, with the entries of all other
upstreams. So an entry is repaired if a part of it can be left out, and dropped otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from gateway.protocol.param_headers import InvalidParamHeader, ParamHeader, compile_param_headers
from gateway.protocol.strict_json import decoded_bytes
from gateway.protocol.upstream.cleaning import (
    MAX_MIME_TYPE_BYTES,
    UncleanName,
    clean_icons,
    clean_inside,
    clean_line,
    short_line,
    short_text,
    with_clean_meta,
    without_surrogates,
    without_surrogates_inside,
)
from gateway.protocol.upstream.names import exposed_name
from gateway.protocol.upstream.uris import own_template, own_uri
from gateway.protocol.uris.canonical import MAX_URI_CHARACTERS

Kind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]

MAX_NAME_LENGTH: Final = 1024
"""How many characters an upstream's own name may have."""
MAX_LISTED_URI_CHARACTERS: Final = 2048
"""The same for the URI or template of a list: there may be thousands, and each takes time to judge."""
MAX_TITLE_BYTES: Final = 1024
MAX_DESCRIPTION_BYTES: Final = 16 * 1024
MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_ENTRY_BYTES: Final = 256 * 1024
"""How many bytes an entry may have as JSON, with both schemas."""
MAX_ENTRY_DEPTH: Final = 64
MAX_PROMPT_ARGUMENTS: Final = 256

IDENTITY: Final[Mapping[Kind, str]] = {
    "tools": "name",
    "prompts": "name",
    "resources": "uri",
    "templates": "uriTemplate",
}
"""The member that requests name an entry by. The upstream must get it back as it wrote it; clients see another form."""

_MAY_BE_UNCLEAN: Final = re.compile(rb"[\x7f-\xff]|\\[bfru]")
"""Found in the JSON of every entry that has a character to clean, and in few others."""
_UNCLEAN_MARKS: Final = (b"\x7f", rb"\b", rb"\f", rb"\r", rb"\u")
"""The same in ASCII. In a large text, these are found sooner."""

_SERVED_BYTES: Final = 3072
"""How much memory what serves an entry takes at most, apart from the values of its JSON."""
_HEADER_MARK: Final = b'"x-mcp-header"'
_HEADER_BYTES: Final = 1024
"""The same for a parameter that is sent as a header."""
_URI_CHARACTER_BYTES: Final = 24
"""The same for a character of a URI, of which there are several forms. One of them has up to twelve for it."""

ROLES: Final = ("user", "assistant")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_QUOTED_CHARS: Final = 80
_encode = msgspec.json.Encoder().encode


class Entry(msgspec.Struct, frozen=True):
    """An entry of a list that can be served.

    `own` is the upstream's name; of a resource its URI, of a template its text. `exposed` is the same as our clients
    know it. `entry` is for our clients.
    """

    kind: Kind
    own: str
    exposed: str
    entry: dict[str, Any]
    param_headers: tuple[ParamHeader, ...] = ()


class Dropped(msgspec.Struct, frozen=True):
    """An entry of a list that is left out.

    `name` is its name or URI, shortened, for people; "" if it has none. `reason` is the end of a sentence that begins
    with the entry.
    """

    kind: Kind
    name: str
    reason: str


class _Unusable(Exception):
    """The entry cannot be served; the message says why."""


def is_repeatable(annotations: Mapping[str, Any] | None) -> bool:
    """Return whether an upstream says of a tool that a second call changes nothing more (MCP `ToolAnnotations`)."""
    hints = annotations or {}
    return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True


def encode_listed(listed: Any) -> bytes:
    """Return entries as JSON, with lone surrogates replaced."""
    try:
        return _encode(listed)
    except UnicodeEncodeError:
        return _encode(without_surrogates_inside(listed))


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two decoded values are the same JSON, with members in the same order.

    Python's `==` is not enough: for it, `true`, `1` and `1.0` are equal.
    """
    return bool(one == other) and encode_listed(one) == encode_listed(other)


def served_bytes(kind: Kind, entries: Iterable[Any], encoded: bytes) -> int:
    """Return how much memory entries of a list take at most while they are served. `encoded` is their JSON.

    Where a character may have to be removed, there are two copies: as the upstream wrote an entry, and as clients see
    it.
    """
    may_be_unclean = not encoded.isascii() or any(encoded.find(mark) >= 0 for mark in _UNCLEAN_MARKS)
    size = (2 if may_be_unclean else 1) * decoded_bytes(encoded) + _HEADER_BYTES * encoded.count(_HEADER_MARK)
    member, character_bytes = IDENTITY[kind], 0 if IDENTITY[kind] == "name" else _URI_CHARACTER_BYTES
    for entry in entries:
        own = entry.get(member) if isinstance(entry, dict) else None
        size += _SERVED_BYTES + (character_bytes * len(own) if isinstance(own, str) else 0)
    return size


def clean_entry(kind: Kind, prefix: str, raw: Any) -> Entry | Dropped:
    """Return an entry of an upstream's list as we list it, or the reason to leave it out.

    Names and URIs get the prefix. Characters that nobody sees disappear from all texts, those inside schemas included,
    and long descriptions end early. Optional members of a wrong type are left out, and so are reserved members of
    `_meta`. Everything else stays as it is. `execution` is left out: tasks are ours, whatever the upstream supports.
    """
    if not isinstance(raw, dict):
        return Dropped(kind, "", "is not an object")
    try:
        own = _own(raw, IDENTITY[kind])
        return _CLEANERS[kind](prefix, own, _common(prefix, _bounded(raw, IDENTITY[kind])))
    except _Unusable as reason:
        name = raw.get(IDENTITY[kind])
        return Dropped(kind, _shortened(name) if isinstance(name, str) else "", str(reason))


def _own(raw: Mapping[str, Any], member: str) -> str:
    """Return the upstream's name or URI of an entry."""
    own = raw.get(member)
    if not isinstance(own, str) or not own:
        raise _Unusable(f"has no {member}")
    limit = MAX_NAME_LENGTH if member == "name" else MAX_LISTED_URI_CHARACTERS
    if len(own) > limit:
        raise _Unusable(f"has a {member} of {len(own)} characters; the limit is {limit}")
    return without_surrogates(own)


def _bounded(raw: dict[str, Any], identity: str) -> dict[str, Any]:
    """Return an entry that is JSON, small and shallow, with all its texts clean except for its identity."""
    if _is_deeper(raw, MAX_ENTRY_DEPTH):
        raise _Unusable(f"nests deeper than {MAX_ENTRY_DEPTH} levels")
    try:
        encoded = _encode(raw)
    except UnicodeEncodeError:
        raw = without_surrogates_inside(raw)
        encoded = _encode(raw)
    except TypeError:
        raise _Unusable("is not JSON") from None
    if len(encoded) > MAX_ENTRY_BYTES:
        raise _Unusable(f"has {len(encoded)} bytes; the limit is {MAX_ENTRY_BYTES}")
    if not _MAY_BE_UNCLEAN.search(encoded):
        return raw
    try:
        return {**raw, **clean_inside({name: member for name, member in raw.items() if name != identity})}
    except UncleanName:
        raise _Unusable("has characters that nobody sees in the name of a member, or in a pattern") from None


def _common(prefix: str, raw: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an entry with the members clean that all kinds have."""
    entry = with_clean_meta(prefix, raw)
    _keep(entry, "title", str, _short_title)
    _keep(entry, "description", str, _short_description)
    _keep(entry, "icons", list, clean_icons)
    _keep(entry, "annotations", dict, clean_annotations)
    return entry


def _short_title(title: str) -> str:
    return short_line(title, MAX_TITLE_BYTES)


def _short_description(description: str) -> str:
    return short_text(description, MAX_DESCRIPTION_BYTES)


def clean_annotations(annotations: dict[str, Any]) -> dict[str, Any]:
    """Return annotations of a tool or a resource without members of a wrong type, which some clients refuse."""
    cleaned = dict(annotations)
    _keep(cleaned, "title", str, _short_title)
    for hint in ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"):
        _keep(cleaned, hint, bool)
    _keep(cleaned, "audience", list, lambda audience: [role for role in audience if role in ROLES])
    if not is_share(cleaned.get("priority")):
        cleaned.pop("priority", None)
    if not is_time(cleaned.get("lastModified")):
        cleaned.pop("lastModified", None)
    return cleaned


def is_share(value: Any) -> bool:
    """Return whether a value is a number from 0 to 1, as a priority is."""
    return type(value) in (int, float) and 0 <= value <= 1


def is_time(value: Any) -> bool:
    """Return whether a value is a time as clients read it: one of RFC 3339, with its offset from UTC."""
    if type(value) is not str or _TIME.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _clean_tool(prefix: str, own: str, entry: dict[str, Any]) -> Entry:
    entry.pop("execution", None)
    schema = entry.get("inputSchema")
    if not isinstance(schema, dict):
        raise _Unusable("has no inputSchema")
    if schema.get("type") != "object":
        raise _Unusable("has an inputSchema whose type is not object")
    if not _has_parameters(schema):
        raise _Unusable("has an inputSchema whose properties or required names have the wrong type")
    _check_schema("inputSchema", schema)
    if _keep(entry, "outputSchema", dict):
        _check_schema("outputSchema", entry["outputSchema"])
    try:
        headers = compile_param_headers(schema)
    except InvalidParamHeader as error:
        problem = short_line(str(error), MAX_TITLE_BYTES)  # it quotes what may be long
        raise _Unusable(f"has an x-mcp-header that breaks the rules: {problem}") from None
    exposed = exposed_name(prefix, own)
    return Entry("tools", own, exposed, {**entry, "name": exposed}, headers)


def _clean_prompt(prefix: str, own: str, entry: dict[str, Any]) -> Entry:
    if _keep(entry, "arguments", list):
        if len(entry["arguments"]) > MAX_PROMPT_ARGUMENTS:
            raise _Unusable(f"has more than {MAX_PROMPT_ARGUMENTS} arguments")
        entry["arguments"] = [_clean_argument(argument) for argument in entry["arguments"]]
    exposed = exposed_name(prefix, own)
    return Entry("prompts", own, exposed, {**entry, "name": exposed})


def _clean_argument(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        raise _Unusable("has an argument without a name")
    if len(raw["name"]) > MAX_NAME_LENGTH:
        raise _Unusable("has an argument whose name is too long")
    argument = dict(raw)
    _keep(argument, "title", str, _short_title)
    _keep(argument, "description", str, _short_description)
    _keep(argument, "required", bool)
    return argument


def _clean_resource(prefix: str, own: str, entry: dict[str, Any]) -> Entry:
    _keep(entry, "size", int)
    exposed = _readable(own_uri(prefix, own))
    return Entry("resources", own, exposed, {**_named(entry, own), "uri": exposed})


def _readable(exposed: str) -> str:
    """Return a URI or template if clients can send it back, and their users see all of it."""
    if clean_line(exposed) != exposed:
        raise _Unusable("has a URI with characters that nobody sees")
    if len(exposed) > MAX_URI_CHARACTERS:
        raise _Unusable(f"has a URI of {len(exposed)} characters with its prefix; the limit is {MAX_URI_CHARACTERS}")
    return exposed


def _clean_template(prefix: str, own: str, entry: dict[str, Any]) -> Entry:
    exposed = _readable(own_template(prefix, own))
    return Entry("templates", own, exposed, {**_named(entry, own), "uriTemplate": exposed})


_CLEANERS: Final[Mapping[Kind, Callable[[str, str, dict[str, Any]], Entry]]] = {
    "tools": _clean_tool,
    "prompts": _clean_prompt,
    "resources": _clean_resource,
    "templates": _clean_template,
}


def _named(entry: dict[str, Any], own: str) -> dict[str, Any]:
    """Clean the name of a resource, which is for people only. One without a name is called by its URI."""
    name = entry.get("name")
    if not isinstance(name, str):
        name = own
    _keep(entry, "mimeType", str, lambda kind: short_line(kind, MAX_MIME_TYPE_BYTES))
    return {**entry, "name": short_line(name, MAX_TITLE_BYTES)}


def _keep(entry: dict[str, Any], member: str, kind: type, clean: Callable[[Any], Any] | None = None) -> bool:
    """Clean an optional member, or remove it if its type is wrong. Return whether the entry has it."""
    if member not in entry:
        return False
    if type(entry[member]) is not kind:
        del entry[member]
        return False
    if clean is not None:
        entry[member] = clean(entry[member])
    return True


def _check_schema(member: str, schema: dict[str, Any]) -> None:
    size = len(_encode(schema))
    if size > MAX_SCHEMA_BYTES:
        raise _Unusable(f"has an {member} of {size} bytes; the limit is {MAX_SCHEMA_BYTES}")


def _has_parameters(schema: Mapping[str, Any]) -> bool:
    """Return whether clients can read the parameters of a schema."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        isinstance(properties, dict)
        and all(isinstance(each, dict | bool) for each in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
    )


def _is_deeper(value: Any, levels: int) -> bool:
    """Return whether arrays and objects nest deeper than `levels`."""
    layer = [value]
    for _ in range(levels):
        layer = [
            item
            for part in layer
            for item in (part.values() if isinstance(part, dict) else part)
            if isinstance(item, dict | list)
        ]
        if not layer:
            return False
    return True


def _shortened(name: str) -> str:
    line = clean_line(name)
    return line if len(line) <= _QUOTED_CHARS else line[:_QUOTED_CHARS] + "…"
