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
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Literal, NoReturn

from gateway.errors import AuthoringError

MAX_EXPLANATION_CHARACTERS: Final = 2000
"""An error may say anything; longer texts are cut."""

_OURS: Final = Path(__file__).parents[1]
_PACKAGES: Final = frozenset({"gateway", "gateway_workers"})
_DEMO: Final = "gateway.demo"
_LIBRARIES: Final = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_RECEIVERS: Final = frozenset({"self", "cls"})


def refuse_unservable(function: Any, kind: str) -> None:
    """Refuse what clients could not call: a class, a method without its object, a generator.

    The message of the `AuthoringError` says what to decorate instead.
    """
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isclass(function):
        raise AuthoringError(f"@{kind} cannot decorate the class {name!r}; decorate a function that uses it")
    if isinstance(function, (classmethod, staticmethod)):
        _refuse_method(function, kind, f"of the class: {function.__name__} = {_decorator(kind)}({name})")
    if _is_method(function):
        method = f"my_object.{function.__name__}"
        _refuse_method(function, kind, f"of an object: {function.__name__} = {_decorator(kind)}({method})")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        parts = ", or send each part with `await ctx.emit(part)`" if kind == "tool" else ""
        raise AuthoringError(
            f"@{kind} cannot decorate the generator {name!r}; replace `yield` by one `return` of a list{parts}"
        )


def _refuse_method(function: Any, kind: str, whose: str) -> NoReturn:
    raise AuthoringError(
        f"@{kind} cannot decorate the method {function.__qualname__!r} in its class; decorate a function outside the "
        f"class, or the method {whose}"
    )


def _decorator(kind: str) -> str:
    return "resource(uri)" if kind == "resource" else kind


def _is_method(function: Any) -> bool:
    """Return whether this is a method that its class still has to bind to an object."""
    if not inspect.isfunction(function):
        return False
    scope = function.__qualname__.rpartition(".")[0]
    first = function.__code__.co_varnames[:1]
    return scope != "" and not scope.endswith("<locals>") and not _RECEIVERS.isdisjoint(first)


def refuse_unknown_options(kind: str, options: Iterable[str], *takers: Callable[..., Any]) -> None:
    """Refuse options that a decorator does not have.

    `takers` are the classes whose keyword-only parameters are the options.

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
    return place_of_code(code, code.co_firstlineno)


def place_of_code(code: CodeType, line: int) -> str:
    """Return the place of a line of code, as `file:line`."""
    return _place(code.co_filename, line)


def place_of_error(error: BaseException, otherwise: str | None = None) -> str | None:
    """Return the place in the author's code that an error comes from, as `file:line`.

    If none of the author's code ran, return `otherwise`, by default a place in a library, if any.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return _place(error.filename, error.lineno)
    places = [part for part in _parts(error) if _owner(part.tb_frame) != "gateway"]
    authors = [part for part in places if _owner(part.tb_frame) == "author"]
    for part in reversed(authors or (places if otherwise is None else [])):
        return _place(part.tb_frame.f_code.co_filename, part.tb_lineno)
    return otherwise


def explain(error: BaseException) -> str:
    """Return what an error says, on one line, with the name of its class if it is not about the authoring API."""
    text = str(error) if isinstance(error, AuthoringError) else "".join(traceback.format_exception_only(error))
    line = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return line if len(line) <= MAX_EXPLANATION_CHARACTERS else line[:MAX_EXPLANATION_CHARACTERS] + "…"


def cut_to_author(error: BaseException) -> None:
    """Make tracebacks begin at the author's code, and drop the gateway's frames, in an error and all that led to it.

    A traceback without the author's code stays whole, unless a rule of the authoring API was broken.
    """
    for each in _led_to(error):
        each.__traceback__ = _cut(each)


def drop_tracebacks(error: BaseException) -> None:
    """Drop the tracebacks of an error that has been reported, and of all that led to it.

    They lead to the leg, which has the error: a circle that would keep the arguments until the collector runs.
    """
    for each in _led_to(error):
        each.__traceback__ = None


def _led_to(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _cut(error: BaseException) -> TracebackType | None:
    parts = list(_parts(error))
    owners = [_owner(part.tb_frame) for part in parts]
    if "author" not in owners:
        return None if isinstance(error, AuthoringError) else error.__traceback__
    cut: TracebackType | None = None
    calls_gateway = False
    for part, owner in reversed(list(zip(parts, owners, strict=True))[owners.index("author") :]):
        calls_gateway = owner == "gateway" or (owner == "library" and calls_gateway)
        if not calls_gateway:
            cut = TracebackType(cut, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return cut


def _parts(error: BaseException) -> Iterator[TracebackType]:
    part = error.__traceback__
    while part is not None:
        yield part
        part = part.tb_next


def _owner(frame: FrameType) -> Literal["gateway", "library", "author"]:
    """Return whose code a frame runs."""
    path, module = Path(frame.f_code.co_filename), frame.f_globals.get("__name__", "")
    # Compiled modules have no path. The demo tools are an author's.
    if (module.partition(".")[0] in _PACKAGES or path.is_relative_to(_OURS)) and not module.startswith(_DEMO):
        return "gateway"
    if path.name.startswith("<") or any(path.is_relative_to(folder) for folder in _LIBRARIES):
        return "library"
    return "author"


def _place(filename: str, line: int | None) -> str:
    path = Path(filename)
    try:
        here = Path.cwd()
    except OSError:  # somebody has removed it
        return f"{path}:{line}"
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}:{line}"
