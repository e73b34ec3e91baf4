"""The web side: the MCP endpoint, the FastAPI application, and messages between replicas."""
