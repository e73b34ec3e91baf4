"""Listening sockets. They are opened before anything else, so a taken port is reported at once."""

from __future__ import annotations

import errno
import socket
from typing import Final

from gateway.errors import GatewayError

_EVERY_ADDRESS: Final = "::"


class CannotListen(GatewayError):
    """An address cannot be listened on. The message is the reason, as the end of a sentence."""


def open_listener(host: str, port: int, *, backlog: int) -> socket.socket:
    """Listen on an address. Connections wait until they are accepted. Port 0 picks a free one.

    The address `::` stands for all addresses of this machine, those of IPv4 included.

    Raises:
        CannotListen: the port is taken, or the address cannot be listened on.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        takes_both = address[0] == _EVERY_ADDRESS and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=takes_both)
    except UnicodeError:
        raise CannotListen("not a valid host name") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotListen(f"port {port} is already in use") from None
        # create_server appends the address in its own words.
        raise CannotListen((error.strerror or type(error).__name__).partition(" (")[0]) from None
