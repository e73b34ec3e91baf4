"""Validation of JSON against an author's own schema, at a cost that is proportional to the size of the value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

import jsonschema_rs
import msgspec

from gateway.engine.values import json_value
from gateway.errors import AuthoringError
from gateway.json_schema.costs import Costs
from gateway.json_schema.problems import DOES_NOT_FIT, find_problem
from gateway.json_schema.references import OUTSIDE

FREE_UNITS: Final = 600_000
UNITS_OF_BYTE: Final = 5
"""The budget of one check: a free amount for any value, and an amount for each byte of it.

A unit takes at most 30 nanoseconds, and far less with most schemas."""

MOST_COSTLY_NUMBERS: Final = 100
"""Integers beyond 64 bits are compared one by one, and huge numbers are divided digit by digit."""

_COSTLY_NUMBER: Final = re.compile(rb"\d{16}|\d[eE]")
_LARGEST_PLAIN: Final = 2**53


class SchemaValidator:
    """Validates JSON against an author's own schema.

    The dialect is the schema's `$schema`, by default 2020-12. References are never fetched, and formats are only
    annotations. Patterns run on an engine whose time is linear in the text. A value that could take too long to check
    for its size is refused before the check (see `gateway.json_schema.costs`).

    Raises:
        AuthoringError: the schema is not valid in its dialect, refers to something outside itself, has a pattern that
            the engine cannot run, or would take too long to check.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = dict(schema)
        try:
            self._validator = jsonschema_rs.validator_for(
                self._schema,
                retriever=refuse_to_fetch,
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
        """Return what is wrong with `value`, and where, or None if it is valid."""
        refusal, differs = self._judged(value)
        return find_problem(self._schema, self._references, value) if differs else refusal

    def problems(self, value: Any) -> tuple[str, str] | None:
        """Return the same twice for a value that is checked once: the second text quotes nothing of the value."""
        refusal, differs = self._judged(value)
        if differs:
            quoted = find_problem(self._schema, self._references, value)
            if quoted == DOES_NOT_FIT:  # another search would find no more
                return quoted, quoted
            return quoted, find_problem(self._schema, self._references, value, quotes=False)
        return None if refusal is None else (refusal, refusal)

    def _judged(self, value: Any) -> tuple[str | None, bool]:
        """Return why a value cannot be checked, if so, and whether it differs from the schema."""
        refusal = self._too_costly(value)
        if refusal is not None:
            return refusal, False
        try:
            return None, not self._validator.is_valid(value)
        except (ValueError, OverflowError):  # a number or a depth that JSON cannot have
            return "it contains a value that cannot be checked", False

    def _too_costly(self, value: Any) -> str | None:
        """Return why checking a value would cost too much, or None."""
        data = _as_json(value)
        if data is None:
            return "it contains a value that JSON cannot represent"
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


def _as_json(value: Any) -> bytes | None:
    """Return a value as JSON, None if it has no such form."""
    try:
        return msgspec.json.encode(value)
    except (RecursionError, ValueError, OverflowError, TypeError):
        with suppress(Exception):  # whatever it is, it is not JSON
            return msgspec.json.encode(json_value(value, "the value"))
        return None


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


def refuse_to_fetch(uri: str) -> NoReturn:
    """Refuse a reference that leads outside a schema."""
    raise LookupError(uri)


def _why_not(error: jsonschema_rs.ValidationError) -> str:
    """Return why a schema cannot be used, and what to do about it."""
    message = str(error.message)
    if "retrieving it failed" in message:
        return f"{OUTSIDE} ({message})"
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    if 'is not a "regex"' in message:
        return (
            f"the pattern at ${path} is not valid or cannot be checked in linear time; write it without look-ahead, "
            f"look-behind or back-references, or check the value in the function ({message})"
        )
    return f"not a valid JSON Schema: {message} at ${path}"
