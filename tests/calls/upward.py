"""Finds calls from a package of the gateway to one above it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

LAYERS: Final = (
    ("cli",),
    ("process",),
    ("web", "http"),
    ("auth", "admission"),
    ("wires",),
    ("calls",),
    ("storage",),
    ("tokens",),
    ("observability",),
    ("authoring",),
    ("protocol",),
    ("engine", "tasks"),
    ("sealing",),
    ("settings",),
    ("runtime",),
    ("errors",),
)
"""The packages from the top to the bottom. Imports go down; a call up is a callback."""

HEIGHT: Final = {package: -row for row, packages in enumerate(LAYERS) for package in packages}


class Call(NamedTuple):
    """A call from one function to another, each named by its module and its name there."""

    caller: str
    callee: str

    def __str__(self) -> str:
        return f"{self.caller} → {self.callee}"


@contextlib.contextmanager
def upward_calls(within: CodeType) -> Iterator[list[Call]]:
    """Record each call to a package above the caller's while a function runs.

    Functions outside the gateway are skipped: the caller is the next gateway function on the stack. Resuming a
    coroutine does not count as a call.
    """
    found: list[Call] = []
    entered: list[FrameType] = []  # kept, so no new frame can be mistaken for one of them

    def note(frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call" or package_of(frame) is None or any(frame is each for each in entered):
            return
        entered.append(frame)
        caller = next((each for each in callers(frame) if package_of(each) is not None), None)
        if caller is None or all(each.f_code is not within for each in (caller, *callers(caller))):
            return
        if HEIGHT[package_of(frame) or ""] > HEIGHT[package_of(caller) or ""]:
            found.append(Call(name_of(caller), name_of(frame)))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        entered.clear()


def callers(frame: FrameType) -> Iterator[FrameType]:
    """Yield the frames of the callers, the nearest first."""
    above = frame.f_back
    while above is not None:
        yield above
        above = above.f_back


def package_of(frame: FrameType) -> str | None:
    """Return the package of the gateway that a frame belongs to, None if it belongs to none."""
    root, _, rest = frame.f_globals.get("__name__", "").partition(".")
    package = rest.partition(".")[0]
    return package if root == "gateway" and package in HEIGHT else None


def name_of(frame: FrameType) -> str:
    module = frame.f_globals["__name__"].removeprefix("gateway.")
    return f"{module}.{frame.f_code.co_qualname}"
