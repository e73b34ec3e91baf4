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
    """What a deployment tells of itself as a protected resource.

    Attributes:
        resource: its identifier: the URL of the MCP endpoint.
        authorization_servers: the issuer URLs of those that give tokens for it.
        login_scopes: what clients ask for at first; empty for everything that is served.
    """

    resource: str
    authorization_servers: tuple[str, ...]
    login_scopes: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> ResourceMetadata | None:
        """Return what the settings tell; None without identity or a public URL."""
        if settings.auth == "none" or settings.resource is None:
            return None
        servers = settings.authorization_servers
        if not servers and settings.jwt_issuer is not None and is_web_url(settings.jwt_issuer):
            servers = (settings.jwt_issuer,)
        return cls(settings.resource, servers, settings.login_scopes)

    @property
    def url(self) -> str:
        """Where clients find it: the well-known path comes before the resource's own (RFC 9728 section 3.1)."""
        parts = urlsplit(self.resource)
        return urlunsplit((parts.scheme, parts.netloc, WELL_KNOWN_PATH + parts.path, "", ""))

    @property
    def paths(self) -> frozenset[str]:
        """The paths it is served at: that of the endpoint here, at the root, and as clients of a prefix see it."""
        return frozenset({WELL_KNOWN_PATH, WELL_KNOWN_PATH + ENDPOINT_PATH, urlsplit(self.url).path})

    def document(self, scopes: Iterable[str]) -> dict[str, Any]:
        """Return the document (RFC 9728 section 2); empty lists are left away (section 3.2).

        Args:
            scopes: those that tools, prompts and resources ask for.
        """
        document: dict[str, Any] = {"resource": self.resource}
        if self.authorization_servers:
            document["authorization_servers"] = list(self.authorization_servers)
        # Clients ask for all of these, and what a token does not reach is missing from lists: a client that asked for
        # less by default would never learn what else there is.
        supported = sorted(set(self.login_scopes or scopes))
        if supported:
            document["scopes_supported"] = supported
        document["bearer_methods_supported"] = ["header"]
        return document
