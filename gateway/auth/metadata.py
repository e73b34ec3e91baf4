"""Protected-resource metadata (RFC 9728): where clients of this deployment get their tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from gateway.settings.model import ENDPOINT_PATH, Settings, is_web_url

WELL_KNOWN_PATH: Final = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True)
class ResourceMetadata:
    """The deployment's metadata as a protected resource.

    `resource` is the URL of the MCP endpoint. `authorization_servers` are the issuer URLs of the servers that issue
    tokens for it. Clients request `login_scopes` first; without any, the scopes of everything served.
    """

    resource: str
    authorization_servers: tuple[str, ...]
    login_scopes: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> ResourceMetadata | None:
        """Return the metadata from the settings; None without authentication or without a public URL."""
        if settings.auth == "none" or settings.resource is None:
            return None
        servers = settings.authorization_servers
        if not servers and settings.jwt_issuer is not None and is_web_url(settings.jwt_issuer):
            servers = (settings.jwt_issuer,)
        return cls(settings.resource, servers, settings.login_scopes)

    @property
    def url(self) -> str:
        """The URL of the metadata: the well-known path precedes the resource's own (RFC 9728 section 3.1)."""
        parts = urlsplit(self.resource)
        return urlunsplit((parts.scheme, parts.netloc, WELL_KNOWN_PATH + parts.path, "", ""))

    @property
    def paths(self) -> frozenset[str]:
        """The paths that serve it: the endpoint's path here, the root, and the path seen by clients behind a prefix."""
        return frozenset({WELL_KNOWN_PATH, WELL_KNOWN_PATH + ENDPOINT_PATH, urlsplit(self.url).path})

    def document(self, scopes: Iterable[str], name: str | None = None) -> dict[str, Any]:
        """Return the document (RFC 9728 section 2); empty lists are left out (section 3.2).

        The scopes are those that tools, prompts and resources require. The name is for people.
        """
        document: dict[str, Any] = {"resource": self.resource}
        if self.authorization_servers:
            document["authorization_servers"] = list(self.authorization_servers)
        # Clients request all of these. Lists omit what a token does not cover, so a client that requested less by
        # default would never learn about the rest.
        supported = sorted(set(self.login_scopes or scopes))
        if supported:
            document["scopes_supported"] = supported
        document["bearer_methods_supported"] = ["header"]
        if name is not None:
            document["resource_name"] = name
        return document
