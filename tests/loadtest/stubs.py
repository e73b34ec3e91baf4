"""A scripted replica, for tests of a balancer's reaction to it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

WAIT_SECONDS = 40.0


class Exchange(BaseHTTPRequestHandler):
    """One request, with methods to answer it in any way."""

    protocol_version = "HTTP/1.1"
    server: _Server
    content: bytes

    def do_GET(self) -> None:
        """Answer whether the replica is ready."""
        self.reply(200 if self.server.stub.ready else 503)

    def do_POST(self) -> None:
        """Answer as the test defines."""
        self.content = (
            self._chunks() if self.headers["transfer-encoding"] else self._read(self.headers["content-length"])
        )
        self.server.stub.received.append(self)
        self.server.stub.behave(self)

    def _read(self, size: str, base: int = 10) -> bytes:
        return self.rfile.read(int(size, base))

    def _chunks(self) -> bytes:
        content = b""
        while chunk := self._read(self.rfile.readline().decode(), 16):
            content += chunk
            self.rfile.readline()
        self.rfile.readline()
        return content

    def reply(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, content: bytes) -> None:
        """Send a part of a stream; an empty one ends it."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))

    def hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset the connection, as the kernel does for a killed process."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def wait_for_hang_up(self) -> None:
        """Wait until the other side closes the connection."""
        self.close_connection = True
        self.connection.settimeout(WAIT_SECONDS)
        try:
            left = self.connection.recv(1)
        except ConnectionResetError:
            left = b""
        assert left == b""

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


Behave = Callable[[Exchange], object]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    stub: StubReplica

    def handle_error(self, *_: object) -> None:
        """Ignore the error: tests break connections on purpose, and would hang on any other error."""


class StubReplica:
    """Answers health checks, and other requests as the test defines.

    Attributes:
        behave: what it does with a POST.
        ready: whether its health check succeeds.
        received: the requests that it got.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = True
        self.received: list[Exchange] = []
        self.behave: Behave = lambda exchange: exchange.reply(200, name.encode())
        self._server = _Server(("127.0.0.1", 0), Exchange)
        self._server.stub = self

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server, and close kept-alive connections too."""
        self._server.shutdown()
        self._server.server_close()
        for exchange in self.received:
            with contextlib.suppress(OSError):
                exchange.connection.shutdown(socket.SHUT_RDWR)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.server_address[:2]
        return str(host), port
