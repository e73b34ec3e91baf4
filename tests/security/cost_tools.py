"""Tools that check arguments against every schema of the grid, and one that reports this process's CPU time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from gateway import tool
from gateway.errors import AuthoringError
from tests.security.hostile_schemas import PRODUCTS
from tests.security.schema_cases import CASES, Case


@tool
async def spent() -> str:
    """Return how many seconds of CPU this process has used."""
    return repr(time.process_time())


@tool(input_schema={"type": "object"})
async def unchecked(**arguments: Any) -> str:
    """Take anything."""
    return "fits"


@tool(input_schema={"type": "object", "properties": {"v": {"type": "array"}}})
async def benign(**arguments: Any) -> str:
    """Take a list that is hardly checked."""
    return "fits"


def _taking() -> Callable[..., Coroutine[Any, Any, str]]:
    async def take(**arguments: Any) -> str:
        """Take what fits."""
        return "fits"

    return take


def _checking(case: Case) -> Any:
    return tool(name=case.tool, input_schema=case.input_schema)(_taking())


for _case in CASES:
    globals()[_case.tool] = _checking(_case)
for _case in PRODUCTS:
    with contextlib.suppress(AuthoringError):  # schemas too slow to check may be rejected at once
        globals()[_case.tool] = _checking(_case)
