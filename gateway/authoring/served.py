"""What tools, prompts and resources have in common: an author's function that runs in legs."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from gateway.authoring.arguments import Arguments
from gateway.authoring.context import Context, PlainContext
from gateway.authoring.questions import Ask, Elicit, InputRequired
from gateway.engine.driver import LegFunction
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg, Migration
from gateway.errors import AuthoringError
from gateway.sealing.principal import Principal

_SCOPE = re.compile(r"[!#-\[\]-~]+", re.ASCII)
"""A scope token (RFC 6749 section 3.3)."""

Function: TypeAlias = Callable[..., Any]
Icons: TypeAlias = Iterable[Mapping[str, Any]]


class Served:
    """An authored function that clients reach. Calling the object calls the function, for the author's own tests.

    Args:
        function: `async def`, or `def` for what blocks: that runs in a thread, with the plain methods of the
            context and the return style.
        name: how clients name it, where that is not the function's name.
        version: rises when the meaning of what it keeps in its journal changes.
        title: a name for people.
        description: what it does, for people and models; the docstring unless given.
        icons: `Icon` objects of the protocol (MCP "Overview", icons).
        meta: the entry's `_meta` in the catalogue.
        state_ttl_seconds: how long an answer may take; the deployment's default if None.
        scopes: what a caller's token must grant to see and reach it (RFC 6749 section 3.3).
        asks: the questions it may ask, by key: a model, a JSON schema, or any question. Checked in tests and by
            `gateway dev`; None leaves the questions undeclared.

    Attributes:
        questions: each declared question by key, or None.
        asks: key → digest of each declared question, or None.
        migrations: version → (next version, function) for checkpoints.

    Raises:
        AuthoringError: it cannot be served as it is written.
    """

    KIND: ClassVar[str]

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        version: int = 1,
        title: str | None = None,
        description: str | None = None,
        icons: Icons | None = None,
        meta: Mapping[str, Any] | None = None,
        state_ttl_seconds: float | None = None,
        scopes: Iterable[str] = (),
        asks: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = getattr(function, "__name__", "") if name is None else name
        if type(version) is not int or version < 1:
            raise AuthoringError(f"{self} has version {version!r}; versions are 1, 2, 3, …")
        if state_ttl_seconds is not None and not state_ttl_seconds > 0:
            raise AuthoringError(f"{self} has state_ttl_seconds={state_ttl_seconds!r}; give more than 0")
        self.version = version
        self.title = title
        self.description = inspect.getdoc(function) or "" if description is None else description
        self.icons = None if icons is None else [dict(icon) for icon in icons]
        self.meta = meta
        self.state_ttl_seconds = state_ttl_seconds
        self.scopes = _scopes(scopes, str(self))
        self._declared = _declared(asks or {})
        self.questions = None if asks is None else {key: ask.question(key) for key, ask in self._declared.items()}
        self.asks = None if self.questions is None else {key: asked.digest for key, asked in self.questions.items()}
        self.migrations: dict[int, tuple[int, Migration]] = {}
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._arguments = self._read_signature(function)
        # Without its attributes: one called `version` would become the tool's.
        functools.update_wrapper(self, function, updated=())

    def _read_signature(self, function: Function) -> Arguments:
        return Arguments(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as it was written."""
        return self._function(*args, **kwargs)

    @property
    def label(self) -> str:
        """The name that it has in metrics and traces."""
        return self.name

    def __str__(self) -> str:
        return f"the {self.KIND} {self.name!r}"

    def __repr__(self) -> str:
        return f"<{self.KIND} {self.name} version {self.version}>"

    def migrate(self, *, from_: int, to: int) -> Callable[[Migration], Migration]:
        """Register how a checkpoint of version `from_` becomes one of version `to`.

        Raises:
            AuthoringError: the versions do not rise to its own, or there is a migration from there already.
        """
        if not 1 <= from_ < to <= self.version:
            raise AuthoringError(f"{self} has version {self.version}: no migration leads from {from_} to {to}")
        if from_ in self.migrations:
            raise AuthoringError(f"{self} has a migration from version {from_} already")

        def register(migration: Migration) -> Migration:
            self.migrations[from_] = (to, migration)
            return migration

        return register

    def bind(
        self,
        arguments: Mapping[str, Any],
        principal: Principal | None,
        journal: Journal | None = None,
    ) -> LegFunction:
        """Return what a leg runs: the function with these arguments.

        Args:
            arguments: as the client sent them.
            principal: who calls, None when anonymous.
            journal: of the leg.

        Raises:
            InvalidArguments: they do not fit the function.
        """
        thread = threading.get_ident()
        _READING[thread] = Work(self, journal)
        try:
            keywords = self._arguments.read(arguments)
        finally:
            del _READING[thread]
        return functools.partial(self._run, keywords, principal)

    async def _run(self, keywords: dict[str, Any], principal: Principal | None, leg: Leg) -> Any:
        context_name = self._arguments.context_name
        if context_name is not None:
            kind = Context if self._is_async else PlainContext
            keywords[context_name] = kind(leg, principal, self._declared)
        leg.caller = principal
        if self._is_async:
            value = await self._function(**keywords)
        else:
            value = await leg.host.run_sync(functools.partial(self._function, **keywords), caller=principal)
        if isinstance(value, InputRequired):
            leg.require({key: ask.question(key) for key, ask in value.questions.items()})
        return value

    def result(self, value: Any, target: str) -> dict[str, Any]:
        """Return the fields of this method's result for what the function returned.

        Args:
            value: what the function returned.
            target: the name or URI that the client asked for.

        Raises:
            AuthoringError: the value, or a part of it, cannot be told.
        """
        raise NotImplementedError

    def whole_result(self, value: Any, target: str, journal: Journal) -> dict[str, Any]:
        """Return the fields of the result: the emitted blocks, then what the function returned (replay rule 6).

        Raises:
            AuthoringError: like `result`; or blocks were emitted into a result that has none.
        """
        fields = self.result(value, target)
        if journal.segments:
            if "content" not in fields:
                raise AuthoringError(f"{self} emits blocks; only a tool's result is made of them")
            fields["content"] = [*journal.segments, *fields["content"]]
        return fields

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the entry as a list tells it."""
        entry: dict[str, Any] = {"name": self.name}
        if self.title is not None:
            entry["title"] = self.title
        if self.description:
            entry["description"] = self.description
        if self.icons is not None:
            entry["icons"] = self.icons
        if self.meta is not None:
            entry["_meta"] = dict(self.meta)
        return entry


_CALLS_THE_AUTHOR = frozenset(
    method.__code__
    for method in (Served._run, Served.whole_result)  # noqa: SLF001 - our own class
)


class Work(msgspec.Struct, frozen=True):
    """What a thread is busy with: a function of an author's, and the journal of the leg that it runs in."""

    served: Served
    journal: Journal | None


_READING: Final[dict[int, Work]] = {}
"""By thread: whose arguments it reads just now. An author's types may check them, and take long."""


def work_in(thread: int, stack: FrameType | None) -> Work | None:
    """Return whose function, or whose arguments or result, a thread is busy with; None if with none.

    Args:
        thread: its identifier.
        stack: its innermost frame.
    """
    reading = _READING.get(thread)
    if reading is not None:
        return reading
    while stack is not None:
        if stack.f_code in _CALLS_THE_AUTHOR:
            names = stack.f_locals
            return Work(names["self"], names["leg"].journal if "leg" in names else names["journal"])
        stack = stack.f_back
    return None


def _scopes(scopes: Iterable[str], where: str) -> frozenset[str]:
    if isinstance(scopes, str):
        raise AuthoringError(f"{where} has scopes={scopes!r}; give a list of scopes, not one text")
    names = frozenset(scopes)
    for name in names:
        if not _SCOPE.fullmatch(name):
            raise AuthoringError(f"{where} asks for the scope {name!r}, which no token can carry")
    return names


def _declared(asks: Mapping[str, Any]) -> dict[str, Ask[Any]]:
    return {key: ask if isinstance(ask, Ask) else Elicit("", ask) for key, ask in asks.items()}
