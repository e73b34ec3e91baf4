"""Servers of tests behind two replicas and a worker, for all tests that leave them running."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from tests.integration.conftest import pytest_runtest_makereport
from tests.storage.servers import Server
from tests.upstreams.servers.recording import Recording
from tests.upstreams.site import Site, User, entry
from tests.wires.draft.conftest import redis

__all__ = ["pytest_runtest_makereport", "redis"]

UserOf: TypeAlias = Callable[..., User]
SHARED_CREDENTIAL = "Bearer the-gateways-own-credential"

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def recording() -> Iterator[Recording]:
    """The upstream of most tests. It lives as long as the replicas; see `upstream`."""
    with Recording() as recording:
        yield recording


@pytest.fixture(scope="session")
def served(recording: Recording, redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two replicas and a worker with the recording server behind them, under three names with different options."""
    shared = {"headers": {"Authorization": SHARED_CREDENTIAL}}
    upstreams: dict[str, Any] = {
        "rec": entry(recording.url, timeout_seconds=10, max_result_bytes=1 << 20, **shared),
        "tasks": entry(recording.url, task="optional", timeout_seconds=10, **shared),
        "soon": entry(recording.url, task={"after_seconds": 0.3}, timeout_seconds=10, **shared),
        "guarded": entry(
            recording.url,
            tools={"allow": ["echo", "act", "ask_*", "regional"], "deny": ["ask_then_*"]},
            prompts={"deny": ["asking"]},
            resources={"deny": ["file:*"]},
            scopes={"act": ["may-act"], "greeting": ["may-greet"], "note:*": ["may-read"]},
            forward_headers=["x-github-token"],
        ),
    }
    with Site(tmp_path_factory.mktemp("upstreams"), upstreams, redis) as site:
        site.wait_listed()
        yield site


@pytest.fixture
def site(served: Site, recording: Recording) -> Site:
    """The replicas, with nothing recorded yet."""
    recording.clear()
    return served


@pytest.fixture
def upstream(site: Site, recording: Recording) -> Recording:
    """The recording server, with nothing recorded yet."""
    return recording


@pytest.fixture
def principal() -> str:
    """A user of this test's own."""
    return f"user-{next(_NUMBERS)}"


@pytest.fixture
async def user_of(site: Site) -> AsyncIterator[UserOf]:
    """Make clients of 2026-07-28, which are closed after the test."""
    async with AsyncExitStack() as stack:

        def user_of(principal: str = "ada", **options: Any) -> User:
            user = site.user(principal, **options)
            stack.push_async_callback(user.http.aclose)
            return user

        yield user_of


@pytest.fixture
async def user(user_of: UserOf, principal: str) -> User:
    return user_of(principal)


async def settled(seconds: float = 0.3) -> None:
    """Let what must not happen have its chance."""
    await asyncio.sleep(seconds)
