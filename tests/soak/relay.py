"""The network between processes and their store: commands always arrive, replies only when they may."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

from loadtest.cluster.common import HOST, port_of

_CHUNK_BYTES: Final = 1 << 16


class Relay:
    """Passes on what clients of a server send, and what it answers.

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

    def withhold_replies(self) -> None:
        """Let commands arrive from now on, and no reply."""
        self._replies_pass.clear()

    def release_replies(self) -> None:
        """Let replies through again, also those of before."""
        self._replies_pass.set()

    def close(self) -> None:
        """Take no more connections; those that there are end with their server."""
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
    """Pass on everything until one of the two ends hangs up; then the other one is hung up on as well."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            may_pass.wait()
            sink.sendall(chunk)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
