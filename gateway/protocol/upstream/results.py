"""Pure: results of an upstream, as our clients may see them.

A result passes as it is: members and kinds of content that we do not know survive. Only URIs that a client may send
back get the prefix of the upstream. Reserved members of `_meta`, icons that a client must not fetch, and members by
which a client could take the result for one of another kind are removed. Free text and structured content never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.upstream.cleaning import clean_icons, with_clean_meta
from gateway.protocol.upstream.uris import own_uri

_OWN: Final[Mapping[str, frozenset[str]]] = {
    "tools/call": frozenset({"content", "structuredContent", "isError"}),
    "prompts/get": frozenset({"description", "messages"}),
    "resources/read": frozenset({"contents", "ttlMs", "cacheScope"}),
}
"""The members of the final result of each method besides `_meta`."""

_OF_A_QUESTION: Final = frozenset({"inputRequests", "requestState"})
_OF_A_TASK: Final = frozenset(
    {
        *("task", "taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "ttlMs"),
        *("pollInterval", "pollIntervalMs", "result", "error", "tasks"),
    }
)
_OF_A_LIST: Final = frozenset({"tools", "prompts", "resources", "resourceTemplates", "nextCursor"})
_OF_A_SERVER: Final = frozenset({"supportedVersions", "protocolVersion", "capabilities", "serverInfo", "instructions"})
_OF_ANY_KIND: Final = frozenset({"resultType", "completion"}).union(
    _OF_A_QUESTION, _OF_A_TASK, _OF_A_LIST, _OF_A_SERVER, *_OWN.values()
)
"""Members of all kinds of results, of all wires."""

_FOREIGN: Final = {method: _OF_ANY_KIND - own for method, own in _OWN.items()}
"""The members that a final result of a method has only if it poses as another kind."""


class Misshapen(ValueError):
    """A part of a result has a type that the protocol does not allow. The message names the part."""


def rewrite_result(method: str, prefix: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `tools/call`, `prompts/get` or `resources/read` for our clients.

    If content, messages or contents have another shape, clients would fail, so this raises `Misshapen`.
    """
    fields = _cleaned(prefix, result)
    for member in _FOREIGN[method].intersection(fields):
        del fields[member]
    if method == "tools/call":
        fields["content"] = [_block(prefix, block) for block in _list(fields, "content")]
    elif method == "prompts/get":
        fields["messages"] = [_message(prefix, message) for message in _list(fields, "messages")]
    elif method == "resources/read":
        fields["contents"] = [_contents(prefix, contents) for contents in _list(fields, "contents")]
    return fields


def _list(fields: Mapping[str, Any], member: str) -> list[Any]:
    value = fields.get(member)
    if not isinstance(value, list):
        raise Misshapen(f"its {member} is not an array")
    return value


def _message(prefix: str, message: Any) -> dict[str, Any]:
    cleaned = _object(prefix, message, "a message")
    content = cleaned.get("content")
    if isinstance(content, list):  # the content of a prompt is one block; sampling allows several
        cleaned["content"] = [_block(prefix, block) for block in content]
    else:
        cleaned["content"] = _block(prefix, content)
    return cleaned


def _block(prefix: str, block: Any) -> dict[str, Any]:
    cleaned = _object(prefix, block, "a block of content")
    if cleaned.get("type") == "resource_link":
        _rewrite(prefix, cleaned, "uri")
    elif cleaned.get("type") == "resource":
        cleaned["resource"] = _contents(prefix, cleaned.get("resource"))
    return cleaned


def _contents(prefix: str, contents: Any) -> dict[str, Any]:
    cleaned = _object(prefix, contents, "the contents of a resource")
    _rewrite(prefix, cleaned, "uri")
    return cleaned


def _object(prefix: str, value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misshapen(f"{what} is not an object")
    return _cleaned(prefix, value)


def _cleaned(prefix: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without what its `_meta` and its icons must not have."""
    cleaned = with_clean_meta(prefix, value)
    if "icons" in cleaned:
        icons = cleaned["icons"]
        cleaned["icons"] = clean_icons(icons if isinstance(icons, list) else ())
    return cleaned


def _rewrite(prefix: str, value: dict[str, Any], member: str) -> None:
    uri = value.get(member)
    if not isinstance(uri, str):
        raise Misshapen(f"a resource has no {member}")
    value[member] = own_uri(prefix, uri)
