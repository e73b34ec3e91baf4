"""Pure: results of an upstream, as our clients may see them.

A result passes as it is: members and kinds of content that we do not know survive. Only URIs that a client may send
back get the prefix of the upstream. Reserved members of `_meta`, and icons that a client must not fetch, are removed.
Free text and structured content never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.protocol.upstream.cleaning import clean_icons, with_clean_meta
from gateway.protocol.upstream.uris import own_uri

_WIRE_MEMBERS: Final = ("resultType",)
"""What each wire writes itself."""


class Misshapen(ValueError):
    """A part of a result has a type that the protocol does not allow. The message names the part."""


def rewrite_result(method: str, prefix: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `tools/call`, `prompts/get` or `resources/read` for our clients.

    Raises:
        Misshapen: content, messages or contents are not what the method returns, so that clients would fail.
    """
    fields = with_clean_meta(prefix, result)
    for member in _WIRE_MEMBERS:
        fields.pop(member, None)
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
        if "icons" in cleaned:
            icons = cleaned.pop("icons")
            cleaned["icons"] = clean_icons(icons if isinstance(icons, list) else ())
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
    return with_clean_meta(prefix, value)


def _rewrite(prefix: str, value: dict[str, Any], member: str) -> None:
    uri = value.get(member)
    if not isinstance(uri, str):
        raise Misshapen(f"a resource has no {member}")
    value[member] = own_uri(prefix, uri)
