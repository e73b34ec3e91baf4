"""The `resource` decorator and what it makes of a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from gateway.authoring.content import resource_contents
from gateway.authoring.served import Function, Icons, Served
from gateway.authoring.uri_templates import UriTemplate, is_template
from gateway.errors import AuthoringError

CacheScope = Literal["public", "private"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)


class Resource(Served):
    """Something that clients read by its URI; see `resource` for the arguments.

    Attributes:
        uri: the URI, or the URI template if `template` is not None.
        template: matches the URIs of a template.
        ttl_ms: how long clients may keep what they read, milliseconds.
        cache: who may keep it (MCP "Caching").
        announces_changes: whether clients may subscribe to its changes.
    """

    KIND = "resource"

    def __init__(
        self,
        function: Function,
        uri: str,
        *,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Mapping[str, Any] | None = None,
        ttl_ms: int = 0,
        cache: CacheScope = "private",
        announces_changes: bool = False,
        **options: Any,
    ) -> None:
        if not _SCHEME.match(uri):
            raise AuthoringError(f"{uri!r} is no URI; it begins with a scheme, like 'docs://…'")
        super().__init__(function, **options)
        if type(ttl_ms) is not int or ttl_ms < 0:
            raise AuthoringError(f"{self} has ttl_ms={ttl_ms!r}; give whole milliseconds, 0 or more")
        self.uri = uri
        self.template = UriTemplate(uri) if is_template(uri) else None
        self.mime_type = mime_type
        self.size = size
        self.annotations = annotations
        self.ttl_ms = ttl_ms
        self.cache: CacheScope = cache
        self.announces_changes = announces_changes
        variables = set() if self.template is None else set(self.template.variables)
        parameters = set(self._arguments.schema.get("properties", {}))
        if variables != parameters:
            told = f"the variables {sorted(variables)}, its function the parameters {sorted(parameters)}"
            raise AuthoringError(f"{self}: its URI has {told}")

    @property
    def label(self) -> str:
        """Its URI, or of a template, the template."""
        return self.uri

    def result(self, value: Any, target: str) -> dict[str, Any]:
        """Return the fields of a `ReadResourceResult` (MCP "Resources"), without its caching hints."""
        return {"contents": resource_contents(value, target, self.mime_type)}

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the resource as its list tells it (MCP "Resources", Resource)."""
        entry = super().catalogue_entry()
        entry["uri" if self.template is None else "uriTemplate"] = self.uri
        if self.mime_type is not None:
            entry["mimeType"] = self.mime_type
        if self.annotations is not None:
            entry["annotations"] = dict(self.annotations)
        if self.size is not None and self.template is None:
            entry["size"] = self.size
        return entry


def resource(
    uri: str,
    /,
    *,
    name: str | None = None,
    version: int = 1,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Icons | None = None,
    meta: Mapping[str, Any] | None = None,
    ttl_ms: int = 0,
    cache: CacheScope = "private",
    announces_changes: bool = False,
    state_ttl_seconds: float | None = None,
    scopes: Iterable[str] = (),
    asks: Mapping[str, Any] | None = None,
) -> Callable[[Function], Resource]:
    """Make a resource of a function: `@resource("docs://readme")` or, with variables, `@resource("docs://{page}")`.

    The function returns text, bytes, a model or a dict (told as JSON), or a list of
    `content.resource_text(…)` and `content.resource_blob(…)`.

    Args:
        uri: the URI, or a template of RFC 6570 with `{name}` (one path segment) and `{+name}` (with slashes);
            the function's parameters are its variables.
        name: a name for lists; the function's name unless given.
        version: rises when the meaning of what it keeps in its journal changes.
        title: a name for people.
        description: the docstring unless given.
        mime_type: the media type of what is read.
        size: in bytes, where it is known.
        annotations: hints for clients (`Annotations`).
        icons: `Icon` objects.
        meta: the entry's `_meta`.
        ttl_ms: how long clients may keep what they read.
        cache: `"public"` only if every caller reads the same.
        announces_changes: whether clients may subscribe: `ctx.changed(uri)` then tells them.
        state_ttl_seconds: how long an answer may take, if the function asks.
        scopes: what a caller's token must grant to see and read it.
        asks: the questions it may ask, by key.

    Raises:
        AuthoringError: the resource cannot be served as it is written.
    """
    return lambda function: Resource(
        function,
        uri,
        name=name,
        version=version,
        title=title,
        description=description,
        mime_type=mime_type,
        size=size,
        annotations=annotations,
        icons=icons,
        meta=meta,
        ttl_ms=ttl_ms,
        cache=cache,
        announces_changes=announces_changes,
        state_ttl_seconds=state_ttl_seconds,
        scopes=scopes,
        asks=asks,
    )
