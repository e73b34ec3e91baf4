"""Pure: a question to the client, and the digest that shows whether a recorded answer still fits it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from gateway.engine.capabilities import CapabilityPath

Answer: TypeAlias = dict[str, Any]
"""The client's response to one question, as a journal stores it: `{"result": {…}}` or `{"error": {…}}`."""

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"

DIGEST_BYTES = 12

_ANNOTATIONS = frozenset({"title", "description", "default"})
_SCHEMA_MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
_DATA = frozenset({"enum", "const", "dependentRequired", "enumNames", "examples"})


class InvalidAnswer(Exception):
    """The client's answer does not fit the question; it is asked again.

    `reason` is for the user and may quote the answer; "" if it is not known. `unquoted` is for everyone else, and has
    nothing from the answer.
    """

    def __init__(self, reason: str = "", unquoted: str = "") -> None:
        super().__init__(reason)
        self.unquoted = unquoted


class Question(msgspec.Struct, frozen=True):
    """One input request, ready for any wire.

    Attributes:
        method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        params: the params of that request, as the released wire writes them.
        capabilities: paths of the client capabilities that asking needs, e.g. `(("elicitation", "form"),)`.
        digest: of everything that must stay equal for a recorded answer to count; see `question_identity`.
        read: converts a recorded `Answer` to the value that the tool gets. Raises `InvalidAnswer` if it does not fit
            the question, and an `AskError` if the client sent no value.
        forwarded: whether it passes on another server's request; see `gateway.engine.forwarded`.
        problem: why no client may be asked this, for the author; "" if one may.
    """

    method: str
    params: Mapping[str, Any]
    capabilities: tuple[CapabilityPath, ...]
    digest: bytes
    read: Callable[[Answer], Any]
    forwarded: bool = False
    problem: str = ""


def explained(question: Question, reason: str) -> Question:
    """Return a question that is asked again, with the reason in its message, if its kind has one."""
    if question.method != ELICIT:
        return question
    message = f"{question.params['message']}\n\nThe last answer was not accepted. {reason}".rstrip()
    return msgspec.structs.replace(question, params={**question.params, "message": message})


def question_identity(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what distinguishes a question from others (replay rule 1).

    A form counts by its mode and its schema without `title`, `description` and `default`, with its fields in any order.
    A URL and a list of roots count by the method alone, and sampling by the method and its tools. Message texts never
    count.
    """
    identity: dict[str, Any] = {"method": method}
    if method == ELICIT:
        identity["mode"] = params.get("mode", "form")
        if identity["mode"] == "form":
            identity["schema"] = _without_annotations(params["requestedSchema"])
    elif method == SAMPLE:
        identity["tools"] = params.get("tools")
    return identity


def question_digest(method: str, params: Mapping[str, Any]) -> bytes:
    """Return the digest of a question's identity. Journals store it, so it must not change between releases."""
    parts = list(question_identity(method, params).values())
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]


def _without_annotations(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_annotations(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _bare(keyword, value) for keyword, value in schema.items() if keyword not in _ANNOTATIONS}


def _bare(keyword: str, value: Any) -> Any:
    if keyword == "required" and isinstance(value, list):
        return sorted(value, key=str)
    if keyword in _DATA:
        return value
    if keyword in _SCHEMA_MAPS and isinstance(value, Mapping):
        return {name: _without_annotations(schema) for name, schema in value.items()}
    return _without_annotations(value)
