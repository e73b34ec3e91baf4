"""Pure: whether a client declared the capability that a question needs.

A capability is named by its path in the object that the client declares, e.g. `("elicitation", "form")`. An extension
is `("extensions", identifier)`: identifiers contain dots and a slash, so a dotted path would be ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

CapabilityPath: TypeAlias = tuple[str, ...]

ELICITATION_FORM: Final[CapabilityPath] = ("elicitation", "form")
_SAMPLING: Final[CapabilityPath] = ("sampling",)
_SAMPLING_TOOLS: Final[CapabilityPath] = ("sampling", "tools")
_SAMPLING_CONTEXT: Final[CapabilityPath] = ("sampling", "context")
_BLOCKS_OF_TOOLS: Final = ("tool_use", "tool_result")


def of_sampling(params: Mapping[str, Any]) -> tuple[CapabilityPath, ...]:
    """Return what a client needs for `sampling/createMessage` with these params (2026-07-28 "Sampling")."""
    needed = []
    if params.get("tools") is not None or params.get("toolChoice") is not None or _speaks_of_tools(params):
        needed.append(_SAMPLING_TOOLS)
    if params.get("includeContext") not in (None, "none"):
        needed.append(_SAMPLING_CONTEXT)
    return tuple(needed) or (_SAMPLING,)


def _speaks_of_tools(params: Mapping[str, Any]) -> bool:
    """Return whether a message has a block about the use of a tool. Nothing has checked the messages yet."""
    messages = params.get("messages")
    for message in messages if isinstance(messages, (list, tuple)) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for block in content if isinstance(content, (list, tuple)) else (content,):
            if isinstance(block, Mapping) and block.get("type") in _BLOCKS_OF_TOOLS:
                return True
    return False


def supports(capabilities: Mapping[str, Any], path: CapabilityPath) -> bool:
    """Return whether checked capabilities declare `path`; null and false declare nothing.

    If a capability is a list of names, such as `tasks.responses.modes`, each name in it is declared. An `elicitation`
    that does not list its modes means forms only (2026-07-28 "Elicitation", "Capabilities").
    """
    declared: Any = capabilities
    for name in path:
        if type(declared) is dict:
            declared = declared.get(name)
        elif type(declared) is list:
            declared = name in declared
        else:
            return False
    if declared is not None and declared is not False:
        return True
    if path == ELICITATION_FORM:
        elicitation = capabilities.get("elicitation")
        return type(elicitation) is dict and elicitation.get("url") is None
    return False
