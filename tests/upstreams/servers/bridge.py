"""A program that gives its standard streams to a server in another process: `python bridge.py PORT`.

It uses only the standard library, and ends when one of the two sides does.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:

        def read() -> None:
            while piece := connection.recv(65536):
                os.write(1, piece)
            os._exit(0)

        threading.Thread(target=read, daemon=True).start()
        while piece := os.read(0, 65536):
            connection.sendall(piece)


if __name__ == "__main__":
    main()
