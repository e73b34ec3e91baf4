"""Objects of the `mcp` SDK 2: a server, and the application of another one."""

# mypy: ignore-errors
# The objects are the same for each package, so they have no types.

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import Completion

from tests.integration.clients.object_tools import add_to, counting


def made():
    """Return a server."""
    lifespan, started = counting()
    server = MCPServer("objects", log_level="ERROR", lifespan=lifespan)
    add_to(server, started, Context, Image, Context.notify_tools_changed)

    @server.completion()
    async def complete(_ref, argument, _context):
        return Completion(values=[f"{argument.value}da"])

    return server


server = made()
app = made().streamable_http_app()
