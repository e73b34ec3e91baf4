"""Draws curves as one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from matplotlib import rc_context
from matplotlib.figure import Figure

COLUMNS: Final = 3
CELL_INCHES: Final = (3.6, 2.6)


def plot(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], folder: Path) -> Path:
    """Draw each curve over its sizes, from zero up, write `growth.svg`, and return its path."""
    rows = -(-len(curves) // COLUMNS)
    with rc_context({"svg.hashsalt": "growth", "font.size": 8}):
        figure = Figure(figsize=(CELL_INCHES[0] * COLUMNS, CELL_INCHES[1] * rows), layout="constrained")
        for place, (name, (sizes, costs)) in enumerate(curves.items(), start=1):
            axes = figure.add_subplot(rows, COLUMNS, place)
            axes.plot(sizes, costs, marker="o", markersize=3)
            axes.set_ylim(0, 1.1 * max(costs))
            axes.set_xlabel(name)
            axes.set_ylabel("CPU µs a request")
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "growth.svg"
        figure.savefig(path, metadata={"Date": None})
    return path
