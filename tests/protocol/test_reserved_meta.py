"""Names in `_meta` that upstreams and clients may not pass on."""

from __future__ import annotations

import pytest

from gateway.protocol.reserved_meta import is_reserved


@pytest.mark.parametrize(
    "name",
    [
        "io.modelcontextprotocol/x",
        "IO.ModelContextProtocol/x",
        "dev.mcp/",
        "MCP.dev/x",
        "mcp/x",
        "org.modelcontextprotocol.api/x",
        "dev.sealedgateway/more",
        "progressToken",
        "baggage",
    ],
)
def test_names_of_the_protocol_and_of_the_gateway_are_reserved(name: str) -> None:
    assert is_reserved(name)


@pytest.mark.parametrize(
    "name", ["a", "", "com.example.mcp/x", "mcp", "example.com/mcp", "io.modelcontextprotocol", "ui/resourceUri"]
)
def test_other_names_are_not_reserved(name: str) -> None:
    assert not is_reserved(name)
