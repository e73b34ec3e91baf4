"""Pure: the messages of other MCP servers, and what our clients see of them (`docs/run/upstreams.md`)."""
