"""Checks of what types cannot say: a value is there, or has a type, because other code has seen to it.

If that code is wrong, the process fails here, and not later with a stranger value. `assert` would do the same, but not
under `python -O`.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def ensured(value: T | None, why: str) -> T:
    """Return a value that is not None. `why` names what ensures it.

    Raises:
        RuntimeError: the code that `why` names is wrong.
    """
    if value is None:
        raise RuntimeError(f"a value is missing, although {why}")
    return value


def ensured_type(value: object, kind: type[T]) -> T:
    """Return a value that has this type.

    Raises:
        TypeError: it has another one, so the code that chose it is wrong.
    """
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__} is here instead of a {kind.__name__}")
    return value
