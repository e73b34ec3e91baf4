"""The modules that execute the instructions of a leg; compiling any others would not pay."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from bench.counts.meters import TOP
from bench.counts.run import Counted

LEGS: Final = ("echo", "one question, leg 1", "one question, leg 2")
LEAST_PERCENT: Final = 1.0
"""The share from which compiling a module is worth the rules that it imposes."""

BASES: Final = frozenset({"gateway/engine/stoppable_leg.py"})
"""Compiled whatever their share: a compiled class can only inherit from a compiled one."""


def largest_shares(counted: Mapping[str, Counted]) -> dict[str, float]:
    """Return each of our modules' largest share in the instructions of one leg, in percent."""
    largest: dict[str, float] = {}
    for case in counted.values():
        total = sum(case.functions.values())
        modules: Counter[str] = Counter()
        for function, instructions in case.functions.items():
            modules[function.partition(":")[0].replace(".", "/") + ".py"] += instructions
        for module, instructions in modules.items():
            if module.startswith("gateway/"):
                largest[module] = max(largest.get(module, 0.0), round(100 * instructions / total, 1))
    return largest


def compiled_modules() -> dict[str, float]:
    """Return the compiled modules with the shares that setup.py has for them."""
    compiled: dict[str, float] = runpy.run_path(str(TOP / "setup.py"))["COMPILED"]
    return compiled


def leaving(shares: Mapping[str, float], compiled: Mapping[str, float]) -> list[str]:
    """Return the compiled modules whose share is too small, and that no other needs."""
    return [module for module in compiled if shares.get(module, 0.0) < LEAST_PERCENT and module not in BASES]


def lines(shares: Mapping[str, float], compiled: Mapping[str, float]) -> Iterator[str]:
    """Write the table for setup.py with current shares, and the other modules with a large enough share."""
    for module in compiled:
        yield f'    "{module}": {shares.get(module, 0.0)},'
    yield "\nInterpreted (docs/run/compiled.md says why):"
    for module, share in sorted(shares.items()):
        if module not in compiled and share >= LEAST_PERCENT:
            yield f"    {module}: {share}"
