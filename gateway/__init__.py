"""Sealed Gateway: stateless, horizontally scaled Model Context Protocol tools.

This is the public API: the names for tool authors, and `mount` and `draining` for applications that embed a gateway.
Each name is loaded on first use, so `import gateway` loads neither the web framework nor a storage client.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gateway.runtime.version import __version__ as __version__

if TYPE_CHECKING:
    from gateway import testing
    from gateway.authoring import content
    from gateway.authoring.arguments import InvalidArguments
    from gateway.authoring.completions import complete
    from gateway.authoring.content import Content, ToolResult
    from gateway.authoring.context import Context, PlainContext
    from gateway.authoring.forms.questions import Completion, Elicit, ElicitUrl, InputRequired, Root, Roots, Sample
    from gateway.authoring.lifespans import lifespan
    from gateway.authoring.prompts import prompt
    from gateway.authoring.resources import resource
    from gateway.authoring.server import server
    from gateway.authoring.tools import tool
    from gateway.engine.exchanged_token import ExchangedToken
    from gateway.errors import AskError, AuthoringError, Declined, Dismissed, ProtocolError, Refused, TokenExchangeError
    from gateway.process.mounting import draining, mount
    from gateway.protocol.versions import LogLevel
    from gateway.sealing.principal import Principal

__all__ = [
    "AskError",
    "AuthoringError",
    "Completion",
    "Content",
    "Context",
    "Declined",
    "Dismissed",
    "Elicit",
    "ElicitUrl",
    "ExchangedToken",
    "InputRequired",
    "InvalidArguments",
    "LogLevel",
    "PlainContext",
    "Principal",
    "ProtocolError",
    "Refused",
    "Root",
    "Roots",
    "Sample",
    "TokenExchangeError",
    "ToolResult",
    "complete",
    "content",
    "draining",
    "lifespan",
    "mount",
    "prompt",
    "resource",
    "server",
    "testing",
    "tool",
]

_HOMES = {
    "gateway.authoring.arguments": ("InvalidArguments",),
    "gateway.authoring.completions": ("complete",),
    "gateway.authoring.content": ("Content", "ToolResult"),
    "gateway.authoring.context": ("Context", "PlainContext"),
    "gateway.authoring.lifespans": ("lifespan",),
    "gateway.authoring.prompts": ("prompt",),
    "gateway.authoring.forms.questions": (
        "Completion",
        "Elicit",
        "ElicitUrl",
        "InputRequired",
        "Root",
        "Roots",
        "Sample",
    ),
    "gateway.authoring.resources": ("resource",),
    "gateway.authoring.server": ("server",),
    "gateway.authoring.tools": ("tool",),
    "gateway.engine.exchanged_token": ("ExchangedToken",),
    "gateway.errors": (
        "AskError",
        "AuthoringError",
        "Declined",
        "Dismissed",
        "ProtocolError",
        "Refused",
        "TokenExchangeError",
    ),
    "gateway.process.mounting": ("draining", "mount"),
    "gateway.protocol.versions": ("LogLevel",),
    "gateway.sealing.principal": ("Principal",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {"content": "gateway.authoring.content", "testing": "gateway.testing"}


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'gateway' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
