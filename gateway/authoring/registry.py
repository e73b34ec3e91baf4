"""What a process serves: everything that the named modules define, in the order they define it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

from gateway.authoring.tools import Tool
from gateway.errors import AuthoringError, ConfigurationError


class Registry:
    """The tools of one process by name, in registration order.

    Raises:
        ConfigurationError: two different tools have one name.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self.tools: dict[str, Tool] = {}
        for tool in tools:
            if self.tools.setdefault(tool.name, tool) is not tool:
                raise ConfigurationError(f"two tools are called {tool.name!r}; give one of them another name")


def load_registry(modules: Iterable[str]) -> Registry:
    """Import the modules and collect what they define or import by name.

    Raises:
        ConfigurationError: a module cannot be imported or breaks a rule of the authoring API; the message
            names the module and the reason in one line.
    """
    loaded = [_import(name) for name in modules]
    return Registry(value for module in loaded for value in vars(module).values() if isinstance(value, Tool))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None:
            raise _failed(name, error) from error
        if error.name == name or name.startswith(f"{error.name}."):
            raise ConfigurationError(
                f"no module named {name!r}; check GATEWAY_TOOLS and that its folder is on PYTHONPATH"
            ) from None
        raise ConfigurationError(f"the tool module {name!r} needs {error.name!r}, which is not installed") from None
    except AuthoringError as error:
        raise ConfigurationError(f"the tool module {name!r} cannot be served: {_one_line(error)}") from None
    except (Exception, SystemExit) as error:  # an import may raise anything, even exit
        raise _failed(name, error) from error


def _failed(name: str, error: BaseException) -> ConfigurationError:
    return ConfigurationError(f"the tool module {name!r} failed to import: {type(error).__name__}: {_one_line(error)}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
