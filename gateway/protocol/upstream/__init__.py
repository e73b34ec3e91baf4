"""Pure: what other MCP servers say, and how it appears to our clients (`docs/upstreams.md`)."""
