"""Envoy, whose filter `mcp_router` serves tools of other servers; it comes as a wheel."""
