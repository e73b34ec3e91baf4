"""Pure: results of an upstream, as our clients may see them.

A result passes as it is: members that we do not know survive. Only URIs that a client may send back get the prefix of
the upstream. Blocks that clients cannot read are repaired. Reserved members of `_meta`, icons that a client must not
fetch, and members by which a client could take the result for one of another kind are removed. Free text and structured
content never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gateway.protocol.upstream.blocks import (
    flag,
    items_of,
    object_in,
    repaired_block,
    repaired_contents,
    repaired_messages,
    text_block,
)
from gateway.protocol.upstream.cleaning import clean_icons, with_clean_meta
from gateway.protocol.upstream.deviations import Deviation, Heal, uncounted
from gateway.protocol.upstream.uris import must_be_encoded, own_uri

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

_ITEMS: Final = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
"""The member of the result of each method that is a list of objects."""

PORTION_ITEMS: Final = 2000
"""How many objects are rewritten before other work gets its turn. An icon counts as one, and each of its sizes."""

MAX_PLAIN_BLOCKS: Final = 8
"""With more blocks, other work may have to get its turn."""

_NAMES_OF_AN_ITEM: Final = 8
"""How many names in `_meta` take as long as an object."""

_CHARACTERS_OF_AN_ITEM: Final = 1024
"""How many characters take as long as an object: some are examined, or encoded."""

MAX_ENCODED_CHARACTERS: Final = 64 * 1024
"""How many characters a result may have in texts in the place of URIs: it takes long to encode them."""

MAX_ADDED_CHARACTERS: Final = 64 * 1024
"""How many characters the URIs may have that are added to the contents of a resource: one may stand for many."""

_FOREIGN: Final = {method: _OF_ANY_KIND - own for method, own in _OWN.items()}
"""The members that a final result of a method has only if it poses as another kind."""
_HARMLESS: Final = frozenset({"resultType", "isError", "description", "ttlMs", "cacheScope"})
"""Those of them that say nothing of the kind."""

UNSTRUCTURED: Final = (
    "The tool has run, but its result lacks the structured content that it promises. "
    "Use the content above; a second call may repeat the effect."
)
"""The last block of such a result, for models and people."""


_CACHE_SCOPES: Final = ("public", "private")
_MEMBERS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "description": lambda value: type(value) is str,
    "ttlMs": lambda value: type(value) is int and value >= 0,
    "cacheScope": lambda value: value in _CACHE_SCOPES,
}
"""Whether an optional member of a result is valid."""


_PLAIN: Final = frozenset({"resultType", "content", "isError"})
_PLAIN_BLOCK: Final = frozenset({"type", "text"})


def plain_result(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the result of a tool as clients see it, if it is nothing but texts as most are; None otherwise.

    `Rewriting` returns the same, and takes ten times as long.
    """
    content = result.get("content")
    if not result.keys() <= _PLAIN or type(content) is not list or len(content) > MAX_PLAIN_BLOCKS:
        return None
    for block in content:
        if type(block) is not dict or block.keys() != _PLAIN_BLOCK:
            return None
        if block["type"] != "text" or type(block["text"]) is not str:
            return None
    if "isError" not in result:
        return {"content": content}
    return {"content": content, "isError": result["isError"]} if type(result["isError"]) is bool else None


class Misshapen(ValueError):
    """A part of a result may mean anything. The message names the part."""


class Rewriting:
    """Rewrites the result of `tools/call`, `prompts/get` or `resources/read` for our clients, in portions.

    `result` is complete after the last portion. `uri` is that of a resource that is read. `promises` is the
    schema of the structured content that a tool promises. Each deviation that is healed is counted by `heal`. If
    content, messages or contents have a shape that may mean anything, or their URIs take too long to encode, this
    raises `Misshapen`.
    """

    def __init__(
        self,
        method: str,
        prefix: str,
        result: Mapping[str, Any],
        *,
        uri: str = "",
        promises: Mapping[str, Any] | None = None,
        heal: Heal = uncounted,
    ) -> None:
        self._prefix = prefix
        self._uri = uri
        self._promises = promises
        self._heal = heal
        self._may_be_encoded = MAX_ENCODED_CHARACTERS
        self._may_be_added = MAX_ADDED_CHARACTERS
        self._in_portion = 0
        self.result = self._cleaned(result)
        foreign = _FOREIGN[method].intersection(self.result)
        for member in foreign:
            del self.result[member]
        for member, is_valid in _MEMBERS.items():
            if member in self.result and not is_valid(self.result[member]):
                heal(Deviation.MEMBER_TYPE)
                del self.result[member]
        self._member = _ITEMS[method]
        self._poses = result.get(self._member) is None and not foreign <= _HARMLESS

    def portions(self) -> Iterator[None]:
        """Rewrite everything. Other work may be done whenever this yields."""
        # The method is not kept in an attribute: such a cycle keeps large results in memory until they are collected.
        rewrite = {"content": self._block, "messages": self._message, "contents": self._contents}[self._member]
        self._check_flag()
        items = None if self._poses else items_of(self.result, self._member, self._heal)
        if items is None:
            raise Misshapen(f"its {self._member} is not an array")
        if self._member == "messages":
            items = repaired_messages(items, self._heal)
        rewritten = []
        for item in items:
            rewritten.append(rewrite(item))
            if self._in_portion >= PORTION_ITEMS:
                self._in_portion = 0
                yield
        self.result[self._member] = rewritten
        if self._promises is not None:
            self._keep_promise(self._promises)

    def _keep_promise(self, schema: Mapping[str, Any]) -> None:
        """Add the structured content that clients insist on, or make the result an error."""
        result = self.result
        if result.get("structuredContent") is not None or result.get("isError") is True:
            return
        value = object_in(result["content"])
        if value is not None:
            self._heal(Deviation.STRUCTURED_MISSING)
            result["structuredContent"] = value
        elif "structuredContent" not in result or schema.get("type") == "object":  # others may allow null
            self._heal(Deviation.UNSTRUCTURED)
            result.pop("structuredContent", None)
            result["content"].append(text_block(UNSTRUCTURED))
            result["isError"] = True

    def _check_flag(self) -> None:
        """Repair the member that tells an error from a success."""
        value = self.result.get("isError", False)
        if type(value) is bool:
            return
        meant = flag(value)
        if value is None:
            del self.result["isError"]
        elif meant is None:
            raise Misshapen("its isError is neither true nor false")
        else:
            self.result["isError"] = meant
        self._heal(Deviation.FLAG)

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        cleaned = self._cleaned(message)
        cleaned["content"] = self._block(cleaned.get("content"))
        return cleaned

    def _block(self, block: Any) -> dict[str, Any]:
        cleaned = self._cleaned(repaired_block(block, self._heal))
        if cleaned["type"] == "resource_link":
            self._rewrite_uri(cleaned)
        elif cleaned["type"] == "resource":
            cleaned["resource"] = self._rewritten(cleaned["resource"])
        return cleaned

    def _contents(self, contents: Any) -> dict[str, Any]:
        if type(contents) is not dict or type(contents.get("uri")) is not str:
            self._may_be_added -= len(self._uri)
            if self._may_be_added < 0:
                raise Misshapen(f"its contents lack URIs of more than {MAX_ADDED_CHARACTERS} characters together")
        return self._rewritten(repaired_contents(contents, self._uri, self._heal))

    def _rewritten(self, contents: dict[str, Any]) -> dict[str, Any]:
        cleaned = self._cleaned(contents)
        self._rewrite_uri(cleaned)
        return cleaned

    def _cleaned(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object without what its `_meta` and its icons must not have."""
        meta = value.get("_meta")
        self._in_portion += 1 + (len(meta) // _NAMES_OF_AN_ITEM if isinstance(meta, dict) else 0)
        self._in_portion += sum(len(text) for text in value.values() if type(text) is str) // _CHARACTERS_OF_AN_ITEM
        cleaned = with_clean_meta(self._prefix, value)
        if "icons" in cleaned:
            icons = cleaned["icons"]
            cleaned["icons"] = clean_icons(icons if isinstance(icons, list) else ())
            self._in_portion += sum(1 + len(icon.get("sizes", ())) for icon in cleaned["icons"])
        return cleaned

    def _rewrite_uri(self, value: dict[str, Any]) -> None:
        uri = value["uri"]
        if self._prefix and must_be_encoded(uri):
            self._may_be_encoded -= len(uri)
            if self._may_be_encoded < 0:
                raise Misshapen(f"more than {MAX_ENCODED_CHARACTERS} characters are in texts in the place of URIs")
        value["uri"] = own_uri(self._prefix, uri)
