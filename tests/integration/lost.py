"""Clients that lose their network or their power: they acknowledge nothing, and close no connection."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final

SO_ATTACH_FILTER: Final = 26  # asm-generic/socket.h
SO_DETACH_FILTER: Final = 27
DROP_ALL: Final = struct.pack("=HBBI", 0x06, 0, 0, 0)
"""A filter of one instruction: keep 0 bytes of each packet."""


def vanish(connection: socket.socket) -> None:
    """Drop all packets for a socket, below TCP, as if its machine had lost its power."""
    program = ctypes.create_string_buffer(DROP_ALL)
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HL", 1, ctypes.addressof(program)))


def reappear(connection: socket.socket) -> None:
    """Receive packets for a vanished socket again."""
    connection.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
