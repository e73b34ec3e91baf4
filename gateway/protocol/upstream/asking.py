"""Pure: what an upstream asks in an `input_required` result (2026-07-28 "Multi Round-Trip Requests").

A server of 2025-11-25 may instead refuse a request until the user has visited URLs, which it names in an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.engine.keys import MAX_KEY_LENGTH
from gateway.engine.questions import ELICIT, ROOTS, SAMPLE
from gateway.protocol.upstream.cleaning import with_clean_meta
from gateway.protocol.web_urls import web_url_problem

ASKING_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The requests on which an upstream may ask something ("Multi Round-Trip Requests")."""

MAX_CARRIED_BYTES: Final = 24 * 1024
"""How many bytes of state, or of questions, an upstream may put into a call that its client carries."""
MAX_TASK_BYTES: Final = 256 * 1024
"""The same for a task, whose journal is stored."""
MAX_QUESTIONS: Final = 20
"""How many questions one result may ask."""

_FORWARDED: Final = frozenset({ELICIT, SAMPLE, ROOTS})

_OWN: Final[Mapping[str, frozenset[str]]] = {
    "form": frozenset({"mode", "message", "requestedSchema"}),
    "url": frozenset({"mode", "message", "url", "elicitationId"}),
    SAMPLE: frozenset(
        {
            *("messages", "maxTokens", "systemPrompt", "modelPreferences", "includeContext", "temperature"),
            *("stopSequences", "metadata", "tools", "toolChoice"),
        }
    ),
    ROOTS: frozenset(),
}
"""The members of a question besides `_meta`, by its mode if it has one."""

_OF_ANY: Final = frozenset[str]().union(*_OWN.values())
_encode = msgspec.json.Encoder().encode


class Misasked(ValueError):
    """An `input_required` result cannot be passed on. The message says why, as the end of a sentence.

    `refused` is the method that an upstream may not ask, "" if something else is wrong; `too_large`: only the size is.
    """

    def __init__(self, message: str, *, refused: str = "", too_large: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.too_large = too_large


class AskedQuestion(msgspec.Struct, frozen=True):
    """One question of an upstream.

    `key` is the upstream's own, under which it gets the answer; `wire_key` is for our clients. For a URL of an error,
    `key` is its `elicitationId`, "" without one. The method is `elicitation/create`, `sampling/createMessage` or
    `roots/list`.
    """

    key: str
    wire_key: str
    method: str
    params: dict[str, Any]


class AskedRound(msgspec.Struct, frozen=True):
    """What an upstream asks in one round, in its order. Without questions it only wants its state back.

    `state` is the `requestState`, to the byte; None if there was none, which is not the same as "".
    """

    questions: tuple[AskedQuestion, ...]
    state: str | None


def input_required(result: Mapping[str, Any], *, max_bytes: int = MAX_CARRIED_BYTES) -> AskedRound | None:
    """Return what an upstream asks, or None if its result is a final one.

    `max_bytes` limits the state, and the questions together: `MAX_CARRIED_BYTES` or `MAX_TASK_BYTES`.

    Raises:
        Misasked: the upstream asks in a way that the protocol does not allow, too much, or too many things at once.
    """
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return None
    if kind != "input_required":
        raise Misasked("it returned a kind of result that this gateway does not know")
    state = _state(result, max_bytes)
    requests = result.get("inputRequests")
    if requests is not None and not isinstance(requests, dict):
        raise Misasked("its inputRequests are not an object")
    if not requests and state is None:
        raise Misasked("it asks for input without a question and without a state")
    return AskedRound(_questions(requests or {}, max_bytes), state)


def _state(result: Mapping[str, Any], max_bytes: int) -> str | None:
    state = result.get("requestState")
    if state is None:
        return None
    if not isinstance(state, str):
        raise Misasked("its requestState is not a string")
    size = len(state.encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        raise Misasked(f"its requestState has {size} bytes; the limit is {max_bytes}", too_large=True)
    return state


def _questions(requests: dict[str, Any], max_bytes: int) -> tuple[AskedQuestion, ...]:
    if len(requests) > MAX_QUESTIONS:
        raise Misasked(f"it asks {len(requests)} questions at once; the limit is {MAX_QUESTIONS}")
    size = len(_encode(requests))
    if size > max_bytes:
        raise Misasked(f"its questions have {size} bytes; the limit is {max_bytes}", too_large=True)
    keys = wire_keys(requests)
    return tuple(_question(key, keys[key], request) for key, request in requests.items())


def wire_keys(keys: Mapping[str, Any]) -> dict[str, str]:
    """Return the key that our clients see for each key of an upstream.

    It is the upstream's own key where that is 1 to 200 printable characters without `~`, else the next of `k1`, `k2`, …
    that the upstream does not use itself.
    """
    wire: dict[str, str] = {}
    number = 0
    for key in keys:
        if 1 <= len(key) <= MAX_KEY_LENGTH and "~" not in key and key.isprintable():
            wire[key] = key
            continue
        number += 1
        while f"k{number}" in keys:
            number += 1
        wire[key] = f"k{number}"
    return wire


def _question(key: str, wire_key: str, request: Any) -> AskedQuestion:
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        raise Misasked("one of its questions is not a request")
    method = request["method"]
    if method not in _FORWARDED:
        raise Misasked("it asks its client something that servers may not ask", refused=method)
    params = request.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Misasked("one of its questions has params that are not an object")
    _check(method, params)
    return AskedQuestion(key, wire_key, method, _with_own_members(method, with_clean_meta("", params)))


def clean_question(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the params of a question that a server asks by a request of its own, as clients may get them.

    Raises:
        Misasked: no client may be asked this.
    """
    return _question("q", "q", {"method": method, "params": params}).params


def _with_own_members(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return checked params without what only other questions have: a client could act on the URL of a form."""
    foreign = _OF_ANY - _OWN[params.get("mode", "form") if method == ELICIT else method]
    return {name: value for name, value in params.items() if name not in foreign}


def required_urls(data: Any, *, max_bytes: int = MAX_CARRIED_BYTES) -> AskedRound:
    """Return the questions in the `data` of the error with which a server of 2025-11-25 sends the user to URLs.

    They have no `elicitationId`, since other upstreams may have the same. Wires that need one have their own.

    Raises:
        Misasked: there is no URL, no client may show one of them, or they are too many or too large.
    """
    elicitations = data.get("elicitations") if isinstance(data, Mapping) else None
    if not isinstance(elicitations, list) or not elicitations:
        raise Misasked("it names no URL to visit first")
    requests = {f"url{number}": _url_request(each) for number, each in enumerate(elicitations, 1)}
    return AskedRound(tuple(map(_without_id, _questions(requests, max_bytes))), None)


def _url_request(elicitation: Any) -> dict[str, Any] | None:
    """Return the request that asks the same, None if it does not name a URL."""
    if not isinstance(elicitation, dict) or elicitation.get("mode", "url") != "url":
        return None
    return {"method": ELICIT, "params": {**elicitation, "mode": "url"}}


def _without_id(question: AskedQuestion) -> AskedQuestion:
    params = dict(question.params)
    own = params.pop("elicitationId", None)
    return msgspec.structs.replace(question, key=own if isinstance(own, str) else "", params=params)


def _check_url(url: Any) -> None:
    if web_url_problem(url) is not None:
        raise Misasked("one of its questions has no URL that a user can be sent to")


def _check_elicitation(params: Mapping[str, Any]) -> None:
    if not isinstance(params.get("message"), str):
        raise Misasked("one of its questions has no message")
    mode = params.get("mode", "form")
    if mode == "url":
        _check_url(params.get("url"))
    elif mode != "form":
        raise Misasked("one of its questions has an unknown mode")
    elif not isinstance(params.get("requestedSchema"), dict):
        raise Misasked("one of its forms has no schema")


def _check(method: str, params: Mapping[str, Any]) -> None:
    """Check what every client reads. Anything else in a question is for the client to judge."""
    if "task" in params:
        raise Misasked("one of its questions asks for a task of the client")
    if method == ELICIT:
        _check_elicitation(params)
    elif method == SAMPLE:
        if not isinstance(params.get("messages"), list):
            raise Misasked("one of its sampling requests has no messages")
        if type(params.get("maxTokens")) is not int:
            raise Misasked("one of its sampling requests has no maxTokens")
