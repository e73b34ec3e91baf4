"""Pure: older versions of the 2025-11-25 wire, whose clients do not know all members of lists and kinds of content.

Sources: the schemas of 2024-11-05, 2025-03-26 and 2025-06-18. Versions are dates, and compare as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.strict_json import encode
from gateway.protocol.versions import BEFORE_ELICITATION, BEFORE_TASKS, LEGACY

_FIRST_OF_MEMBER: Final[Mapping[str, str]] = {
    "icons": LEGACY,
    "execution": LEGACY,
    "title": BEFORE_TASKS,
    "outputSchema": BEFORE_TASKS,
    "structuredContent": BEFORE_TASKS,
    "_meta": BEFORE_TASKS,
}
"""The first version that has a member in the entries of lists, or in results."""

_FIRST_OF_BLOCK: Final[Mapping[str, str]] = {"resource_link": BEFORE_TASKS, "audio": BEFORE_ELICITATION}
"""The first version that has a type of content. Clients of older ones refuse the whole result."""


def known_entry(entry: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the entry of a list without the members that a version does not have."""
    return {name: value for name, value in entry.items() if _FIRST_OF_MEMBER.get(name, version) <= version}


def known_result(fields: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the fields of a result, or of a question, as a version of `OLDER_VERSIONS` has them.

    Content of an unknown type becomes text, and so does structured content that nothing else repeats.
    """
    told = {name: value for name, value in fields.items() if name != "structuredContent"}
    structured = fields.get("structuredContent")
    if structured is not None and not fields.get("content"):
        told["content"] = [{"type": "text", "text": encode(structured).decode()}]
    elif "content" in fields:
        told["content"] = _known_content(fields["content"], version)
    messages = fields.get("messages")
    if isinstance(messages, list):
        told["messages"] = [_known_message(message, version) for message in messages]
    return told


def _known_message(message: Any, version: str) -> Any:
    """Return a message with content of known types. A malformed one of an upstream is left for its reader to refuse."""
    if not isinstance(message, Mapping):
        return message
    return {**message, "content": _known_content(message.get("content"), version)}


def _known_content(content: Any, version: str) -> Any:
    if isinstance(content, list):
        return [_known_block(block, version) for block in content]
    return _known_block(content, version)


def _known_block(block: Any, version: str) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or _FIRST_OF_BLOCK.get(kind, version) <= version:
        return block
    if kind == "resource_link":
        text = f"{block.get('title') or block.get('name')}: {block.get('uri')}"
    else:
        text = f"{kind} ({block.get('mimeType')}), which clients of MCP {version} cannot receive"
    kept = {"annotations": block["annotations"]} if "annotations" in block else {}
    return {"type": "text", "text": text, **kept}
