"""The base of tools, prompts and resources: an author's function that runs in legs."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from types import CoroutineType, FrameType
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias

import msgspec
from typing_extensions import ParamSpec, TypeVar

from gateway.authoring.arguments import Arguments
from gateway.authoring.context import Context, PlainContext
from gateway.authoring.forms.questions import Ask, Elicit, InputRequired
from gateway.authoring.listings import listed_icons
from gateway.authoring.mistakes import place_of, refuse_unservable
from gateway.authoring.misuse import explained
from gateway.authoring.readable import readable
from gateway.engine.driver import LegFunction
from gateway.engine.journal import Journal
from gateway.engine.leg import Leg, Migration
from gateway.engine.values import refuse_coroutine
from gateway.errors import AuthoringError
from gateway.protocol.caller import Caller, Exchange, Requester, RequesterOf
from gateway.sealing.principal import Principal

_SCOPE = re.compile(r"[!#-\[\]-~]+", re.ASCII)
"""A scope token (RFC 6749 section 3.3)."""

_COROUTINE: Final = "<coroutine object "
_COROUTINE_NAME: Final = re.compile(r"<coroutine object ([^ ]+) at 0x")

P = ParamSpec("P", default=...)
R_co = TypeVar("R_co", covariant=True, default=Any)
"""The parameters and the result of a decorated function. In a bare `Tool`, both are unknown."""

Q = ParamSpec("Q")
R = TypeVar("R")
"""The same for a decorator. They have no defaults, as mypy then cannot match the decorator with its return type."""

TaskSupport: TypeAlias = Literal["forbidden", "optional", "required"]
TaskStart: TypeAlias = Literal["task", "call"]

M = TypeVar("M", bound=Migration)
Icons: TypeAlias = Iterable[Mapping[str, Any]]


class Served(Generic[P, R_co]):
    """A function that clients can call. In your own tests, calling the object calls the function directly.

    A plain `def` is for code that blocks. It runs in a thread, with the methods of `PlainContext` and the return style.
    See `resource` for the options. Icons are those of MCP "Overview", scopes those of RFC 6749 section 3.3.

    Attributes:
        asks: the digests of the declared questions by key, or None.
        migrations: for checkpoints: version → (next version, function).
        place: where the function is defined, as `file:line`.
        hides: an earlier entry of the same module that this one hides, because their functions have one name.
        makes_objects: whether arguments may become objects, which `memory_of` counts.
        upstream: the name of the other server that a relay belongs to; "" for everything of our own.
        limited: whether the host's time limit applies to a leg. A relay keeps one of its own.
        task: as `start`, `single_use` and `leg_seconds`, an option of tools alone.

    Raises:
        AuthoringError: the function or an option breaks a rule of the authoring API.
    """

    KIND: ClassVar[str]

    upstream: str = ""
    limited: ClassVar[bool] = True
    task: TaskSupport = "forbidden"
    start: TaskStart = "task"
    single_use: bool = False
    leg_seconds: float | None = None
    makes_objects: bool = False

    def __init__(
        self,
        function: Callable[P, R_co],
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
        refuse_unservable(function, self.KIND)
        self.name = getattr(function, "__name__", "") if name is None else name
        self._check_options(version, state_ttl_seconds)
        self.version = version
        self.title = title
        self.description = inspect.getdoc(function) or "" if description is None else description
        self.icons = None if icons is None else listed_icons(icons, str(self))
        self.meta = meta
        self.state_ttl_seconds = state_ttl_seconds
        self.scopes = _scopes(scopes, str(self))
        self._declared = _declared(asks or {})
        self.questions = None if asks is None else {key: ask.question(key) for key, ask in self._declared.items()}
        self.asks = None if self.questions is None else {key: asked.digest for key, asked in self.questions.items()}
        self.migrations: dict[int, tuple[int, Migration]] = {}
        self.place = place_of(function)
        self.hides = _hidden_by(function)
        self._function: Callable[..., Any] = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._arguments = self._read_signature(function)
        self.makes_objects = self._arguments.makes_objects
        # Without the function's attributes: one named `version` would become the tool's version.
        functools.update_wrapper(self, function, updated=())

    def _check_options(self, version: int, state_ttl_seconds: float | None) -> None:
        if type(version) is not int or version < 1:
            raise AuthoringError(f"{self} has version {version!r}; use 1, 2, 3, …")
        self._check_seconds("state_ttl_seconds", state_ttl_seconds)

    def _check_seconds(self, option: str, given: float | None) -> None:
        if given is not None and not given > 0:
            raise AuthoringError(f"{self} has {option}={given!r}; use a number greater than 0")

    def _read_signature(self, function: Callable[P, R_co]) -> Arguments:
        return Arguments(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the author's function directly."""
        value: R_co = self._function(*args, **kwargs)
        return value

    @property
    def label(self) -> str:
        """The name in metrics and traces."""
        return self.name

    @property
    def starts_as_task(self) -> bool:
        """Whether a call is a task from the start, if the client supports tasks."""
        return self.task != "forbidden" and self.start == "task"

    def __str__(self) -> str:
        return f"the {self.KIND} {self.name!r}"

    def __repr__(self) -> str:
        return f"<{self.KIND} {self.name} version {self.version}>"

    def migrate(self, *, from_: int, to: int) -> Callable[[M], M]:
        """Register a function that turns a checkpoint of version `from_` into one of version `to`.

        The decorated function takes the value of the old checkpoint and returns that of the new one::

            @crawl.migrate(from_=1, to=2)
            def add_depth(checkpoint: Any) -> Any:
                return {**checkpoint, "depth": 0}

        Raises:
            AuthoringError: `to` is not greater than `from_`, or is greater than the current version, or there is
                already a migration from `from_`.
        """
        if not 1 <= from_ < to <= self.version:
            raise AuthoringError(f"{self} has version {self.version}; it cannot have a migration from {from_} to {to}")
        if from_ in self.migrations:
            raise AuthoringError(f"{self} already has a migration from version {from_}")

        def register(migration: M) -> M:
            self.migrations[from_] = (to, migration)
            return migration

        return register

    def bind(
        self,
        arguments: Mapping[str, Any],
        principal: Principal | None,
        journal: Journal | None = None,
        exchange: Exchange | None = None,
    ) -> LegFunction:
        """Return the function with its arguments, as a leg runs it.

        Raises:
            InvalidArguments: the arguments are not valid for the function.
        """
        if self._arguments.are_plain:
            return functools.partial(self._run, self._arguments.read(arguments), principal, exchange)
        thread = threading.get_ident()
        _READING[thread] = ThreadWork(self, journal)
        try:
            keywords = self._arguments.read(arguments)
        finally:
            del _READING[thread]
        return functools.partial(self._run, keywords, principal, exchange)

    def begin(
        self, _target: str, arguments: dict[str, Any], caller: Caller | Requester, _: RequesterOf, journal: Journal, /
    ) -> LegFunction:
        """Return what runs a leg of a client's call. A relay also uses the name or URI that the client sent.

        Raises:
            Exception: the outcome of the leg. An argument's type may have a validator by the author.
        """
        return self.bind(arguments, caller.principal, journal, caller.exchange)

    def memory_of(self, arguments: Mapping[str, Any]) -> int:
        """Return how many bytes of memory the objects take that the function receives, 0 if they are few."""
        return self._arguments.memory_of(arguments)

    async def prepare_task(self, _requester: RequesterOf, _journal: Journal, /) -> None:
        """Keep in the journal what the legs of a task need, because no request carries them.

        Raises:
            Exception: the call cannot become a task.
        """

    async def abandon(self, _requester: RequesterOf, _journal: Journal, /) -> None:
        """End a call that has asked and cannot be continued, because its client has left."""

    async def _run(
        self, keywords: dict[str, Any], principal: Principal | None, exchange: Exchange | None, leg: Leg
    ) -> Any:
        context_name = self._arguments.context_name
        if context_name is not None:
            kind = Context if self._is_async else PlainContext
            keywords[context_name] = kind(leg, principal, self._declared, exchange)
        leg.caller = principal
        try:
            if self._is_async:
                value = await self._function(**keywords)
            else:
                value = await leg.host.run_sync(functools.partial(self._function, **keywords), caller=principal)
        except (AttributeError, TypeError) as error:
            broken = explained(error, leg)
            if broken is None:
                raise
            raise broken from error
        if type(value) is str and leg.forgotten is None and _COROUTINE not in value:  # as most results are
            return value
        return self._checked(value, leg)

    def _checked(self, value: Any, leg: Leg) -> Any:
        """Return what the function returned, unless a call in it was never awaited; ask the questions in it.

        Raises:
            AuthoringError: a call was never awaited.
        """
        if type(value) is CoroutineType or (type(value) is str and _COROUTINE in value):
            self._refuse_forgotten_await(value)
        if leg.forgotten is not None and leg.outcome is None:
            raise AuthoringError(f"{self} never awaited {leg.forgotten}; write `await` before the call")
        if isinstance(value, InputRequired):
            leg.require({key: ask.question(key) for key, ask in value.questions.items()})
        return value

    def _refuse_forgotten_await(self, value: Any) -> None:
        """Refuse a return value that is a coroutine, or a text made from one.

        A text counts only if it names a coroutine of `Context`, or of something in the function's module: a tool may
        return the output of any other program.

        Raises:
            AuthoringError: the value is one of these. The message names the call that lacks an `await`.
        """
        refuse_coroutine(value, f"the return value of {self}")
        known = {"Context", *getattr(inspect.unwrap(self._function), "__globals__", {})}
        for called in _COROUTINE_NAME.findall(value):
            if called.partition(".")[0] in known:
                raise AuthoringError(
                    f"the return value of {self} contains a coroutine; write `await` before the call of {called}"
                )

    def result(self, value: Any, target: str) -> dict[str, Any]:
        """Return the fields of the result for a return value.

        Raises:
            AuthoringError: the value, or a part of it, cannot be a result.
        """
        raise NotImplementedError

    def whole_result(self, value: Any, target: str, journal: Journal) -> dict[str, Any]:
        """Return the fields of the result: the emitted blocks, followed by the return value (replay rule 6).

        One file name that is not UTF-8 must not lose a result, so text with lone surrogates is made readable.

        Raises:
            AuthoringError: see `result`; or the function emitted blocks, but its result cannot have any.
        """
        try:
            fields = self.result(value, target)
        except AuthoringError:
            text = readable(value)
            if text is value:
                raise
            fields = self.result(text, target)
        if journal.segments:
            if "content" not in fields:
                raise AuthoringError(f"{self} emits blocks, which only tools can do")
            fields["content"] = [*journal.segments, *fields["content"]]
        return fields

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the list entry that clients see."""
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


_CALLS_THE_AUTHOR = frozenset(vars(Served)[name].__code__ for name in ("_run", "whole_result"))


def _hidden_by(function: Callable[..., Any]) -> Served | None:
    """Return what the module of a function has under its name while the function is decorated."""
    name = getattr(function, "__qualname__", "")
    earlier = getattr(function, "__globals__", {}).get(name)
    return earlier if isinstance(earlier, Served) and earlier._function is not function else None  # noqa: SLF001


class ThreadWork(msgspec.Struct, frozen=True):
    """The work of a thread: an author's function, and the journal of its leg."""

    served: Served
    journal: Journal | None


_READING: Final[dict[int, ThreadWork]] = {}
"""By thread: the work whose arguments it is reading. The author's types may check them, and take long."""


def work_in(thread: int, stack: FrameType | None) -> ThreadWork | None:
    """Return the work of a thread: it runs an author's function, reads its arguments, or writes its result.

    Return None if it does none of these. `stack` is its innermost frame.
    """
    reading = _READING.get(thread)
    if reading is not None:
        return reading
    while stack is not None:
        if stack.f_code in _CALLS_THE_AUTHOR:
            names = stack.f_locals
            return ThreadWork(names["self"], names["leg"].journal if "leg" in names else names["journal"])
        stack = stack.f_back
    return None


def _scopes(scopes: Iterable[str], where: str) -> frozenset[str]:
    if isinstance(scopes, str):
        raise AuthoringError(f"{where} has scopes={scopes!r}; use a list of scopes, not a string")
    names = frozenset(scopes)
    for name in names:
        if not _SCOPE.fullmatch(name):
            raise AuthoringError(f"{where} requires the scope {name!r}, which no token can carry")
    return names


def _declared(asks: Mapping[str, Any]) -> dict[str, Ask[Any]]:
    return {key: ask if isinstance(ask, Ask) else Elicit("", ask) for key, ask in asks.items()}
