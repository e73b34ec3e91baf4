"""The network between processes and their store: commands always arrive, replies only when allowed."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

from loadtest.cluster.common import HOST, port_of

_CHUNK_BYTES: Final = 1 << 16


class Relay:
    """Forwards the commands of a server's clients, and its replies.

    Args:
        port: of the server.

    Attributes:
        url: where the server seems to be.
    """

    def __init__(self, port: int) -> None:
        self._server = HOST, port
        self._listener = socket.create_server((HOST, 0))
        self.url = f"redis://{HOST}:{port_of(self._listener)}"
        self._commands_pass = threading.Event()
        self._commands_pass.set()
        self._replies_pass = threading.Event()
        self._replies_pass.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def follow(self, port: int) -> None:
        """Lead new connections to another server."""
        self._server = HOST, port

    def withhold_replies(self) -> None:
        """From now on, forward commands but no replies."""
        self._replies_pass.clear()

    def release_replies(self) -> None:
        """Forward replies again, including withheld ones."""
        self._replies_pass.set()

    def close(self) -> None:
        """Accept no more connections; existing ones end with their server."""
        self.release_replies()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._server)
        except OSError:
            client.close()
            return
        with client, server:
            answering = threading.Thread(target=_pump, args=(server, client, self._replies_pass), daemon=True)
            answering.start()
            _pump(client, server, self._commands_pass)
            answering.join()


def _pump(source: socket.socket, sink: socket.socket, may_pass: threading.Event) -> None:
    """Forward everything until one end closes the connection, then close the other end."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            may_pass.wait()
            sink.sendall(chunk)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
