"""Servers that give the answers a test defines."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

Answer = Callable[[int], Sequence[bytes]]
"""Returns the pieces of the answer to a request, given its number on its connection."""


def response(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nDate: today\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@contextmanager
def server(answer: Answer) -> Iterator[int]:
    """Run a server that answers 4-byte requests with the pieces from `answer`, or hangs up if none; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(link: socket.socket) -> None:
            with link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for number in count():
                    if not link.recv(4):
                        return
                    pieces = answer(number)
                    for piece in pieces:
                        link.sendall(piece)
                    if not pieces:
                        return

        def accept() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(link,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
