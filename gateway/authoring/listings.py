"""Checks of what authors add to list entries and blocks: icons, and hints for clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gateway.authoring.mistakes import known_name
from gateway.errors import AuthoringError
from gateway.protocol.upstream.entries import ROLES, is_share, is_time

WEB: Final = ("https://", "http://")

_ICON_SOURCES: Final = (*WEB, "data:")
_ICON_FIELDS: Final = ("src", "mimeType", "sizes", "theme")
_HINTS: Final[Mapping[str, type]] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}
"""The fields of `ToolAnnotations` (MCP "Tools", Tool)."""
_OF_CONTENT: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "audience": (
        lambda value: isinstance(value, list | tuple) and all(role in ROLES for role in value),
        "a list of 'user' and 'assistant'",
    ),
    "priority": (is_share, "a number from 0 to 1"),
    "lastModified": (is_time, "a time with its offset from UTC, such as '2026-01-31T12:00:00Z'"),
}
"""The fields of `Annotations` (MCP "Resources", Annotations): whether a value is valid, and what to use otherwise."""


def listed_icons(icons: Iterable[Mapping[str, Any]], where: str) -> list[dict[str, Any]]:
    """Return icons as clients receive them. Clients refuse the whole list for one icon that is not valid.

    Raises:
        AuthoringError: an icon has no URL, or a field of the wrong type.
    """
    if not isinstance(icons, list | tuple):
        raise AuthoringError(f"{where} has icons={icons!r}; use a list of mappings")
    return [_icon(icon, where) for icon in icons]


def _icon(icon: Any, where: str) -> dict[str, Any]:
    if not isinstance(icon, Mapping) or "src" not in icon:
        raise AuthoringError(f"{where} has the icon {icon!r}; use a mapping with the URL of the icon in 'src'")
    if not isinstance(icon.get("mimeType", ""), str):
        raise AuthoringError(f"{where} has an icon with mimeType={icon['mimeType']!r}; use a text")
    if icon.get("theme", "light") not in ("light", "dark"):
        raise AuthoringError(f"{where} has an icon with theme={icon['theme']!r}; use 'light' or 'dark'")
    for name in icon:
        if name not in _ICON_FIELDS:
            raise AuthoringError(f"{where} has an icon with {name!r}; {known_name(str(name), _ICON_FIELDS, 'use')}")
    sizes = icon.get("sizes", [])
    if not isinstance(sizes, list) or not all(isinstance(size, str) for size in sizes):
        raise AuthoringError(f"{where} has an icon with sizes={sizes!r}; use a list of texts, such as ['48x48']")
    return {**icon, "src": checked_url("the icon's src", icon["src"], _ICON_SOURCES, where)}


def checked_url(option: str, text: Any, schemes: tuple[str, ...], where: str) -> str:
    """Return a URL that an author gave.

    Raises:
        AuthoringError: it is not a URL with one of the schemes.
    """
    if not isinstance(text, str) or not text.isprintable() or " " in text or not text.startswith(schemes):
        allowed = " or ".join(schemes)
        raise AuthoringError(f"{where} has {option}={text!r}; use a URL that starts with {allowed}")
    return text


def tool_annotations(annotations: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the `ToolAnnotations` that an author gave.

    Raises:
        AuthoringError: a hint is unknown, or has the wrong type.
    """
    if not isinstance(annotations, Mapping):
        raise AuthoringError(f"{where} has annotations={annotations!r}; use a mapping")
    for name, value in annotations.items():
        kind = _HINTS.get(name)
        if kind is None:
            raise AuthoringError(f"{where} has the unknown hint {name!r}; {known_name(str(name), _HINTS, 'use')}")
        if type(value) is not kind:
            wanted = "a text" if kind is str else "True or False"
            raise AuthoringError(f"{where} has {name}={value!r} in its annotations; use {wanted}")
    return dict(annotations)


def content_annotations(annotations: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the `Annotations` of a resource or a block. Clients refuse a whole list or result for one wrong value.

    Raises:
        AuthoringError: a hint of the protocol has a value that it does not allow.
    """
    if not isinstance(annotations, Mapping):
        raise AuthoringError(f"{where} has annotations={annotations!r}; use a mapping")
    for name, (is_valid, wanted) in _OF_CONTENT.items():
        if name in annotations and not is_valid(annotations[name]):
            raise AuthoringError(f"{where} has {name}={annotations[name]!r} in its annotations; use {wanted}")
    return dict(annotations)
