"""The `lifespan` decorator: something that a process opens once and all calls share, such as an HTTP client."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from gateway.authoring.mistakes import place_of, place_of_error
from gateway.errors import AuthoringError, ConfigurationError

T = TypeVar("T")


class Lifespan(Generic[T]):
    """A shared value, opened when the process starts and closed when it ends; see `lifespan`."""

    def __init__(self, function: Callable[[], AsyncIterator[T]]) -> None:
        self.name = function.__name__
        self.place = place_of(function)
        self._open = contextlib.asynccontextmanager(_yielding(function))
        self._values: list[T] = []

    @property
    def value(self) -> T:
        """The value that the function yielded.

        Raises:
            AuthoringError: the lifespan is not open.
        """
        if not self._values:
            raise AuthoringError(f"the lifespan {self.name!r} is not open; it opens when the process starts")
        return self._values[-1]

    @property
    def is_open(self) -> bool:
        """Whether the lifespan is open and has a value."""
        return bool(self._values)

    @contextlib.contextmanager
    def using(self, value: T) -> Iterator[T]:
        """Use another value while the context is open. Use it in tests."""
        self._values.append(value)
        try:
            yield value
        finally:
            self._values.pop()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[T]:
        """Open the value, and close it when the context ends."""
        async with self._open() as value:
            with self.using(value):
                yield value


def lifespan(function: Callable[[], AsyncIterator[T]]) -> Lifespan[T]:
    """Open something once per process, and share it among all calls.

    The function yields the shared value once, and closes it after the `yield`. Read the value as `.value`::

        @lifespan
        async def http() -> AsyncIterator[httpx.AsyncClient]:
            async with httpx.AsyncClient() as client:
                yield client

        @tool
        async def status(url: str) -> str:
            return str((await http.value.get(url)).status_code)

    Raises:
        AuthoringError: the function yields nothing, or is not `async`.
    """
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or inspect.isclass(function):
        raise _yields_nothing(function)
    return Lifespan(function)


def _yielding(function: Callable[[], AsyncIterator[T]]) -> Callable[[], AsyncIterator[T]]:
    """Return a function that checks what it makes: only calling a plain `def` shows whether that can yield a value."""

    @functools.wraps(function)
    def made() -> AsyncIterator[T]:
        values = function()
        if not hasattr(values, "__anext__"):
            raise _yields_nothing(function)
        return values

    return made


def _yields_nothing(function: Callable[..., Any]) -> AuthoringError:
    name = getattr(function, "__qualname__", repr(function))
    return AuthoringError(f"@lifespan needs an `async def` that yields the shared value once; {name!r} does not")


@contextlib.asynccontextmanager
async def open_all(lifespans: Iterable[Lifespan[Any]]) -> AsyncIterator[None]:
    """Open lifespans in order, and close them in reverse order."""
    async with contextlib.AsyncExitStack() as stack:
        for entry in lifespans:
            await stack.enter_async_context(entry.opened())
        yield


async def open_at_start(lifespans: Iterable[Lifespan[Any]], stack: contextlib.AsyncExitStack) -> None:
    """Open lifespans in order as a process starts; `stack` closes them.

    Raises:
        ConfigurationError: a lifespan failed to open, or asked the process to exit. The message names it.
    """
    for entry in lifespans:
        try:
            await stack.enter_async_context(entry.opened())
        except (Exception, SystemExit) as error:
            where = place_of_error(error, entry.place)
            problem = f"{type(error).__name__}: {' '.join(str(error).split())} ({where})"
            raise ConfigurationError(f"the lifespan {entry.name!r} failed to open: {problem}") from error
