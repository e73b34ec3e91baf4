"""Pure: a question that another server asks, passed on as it is.

Its value is the client's answer as it came, a decline or an error included: the server that asked decides what it
means. Its digest covers the whole request with its message. "Delete 3?" and "Delete 300?" are two questions then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from gateway.engine.capabilities import ELICITATION_FORM, CapabilityPath, of_sampling
from gateway.engine.questions import DIGEST_BYTES, ELICIT, ROOTS, SAMPLE, Answer, InvalidAnswer, Question

Fits: TypeAlias = Callable[[Any], InvalidAnswer | None]
"""Returns why the content of an accepted form does not fit, or None if it does."""

_METHODS: Final = (ELICIT, SAMPLE, ROOTS)
_NEEDED_BY_MODE: Final[Mapping[Any, dict[str, type[Any]]]] = {
    "form": {"message": str, "requestedSchema": Mapping},
    "url": {"message": str, "url": str},
}
_URL: Final = ("elicitation", "url")
_ROOTS: Final = ("roots",)


def forwarded(method: str, params: Mapping[str, Any], fits: Fits | None = None) -> Question:
    """Return a question that passes on another server's request.

    `method` is `elicitation/create`, `sampling/createMessage` or `roots/list`. `fits` checks only the content of an
    accepted form.

    Raises:
        ValueError: no client can be asked this: the method is another one, or the params lack what the method needs.
    """
    problem = _problem(method, params)
    if problem:
        raise ValueError(problem)
    checks = fits if method == ELICIT and params.get("mode", "form") == "form" else None
    return Question(
        method=method,
        params=params,
        capabilities=_capabilities(method, params),
        digest=forwarded_digest(method, params),
        read=_as_it_came if checks is None else _Checked(checks),
        forwarded=True,
    )


def forwarded_digest(method: str, params: Mapping[str, Any]) -> bytes:
    """Return the digest of a whole request. Journals store it, so it must not change between releases."""
    text = json.dumps([method, params], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES]


def _problem(method: str, params: Mapping[str, Any]) -> str:
    """Return why no client can be asked this, or ""."""
    if method not in _METHODS:
        return f"{method} is not a question"
    needed: dict[str, type[Any]] = {"_meta": Mapping} if "_meta" in params else {}
    if method == SAMPLE:
        needed["messages"] = list
    elif method == ELICIT:
        mode = params.get("mode", "form")
        if not isinstance(mode, str) or mode not in _NEEDED_BY_MODE:
            return "mode is unknown"
        needed |= _NEEDED_BY_MODE[mode]
    wrong = [name for name, kind in needed.items() if not isinstance(params.get(name), kind)]
    return f"{wrong[0]} is missing or has the wrong type" if wrong else ""


def _capabilities(method: str, params: Mapping[str, Any]) -> tuple[CapabilityPath, ...]:
    if method == SAMPLE:
        return of_sampling(params)
    if method == ROOTS:
        return (_ROOTS,)
    return (_URL if params.get("mode") == "url" else ELICITATION_FORM,)


def _as_it_came(answer: Answer) -> Answer:
    if "error" not in answer and not isinstance(answer.get("result"), dict):
        raise InvalidAnswer
    return answer


class _Checked:
    """Reads the answer to a form."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits

    def __call__(self, answer: Answer) -> Answer:
        """Return the answer as it came; raise `InvalidAnswer` if the content of an accepted form does not fit it."""
        result = _as_it_came(answer).get("result")
        if isinstance(result, dict) and result.get("action") == "accept":
            misfit = self._fits(result.get("content", {}))
            if misfit is not None:
                raise misfit
        return answer
