"""The `resource` decorator, and the resources that it makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from gateway.authoring.arguments import refuse_composite
from gateway.authoring.content import resource_contents
from gateway.authoring.listings import content_annotations
from gateway.authoring.served import Icons, P, Q, R, R_co, Served
from gateway.authoring.uri_templates import UriTemplate, is_template
from gateway.errors import AuthoringError

CacheScope = Literal["public", "private"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:", re.ASCII)


class Resource(Served[P, R_co]):
    """Something that clients read by its URI; see `resource` for the arguments.

    Attributes:
        uri: the URI, or the URI template if `template` is not None.
        template: matches URIs if the resource has variables; otherwise None.
    """

    KIND = "resource"

    def __init__(
        self,
        function: Callable[P, R_co],
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
            raise AuthoringError(f"{uri!r} is not a URI; start it with a scheme, such as 'docs://…'")
        super().__init__(function, **options)
        if type(ttl_ms) is not int or ttl_ms < 0:
            raise AuthoringError(f"{self} has ttl_ms={ttl_ms!r}; use a whole number of milliseconds, 0 or more")
        self.uri = uri
        self.template = UriTemplate(uri) if is_template(uri) else None
        self.mime_type = mime_type
        self.size = size
        self.annotations = None if annotations is None else content_annotations(annotations, str(self))
        self.ttl_ms = ttl_ms
        self.cache: CacheScope = cache
        self.announces_changes = announces_changes
        variables = set() if self.template is None else set(self.template.variables)
        parameters = set(self._arguments.schema.get("properties", {}))
        if variables != parameters:
            told = f"the variables {sorted(variables)}, but its function has the parameters {sorted(parameters)}"
            raise AuthoringError(f"{self}: its URI has {told}")
        refuse_composite(self._arguments, self, "each variable of a URI is one text")

    @property
    def label(self) -> str:
        """The URI, or the URI template."""
        return self.uri

    def result(self, value: Any, target: str) -> dict[str, Any]:
        """Return the fields of a `ReadResourceResult` (MCP "Resources"), without its caching hints."""
        return {"contents": resource_contents(value, target, self.mime_type)}

    def catalogue_entry(self) -> dict[str, Any]:
        """Return the resource's entry in its list (MCP "Resources", Resource)."""
        entry = super().catalogue_entry()
        entry["uri" if self.template is None else "uriTemplate"] = self.uri
        if self.mime_type is not None:
            entry["mimeType"] = self.mime_type
        if self.annotations is not None:
            entry["annotations"] = self.annotations
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
) -> Callable[[Callable[Q, R]], Resource[Q, R]]:
    """Turn a function into a resource: `@resource("docs://readme")` or, with variables, `@resource("docs://{page}")`.

    The function returns text, bytes, a model or a dict (sent as JSON), or a list of `content.resource_text(…)` and
    `content.resource_blob(…)`.

    Args:
        uri: the URI, or an RFC 6570 template with `{name}` for one path segment, `{+name}` for text with slashes, and
            `{?name,other}` at the end for a query. The function has a parameter for each variable. Give those of a
            query defaults, because clients may leave them out.
        name: the name in lists; by default the name of the function.
        version: increase it when the meaning of what the function records, such as a checkpoint, changes.
        title: a name for people.
        description: what it contains, for people and models; by default the docstring.
        mime_type: the media type of the content; by default it follows from the returned value.
        size: the size of the content in bytes, if it is known.
        annotations: hints for clients (`Annotations`).
        icons: `Icon` objects of the protocol.
        meta: the `_meta` of the list entry.
        ttl_ms: how long clients may cache the content, in milliseconds.
        cache: `"public"` if every caller reads the same content, otherwise `"private"`.
        announces_changes: whether clients can subscribe. `ctx.changed(uri)` then notifies them.
        state_ttl_seconds: how many seconds the client may take to answer, if the function asks questions; by default
            the setting of the deployment.
        scopes: the scopes that a caller's token needs to see and to read it.
        asks: the questions that the function may ask, by key: what `Elicit` takes, or any question. In tests and
            `gateway dev`, any other question is an error. None allows all questions.

    Raises:
        AuthoringError: the function or an option breaks a rule of the authoring API.
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
