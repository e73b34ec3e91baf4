"""The `complete` decorator: suggestions for an argument while a user types it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.engine.host import Host
from gateway.errors import AuthoringError

MAX_VALUES = 100
"""Suggestions in one result (MCP "Completion")."""

Suggest = Callable[..., Any]


class Completer:
    """Suggests values for one argument of a prompt or one variable of a resource template.

    Args:
        function: takes what is typed so far and, if it wants, the arguments already given; returns texts,
            best first. `async def`, or `def` for what blocks.
        target: the prompt or resource.
        argument: the argument's or variable's name.
    """

    def __init__(self, function: Suggest, target: Prompt | Resource, argument: str) -> None:
        names = target.argument_names if isinstance(target, Prompt) else _variables(target)
        if argument not in names:
            raise AuthoringError(f"{target} has no argument {argument!r}")
        self.target = target
        self.argument = argument
        self._function = function
        self._takes_arguments = len(inspect.signature(function).parameters) > 1

    def __call__(self, *args: Any) -> Any:
        """Call the function as it was written."""
        return self._function(*args)

    async def suggest(
        self, value: str, arguments: Mapping[str, str], host: Host, caller: Hashable = None
    ) -> dict[str, Any]:
        """Return the `completion` object: at most 100 values, and how many there are."""
        given: tuple[Any, ...] = (value, dict(arguments)) if self._takes_arguments else (value,)
        if inspect.iscoroutinefunction(self._function):
            found: Iterable[str] = await host.bounded(self._function(*given))
        else:
            found = await host.bounded(host.run_sync(self._function, *given, caller=caller))
        values = [str(text) for text in found]
        return {"values": values[:MAX_VALUES], "total": len(values), "hasMore": len(values) > MAX_VALUES}


def complete(target: Prompt | Resource, argument: str) -> Callable[[Suggest], Completer]:
    """Suggest values for an argument of a prompt, or a variable of a resource template.

    Raises:
        AuthoringError: it has no such argument.
    """
    return lambda function: Completer(function, target, argument)


def _variables(target: Resource) -> frozenset[str]:
    return frozenset() if target.template is None else frozenset(target.template.variables)
