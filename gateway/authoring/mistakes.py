"""Finds what an author decorated by mistake, and where in the author's code an error comes from."""

from __future__ import annotations

import difflib
import functools
import inspect
import sysconfig
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Final

from gateway.errors import AuthoringError

_OURS: Final = Path(__file__).parents[1]
_LIBRARIES: Final = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_RECEIVERS: Final = frozenset({"self", "cls"})


def refuse_unservable(function: Any, kind: str) -> None:
    """Refuse what clients could not call: a class, a method without its object, a generator.

    Args:
        function: what the author decorated.
        kind: `tool`, `prompt` or `resource`.

    Raises:
        AuthoringError: it is one of these. The message says what to decorate instead.
    """
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isclass(function):
        raise AuthoringError(f"@{kind} cannot decorate the class {name!r}; decorate a function that uses it")
    if _is_method(function):
        raise AuthoringError(
            f"@{kind} cannot decorate the method {name!r} in its class; decorate a function outside the class, or the "
            f"method of an object: {function.__name__} = {kind}(my_object.{function.__name__})"
        )
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        parts = ", or send each part with `await ctx.emit(part)`" if kind == "tool" else ""
        raise AuthoringError(
            f"@{kind} cannot decorate the generator {name!r}; replace `yield` by one `return` of a list{parts}"
        )


def _is_method(function: Any) -> bool:
    """Return whether this is a method that its class still has to bind to an object."""
    if isinstance(function, (classmethod, staticmethod)):
        return True
    if not inspect.isfunction(function):
        return False
    scope = function.__qualname__.rpartition(".")[0]
    first = function.__code__.co_varnames[:1]
    return scope != "" and not scope.endswith("<locals>") and not _RECEIVERS.isdisjoint(first)


def refuse_unknown_options(kind: str, options: Iterable[str], *takers: Callable[..., Any]) -> None:
    """Refuse options that a decorator does not have.

    Args:
        kind: `tool` or `prompt`.
        options: the names that the author passed.
        takers: the classes whose keyword-only parameters are the options.

    Raises:
        AuthoringError: an option is unknown. The message suggests the one that is meant, or lists all.
    """
    known = frozenset().union(*map(_keywords_of, takers))
    for name in options:
        if name not in known:
            raise AuthoringError(f"@{kind} has no option {name!r}; {known_name(name, known, 'its options are')}")


def known_name(name: str, known: Iterable[str], listing: str, likeness: float = 0.8) -> str:
    """Return advice for an unknown name: the one that is meant, or all that there are."""
    similar = difflib.get_close_matches(name, known, n=1, cutoff=likeness)
    return f"did you mean {similar[0]!r}?" if similar else f"{listing} {', '.join(sorted(known))}"


@functools.cache
def _keywords_of(taker: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(taker).parameters.values()
    return frozenset(each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY)


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation such as `Context | None`, with their bases."""
    yield from getattr(annotation, "__mro__", ())
    for part in typing.get_args(annotation):
        yield from classes_in(part)


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is defined, as `file:line`, or its name if it has no Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return repr(function)
    return _place(code.co_filename, code.co_firstlineno)


def place_of_error(error: BaseException) -> str | None:
    """Return the place in the author's code that an error comes from, as `file:line`, or None if none is known."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return _place(error.filename, error.lineno)
    places = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not Path(frame.filename).is_relative_to(_OURS)
    ]
    authors = [place for place in places if not any(place[0].is_relative_to(folder) for folder in _LIBRARIES)]
    for path, line in reversed(authors or places):
        return _place(str(path), line)
    return None


def _place(filename: str, line: int | None) -> str:
    path = Path(filename)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}:{line}"
