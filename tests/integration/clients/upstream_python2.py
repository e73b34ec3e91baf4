"""A server of the `mcp` SDK 2 on its standard streams, to be run as a module in the repository."""

# mypy: ignore-errors
# The type checker sees other versions, which are installed in its environment.

from tests.integration.clients.object_python2 import server

server.run("stdio")
