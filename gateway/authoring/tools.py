"""The `tool` decorator and what it makes of a function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, overload

from gateway.authoring.arguments import Arguments
from gateway.authoring.context import Context
from gateway.authoring.questions import Ask, Elicit
from gateway.engine.leg import Leg, LegFunction, Migration
from gateway.errors import AuthoringError
from gateway.sealing.binding import Principal

Function = Callable[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)


class Tool:
    """A function that clients may call. Calling the object calls the function, for the author's own tests.

    Attributes:
        name: 1 to 128 characters of `A-Z a-z 0-9 _ . -` (MCP "Tools", Tool Names).
        version: rises when the meaning of what the tool keeps in its journal changes.
        description: the function's docstring unless given.
        input_schema: JSON Schema of the arguments.
        state_ttl_seconds: how long a sealed state of this tool may wait for its answer, or None for the
            deployment's default.
        asks: key → digest of each declared question, or None where the author declared none.
        migrations: version → (next version, function) for checkpoints.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        version: int = 1,
        title: str | None = None,
        description: str | None = None,
        state_ttl_seconds: float | None = None,
        asks: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = getattr(function, "__name__", "") if name is None else name
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise AuthoringError(f"{self.name!r} is no tool name: 1 to 128 characters of A-Z a-z 0-9 _ . -")
        if not inspect.iscoroutinefunction(function):
            raise AuthoringError(f"the tool {self.name!r} is not an async function; write `async def`")
        if type(version) is not int or version < 1:
            raise AuthoringError(f"the tool {self.name!r} has version {version!r}; versions are 1, 2, 3, …")
        if state_ttl_seconds is not None and not state_ttl_seconds > 0:
            raise AuthoringError(
                f"the tool {self.name!r} has state_ttl_seconds={state_ttl_seconds!r}; give more than 0"
            )
        self.version = version
        self.title = title
        self.description = description or inspect.getdoc(function) or ""
        self.state_ttl_seconds = state_ttl_seconds
        self.asks = None if asks is None else {key: _digest(key, ask) for key, ask in asks.items()}
        self.migrations: dict[int, tuple[int, Migration]] = {}
        self._function = function
        self._arguments = Arguments(function)
        self.input_schema = self._arguments.schema
        # Without its attributes: one called `version` would become the tool's.
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it was written."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} version {self.version}>"

    def migrate(self, *, from_: int, to: int) -> Callable[[Migration], Migration]:
        """Register how a checkpoint of version `from_` becomes one of version `to`.

        Raises:
            AuthoringError: the versions do not rise to the tool's own, or there is one from there already.
        """
        if not 1 <= from_ < to <= self.version:
            raise AuthoringError(f"{self.name}: no migration from {from_} to {to} in a tool of version {self.version}")
        if from_ in self.migrations:
            raise AuthoringError(f"{self.name}: there is a migration from version {from_} already")

        def register(migration: Migration) -> Migration:
            self.migrations[from_] = (to, migration)
            return migration

        return register

    def bind(self, arguments: Mapping[str, Any], principal: Principal | None) -> LegFunction:
        """Return what a leg runs: the function with these arguments.

        Raises:
            InvalidArguments: they do not fit the function.
        """
        keywords = self._arguments.read(arguments)
        context_name = self._arguments.context_name
        if context_name is None:
            return lambda _leg: self._function(**keywords)

        def run(leg: Leg) -> Any:
            return self._function(**{context_name: Context(leg, principal)}, **keywords)

        return run

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the tool as `tools/list` tells it (MCP "Tools", Tool)."""
        entry: dict[str, Any] = {"name": self.name}
        if self.title is not None:
            entry["title"] = self.title
        entry["description"] = self.description
        entry["inputSchema"] = self.input_schema
        return entry


def _digest(key: str, ask: Any) -> bytes:
    question: Ask[Any] = ask if isinstance(ask, Ask) else Elicit("", ask)
    return question.question(key).digest


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(
    name: str | None = None,
    /,
    *,
    version: int = 1,
    title: str | None = None,
    description: str | None = None,
    state_ttl_seconds: float | None = None,
    asks: Mapping[str, Any] | None = None,
) -> Callable[[Function], Tool]: ...


def tool(function_or_name: Function | str | None = None, /, **options: Any) -> Tool | Callable[[Function], Tool]:
    """Make a tool of an async function: `@tool`, `@tool("name")` or `@tool(version=2, …)`.

    Args:
        function_or_name: the function itself, or the tool's name where it is not the function's.
        **options: `version`, raised when what the tool keeps between legs changes its meaning; `title` and
            `description` for people and models; `state_ttl_seconds`, how long an answer may take; `asks`,
            the questions by key (pydantic model or JSON schema), checked in tests and by `gateway dev`.

    Raises:
        AuthoringError: the tool cannot be served as it is written.
    """
    if callable(function_or_name):
        return Tool(function_or_name, **options)
    return lambda function: Tool(function, name=function_or_name, **options)
