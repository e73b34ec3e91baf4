"""Mistakes in a test, and what the author may have meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.authoring.served import Served
from gateway.errors import GatewayError


class RunError(GatewayError):
    """The test itself is wrong: an answer that does not fit, an unused answer, an unknown option, a missed fault.

    The message names the fix. A tool never causes a `RunError`.
    """


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that an unknown one resembles, or None."""
    similar = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return similar[0] if similar else None


def advice(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the end of a message about an unknown name: what is meant, or which names there are."""
    names = list(known)
    similar = meant(name, names)
    if similar is not None:
        return f"did you mean {similar!r}?"
    return f"{otherwise}: {', '.join(map(repr, names))}" if names else f"{otherwise}: none"


def check_served(served: Any, called: str) -> None:
    """Check that a test runs a tool, prompt or resource.

    Args:
        served: what the test passed.
        called: the function of this package that it was passed to.

    Raises:
        RunError: it is anything else.
    """
    if isinstance(served, Served):
        return
    if inspect.iscoroutine(served):
        served.close()
        name = served.__name__
        raise RunError(f"{called}() calls the tool itself; write {called}({name}, {{…}}), not {called}({name}(…))")
    if inspect.ismethod(served):
        name = served.__name__
        raise RunError(
            f"{called}() takes a tool, prompt or resource, but {name!r} is a method; "
            f"write {name} = tool(my_object.{name})"
        )
    if inspect.isroutine(served):
        name = getattr(served, "__name__", repr(served))
        raise RunError(
            f"{called}() takes a tool, prompt or resource, but {name!r} is a plain function; decorate it with @tool"
        )
    raise RunError(
        f"{called}() takes a function decorated with @tool, @prompt or @resource, not an object of type "
        f"{type(served).__name__!r}"
    )


def check_arguments(arguments: Any, called: str) -> Mapping[str, Any]:
    """Return the arguments of a call.

    Raises:
        RunError: they are not a mapping.
    """
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise RunError(
            f"{called}() takes the arguments as a dict, such as {called}(tool, {{'name': …}}), not a value of type "
            f"{type(arguments).__name__!r}"
        )
    return arguments
