"""The HTTP edge: the MCP endpoint, health, errors as HTTP, the server, the development front."""
