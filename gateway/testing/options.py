"""The values that the options of a run can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from gateway.sealing.principal import Principal
from gateway.testing.mistakes import RunError

__tracebackhide__ = True  # pytest shows the test and the author's code


def check_values(options: Mapping[str, Any]) -> None:
    """Refuse what a type checker would have found.

    Raises:
        RunError: an option has a value that it cannot have.
    """
    for name, value in options.items():
        if name in _VALUES:
            fits, expected = _VALUES[name]
            if not fits(value):
                raise RunError(f"`{name}` is {expected}, not {value!r}")
    now = options.get("now")
    if now is not None and now.tzinfo is None:
        raise RunError("`now` needs a time zone, such as datetime(2026, 1, 31, tzinfo=UTC)")


def check_version(checkpoint: tuple[int, Any] | None, served: Any) -> None:
    """Refuse a checkpoint that the tool would drop because a newer version has made it.

    Raises:
        RunError: its version is above the tool's.
    """
    if checkpoint is not None and checkpoint[0] > served.version:
        raise RunError(
            f"`checkpoint` has version {checkpoint[0]}, but {served} has version {served.version} and would drop it; "
            "pass a version up to the tool's"
        )


def _is_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_VALUES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "headers": (_is_texts, "a dict of texts, such as {'x-tenant': 'blue'}"),
    "principal": (
        lambda value: value is None or isinstance(value, Principal),
        "a Principal, such as Principal(issuer='https://id.example.com', subject='ada', client_id='shell')",
    ),
    "tokens": (
        lambda value: value is None or _is_texts(value),
        "a dict of tokens by audience, such as {'https://api.example.com': 'token'}",
    ),
    "can": (callable, "a function of the name of a capability, such as lambda name: name != 'sampling'"),
    "limit_seconds": (lambda value: value is None or _is_number(value), "a number of seconds or None"),
    "checkpoint": (
        lambda value: value is None or (isinstance(value, tuple) and len(value) == 2 and _is_whole(value[0])),
        "a tuple of a version and a value, such as (1, {'done': 5})",
    ),
    "lose_responses": (lambda value: isinstance(value, bool), "True or False"),
    "as_task": (lambda value: value is None or isinstance(value, bool), "True, False or None"),
    "now": (
        lambda value: value is None or isinstance(value, datetime),
        "a datetime with a time zone, such as datetime(2026, 1, 31, tzinfo=UTC)",
    ),
    "seed": (lambda value: value is None or isinstance(value, (int, str)), "a whole number or a text"),
    "state_max_bytes": (_is_whole, "a number of bytes"),
}
"""For each option except `faults`: whether a value fits, and what does."""
