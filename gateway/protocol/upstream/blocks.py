"""Pure: the repair of what results of an upstream consist of.

One block that breaks the schema of the protocol makes clients refuse the whole result, after its effect. So a block is
repaired, or becomes a text with all that it says.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.errors import ParseError
from gateway.protocol.strict_json import decode, encode
from gateway.protocol.upstream.deviations import Deviation, Heal
from gateway.protocol.upstream.entries import ROLES, clean_annotations

MEDIA: Final = ("image", "audio")
_NOT_SAID: Final = frozenset({"content", "structuredContent", "isError", "_meta"})
"""The members of the result of a tool that say nothing to a model."""
_FLAGS: Final[Mapping[Any, bool]] = {"true": True, "false": False, 1: True, 0: False}
_OPTIONAL: Final[Mapping[str, type]] = {"title": str, "description": str, "mimeType": str, "size": int}
_FIRST_LETTERS: Final[Mapping[str, str]] = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "SUQz": "audio/mpeg",
    "T2dnUw": "audio/ogg",
    "UklGR": "audio/wav",
}
"""What data in base64 begins with, and its media type."""
_MAX_OBJECT_CHARACTERS: Final = 64 * 1024
"""A longer text takes long to read, and is left to the client."""
_UNKNOWN_MEDIA: Final = "application/octet-stream"
_DATA_URI: Final = re.compile(r"data:([^;,]{0,255}+)[^,]{0,255}+,", re.IGNORECASE)
"""Bounded, because data without a comma may have many megabytes."""
_BLANKS: Final = b" \t\n\r\v\f"
_OF_URLS: Final = bytes.maketrans(b"-_", b"+/")


def text_block(value: Any) -> dict[str, Any]:
    """Return a block with a text, or with the JSON of another value."""
    return {"type": "text", "text": as_text(value)}


def as_text(value: Any) -> str:
    """Return a text as it is, nothing as an empty one, and any other value as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()


def items_of(result: Mapping[str, Any], member: str, heal: Heal) -> list[Any] | None:
    """Return the items of a result; None if they are of a shape that may mean anything."""
    items = result.get(member)
    if type(items) is list:
        return items
    if items is None:
        heal(Deviation.ITEMS_MISSING)
        said = _said_aside(result) if member == "content" else None
        return [] if said is None else [text_block(said)]
    if type(items) in {str, dict}:
        heal(Deviation.ITEMS_SHAPE)
        return [items]
    return None


def _said_aside(result: Mapping[str, Any]) -> Any:
    """Return what the result of a tool says without any content, None if it says nothing."""
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    return {name: value for name, value in result.items() if name not in _NOT_SAID} or None


def object_in(content: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the JSON object that is the only text of a result, as servers should write structured content too."""
    text = content[0].get("text", "") if len(content) == 1 and content[0]["type"] == "text" else ""
    if not text.lstrip().startswith("{") or len(text) > _MAX_OBJECT_CHARACTERS:
        return None
    try:
        value = decode(text.encode())
    except (ParseError, ValueError):
        return None
    return value if type(value) is dict else None


def flag(value: Any) -> bool | None:
    """Return what stands for true or false; None if it may mean anything."""
    return _FLAGS.get(value) if type(value) in {str, int} else None


def repaired_block(block: Any, heal: Heal) -> dict[str, Any]:
    """Return a block that clients can read, the same one if nothing is wrong with it."""
    repair = _REPAIRS.get(block["type"]) if type(block) is dict and type(block.get("type")) is str else None
    repaired = None if repair is None else repair(block, heal)
    if repaired is None:
        heal(Deviation.BLOCK)
        return _without_type(block)
    return without_wrong(repaired, heal)


def _without_type(block: Any) -> dict[str, Any]:
    """Return the text of a block that has no type, or one that nobody can read, else all of it as a text."""
    is_text = type(block) is dict and block.get("type", "text") in (None, "text") and type(block.get("text")) is str
    return text_block(block["text"] if is_text else block)


def without_wrong(value: dict[str, Any], heal: Heal) -> dict[str, Any]:
    """Return an object without optional members of a wrong type, the same one if there are none."""
    wrong = {name for name, kind in _OPTIONAL.items() if name in value and type(value[name]) is not kind}
    if "_meta" in value and type(value["_meta"]) is not dict:
        wrong.add("_meta")
    if "annotations" in value:
        annotations = value["annotations"]
        cleaned = clean_annotations(annotations) if type(annotations) is dict else None
        if cleaned is None:
            wrong.add("annotations")
        elif cleaned != annotations:
            heal(Deviation.MEMBER_TYPE)
            value = {**value, "annotations": cleaned}
    if not wrong:
        return value
    heal(Deviation.MEMBER_TYPE)
    return {name: member for name, member in value.items() if name not in wrong}


def _text(block: dict[str, Any], _heal: Heal) -> dict[str, Any] | None:
    return block if isinstance(block.get("text"), str) else None


def _media(block: dict[str, Any], heal: Heal) -> dict[str, Any] | None:
    data = repaired_data(block.get("data"), heal)
    if data is None:
        return None
    if data is not block["data"]:
        named = _DATA_URI.match(block["data"])
        kind = block.get("mimeType") or (named[1] if named else "")
        block = {**block, "data": data, "mimeType": kind}
    if type(block.get("mimeType")) is not str or not block["mimeType"]:
        heal(Deviation.MEDIA_KIND)
        return {**block, "mimeType": _kind_of(data)}
    return block


def _kind_of(data: str) -> str:
    return next((kind for letters, kind in _FIRST_LETTERS.items() if data.startswith(letters)), _UNKNOWN_MEDIA)


def repaired_data(data: Any, heal: Heal) -> str | None:
    """Return data in base64, the same text if nothing is wrong with it; None if it is something else."""
    if type(data) is not str:
        return None
    if _is_base64(data):
        return data
    named = _DATA_URI.match(data)
    letters = (data[named.end() :] if named else data).encode("utf-8", "surrogatepass")
    plain = letters.translate(_OF_URLS, _BLANKS).rstrip(b"=")  # in C: 16 MB may not keep other work waiting
    plain += b"=" * (-len(plain) % 4)
    if not _is_base64(plain):
        return None
    heal(Deviation.MEDIA_DATA)
    return plain.decode()


def _is_base64(data: str | bytes) -> bool:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:  # also if it is not ASCII
        return False
    return True


def _link(block: dict[str, Any], heal: Heal) -> dict[str, Any] | None:
    uri = block.get("uri")
    if type(uri) is not str:
        return None
    if type(block.get("name")) is str:
        return block
    heal(Deviation.NAME_MISSING)
    return {**block, "name": uri}


def _embedded(block: dict[str, Any], heal: Heal) -> dict[str, Any] | None:
    resource = block.get("resource")
    if type(resource) is not dict or type(resource.get("uri")) is not str:
        return None
    contents = repaired_contents(resource, "", heal)
    return block if contents is resource else {**block, "resource": contents}


_REPAIRS: Final[Mapping[str, Callable[[dict[str, Any], Heal], dict[str, Any] | None]]] = {
    "text": _text,
    "image": _media,
    "audio": _media,
    "resource_link": _link,
    "resource": _embedded,
}
"""Repairs a block of a type, or returns None if clients cannot read it."""


def repaired_contents(contents: Any, uri: str, heal: Heal) -> dict[str, Any]:
    """Return contents of a resource that clients can read. `uri` is the one that was asked for."""
    if type(contents) is not dict:
        heal(Deviation.BLOCK)
        contents = {"uri": uri, "text": as_text(contents)}
    if type(contents.get("uri")) is not str:
        heal(Deviation.URI_MISSING)
        contents = {**contents, "uri": uri}
    if contents.get("blob") is not None:
        contents = _with_blob(contents, heal)
    elif "blob" in contents or type(contents.get("text")) is not str:
        heal(Deviation.BLOCK)
        contents = {**contents, "text": as_text(contents.get("text"))}
        contents.pop("blob", None)
    return without_wrong(contents, heal)


def _with_blob(contents: dict[str, Any], heal: Heal) -> dict[str, Any]:
    blob, text = repaired_data(contents["blob"], heal), contents.get("text", "")
    if blob is contents["blob"] and type(text) is str:
        return contents
    others = {name: member for name, member in contents.items() if name not in {"blob", "text"}}
    if blob is None:
        heal(Deviation.BLOCK)
        return {**others, "text": as_text(contents.get("text") or contents["blob"])}
    if "text" in contents and type(text) is not str:
        heal(Deviation.MEMBER_TYPE)
    elif "text" in contents:
        others["text"] = text
    return {**others, "blob": blob}


def repaired_messages(messages: list[Any], heal: Heal) -> list[dict[str, Any]]:
    """Return messages of a prompt with a role and one block each."""
    repaired: list[dict[str, Any]] = []
    for each in messages:
        message = each
        if type(message) is not dict:
            heal(Deviation.BLOCK)
            message = {"role": "user", "content": message}
        if message.get("role") not in ROLES:
            heal(Deviation.ROLE)
            message = {**message, "role": "user"}
        content = message.get("content")
        if type(content) is list:
            heal(Deviation.SEVERAL_BLOCKS)
            # The other members stay with the first one: they may be many, and so may the blocks.
            repaired.extend({"role": message["role"], "content": block} for block in content)
            if content:
                repaired[-len(content)] = {**message, "content": content[0]}
        else:
            repaired.append(message)
    return repaired
