"""Pages of other sites in Chromium, which call the gateway as clients in a browser do."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.cluster import Cluster
from loadtest.cluster.common import free_port
from tests.playground.conftest import token_of
from tests.playground.test_pages import SECONDS, run
from tests.process.test_embedding import Host


@pytest.mark.timeout(SECONDS)
def test_allowed_pages_keep_sessions_and_read_refusals_and_no_other_page_reads_anything(tmp_path: Path) -> None:
    port = free_port()
    pages = {"GATEWAY_ALLOWED_ORIGINS": f"http://app.example.com:{port}"}
    environ = {
        **pages,
        "GATEWAY_AUTH": "",
        "GATEWAY_TOOLS": "gateway.demo,tests.playground.guarded_tools",
        "GATEWAY_JWT_SECRET": "s" * 32,
    }
    mounted = Host(tmp_path, app="tests.playground.mounted_app:app", **pages)
    with Cluster(tmp_path, replicas=1, balancer=False, environ=environ) as cluster, mounted:
        run(
            "other_pages",
            ENDPOINTS=f"{cluster.url},{mounted.url}",
            PAGE_PORT=str(port),
            TOKEN=token_of(cluster, "--scope", "secrets:read"),
            WEAK_TOKEN=token_of(cluster),
        )
