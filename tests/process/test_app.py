"""The settings determine the parts of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.http.limits import Limits
from gateway.process.app import _connection_limits
from gateway.settings.model import Settings
from gateway.tokens.stream_receiver import MAX_RUNNING, max_stream_request_bytes
from loadtest.cluster import clean_environment, new_key

pytestmark = pytest.mark.slow


@pytest.mark.setting(
    "max_connections",
    "max_header_bytes",
    "max_headers",
    "max_body_bytes",
    "head_seconds",
    "body_seconds",
    "unread_seconds",
    "max_unread_bytes",
)
def test_every_limit_on_connections_comes_from_its_setting() -> None:
    settings = Settings.load(
        {
            "GATEWAY_TOOLS": "gateway.demo",
            "GATEWAY_SEAL_KEYS": new_key(),
            "GATEWAY_AUDIENCE": "tests",
            "GATEWAY_AUTH": "none",
            "GATEWAY_MAX_CONNECTIONS": "17",
            "GATEWAY_MAX_HEADER_BYTES": "5000",
            "GATEWAY_MAX_HEADERS": "23",
            "GATEWAY_MAX_BODY_BYTES": "10000",
            "GATEWAY_HEAD_SECONDS": "3",
            "GATEWAY_BODY_SECONDS": "4",
            "GATEWAY_UNREAD_SECONDS": "5",
            "GATEWAY_MAX_UNREAD_BYTES": "1048577",
        }
    )
    assert _connection_limits(settings) == Limits(
        max_connections=17,
        max_header_bytes=5000,
        max_headers=23,
        max_message_bytes=5000 + max_stream_request_bytes(10_000),
        head_seconds=3,
        body_seconds=4,
        unread_seconds=5,
        silent_seconds=12,
        max_unread_bytes=1_048_577,
        idle_seconds=75,
        max_exempt_connections=MAX_RUNNING,
    )


@pytest.mark.setting("max_body_bytes")
def test_the_framing_of_a_large_body_has_as_much_room_as_the_body() -> None:
    settings = Settings.load({"GATEWAY_MAX_BODY_BYTES": "1000000", "GATEWAY_MAX_HEADER_BYTES": "5000"})
    assert _connection_limits(settings).max_message_bytes == 2_005_000


PRELOADED = """
import asyncio, os, sys
from gateway.process.app import create_app

app = create_app()
if os.fork() != 0:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))


async def start():
    async with app.router.lifespan_context(app):
        print("started")


asyncio.run(start())
"""


def test_a_process_that_is_forked_after_the_gateway_was_built_refuses_to_start() -> None:
    environ = {"GATEWAY_TOOLS": "gateway.demo.machines", "GATEWAY_SEAL_KEYS": new_key(), "GATEWAY_AUDIENCE": "tests"}
    ended = subprocess.run(
        [sys.executable, "-c", PRELOADED],
        check=False,
        env=clean_environment({**environ, "GATEWAY_AUTH": "none"}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode != 0
    assert "started" not in ended.stdout
    assert "do not preload the application, or use gateway.mount" in ended.stderr
