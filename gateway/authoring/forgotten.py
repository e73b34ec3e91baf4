"""Notices calls of the context that were never awaited, at no cost for those that are."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import CodeType, CoroutineType
from typing import Any, Final

_HOOK: Final = "_warn_unawaited_coroutine"
"""What CPython calls in `warnings` as it drops a coroutine that never started.

Without this function in `warnings`, nothing is noticed.
"""


def notice_forgotten(codes: frozenset[CodeType], notice: Callable[[CoroutineType[Any, Any, Any]], bool]) -> None:
    """Call `notice` with each dropped coroutine of these codes; Python still warns of it if that returns False."""
    warn = getattr(warnings, _HOOK, None)
    if warn is None:
        return

    def noticing(coroutine: CoroutineType[Any, Any, Any]) -> None:
        if getattr(coroutine, "cr_code", None) not in codes or not notice(coroutine):
            warn(coroutine)

    setattr(warnings, _HOOK, noticing)
