"""The registry of what a process serves: everything that its tool modules define, in that order."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, TypeVar

from gateway.authoring.completions import Completer
from gateway.authoring.lifespans import Lifespan
from gateway.authoring.modules import import_tools
from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.server import Introduction, two_introductions
from gateway.authoring.tools import Tool
from gateway.errors import ConfigurationError

ServedT = TypeVar("ServedT", bound=Served)


class Registry:
    """The tools, prompts, resources and lifespans of one process, in registration order.

    Attributes:
        tools: by name.
        prompts: by name.
        resources: by URI.
        templates: resource templates, by URI template.
        lifespans: in the order in which they open.
        introduction: what the tool modules say of their server, if they do.

    Raises:
        ConfigurationError: two different entries have the same name, or one hides another in its module.
    """

    def __init__(self, entries: Iterable[object] = ()) -> None:
        self.tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.lifespans: list[Lifespan[Any]] = []
        self.introduction: Introduction | None = None
        self._completers: dict[tuple[int, str], Completer] = {}
        found = list(entries)
        for entry in found:
            self._add(entry)
        _refuse_hidden([entry for entry in found if isinstance(entry, Served)])

    def _add(self, entry: object) -> None:
        if isinstance(entry, Tool):
            _put(self.tools, entry.name, entry)
        elif isinstance(entry, Prompt):
            _put(self.prompts, entry.name, entry)
        elif isinstance(entry, Resource):
            _put(self.resources if entry.template is None else self.templates, entry.uri, entry)
        elif isinstance(entry, Lifespan):
            if entry not in self.lifespans:
                self.lifespans.append(entry)
        elif isinstance(entry, Introduction):
            if self.introduction is not None and self.introduction != entry:
                raise ConfigurationError(two_introductions(self.introduction, entry))
            self.introduction = entry
        elif isinstance(entry, Completer):
            place = (id(entry.target), entry.argument)
            if self._completers.setdefault(place, entry) is not entry:
                raise ConfigurationError(f"{entry.target} has two completions for {entry.argument!r}")

    @property
    def names(self) -> frozenset[str]:
        """Every name that is known before requests arrive; used as metric labels."""
        return frozenset().union(self.tools, self.prompts, self.resources, self.templates)

    @property
    def scopes(self) -> frozenset[str]:
        """Every scope that an entry requires."""
        groups = (self.tools, self.prompts, self.resources, self.templates)
        return frozenset().union(*(entry.scopes for group in groups for entry in group.values()))

    @property
    def completes(self) -> bool:
        """Whether there are any completions."""
        return bool(self._completers)

    def find_resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Return the resource that serves `uri`, with the values of its template's variables, or None.

        An exact URI takes precedence over templates. Templates are tried in registration order.
        """
        exact = self.resources.get(uri)
        if exact is not None:
            return exact, {}
        for candidate in self.templates.values():
            values = None if candidate.template is None else candidate.template.match(uri)
            if values is not None:
                return candidate, values
        return None

    def scopes_of(self, served: Served, target: str) -> frozenset[str]:
        """Return the scopes that continuing a call requires: those from its start, and those required now.

        Args:
            served: the entry that the call started with; it may no longer be served.
            target: the name or URI, as the client sent it.
        """
        today: Served | None
        if isinstance(served, Resource):
            found = self.find_resource(target)
            today = None if found is None else found[0]
        else:
            today = (self.prompts if isinstance(served, Prompt) else self.tools).get(target)
        return served.scopes if today is None else served.scopes | today.scopes

    def completer(self, target: Prompt | Resource, argument: str) -> Completer | None:
        """Return the completer of an argument, or None."""
        return self._completers.get((id(target), argument))


def _put(served: dict[str, ServedT], name: str, entry: ServedT) -> None:
    other = served.setdefault(name, entry)
    if other is not entry:
        raise ConfigurationError(
            f"two {entry.KIND}s are named {name!r}, at {other.place} and at {entry.place}; rename one of them"
        )


def _refuse_hidden(entries: Sequence[Served]) -> None:
    """Refuse an entry that takes the place of another one in its module, unless that one is served all the same."""
    for entry in entries:
        hidden = entry.hides
        if hidden is not None and not any(served is hidden for served in entries):
            raise ConfigurationError(
                f"{entry} at {entry.place} hides {hidden} at {hidden.place}, because their functions have the same "
                "name; rename one of the functions"
            )


def load_registry(modules: Iterable[str]) -> Registry:
    """Import tool modules, and collect everything that they define or import by name.

    Args:
        modules: names of modules, or paths of files.

    Raises:
        ConfigurationError: a module cannot be imported, defines nothing, or breaks a rule of the authoring API. The
            message names the module and the reason in one line.
    """
    loaded = [(entry, import_tools(entry)) for entry in modules]
    for entry, module in loaded:
        if not any(isinstance(value, (Served, Lifespan, Completer, Introduction)) for value in vars(module).values()):
            raise ConfigurationError(_empty(entry, module))
    return Registry(value for _, module in loaded for value in vars(module).values())


def _empty(entry: str, module: ModuleType) -> str:
    """Return what is wrong with a module that defines nothing, and what to name instead if it is a package."""
    inner = [f"{module.__name__}.{found.name}" for found in pkgutil.iter_modules(getattr(module, "__path__", ()))]
    advice = "decorate its functions with @tool"
    if inner:
        advice = f"name the modules in it that define them, such as {inner[0]}, or import the tools in its __init__.py"
    return f"{entry!r} has no tool, prompt or resource; {advice}"
