"""Which of our code is measured: compiled or from the source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gateway
from gateway.runtime.compilation import is_compiled

FOLDER: Final = Path(gateway.__file__).parent.parent


def kind() -> str:
    """Return the kind of code that is measured: compiled or interpreted."""
    return "compiled" if is_compiled() else "interpreted"


def problem(top: Path, *, interpreted: bool, compiled: bool | None = None) -> str | None:
    """Return the reason not to measure here, or None.

    Args:
        top: the folder in which processes start; they import the gateway from there.
        interpreted: whether to measure the source tree.
        compiled: whether this process runs compiled code; detected if None.
    """
    compiled = is_compiled() if compiled is None else compiled
    if top != FOLDER:
        return f"this process imports the gateway of {FOLDER}, but those started here would import that of {top}"
    if interpreted and compiled:
        return "this copy is compiled: run --interpreted in the source tree"
    if not interpreted and not compiled:
        return "this is the source tree, not compiled: run `make bench`, or choose --interpreted"
    return None
