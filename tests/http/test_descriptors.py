"""Room for as many connections as a replica may hold."""

from __future__ import annotations

import logging
import resource

import pytest

from gateway.http.descriptors import MIN_CONNECTIONS, RESERVED, make_room

UNLIMITED = resource.RLIM_INFINITY


class System:
    """The limits that the system sets."""

    def __init__(self, soft: int, hard: int) -> None:
        self.limits = (soft, hard)

    def getrlimit(self, kind: int) -> tuple[int, int]:
        assert kind == resource.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        assert limits[1] == self.limits[1], "the hard limit can never be raised again"
        assert limits[0] <= limits[1] or limits[1] == UNLIMITED
        self.limits = limits


@pytest.mark.parametrize(
    ("before", "soft_after", "connections"),
    [
        ((1024, 5000), 5000, 4096),
        ((1024, 20_000), 5096 + RESERVED, 4096),
        ((1024, UNLIMITED), 5096 + RESERVED, 4096),
        ((20_000, 20_000), 20_000, 4096),
        ((UNLIMITED, UNLIMITED), UNLIMITED, 4096),
        ((4096 + RESERVED, 4096 + RESERVED), 4096 + RESERVED, 4096),
        ((1024, 4096), 4096, 4096 - RESERVED),
        ((1024, 1024), 1024, 1024 - RESERVED),
        ((64, 64), 64, MIN_CONNECTIONS),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed_and_possible(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    before: tuple[int, int],
    soft_after: int,
    connections: int,
) -> None:
    system = System(*before)
    monkeypatch.setattr(resource, "getrlimit", system.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", system.setrlimit)
    with caplog.at_level(logging.WARNING):
        assert make_room(4096, beside=1000) == connections
    assert system.limits == (soft_after, before[1])
    assert [record.levelname for record in caplog.records] == (["WARNING"] if connections < 4096 else [])
