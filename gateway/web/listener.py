"""The socket that a process listens on, made before anything else so that a taken port is told at once."""

from __future__ import annotations

import errno
import socket
from typing import Final

from gateway.errors import ConfigurationError

_BACKLOG: Final = 1024


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address; connections wait until somebody accepts them.

    Args:
        host: a name or an address of this machine.
        port: 0 takes any free one.

    Raises:
        ConfigurationError: the port is taken or the address cannot be listened on.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {_reason(error, port)}; choose another address with --host or --port"
        ) from None


def inherit(descriptor: int) -> socket.socket:
    """Take over a listening socket that the parent process made.

    Raises:
        ConfigurationError: there is no such socket.
    """
    refusal = ConfigurationError(f"--fd {descriptor} is not a TCP socket that this process was given")
    try:
        listener = socket.socket(fileno=descriptor)
    except (OSError, ValueError):
        raise refusal from None
    if listener.family not in {socket.AF_INET, socket.AF_INET6} or listener.type != socket.SOCK_STREAM:
        listener.detach()
        raise refusal
    return listener


def _reason(error: OSError | UnicodeError, port: int) -> str:
    if isinstance(error, UnicodeError):
        return "this is not a host name"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is already in use"
    # create_server adds the address in words of its own.
    return (error.strerror or type(error).__name__).partition(" (")[0]
