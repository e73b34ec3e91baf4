"""The ports of the metrics of `gateway dev`: the usual ones where they are free, others where they are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from gateway.cli.console import Console
from gateway.cli.dev import _metrics_listeners
from gateway.errors import ConfigurationError
from gateway.web.listener import inherit, listen

Ports = Callable[..., list[int]]


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Return a function that opens the metrics' sockets from a first port on, and returns their ports."""
    with ExitStack() as stack:
        console = stack.enter_context(closing(Console()))

        def open_from(first: int | None, count: int) -> list[int]:
            listeners = _metrics_listeners(first, count, stack, console)
            return [listener.getsockname()[1] for listener in listeners if listener is not None]

        yield open_from


def test_ports_are_consecutive_where_they_are_free(ports: Ports) -> None:
    for _ in range(20):  # other processes take ports too
        with listen("127.0.0.1", 0) as probe:
            first = probe.getsockname()[1]
        if ports(first, 2) == [first, first + 1]:
            return
    pytest.fail("no two consecutive ports are free")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_somebody_else_has_is_replaced_by_another(ports: Ports, host: str) -> None:
    with listen(host, 0) as taken:
        port = taken.getsockname()[1]
        first, _ = ports(port, 2)
        assert first != port


def test_a_port_is_kept_from_when_it_is_chosen(ports: Ports) -> None:
    """A replica that starts late or restarts finds its port free."""
    for port in ports(0, 2):
        with pytest.raises(ConfigurationError, match="already in use"):
            listen("127.0.0.1", port)


def test_there_are_ports_beyond_the_last_one_and_none_where_metrics_are_off(ports: Ports) -> None:
    assert len(ports(65535, 2)) == 2
    assert ports(None, 2) == []


def test_a_descriptor_that_is_not_a_socket_is_reported_with_its_option() -> None:
    with pytest.raises(ConfigurationError, match="--metrics-fd 999 is not a TCP socket"):
        inherit(999, "--metrics-fd")
