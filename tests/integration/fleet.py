"""Replicas without a balancer, for tests; their logs are shown when a test fails."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from gateway.cli.round_robin import Front
from gateway.web.listener import listen
from loadtest.cluster import Cluster, new_key
from loadtest.cluster.common import HOST

SEAL_KEY: Final = new_key()
"""The key of every fleet of this run. A module's fleet may start again at the same store, which its key must open."""


class Fleet(Cluster):
    """Identical replicas that tests call one by one. They drain without a notice, as nothing watches their health.

    Args:
        environ: the settings of all replicas, on top of the cluster's.
        own: further settings by replica id.
    """

    live: list[Fleet] = []  # noqa: RUF012 - whose logs are shown when a test fails

    def __init__(
        self,
        directory: Path,
        environ: Mapping[str, str] | None = None,
        *,
        names: Sequence[str] = ("r1", "r2"),
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        settings = {
            "GATEWAY_AUDIENCE": "tests",
            "GATEWAY_SEAL_KEYS": SEAL_KEY,
            "GATEWAY_DRAIN_NOTICE_SECONDS": "0",
            **(environ or {}),
        }
        super().__init__(directory, replicas=names, balancer=False, environ=settings, own=own)

    def __enter__(self) -> Self:
        """Start all replicas at once and wait until each serves."""
        Fleet.live.append(self)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        """Stop all processes at once."""
        Fleet.live.remove(self)
        super().__exit__()

    def restart(self) -> None:
        """End every replica that runs, then start them all."""
        for replica in self.replicas:
            if replica.alive:
                replica.terminate()
        for replica in self.replicas:
            replica.start()
        for replica in self.replicas:
            replica.wait_ready()


@contextlib.asynccontextmanager
async def front_of(fleet: Fleet) -> AsyncIterator[str]:
    """Give each connection to the next replica, and yield the URL of the endpoint."""
    listener = listen(HOST, 0)
    front = Front([replica.address for replica in fleet.replicas], listener)
    await front.start()
    yield f"http://{HOST}:{listener.getsockname()[1]}/mcp"
    await front.close()
