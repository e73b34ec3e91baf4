"""Metrics are read once a second from the processes that serve them, and from no others."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import free_port, wait_until
from loadtest.scraper import Scraper, Source

METRICS = """\
# HELP gateway_legs_total Legs by how they ended.
# TYPE gateway_legs_total counter
gateway_legs_total{tool="a b",outcome="completed"} 3.0
gateway_legs_created{tool="a b",outcome="completed"} 1.7e+09
gateway_leg_seconds_bucket{le="0.5"} 2.0
gateway_leg_seconds_count 2.0
gateway_inflight_limit 128.0
python_info{version="3"} 1.0
"""


class Served(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(METRICS.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_gateways_numbers_are_kept_without_buckets_and_times(url: str, tmp_path: Path) -> None:
    scraper = Scraper(tmp_path / "metrics", lambda: [Source("r1", url)], lambda: 1.23456)

    scraper.start()
    scraper.stop()

    first, *_, last = lines(tmp_path / "metrics")
    assert first == last
    assert first == {
        "t": 1.235,
        "process": "r1",
        "values": {
            'gateway_legs_total{tool="a b",outcome="completed"}': 3.0,
            "gateway_leg_seconds_count": 2.0,
            "gateway_inflight_limit": 128.0,
        },
    }


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports it")
def test_the_memory_and_time_of_a_process_are_recorded_too(url: str, tmp_path: Path) -> None:
    scraper = Scraper(tmp_path / "metrics", lambda: [Source("r1", url, os.getpid())], lambda: 0.0)

    scraper.start()
    scraper.stop()

    values = lines(tmp_path / "metrics")[0]["values"]
    assert values["process_resident_memory_bytes"] > 1_000_000
    assert values["process_open_fds"] >= 3


def test_it_looks_before_the_run_and_after_it_and_in_between(url: str, tmp_path: Path) -> None:
    scraper = Scraper(tmp_path / "metrics", lambda: [Source("r1", url)], lambda: 0.0)

    scraper.start()
    assert len(lines(tmp_path / "metrics")) == 1
    wait_until(lambda: len(lines(tmp_path / "metrics")) > 1, "another look")
    scraper.stop()
    assert len(lines(tmp_path / "metrics")) >= 3


def test_an_unreachable_process_is_skipped_and_disturbs_no_other(url: str, tmp_path: Path) -> None:
    away = Source("away", f"http://127.0.0.1:{free_port()}/metrics")
    scraper = Scraper(tmp_path / "metrics", lambda: [away, Source("r1", url)], lambda: 0.0)

    scraper.start()
    scraper.stop()

    assert {line["process"] for line in lines(tmp_path / "metrics")} == {"r1"}
