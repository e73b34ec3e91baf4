"""Objects of the `mcp` SDK 1.x: a server, a low-level server, and the application of another one."""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.types import Completion, TextContent, Tool

from tests.integration.clients.object_tools import add_to, counting


async def announce(ctx):
    """Announce a change in the session of a call."""
    await ctx.session.send_tool_list_changed()


def made():
    """Return a server."""
    lifespan, started = counting()
    server = FastMCP("objects", log_level="ERROR", lifespan=lifespan, streamable_http_path="/of-its-own")
    add_to(server, started, Context, Image, announce)

    @server.completion()
    async def complete(_ref, argument, _context):
        return Completion(values=[f"{argument.value}da"])

    low_level = server._mcp_server
    declared = low_level.create_initialization_options(NotificationOptions(tools_changed=True))
    low_level.create_initialization_options = lambda: declared

    return server


server = made()
app = made().streamable_http_app()
low_lifespan, low_started = counting()
low = Server("low", lifespan=low_lifespan)


@low.list_tools()
async def list_tools():
    """List the only tool."""
    return [Tool(name="lifespans", inputSchema={"type": "object"})]


@low.call_tool()
async def call_tool(_name, _arguments):
    """Count how often the lifespan was entered."""
    return [TextContent(type="text", text=str(len(low_started)))]
