"""Reports the state of this process to systemd, for units of `Type=notify`. See sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)


def notify_ready(environ: Mapping[str, str] = os.environ) -> None:
    """Report that the process serves, or that it has read its files again."""
    _notify("READY=1", environ)


def notify_reloading(environ: Mapping[str, str] = os.environ) -> None:
    """Report that the process reads its files again."""
    _notify(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}", environ)


def notify_stopping(environ: Mapping[str, str] = os.environ) -> None:
    """Report that the process drains."""
    _notify("STOPPING=1", environ)


def _notify(state: str, environ: Mapping[str, str]) -> None:
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name that is not in the file system
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        try:
            channel.sendto(state.encode(), address)
        except OSError as error:
            log.warning("systemd not notified", extra={"reason": error.strerror or type(error).__name__})
