"""Services that the examples call."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[str, str, str], tuple[int, Any]]
"""Takes method, path and `Authorization`, and returns status and JSON."""


class Service:
    """A service that keeps connections open.

    Attributes:
        url: where it is.
        seen: the requests: method, path and `Authorization`.
        connections: how many were opened.
    """

    def __init__(self, reply: Reply) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.connections = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                service.connections += 1
                super().setup()

            def do_GET(self) -> None:
                asked = (self.command, self.path, self.headers.get("Authorization", ""))
                service.seen.append(asked)
                status, told = reply(*asked)
                body = json.dumps(told).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_DELETE = do_GET  # noqa: N815 - the base class calls it

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Service]:
        """Serve while the context is open."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()
