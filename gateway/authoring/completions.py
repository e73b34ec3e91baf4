"""The `complete` decorator: suggestions for an argument while a user types it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Any, Generic

from typing_extensions import TypeVar

from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.authoring.served import P, Q
from gateway.engine.host import Host
from gateway.errors import AuthoringError

MAX_VALUES = 100
"""The most suggestions in one result (MCP "Completion")."""

Found = TypeVar("Found", bound=Iterable[str] | Awaitable[Iterable[str]])
Found_co = TypeVar("Found_co", covariant=True, bound=Iterable[str] | Awaitable[Iterable[str]], default=Any)


class Completer(Generic[P, Found_co]):
    """Suggests values for one argument of a prompt or one variable of a resource template; see `complete`."""

    def __init__(self, function: Callable[P, Found_co], target: Prompt | Resource, argument: str) -> None:
        names = target.argument_names if isinstance(target, Prompt) else _variables(target)
        if argument not in names:
            raise AuthoringError(f"{target} has no argument {argument!r}")
        self.target = target
        self.argument = argument
        self._function: Callable[..., Any] = function
        self._takes_arguments = len(inspect.signature(function).parameters) > 1

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Found_co:
        """Call the author's function directly."""
        found: Found_co = self._function(*args, **kwargs)
        return found

    async def suggest(
        self, value: str, arguments: Mapping[str, str], host: Host, caller: Hashable = None
    ) -> dict[str, Any]:
        """Return the `completion` object: up to 100 values, and how many there are in total."""
        given: tuple[Any, ...] = (value, dict(arguments)) if self._takes_arguments else (value,)
        if inspect.iscoroutinefunction(self._function):
            found: Iterable[str] = await host.bounded(self._function(*given))
        else:
            found = await host.bounded(host.run_sync(self._function, *given, caller=caller))
        values = [str(text) for text in found]
        return {"values": values[:MAX_VALUES], "total": len(values), "hasMore": len(values) > MAX_VALUES}


def complete(target: Prompt | Resource, argument: str) -> Callable[[Callable[Q, Found]], Completer[Q, Found]]:
    """Suggest values for an argument of a prompt, or for a variable of a resource template.

    The decorated function takes the text typed so far. If it has a second parameter, it also gets a dict of the
    arguments that are already filled in. It returns strings, best first. Use `async def`, or `def` for code that
    blocks::

        @complete(greeting, "language")
        def languages(typed: str) -> list[str]:
            return [name for name in LANGUAGES if name.startswith(typed)]

    Args:
        target: the decorated prompt or resource.
        argument: the name of its argument or variable.

    Raises:
        AuthoringError: the target has no such argument.
    """
    return lambda function: Completer(function, target, argument)


def _variables(target: Resource) -> frozenset[str]:
    return frozenset() if target.template is None else frozenset(target.template.variables)
