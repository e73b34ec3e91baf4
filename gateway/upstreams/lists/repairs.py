"""Repairs entries of lists so that no client, and no interface of a model, refuses the whole list for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from gateway.errors import AuthoringError
from gateway.json_schema.drafts import as_2020_12, why_invalid
from gateway.json_schema.portable import portable
from gateway.protocol.upstream.cleaning import short_line
from gateway.protocol.upstream.deviations import Deviation, Heal
from gateway.protocol.upstream.entries import Dropped, Entry, Kind

_SCHEMAS: Final = ("inputSchema", "outputSchema")
_NEVER_LISTED: Final = frozenset({"execution", "_meta"})
_MAX_REASON_BYTES: Final = 300
_MAX_ENTRY_BYTES: Final = 160 * 1024
"""No tool is served that has so many: its schemas are not read."""


def with_newest_schemas(kind: Kind, raw: Mapping[str, Any], size: int, heal: Heal) -> Mapping[str, Any]:
    """Return an entry, of so many bytes, whose schemas are written as 2020-12 has them, as far as that can be said."""
    if kind != "tools" or size > _MAX_ENTRY_BYTES:
        return raw
    newest = {name: as_2020_12(raw[name]) for name in _SCHEMAS if type(raw.get(name)) is dict}
    if all(newest[name] is raw[name] for name in newest):
        return raw
    heal(Deviation.SCHEMA)
    return {**raw, **newest}


def with_valid_schemas(entry: Entry, heal: Heal) -> Entry | Dropped:
    """Return a tool without a schema of its output that some client cannot read, or lose the whole list over.

    An invalid schema of its input costs the tool its place.
    """
    if entry.kind != "tools":
        return entry
    problem = why_invalid(entry.entry["inputSchema"])
    if problem is not None:
        reason = short_line(problem, _MAX_REASON_BYTES)
        return Dropped("tools", entry.own, f"has an inputSchema that is not valid JSON Schema: {reason}")
    schema = entry.entry.get("outputSchema")
    if schema is None:
        return entry
    others = {name: value for name, value in entry.entry.items() if name != "outputSchema"}
    try:
        return replace(entry, entry={**others, "outputSchema": portable(schema)})
    except AuthoringError:
        heal(Deviation.OUTPUT_SCHEMA)
        return replace(entry, entry=others)


def count_repairs(raw: Mapping[str, Any], entry: Entry, heal: Heal) -> None:
    """Count what was repaired in an entry while it was cleaned."""
    if "name" in entry.entry and type(raw.get("name")) is not str:
        heal(Deviation.NAME_MISSING)
    if (raw.keys() - entry.entry.keys() - _NEVER_LISTED) or _has_wrong_hints(raw, entry.entry):
        heal(Deviation.MEMBER_TYPE)


def _has_wrong_hints(raw: Mapping[str, Any], listed: Mapping[str, Any]) -> bool:
    hints = raw.get("annotations")
    return type(hints) is dict and hints.keys() != listed["annotations"].keys()
