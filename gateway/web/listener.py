"""The listening socket of a replica."""

from __future__ import annotations

import socket
from typing import Final

from gateway.errors import ConfigurationError
from gateway.runtime.sockets import CannotListen, open_listener

_BACKLOG: Final = 1024


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address; port 0 means any free port. Connections wait until they are accepted.

    If the process cannot listen there, this raises `ConfigurationError`.
    """
    try:
        return open_listener(host, port, backlog=_BACKLOG)
    except CannotListen as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error}; choose another address with --host or --port"
        ) from None


def inherit(descriptor: int, option: str = "--fd") -> socket.socket:
    """Take over a listening socket that the parent process opened.

    If the descriptor is not a TCP socket, this raises `ConfigurationError`, which names the option.
    """
    refusal = ConfigurationError(f"{option} {descriptor} is not a TCP socket that this process was given")
    try:
        listener = socket.socket(fileno=descriptor)
    except (OSError, ValueError):
        raise refusal from None
    if listener.family not in {socket.AF_INET, socket.AF_INET6} or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise refusal
    return listener
