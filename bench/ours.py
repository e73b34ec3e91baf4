"""Which of our code is measured: the compiled one or the source tree as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import gateway
from gateway.runtime.compilation import is_compiled

FOLDER: Final = Path(gateway.__file__).parent.parent


def kind() -> str:
    """What is measured, in a word."""
    return "compiled" if is_compiled() else "interpreted"


def problem(top: Path, *, interpreted: bool, compiled: bool | None = None) -> str | None:
    """What is wrong with measuring here, or None.

    Args:
        top: the folder in which processes are started; they import the gateway that is there.
        interpreted: whether the source tree is to be measured.
        compiled: whether this process runs compiled code; looked for if None.
    """
    compiled = is_compiled() if compiled is None else compiled
    if top != FOLDER:
        return f"this process imports the gateway of {FOLDER}, but those started here would import that of {top}"
    if interpreted and compiled:
        return "this copy is compiled: run --interpreted in the source tree"
    if not interpreted and not compiled:
        return "this is the source tree, not compiled: run `make bench`, or choose --interpreted"
    return None
