"""Objects of fastmcp 4: a server, and the application of another one."""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image
from mcp_types import ToolListChangedNotification

from tests.integration.clients.object_tools import add_to, counting


async def announce(ctx):
    """Announce a change in the session of a call."""
    await ctx.send_notification(ToolListChangedNotification())


def made():
    """Return a server."""
    lifespan, started = counting()
    server = FastMCP("objects", lifespan=lifespan)
    add_to(server, started, Context, Image, announce)

    @server.completion()
    async def complete(_ref, argument, _context):
        return [f"{argument.value}da"]

    return server


server = made()
app = made().http_app()
