"""What a process serves: everything that the named modules define, in the order they define it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from gateway.authoring.completions import Completer
from gateway.authoring.lifespans import Lifespan
from gateway.authoring.modules import import_tools
from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.errors import ConfigurationError

ServedT = TypeVar("ServedT", bound=Served)


class Registry:
    """What one process serves, in registration order.

    Attributes:
        tools: by name.
        prompts: by name.
        resources: by URI.
        templates: resource templates, by template.
        lifespans: in the order they open.

    Raises:
        ConfigurationError: two different things have one name.
    """

    def __init__(self, entries: Iterable[object] = ()) -> None:
        self.tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, Resource] = {}
        self.lifespans: list[Lifespan[Any]] = []
        self._completers: dict[tuple[int, str], Completer] = {}
        for entry in entries:
            self._add(entry)

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
        elif isinstance(entry, Completer):
            place = (id(entry.target), entry.argument)
            if self._completers.setdefault(place, entry) is not entry:
                raise ConfigurationError(f"{entry.target} has two completions for {entry.argument!r}")

    @property
    def names(self) -> frozenset[str]:
        """Every name that requests carry and that is known beforehand; for labels of metrics."""
        return frozenset().union(self.tools, self.prompts, self.resources, self.templates)

    @property
    def scopes(self) -> frozenset[str]:
        """Every scope that anything here asks for."""
        groups = (self.tools, self.prompts, self.resources, self.templates)
        return frozenset().union(*(entry.scopes for group in groups for entry in group.values()))

    @property
    def completes(self) -> bool:
        """Whether there is any completion."""
        return bool(self._completers)

    def find_resource(self, uri: str) -> tuple[Resource, dict[str, str]] | None:
        """Return what reads `uri` and the values of its template's variables, or None.

        An exact URI wins over templates; templates are tried in registration order.
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
        """Return what it takes to go on with something: the scopes that it asked for, and those that it asks for now.

        Args:
            served: what was begun, which may be served no more.
            target: its name, or the URI, as the client gave it.
        """
        today: Served | None
        if isinstance(served, Resource):
            found = self.find_resource(target)
            today = None if found is None else found[0]
        else:
            today = (self.prompts if isinstance(served, Prompt) else self.tools).get(target)
        return served.scopes if today is None else served.scopes | today.scopes

    def completer(self, target: Prompt | Resource, argument: str) -> Completer | None:
        """Return what suggests values for an argument, if anything does."""
        return self._completers.get((id(target), argument))


def _put(served: dict[str, ServedT], name: str, entry: ServedT) -> None:
    if served.setdefault(name, entry) is not entry:
        raise ConfigurationError(f"two {entry.KIND}s are called {name!r}; give one of them another name")


def load_registry(modules: Iterable[str]) -> Registry:
    """Import the modules and collect what they define or import by name.

    Args:
        modules: their names, or the paths of their files.

    Raises:
        ConfigurationError: a module cannot be imported or breaks a rule of the authoring API; the message
            names the module and the reason in one line.
    """
    loaded = [import_tools(entry) for entry in modules]
    return Registry(value for module in loaded for value in vars(module).values())
