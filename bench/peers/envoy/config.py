"""The configuration of Envoy in front of one MCP server, as its documentation of `mcp_router` has it."""

from __future__ import annotations

import json

HOST = "127.0.0.1"
_TYPES = "type.googleapis.com/envoy.extensions.filters"


def config(port: int, upstream_port: int) -> str:
    """Return the configuration as JSON, which is YAML.

    Args:
        port: where Envoy listens.
        upstream_port: where the server listens. Its tools are called `up__…`.
    """
    server = {"name": "up", "mcp_cluster": {"cluster": "up", "path": "/mcp"}}
    filters = [
        {"name": "envoy.filters.http.mcp", "typed_config": {"@type": f"{_TYPES}.http.mcp.v3.Mcp"}},
        {
            "name": "envoy.filters.http.mcp_router",
            "typed_config": {"@type": f"{_TYPES}.http.mcp_router.v3.McpRouter", "servers": [server]},
        },
    ]
    route = {"match": {"prefix": "/"}, "route": {"cluster": "up"}}
    manager = {
        "@type": f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mcp",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoint = {"lb_endpoints": [{"endpoint": {"address": _address(upstream_port)}}]}
    cluster = {
        "name": "up",
        "type": "STATIC",
        "connect_timeout": "2s",
        "load_assignment": {"cluster_name": "up", "endpoints": [endpoint]},
    }
    listener = {"name": "mcp", "address": _address(port), "filter_chains": [chain]}
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": HOST, "port_value": port}}
