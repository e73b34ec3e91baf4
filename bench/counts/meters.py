"""Meters for a piece of code: functions called, instructions executed, memory allocated.

This package itself is not counted: it is the client, not the replica. Nor is `threading`, because only chance decides
whether the thread that writes a log waits for the next line.
"""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

TOP: Final = Path(__file__).resolve().parent.parent.parent
_UNCOUNTED: Final = (str(Path(__file__).resolve().parent), threading.__file__)

_EXCLUDED: dict[CodeType, bool] = {}


def _is_excluded(code: CodeType) -> bool:
    known = _EXCLUDED.get(code)
    if known is None:
        known = _EXCLUDED[code] = code.co_filename.startswith(_UNCOUNTED)
    return known


class Calls:
    """Counts calls of functions.

    Attributes:
        python: calls of functions written in Python; each resumption of a coroutine counts too.
        builtin: calls of functions written in C by Python code.
    """

    def __init__(self) -> None:
        self.python = 0
        self.builtin = 0

    def start(self) -> None:
        """Start counting."""
        sys.setprofile(self._note)

    def stop(self) -> None:
        """Stop counting."""
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            if not _is_excluded(frame.f_code):
                self.python += 1
        elif event == "c_call" and not _is_excluded(frame.f_code):
            self.builtin += 1


class Instructions:
    """Counts the interpreter's instructions.

    Attributes:
        by_code: function → the instructions that it executed itself.
    """

    def __init__(self) -> None:
        self.by_code: Counter[CodeType] = Counter()

    def start(self) -> None:
        """Start counting."""
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Stop counting."""
        sys.settrace(None)

    @property
    def total(self) -> int:
        """All of them."""
        return self.by_code.total()

    def by_function(self) -> dict[str, int]:
        """Return how many each function executed itself, by its module and name."""
        functions: Counter[str] = Counter()
        for code, count in self.by_code.items():
            functions[_name_of(code)] += count
        return dict(functions)

    def _enter(self, frame: FrameType, _event: str, _argument: object) -> Any:
        if _is_excluded(frame.f_code):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode":
            self.by_code[frame.f_code] += 1
        return self._step


class Memory:
    """Measures the peak of allocated memory.

    Attributes:
        peak_bytes: the peak above the memory at the start.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._before = 0

    def start(self) -> None:
        """Start measuring; `tracemalloc` must be running."""
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]

    def stop(self) -> None:
        """Stop measuring."""
        self.peak_bytes = tracemalloc.get_traced_memory()[1] - self._before


def _name_of(code: CodeType) -> str:
    """Name a function, the same on every machine."""
    path = code.co_filename
    for folder in ("/site-packages/", f"{TOP}/", f"/python{sys.version_info.major}.{sys.version_info.minor}/"):
        _, found, inner = path.partition(folder)
        if found:
            path = inner
            break
    return f"{path.removesuffix('.py').replace('/', '.')}:{code.co_qualname}"
