"""The server behind the gateway in the legs of upstreams: the fixtures, whose lists really change when they say so.

A gateway announces only lists that differ, so a server that merely says that its lists have changed shows nothing.
"""

from __future__ import annotations

import itertools
import os
import socket
import sys

from gateway import prompt, tool
from gateway.process.app import GatewayApp, make_server
from gateway.process.replica import build
from gateway.registry.registry import load_registry
from gateway.settings.model import Settings
from loadtest.cluster import new_key
from tests.conformance import fixtures

_NUMBERS = itertools.count(1)


def add_to(kind: str) -> None:
    """Add a tool or a prompt to the fixtures."""

    async def added() -> str:
        """Stand for a change."""
        return "added"

    added.__name__ = f"added_{next(_NUMBERS)}"
    setattr(fixtures, added.__name__, tool(added) if kind == "tools" else prompt(added))


def main() -> int:
    """Serve on a free port, and print where."""
    sock = socket.create_server(("127.0.0.1", 0))
    own = {"GATEWAY_SEAL_KEYS": new_key(), "GATEWAY_AUDIENCE": "conformance", "GATEWAY_REPLICA_ID": "behind"}
    services = build(Settings.load({**os.environ, **own}, tools=(fixtures.__name__,)))

    def change(kind: str) -> None:
        add_to(kind)
        services.wires.reload(load_registry([fixtures.__name__]))

    fixtures.on_change.append(change)
    app = GatewayApp(services)
    print(f"ready on http://127.0.0.1:{sock.getsockname()[1]}/mcp", flush=True)  # noqa: T201 - read by the runner
    make_server(services, app).run(sockets=[sock])
    return 0


if __name__ == "__main__":
    sys.exit(main())
