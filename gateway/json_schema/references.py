"""Resolves the references of a schema, all within the schema itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

from gateway.errors import AuthoringError

OUTSIDE: Final = "the schema refers to something outside itself, which is never fetched; copy it into $defs"

_OF_NAMED_SCHEMAS: Final = frozenset(
    {"$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies"}
)
_NO_SCHEMAS: Final = frozenset({"enum", "const", "default", "examples"})


class References:
    """Resolves references in a whole schema, by `$id`, `$anchor`, `$dynamicAnchor` or JSON pointer.

    Raises:
        AuthoringError: an `$id` is not a valid URI.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        dialect = str(schema.get("$schema", ""))
        self._id = "id" if "draft-03" in dialect or "draft-04" in dialect else "$id"
        self._root = schema
        self._resources: dict[str, Any] = {"": schema}
        self._anchors: dict[str, Any] = {}
        self._dynamic: dict[str, list[Any]] = {}
        self._bases: dict[int, str] = {}
        self._read(schema, "")

    def targets(self, schema: Mapping[str, Any], keyword: str) -> list[Any]:
        """Return the schemas that a reference can lead to. A dynamic reference can lead to several.

        Raises:
            AuthoringError: the reference leads outside the schema or nowhere, or is not a valid URI.
        """
        reference = schema[keyword]
        if not isinstance(reference, str):
            raise AuthoringError(f"{keyword} of the schema is not a text")
        base = self._bases.get(id(schema), "")
        target = self._target(base, reference)
        if keyword == "$ref" or not isinstance(target, Mapping):
            return [target]
        name = "" if keyword == "$recursiveRef" else reference.partition("#")[2]
        others = self._dynamic.get(name, [])
        # A target that is not a dynamic anchor is resolved like a `$ref`.
        return others if any(other is target for other in others) else [target]

    def _target(self, base: str, reference: str) -> Any:
        where, _, fragment = _joined(base, reference).partition("#")
        fragment = unquote(fragment)
        resource = self._resources.get(where)
        if resource is None:
            raise AuthoringError(f"{OUTSIDE} ({reference})")
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(f"{where}#{fragment}")
        else:
            found = _pointed(resource, fragment)
        if found is None:
            raise AuthoringError(f"the schema refers to {reference}, which is not in it")
        if isinstance(found, Mapping) and id(found) not in self._bases:
            self._read(found, where)  # it is below an unknown keyword
        return found

    def _read(self, schema: Any, base: str) -> None:
        waiting = [(schema, base)]
        while waiting:
            part, base = waiting.pop()
            if isinstance(part, list | tuple):
                waiting.extend((inner, base) for inner in part)
            elif isinstance(part, Mapping):
                base = self._entered(part, base)
                for name, inner in part.items():
                    if name in _OF_NAMED_SCHEMAS and isinstance(inner, Mapping):
                        waiting.extend((named, base) for named in inner.values())
                    elif name not in _NO_SCHEMAS:
                        waiting.append((inner, base))

    def _entered(self, part: Mapping[str, Any], base: str) -> str:
        """Record the names of a schema, and return the base URI of its references."""
        own = part.get(self._id)
        if isinstance(own, str):
            where, _, fragment = _joined(base, own).partition("#")
            if fragment:  # the anchors of draft 7 and older
                self._anchors.setdefault(f"{where}#{fragment}", part)
            if not own.startswith("#"):
                base = where
                self._resources.setdefault(base, part)
        self._bases[id(part)] = base
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(part.get(keyword), str):
                self._anchors.setdefault(f"{base}#{part[keyword]}", part)
        if isinstance(part.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(part["$dynamicAnchor"], []).append(part)
        if part.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(part)
        return base


def _joined(base: str, reference: str) -> str:
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:  # a host that begins with a bracket and is not an IPv6 address
        raise AuthoringError(f"{reference!r} is not a valid URI; correct the $id or $ref of the schema") from None


def _pointed(resource: Any, pointer: str) -> Any:
    """Return the value that a JSON pointer leads to, or None."""
    found = resource
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name)] if isinstance(found, list | tuple) else found[name]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return found
