"""Finds the server objects that a file of upstreams names: `module:object`, importable in this process."""

from __future__ import annotations

import importlib
import operator
from typing import Any

from gateway.errors import GatewayError
from gateway.protocol.upstream.cleaning import clean_line

MAX_CHARACTERS = 500
"""How much is shown of the text of an error."""


class ObjectFailure(GatewayError):
    """A server object cannot be served. The text is one line that says why."""


class NotInstalled(ObjectFailure):
    """The environment of the gateway, or the module, does not have what the file names."""


def find_object(reference: str) -> Any:
    """Return the object that `module:object` names. Its module is imported, unless that was done before.

    Raises:
        NotInstalled: the module, a module that it needs, or the object does not exist.
        ObjectFailure: the module raises something else when it is imported.
    """
    name, _, path = reference.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise NotInstalled(
            f"{reference!r} cannot be imported by the gateway: {told(error)}; install it in the gateway's environment, "
            f'or run the server as a program: {{"command": "python", "args": ["-m", "{name}"]}}'
        ) from None
    except (Exception, SystemExit) as error:  # an import may raise anything, even exit
        raise ObjectFailure(f"its module {name!r} fails when it is imported: {told(error)}") from error
    try:
        return operator.attrgetter(path)(module)
    except AttributeError:
        raise NotInstalled(f"the module {name!r} has no {path!r}; name a server object in it") from None


def told(error: BaseException) -> str:
    """Return the kind and the text of an error in one line. A group with one error is that error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return clean_line(f"{type(error).__name__}: {error}".removesuffix(": "))[:MAX_CHARACTERS]
