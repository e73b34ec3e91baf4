"""Explains why an answer does not fit its question: to the user, who may see it quoted, and to everyone else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticKnownError
from pydantic_core.core_schema import ErrorType

from gateway.engine.questions import InvalidAnswer

MAX_PROBLEMS: Final = 10
"""A reason with more problems than this only counts them."""

MAX_REASON_CHARACTERS: Final = 500
"""A reason for the user may quote what they entered; longer reasons are cut."""

MAX_COMPARED_CHARACTERS: Final = 10_000
"""A validator's message is compared with the texts of an answer that has no more characters than this."""

_NOT_ACCEPTED: Final = "Value not accepted"
_OF_CHOICES: Final = frozenset({"enum", "literal_error"})
_QUOTING: Final = frozenset({"union_tag_invalid", "timezone_offset"})
_OF_VALIDATORS: Final = frozenset({"value_error", "assertion_error"})
_OF_PYDANTIC: Final = frozenset(get_args(ErrorType)) - _OF_VALIDATORS
_CHOICES: Final = frozenset({"enum", "oneOf", "anyOf"})
_WORD: Final = re.compile(r"[^\W_]+")


def misfit_of_schema(problem: str, unquoted: str) -> InvalidAnswer:
    """Return the error for an answer that does not match its JSON Schema.

    `unquoted` is the problem without anything from the answer.
    """
    return InvalidAnswer(_cut(_printable(problem)), _cut(unquoted))


def misfit_of_model(
    error: ValidationError, content: Mapping[str, Any], fields: Mapping[str, Any], *, of_one_field: bool
) -> InvalidAnswer:
    """Return the error for an answer that its model rejects, in pydantic's words, each with the name of its field.

    A validator's own message may quote the answer, and choices may be the user's data. Those who are not the user then
    learn only which field is wrong. `fields` are the `properties` of the form, if a form asked for it. `of_one_field`
    is for a form with only one field, whose name nobody needs.
    """
    if error.error_count() > MAX_PROBLEMS:
        counted = f"It is wrong in {error.error_count()} places."
        return InvalidAnswer(counted, counted)
    problems = error.errors(include_url=False, include_input=False)
    quoted = [": ".join((*map(str, problem["loc"][of_one_field:]), problem["msg"])) for problem in problems]
    texts = [] if all(map(_is_of_pydantic, problems)) else _texts(content, fields)
    unquoted = [_without_answer(problem, texts, fields, of_one_field) for problem in problems]
    return InvalidAnswer(_cut(_printable("; ".join(quoted))), _cut(_printable("; ".join(unquoted))))


def _without_answer(
    problem: ErrorDetails, texts: list[str] | None, fields: Mapping[str, Any], of_one_field: bool
) -> str:
    place, reason = problem["loc"][of_one_field:], problem["msg"]
    if problem["type"] == "extra_forbidden":  # then the last part is a name from the answer
        place = place[:-1]
    if problem["type"] in _OF_CHOICES:
        reason = "Input should be one of the choices"
    elif _is_of_pydantic(problem):
        parser_error = problem.get("ctx", {}).get("error")
        if isinstance(parser_error, str):  # it may quote the character that is wrong
            reason = reason.removesuffix(parser_error).rstrip(" ,:")
    elif _may_be_choice(problem["loc"], fields) or _may_quote(reason, texts):
        reason = _NOT_ACCEPTED
    return ": ".join((*map(str, place), reason))


def _is_of_pydantic(problem: ErrorDetails) -> bool:
    """Return whether a message has pydantic's fixed words. A validator may use the name of any type for its own."""
    kind: Any = problem["type"]
    if kind in _QUOTING or kind not in _OF_PYDANTIC:
        return False
    try:
        return PydanticKnownError(kind, problem.get("ctx")).message() == problem["msg"]
    except (TypeError, ValueError):
        return False


def _may_be_choice(place: tuple[int | str, ...], fields: Mapping[str, Any]) -> bool:
    """Return whether a validator has seen a choice, such as an enum's member, whose name is not in the answer."""
    seen = [fields[str(place[0])]] if place and place[0] in fields else fields.values()
    return any(_CHOICES & {*field, *field.get("items", ())} for field in seen)


def _may_quote(reason: str, texts: list[str] | None) -> bool:
    """Return whether a reason has something in common with the texts of an answer, or is too long to find out."""
    if texts is None or len(reason) > MAX_REASON_CHARACTERS:
        return True
    folded, answer = reason.casefold(), "\0".join(texts)
    words = [word for word in _WORD.findall(folded) if len(word) > 2 or not word.isalpha()]
    return any(text in folded for text in texts) or any(word in answer for word in words)


def _texts(content: Mapping[str, Any], fields: Mapping[str, Any]) -> list[str] | None:
    """Return the texts, numbers and names in an answer, except the names of its fields; None if they are too long."""
    texts: list[str] = []
    left = MAX_COMPARED_CHARACTERS
    waiting: list[Any] = [*content.values(), *(name for name in content if name not in fields)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str | int | float):
            written = _written(value)
            texts += [folded for text in written if (folded := text.strip().casefold())]
            left -= sum(map(len, written)) + 1
            if left < 0:
                return None
    return texts


def _written(value: str | float) -> list[str]:
    """Return a text, or how people may write a number."""
    if isinstance(value, float) and value.is_integer():
        return [str(value), str(int(value))]
    return [str(value)]


def _printable(reason: str) -> str:
    """Return a reason on one line, without characters that could control a terminal."""
    line = " ".join(reason.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


def _cut(reason: str) -> str:
    return reason if len(reason) <= MAX_REASON_CHARACTERS else reason[:MAX_REASON_CHARACTERS] + "…"
