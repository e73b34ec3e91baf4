"""The official suite of JSON Schema 2020-12: our verdicts, those of `jsonschema`, and those that the suite expects.

`suite/draft2020-12.jsonl` has the suite as it lies in the source distribution of `jsonschema` 4.26.0, one group
of cases a line. It is under the licence beside it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
from referencing.jsonschema import EMPTY_REGISTRY

from gateway.errors import AuthoringError
from gateway.json_schema.validation import SchemaValidator

SUITE: Final = Path(__file__).parent / "suite/draft2020-12.jsonl"

EQUAL: Final = "as the suite and jsonschema"
REMOTE: Final = "refused: refers to another document, which jsonschema cannot resolve either"
META_SCHEMA: Final = "refused: refers to a meta-schema, which jsonschema brings along"
DIALECT: Final = "refused: has a dialect of its own, which jsonschema reads as 2020-12"
EXPRESSION: Final = "right: expressions are those of ECMA 262"
DEPENDENCIES: Final = "right: `dependencies` still counts"
RIGHT: Final = {
    "optional/ecmascript-regex.json": EXPRESSION,
    "optional/dependencies-compatibility.json": DEPENDENCIES,
}
FORMAT: Final = "as jsonschema: formats only inform"

DEVIATIONS: Final = {REMOTE: 45, META_SCHEMA: 4, DIALECT: 9, EXPRESSION: 32, DEPENDENCIES: 14, FORMAT: 204}
"""How often our verdict is another one than that of the suite or of jsonschema, and why; all other cases are equal."""


def cases() -> Iterator[tuple[str, str | None, bool | None, bool | None, bool]]:
    """Yield the file of each case, why its schema is refused, our verdict, that of jsonschema, and what is expected."""
    for line in SUITE.read_text().splitlines():
        group = json.loads(line)
        given = group["schema"]
        schema = given if isinstance(given, dict) else {"allOf": [given]}
        validator, refusal = None, None
        try:
            validator = SchemaValidator(schema)
        except AuthoringError as error:
            refusal = str(error)
        for case in group["tests"]:
            ours = None if validator is None else validator.problem(case["data"]) is None
            yield group["file"], refusal, ours, verdict_of_jsonschema(schema, case["data"]), case["valid"]


def verdict_of_jsonschema(schema: dict[str, Any], value: Any) -> bool | None:
    try:
        return jsonschema.Draft202012Validator(schema, registry=EMPTY_REGISTRY).is_valid(value)
    except Exception:  # noqa: BLE001 - a reference that it cannot resolve, an expression that it cannot read
        return None


def reason(file: str, refusal: str | None, ours: bool | None, theirs: bool | None, expected: bool) -> str:
    """Return the sort of deviation that a case is; one that is none of them is named by its file."""
    if ours == theirs == expected:
        return EQUAL
    if refusal is not None and "Unknown meta-schema" in refusal:
        return DIALECT
    if refusal is not None and "never fetched" in refusal:
        return REMOTE if theirs is None else META_SCHEMA
    if ours == expected:
        return RIGHT.get(file, file)
    if ours == theirs and file.startswith("optional/format/"):
        return FORMAT
    return file


def test_each_verdict_is_that_of_the_suite_and_of_jsonschema_but_for_known_reasons() -> None:
    reasons = Counter(reason(*case) for case in cases())
    assert reasons.pop(EQUAL) == 1598
    assert reasons == DEVIATIONS
