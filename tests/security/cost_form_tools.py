"""Tools that ask for every form, in a call and as a task."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from gateway import Context, tool
from tests.security.form_cases import FORMS


def _asking(schema: Any) -> Callable[[Context], Coroutine[Any, Any, str]]:
    async def ask(ctx: Context) -> str:
        """Ask for a value that fits."""
        await ctx.elicit("form", "What fits?", schema)
        return "fits"

    return ask


for _form in FORMS:
    for _kind, _schema in (("model", _form.model), ("raw", _form.raw)):
        globals()[_form.tool(_kind)] = tool(name=_form.tool(_kind))(_asking(_schema))
        globals()[_form.task(_kind)] = tool(name=_form.task(_kind), task="required")(_asking(_schema))
