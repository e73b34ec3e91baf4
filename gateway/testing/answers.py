"""The answers of a test to the questions of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

from gateway.authoring.forms.schemas import FIELD, form_content
from gateway.engine.questions import ELICIT, ROOTS, Answer, InvalidAnswer, Question
from gateway.engine.values import json_value
from gateway.errors import AskError, AuthoringError
from gateway.testing.mistakes import RunError, advice, meant

__tracebackhide__ = True  # pytest shows the test and the author's code

DECLINE: Mapping[str, Any] = {"result": {"action": "decline"}}
"""Pass this as an answer: the user says no."""

DISMISS: Mapping[str, Any] = {"result": {"action": "cancel"}}
"""Pass this as an answer: the user closes the question without deciding."""

REFUSE: Mapping[str, Any] = {"error": {"code": -1, "message": "refused by the test"}}
"""Pass this as an answer: the client answers with an error."""

Answers: TypeAlias = Mapping[str, Any] | Callable[[str, Question], Any]

MAX_SHOWN = 200
"""How much of a wrong answer a message shows, in characters."""


class Answering:
    """Answers questions from what a test has passed, and remembers what it used.

    Args:
        answers: the answers by key, or a function `(key, question)`.

    Raises:
        RunError: `answers` is neither.
    """

    def __init__(self, answers: Answers | None) -> None:
        if answers is not None and not callable(answers) and not isinstance(answers, Mapping):
            raise RunError(
                f"`answers` is a dict by the key of the question, or a function, not a {type(answers).__name__}"
            )
        self._answers: Answers = {} if answers is None else answers
        self._asked: dict[str, int] = {}
        self._listed: dict[str, int] = {}

    def answer(self, key: str, question: Question) -> Answer | None:
        """Return the next answer to a question, or None if the test has none.

        Raises:
            RunError: the answer can never fit the question, or a list of answers is used up.
        """
        turn = self._asked.get(key, 0)
        self._asked[key] = turn + 1
        if callable(self._answers):
            return whole_answer(key, question, self._answers(key, question))
        if key not in self._answers:
            return None
        given = self._answers[key]
        if not _is_list_of_answers(question, given):
            answer = whole_answer(key, question, given)
            _check_fields(key, question, given)
            _check_fits(key, question, answer, given)
            return answer
        _check_list(key, question, given)
        self._listed[key] = len(given)
        if turn < len(given):
            return whole_answer(key, question, given[turn])
        last = whole_answer(key, question, given[-1]) if given else {}
        reason = f" The last one does not fit: {_misfit(question, last)}" if given else ""
        raise RunError(f"question {key!r} was asked {turn + 1} times, and its list has {len(given)} answers.{reason}")

    def check_all_used(self) -> None:
        """Check that the call has asked for each answer.

        Raises:
            RunError: a key was never asked for, or only some answers of its list. The message suggests what is meant.
        """
        if callable(self._answers):
            return
        for key in self._answers:
            if key not in self._asked:
                unanswered = [asked for asked in self._asked if asked not in self._answers]
                known = unanswered if meant(str(key), unanswered) else self._asked
                raise RunError(f"no question {key!r} was asked; {advice(str(key), known, 'the call asked')}")
        for key, count in self._listed.items():
            if self._asked[key] < count:
                raise RunError(
                    f"the list for {key!r} has {count} answers, but the call used {self._asked[key]} of them"
                )


def whole_answer(key: str, question: Question, given: Any) -> Answer:
    """Return a client's answer, made from its content, a model, a text or a list of roots.

    Raises:
        RunError: no client could send it.
    """
    if inspect.isroutine(given):
        raise RunError(
            f"the answer to {key!r} is a function; pass one function for all answers: answers=lambda key, question: …"
        )
    given = _in_dicts(given)
    if _is_whole_answer(given):
        return given  # type: ignore[no-any-return]  # a dict by now
    if question.method == ROOTS and not isinstance(given, (list, tuple)):
        raise RunError(f"the answer to {key!r} is a list of URIs, not {_shown(given)}")
    try:
        answer = {"result": _result(question, given)}
        json_value(answer, f"the answer to {key!r}")
    except (AuthoringError, ValueError) as error:
        raise RunError(f"{error}; pass what a client sends: {_expected(question)}") from None
    return answer


def _result(question: Question, given: Any) -> Any:
    """Return the result of a question's request.

    Raises:
        ValueError: it cannot be JSON.
    """
    if question.method == ELICIT:
        filled = given if isinstance(given, dict) else form_content(question.params.get("requestedSchema", {}), given)
        return {"action": "accept", "content": filled}
    if isinstance(given, BaseModel):
        given = given.model_dump(mode="json")
    if question.method == ROOTS:
        return {"roots": [{"uri": root} if isinstance(root, str) else root for root in given]}
    if isinstance(given, str):
        content = {"type": "text", "text": given}
        return {"role": "assistant", "content": content, "model": "test", "stopReason": "endTurn"}
    return given


def _is_list_of_answers(question: Question, given: Any) -> bool:
    """Return whether an answer is a list with one answer for each time the question is asked."""
    if not isinstance(given, list):
        return False
    if question.method == ROOTS:
        return any(isinstance(each, list) for each in given)
    is_one_answer = _only_list(question) == FIELD
    return not is_one_answer or any(isinstance(each, list | Mapping) for each in given)


def _only_list(question: Question) -> str | None:
    """Return the name of a form's only field if that is a list, or None."""
    fields = question.params.get("requestedSchema", {}).get("properties", {})
    return next((name for name in fields if len(fields) == 1 and fields[name].get("type") == "array"), None)


def _check_list(key: str, question: Question, given: list[Any]) -> None:
    """Refuse a list that is meant as the value of a form's only field."""
    field = _only_list(question)
    if field in (None, FIELD) or not given:
        return
    if any(isinstance(each, Mapping) or _fits(key, question, each) for each in given):
        return
    raise RunError(
        f"the list for {key!r} has one answer for each time it is asked, and none fits; "
        f"to answer with a list, pass {{{field!r}: […]}}"
    )


def _fits(key: str, question: Question, given: Any) -> bool:
    try:
        question.read(whole_answer(key, question, given))
    except (InvalidAnswer, RunError):
        return False
    except AskError:  # the user says no
        return True
    return True


def _check_fits(key: str, question: Question, answer: Answer, given: Any) -> None:
    try:
        question.read(answer)
    except InvalidAnswer:
        raise RunError(
            f"the answer to {key!r} does not fit: {_misfit(question, answer)} The answer was {_shown(given)}. "
            "Correct it. To test that the tool asks again, pass a list of answers."
        ) from None
    except AskError:  # the user says no, which the tool handles
        pass


def _misfit(question: Question, answer: Answer) -> str:
    """Return why an answer does not fit, as one or more sentences."""
    try:
        question.read(answer)
    except InvalidAnswer as invalid:
        return f"{str(invalid).rstrip('.') or f'the client must send {_expected(question)}'}."
    except AskError as error:
        return str(error)
    return "it fits, but was asked again."


def _check_fields(key: str, question: Question, given: Any) -> None:
    """Refuse a field that the form does not have: a misspelt optional field would otherwise pass unnoticed."""
    schema = question.params.get("requestedSchema")
    if schema is None or not isinstance(given, Mapping) or _is_whole_answer(_in_dicts(given)):
        return
    fields = schema.get("properties", {})
    for name in given:
        if name not in fields and not schema.get("additionalProperties"):
            raise RunError(f"the form {key!r} has no field {name!r}; {advice(str(name), fields, 'its fields are')}")


def _expected(question: Question) -> str:
    if question.method == ROOTS:
        return "a list of URIs"
    if question.method != ELICIT:
        return "a text, or a whole result of sampling/createMessage"
    if question.params.get("mode") == "url":
        return "{}, DECLINE or DISMISS"
    if question.params.get("requestedSchema", {}).get("properties", {}).keys() == {FIELD}:
        return f"the value, or {{{FIELD!r}: …}}"
    return "a dict with the fields of the form, or an instance of its model"


def _shown(given: Any) -> str:
    shown = repr(given)
    return shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "…"


def _is_whole_answer(given: Any) -> bool:
    """Distinguish `{"result": {…}}` from the content of a form with a field named "result". Forms are flat."""
    return (
        isinstance(given, dict)
        and given.keys() in ({"result"}, {"error"})
        and all(isinstance(value, dict) for value in given.values())
    )


def _in_dicts(given: Any) -> Any:
    """Return the value with a `dict` for every mapping, like decoded JSON."""
    return {name: _in_dicts(value) for name, value in given.items()} if isinstance(given, Mapping) else given
