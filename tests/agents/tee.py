"""Stands between an agent and the replicas, which serve its connections in turn, and keeps what each carried."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from socketserver import BaseRequestHandler, ThreadingTCPServer
from types import TracebackType
from typing import Final, Self

from loadtest.cluster.common import HOST

_CHUNK_BYTES: Final = 65536
_CONNECT_SECONDS: Final = 20


@dataclass
class Carried:
    """The bytes of one connection, which replicas close after one response.

    Attributes:
        began: its place in the order of all beginnings and ends.
        ended: likewise; None while the connection is open.
    """

    began: int
    request: bytearray = field(default_factory=bytearray)
    response: bytearray = field(default_factory=bytearray)
    ended: int | None = None


class Tee:
    """Listens on a free port, and gives each connection to the next address."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._moments = itertools.count()
        self._turns = itertools.cycle(addresses)
        self.carried: list[Carried] = []
        tee = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                tee._serve(self.request)

        self._server = ThreadingTCPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self.origin = f"http://{HOST}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, client: socket.socket) -> None:
        with socket.create_connection(next(self._turns), _CONNECT_SECONDS) as replica:
            replica.settimeout(None)
            carried = Carried(next(self._moments))
            self.carried.append(carried)
            asking = threading.Thread(target=self._copy, args=(client, replica, carried.request), daemon=True)
            asking.start()
            self._copy(replica, client, carried.response)
            carried.ended = next(self._moments)
            asking.join()

    def _copy(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                kept += data
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
