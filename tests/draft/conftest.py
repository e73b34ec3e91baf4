"""The reference client and a scripted server that it talks to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.draft.client import DraftClient
from tests.draft.scripted_server import ScriptedServer


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[DraftClient]:
    async with DraftClient(server.urls, longest_poll_seconds=0.01) as client:
        yield client
