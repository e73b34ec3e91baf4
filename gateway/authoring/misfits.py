"""Explains why an answer does not fit its question: to the user, who may see it quoted, and to everyone else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.engine.questions import InvalidAnswer

MAX_PROBLEMS: Final = 10
"""A reason with more problems than this only counts them."""

MAX_REASON_CHARACTERS: Final = 500
"""A reason for the user may quote what they entered; longer reasons are cut."""

_NOT_ACCEPTED: Final = "Value not accepted"


def misfit_of_schema(problem: str, unquoted: str | None) -> InvalidAnswer:
    """Return the error for an answer that does not match its JSON Schema.

    Args:
        problem: what is wrong.
        unquoted: the same without anything from the answer.
    """
    return InvalidAnswer(_cut(_printable(problem)), _cut(unquoted or ""))


def misfit_of_model(error: ValidationError, content: Mapping[str, Any], *, of_one_field: bool) -> InvalidAnswer:
    """Return the error for an answer that its model rejects, in pydantic's words, each with the name of its field.

    A validator's own message may quote the answer. Those who are not the user then learn only which field is wrong.

    Args:
        error: what pydantic says.
        content: the answer.
        of_one_field: whether the form has only one field, whose name nobody needs.
    """
    if error.error_count() > MAX_PROBLEMS:
        counted = f"It is wrong in {error.error_count()} places."
        return InvalidAnswer(counted, counted)
    problems = error.errors(include_url=False)
    quoted = [": ".join((*map(str, problem["loc"][of_one_field:]), problem["msg"])) for problem in problems]
    unquoted = [_without_answer(problem, content, of_one_field) for problem in problems]
    return InvalidAnswer(_cut(_printable("; ".join(quoted))), _cut(_printable("; ".join(unquoted))))


def _without_answer(problem: ErrorDetails, content: Mapping[str, Any], of_one_field: bool) -> str:
    place, reason = problem["loc"][of_one_field:], problem["msg"]
    if problem["type"] == "extra_forbidden":  # then the last part is a name from the answer
        place = place[:-1]
    parser_error = problem.get("ctx", {}).get("error")
    if isinstance(parser_error, str):  # it may quote the character that is wrong
        reason = reason.removesuffix(parser_error).rstrip(" ,:")
    if any(_quotes(reason, text) for text in _texts(content)):
        reason = _NOT_ACCEPTED
    return ": ".join((*map(str, place), reason))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in an answer."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value).strip()


def _quotes(reason: str, text: str) -> bool:
    """Return whether a reason contains a text, as words of its own and in any case."""
    return bool(text) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", reason, re.IGNORECASE) is not None


def _printable(reason: str) -> str:
    """Return a reason on one line, without characters that could control a terminal."""
    line = " ".join(reason.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def _cut(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON_CHARACTERS else reason[:MAX_REASON_CHARACTERS] + "…"
