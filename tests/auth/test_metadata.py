"""Protected-resource metadata: what it says, and where clients find it."""

from __future__ import annotations

import pytest

from gateway.auth import ResourceMetadata
from gateway.settings.model import Settings


def metadata(**environ: str) -> ResourceMetadata | None:
    given = {"GATEWAY_PUBLIC_URL": "https://mcp.example.com", **environ}
    return ResourceMetadata.of(Settings.load({name: value for name, value in given.items() if value}))


@pytest.mark.setting("public_url")
@pytest.mark.parametrize(
    ("public_url", "origin", "path"),
    [
        ("https://mcp.example.com", "https://mcp.example.com", "/mcp"),
        ("https://mcp.example.com/", "https://mcp.example.com", "/mcp"),
        ("https://mcp.example.com:8443/mcp", "https://mcp.example.com:8443", "/mcp"),
        ("https://example.com/tools", "https://example.com", "/tools/mcp"),
        ("HTTPS://MCP.Example.com:443/Tools", "https://mcp.example.com", "/Tools/mcp"),
        ("http://[::1]:8080/mcp/", "http://[::1]:8080", "/mcp"),
    ],
)
def test_the_resource_is_the_endpoint_and_its_metadata_is_found_under_its_path(
    public_url: str, origin: str, path: str
) -> None:
    url = f"{origin}/.well-known/oauth-protected-resource{path}"
    told = metadata(GATEWAY_PUBLIC_URL=public_url)
    assert told is not None
    assert (told.resource, told.url) == (origin + path, url)
    assert told.document([])["resource"] == origin + path
    assert {"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"} <= told.paths
    assert url.endswith(tuple(told.paths - {"/.well-known/oauth-protected-resource"}))


@pytest.mark.setting("auth", "public_url")
def test_there_is_none_without_identity_or_without_a_public_url() -> None:
    assert metadata(GATEWAY_AUTH="none") is None
    assert metadata(GATEWAY_PUBLIC_URL="") is None


@pytest.mark.setting("jwt_issuer", "authorization_servers")
def test_the_issuer_is_the_authorization_server_unless_others_are_named() -> None:
    def servers(**environ: str) -> object:
        told = metadata(**environ)
        assert told is not None
        return told.document([]).get("authorization_servers")

    assert servers(GATEWAY_JWT_ISSUER="https://id.example.com/") == ["https://id.example.com/"]
    assert servers(GATEWAY_JWT_ISSUER="our-issuer") is None
    assert servers() is None
    named = "https://a.example.com,https://b.example.com/tenant"
    assert servers(GATEWAY_JWT_ISSUER="https://id.example.com", GATEWAY_AUTHORIZATION_SERVERS=named) == named.split(",")


def test_scopes_have_one_order_and_an_empty_list_is_left_out() -> None:
    told = metadata(GATEWAY_JWT_ISSUER="https://id.example.com")
    assert told is not None
    assert told.document(["write", "read", "write"]) == {
        "resource": "https://mcp.example.com/mcp",
        "authorization_servers": ["https://id.example.com"],
        "scopes_supported": ["read", "write"],
        "bearer_methods_supported": ["header"],
    }
    assert "scopes_supported" not in told.document([])
    assert told.document([], "The shop")["resource_name"] == "The shop"


def test_where_operators_say_what_clients_ask_for_at_first_it_is_that_alone() -> None:
    told = metadata(GATEWAY_LOGIN_SCOPES="read, profile")
    assert told is not None
    assert told.document(["write", "read"])["scopes_supported"] == ["profile", "read"]
