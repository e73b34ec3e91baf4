"""`gateway status`: which processes a URL stands for, and what is read from their metrics.

`tests/workers/test_operators.py` runs it with real processes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.samples import Sample

from gateway.cli import status
from gateway.cli.status import ProcessStatus, own_metrics
from gateway.observability.metrics import RefusalReason, Telemetry
from gateway.settings.model import Settings


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://127.0.0.1:9464", ("127.0.0.1:9464", "http://127.0.0.1:9464/metrics")),
        ("127.0.0.1:9464", ("127.0.0.1:9464", "http://127.0.0.1:9464/metrics")),
        ("http://127.0.0.1:9464/", ("127.0.0.1:9464", "http://127.0.0.1:9464/metrics")),
        ("http://127.0.0.1:9464/own", ("127.0.0.1:9464", "http://127.0.0.1:9464/own")),
        ("http://[::1]:9464", ("[::1]:9464", "http://[::1]:9464/metrics")),
        ("http://127.0.0.1:99999", ("127.0.0.1:99999", "http://127.0.0.1:99999/metrics")),
    ],
)
async def test_a_url_may_leave_out_its_scheme_and_path(url: str, place: tuple[str, str]) -> None:
    assert await status._places(url) == [place]


@pytest.fixture
def fleet_name(monkeypatch: pytest.MonkeyPatch) -> str:
    """A name with three addresses, as that of a headless service or of a service of compose."""
    addresses = [("10.0.0.11", 0), ("10.0.0.12", 0), ("fd00::13", 0, 0, 0), ("10.0.0.11", 0)]

    async def resolve(_: object, host: str, *__: object, **___: object) -> list[Any]:
        if host != "gateway":
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    return "gateway"


async def test_a_name_with_several_addresses_stands_for_a_process_at_each(fleet_name: str) -> None:
    assert await status._places(f"http://{fleet_name}:9464") == [
        ("10.0.0.11:9464", "http://10.0.0.11:9464/metrics"),
        ("10.0.0.12:9464", "http://10.0.0.12:9464/metrics"),
        ("[fd00::13]:9464", "http://[fd00::13]:9464/metrics"),
    ]
    assert [name for name, _ in await status._places(f"https://{fleet_name}")] == [fleet_name]
    assert await status._places("http://unknown:1") == [("unknown:1", "http://unknown:1/metrics")]


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """Answer every request with this body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def read(url: str) -> ProcessStatus:
    (place,) = await status._places(url)
    return await status._process_status(place)


async def test_the_counts_of_a_replica_are_summed_over_their_labels() -> None:
    telemetry = Telemetry(["a", "b"])
    telemetry.build_info("1.2.3", compiled=False)
    telemetry.watch_waiting([None, None])
    for tool in ("a", "b", "a"):
        telemetry.leg_started()
        telemetry.leg_finished("tools/call", tool, "completed", "2026-07-28", 0.1)
    telemetry.leg_started()
    telemetry.request_refused(RefusalReason.OVERLOADED)
    telemetry.request_refused(RefusalReason.FORBIDDEN)
    with answering(generate_latest(telemetry.registry)) as url:
        found = await asyncio.create_task(asyncio.to_thread(asyncio.run, read(url)))
    assert (found.kind, found.version, found.running, found.held) == ("replica", "1.2.3", 1, 2)
    assert (found.legs, found.refused, found.places, found.problem) == (3, 2, None, "")
    assert found.up_seconds > 0


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"python_info 1\n", "these are not the metrics of a replica or a worker"),
        (b"", "these are not the metrics of a replica or a worker"),
        (b"<html>{", "the answer is not metrics"),
        (b"\xff", "the answer is not metrics"),
        (b"gateway_legs_in_flight NaN\n", "the answer is not metrics"),
        (b"gateway_legs_in_flight +Inf\n", "the answer is not metrics"),
    ],
)
async def test_what_is_not_the_metrics_of_a_process_is_a_problem_of_that_process(body: bytes, problem: str) -> None:
    with answering(body) as url:
        assert (await asyncio.to_thread(asyncio.run, read(url))).problem == problem


def test_a_replica_that_drains_is_marked() -> None:
    draining = ProcessStatus("10.0.0.11:9464", "replica", "0.3.0", draining=1)
    assert "  replica, draining  0.3.0  " in "\n".join(status._as_text([draining], None, ""))
    samples = [Sample("gateway_build_info", {"version": "0.3.0"}, 1), Sample("gateway_legs_in_flight", {}, 0)]
    assert status._read("r", [*samples, Sample("gateway_draining", {}, 1)]).draining == 1
    assert status._read("r", samples).draining == 0


def test_versions_are_counted_while_a_release_is_rolled_out() -> None:
    fleet = [ProcessStatus(str(number), "replica", "0.2.0" if number else "0.3.0") for number in range(3)]
    assert list(status._summary([*fleet, ProcessStatus("w", "worker", "0.3.0")])) == [
        "3 replicas (2 of 0.2.0, 1 of 0.3.0)",
        "1 worker (0.3.0)",
    ]
    assert list(status._summary([])) == ["0 replicas", "0 workers"]


@pytest.mark.setting("metrics_host", "metrics_port")
@pytest.mark.parametrize(
    ("environ", "urls"),
    [
        ({"GATEWAY_METRICS_HOST": "0.0.0.0", "GATEWAY_METRICS_PORT": "7"}, ["http://127.0.0.1:7"]),
        ({"GATEWAY_METRICS_HOST": "::", "GATEWAY_METRICS_PORT": "7"}, ["http://[::1]:7"]),
        ({"GATEWAY_METRICS_HOST": "10.0.0.1", "GATEWAY_METRICS_PORT": "7"}, ["http://10.0.0.1:7"]),
        ({"GATEWAY_METRICS_PORT": "0"}, []),
        ({"GATEWAY_METRICS_PORT": "off"}, []),
    ],
)
def test_the_own_metrics_are_at_an_address_that_can_be_reached(environ: dict[str, str], urls: list[str]) -> None:
    assert own_metrics(Settings.load(environ)) == urls


async def test_a_process_with_addresses_of_both_families_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9464, 0, 0))
        return [six, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9464))]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    assert await status._places("http://localhost:9464") == [("localhost:9464", "http://localhost:9464/metrics")]
