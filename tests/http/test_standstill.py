"""A replica that was frozen looks at the clients that waited for it: real processes, stopped by signals."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.http.slow_clients import RECENT_SECONDS, STANDSTILL_SECONDS, Standstills
from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.integration.raw import RawConnection, call, head_of, tool_call

TICK_SECONDS = 0.1


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Replica]:
    with Fleet(tmp_path, {"GATEWAY_TOOLS": "tests.integration.tools"}, names=("r1",)) as fleet:
        yield fleet["r1"]


class Waiting(RawConnection):
    """A connection that the replica has accepted, for a request that it receives while it is frozen."""

    def __enter__(self) -> Waiting:
        super().__enter__()
        self.ask("echo", {"text": "first"})
        assert self.answer().text == "first"
        return self

    def ask(self, tool: str, arguments: dict[str, Any]) -> None:
        message = tool_call(tool, arguments)
        body = json.dumps(message).encode()
        self.head([*head_of(message), ("Content-Length", str(len(body)))])
        self.socket.sendall(body)


def stand_still(replica: Replica) -> None:
    until = time.monotonic() + 2 * STANDSTILL_SECONDS
    wait_until(lambda: time.monotonic() > until, "the standstill to be a long one")
    replica.signal(signal.SIGCONT)


def test_a_request_whose_client_left_while_the_replica_was_frozen_does_not_run(
    replica: Replica, tmp_path: Path
) -> None:
    """A load balancer gives up on a frozen replica and sends the request to another one."""
    started = tmp_path / "started"
    with Waiting(replica) as left:
        replica.signal(signal.SIGSTOP)
        left.ask("hold", {"started": str(started), "release": str(tmp_path / "release")})
    stand_still(replica)
    assert call(replica, "echo", {"text": "again"}).text == "again"
    replica.signal(signal.SIGTERM)
    assert replica.wait() == 0
    assert not started.exists()
    assert replica.logged("request failed") == []


def test_a_client_that_waited_for_a_frozen_replica_gets_its_answer(replica: Replica) -> None:
    with Waiting(replica) as patient:
        replica.signal(signal.SIGSTOP)
        patient.ask("echo", {"text": "hello"})
        stand_still(replica)
        assert patient.answer().text == "hello"


def test_a_standstill_is_seen_before_and_after_the_next_tick() -> None:
    standstills = Standstills()
    assert standstills.fresh_until == float("inf")
    standstills.tick(10)
    assert 10 + TICK_SECONDS < standstills.fresh_until < 10 + 2 * STANDSTILL_SECONDS
    ends_at = 10 + 2 * STANDSTILL_SECONDS
    standstills.tick(ends_at)
    assert standstills.fresh_until < ends_at
    standstills.tick(ends_at + TICK_SECONDS)
    assert standstills.fresh_until < ends_at
    standstills.tick(ends_at + 2 * RECENT_SECONDS)
    assert standstills.fresh_until > ends_at + 2 * RECENT_SECONDS
