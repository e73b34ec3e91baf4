"""`docs/examples/shared_client.py`: one client for all calls of a process."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from docs.examples import shared_client
from gateway.testing import run
from tests.examples.services import Service
from tests.examples.serving import call, serving


def status(_method: str, path: str, _authorization: str) -> tuple[int, Any]:
    return (200, {"status": {"description": "All is well"}}) if path == shared_client.STATUS_PATH else (404, {})


def test_calls_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(status).running() as service:
        monkeypatch.setenv("STATUS_URL", service.url)
        with serving("docs.examples.shared_client") as client:
            for user in ("ada", "bob", "ada"):
                assert call(client, user, "service_status", {}).text == "All is well"
        assert (len(service.seen), service.connections) == (3, 1)


def test_a_test_replaces_the_client_and_a_failure_is_told() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("too slow", request=request)

    client = httpx.AsyncClient(transport=httpx.MockTransport(refuse), base_url="http://status.test")
    with shared_client.http.using(client):
        assert run(shared_client.service_status).text == "The status is not available: ConnectTimeout"
