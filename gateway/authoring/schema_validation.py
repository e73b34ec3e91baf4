"""Validation of JSON against a schema that an author gave as it is, at a cost that fits the size of the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs
import msgspec

from gateway.authoring.schema_costs import Costs
from gateway.authoring.schema_problems import find_problem
from gateway.authoring.schema_references import OUTSIDE
from gateway.engine.values import json_value
from gateway.errors import AuthoringError

FREE_UNITS: Final = 600_000
UNITS_OF_BYTE: Final = 5
"""What one check may take: so much for any value, and so much more for each byte of it.

A unit is 30 nanoseconds at most, and far less for what most schemas ask."""

MOST_COSTLY_NUMBERS: Final = 100
"""Integers beyond 64 bits are compared with each other one by one, and huge numbers divided digit by digit."""

_COSTLY_NUMBER: Final = re.compile(rb"\d{16}|\d[eE]")
_LARGEST_PLAIN: Final = 2**53


class SchemaValidator:
    """Validates JSON against one schema that the author gave as it is.

    The dialect is the schema's `$schema`, 2020-12 without one. References are never fetched, formats are annotations.
    Patterns are run by an engine whose time is linear in the text. A value that could take longer to check than its
    size deserves is refused before the check (see `gateway.authoring.schema_costs`).

    Args:
        schema: the schema.

    Raises:
        AuthoringError: it is not valid in its own dialect, refers to something outside itself, has a pattern that the
            engine cannot run, or would take too long to check.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        try:
            self._validator = jsonschema_rs.validator_for(
                self._schema,
                retriever=_refuse,
                pattern_options=jsonschema_rs.RegexOptions(),
                validate_formats=False,
            )
        except jsonschema_rs.ValidationError as error:
            raise AuthoringError(_why_not(error)) from None
        except ValueError as error:
            raise AuthoringError(f"not a valid JSON Schema: {error}") from None
        costs = Costs(self._schema)
        self._references = costs.references
        self._most = most = costs.most
        self._free_bytes = FREE_UNITS / max(1.0, most.scalar + most.object_ + most.array + most.byte)
        self._minds_numbers = costs.has_unique or costs.has_multiples

    def problem(self, value: Any) -> str | None:
        """Return what is wrong with `value`, naming where, or None if nothing is."""
        refusal = self._too_costly(value)
        if refusal is not None:
            return refusal
        try:
            if self._validator.is_valid(value):
                return None
        except (ValueError, OverflowError):  # by a number or a depth that JSON cannot have
            return "it has a part that cannot be checked"
        return find_problem(self._schema, self._references, value)

    def _too_costly(self, value: Any) -> str | None:
        """Return why a value is not checked, None if it can be."""
        try:
            data = msgspec.json.encode(value)
        except (RecursionError, ValueError, OverflowError, TypeError):
            try:
                data = msgspec.json.encode(json_value(value, "the value"))
            except Exception:  # noqa: BLE001 - whatever it is, it is none of JSON
                return "it has a part that JSON cannot have"
        if self._minds_numbers and _COSTLY_NUMBER.search(data) and _has_many_costly_numbers(value):
            return f"it has more than {MOST_COSTLY_NUMBERS} numbers of 16 digits or more"
        if len(data) <= self._free_bytes:
            return None
        objects, arrays, scalars = data.count(b"{"), data.count(b"["), data.count(b",") + 1
        most = self._most
        units = most.object_ * objects + most.array * arrays + most.scalar * (scalars + objects + arrays)
        if units + most.byte * len(data) <= FREE_UNITS + UNITS_OF_BYTE * len(data):
            return None
        return "it is too large to be checked against its schema"


def _has_many_costly_numbers(value: Any) -> bool:
    waiting, found = [value], 0
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)
        elif isinstance(part, int | float) and abs(part) >= _LARGEST_PLAIN:
            found += 1
            if found > MOST_COSTLY_NUMBERS:
                return True
    return False


def _refuse(uri: str) -> NoReturn:
    raise LookupError(uri)


def _why_not(error: jsonschema_rs.ValidationError) -> str:
    """Return why a schema cannot be used, and what to do."""
    message = str(error.message)
    if "retrieving it failed" in message:
        return f"{OUTSIDE} ({message})"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    if 'is not a "regex"' in message:
        return (
            f"the pattern at ${path} cannot be checked in linear time, or is not valid: write it without look-ahead, "
            f"look-behind and back-references, or check it in the function ({message})"
        )
    return f"not a valid JSON Schema: {message} at ${path}"
