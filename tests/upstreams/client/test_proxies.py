"""Which proxy leads to an upstream."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from gateway.children.children import Children
from gateway.http_client.client import HttpClient
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.process.upstreams import Connecting
from gateway.upstreams.config.definition import ByGlob, Definition
from tests.http_client.peers import OK, always, ask, serving


def client_of(url: str, proxy: str | None) -> HttpClient:
    definition = Definition("u", "u", "http", url, era=ByGlob("stateless"), proxy=proxy)
    connecting = Connecting(UpstreamMetrics(CollectorRegistry()), "upstreams.json", Children(1))
    return connecting.connect(definition).https[0]


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
async def test_the_proxy_of_the_environment_is_used_only_if_the_definition_says_so(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with serving(always(OK)) as proxy, serving(always(OK)) as upstream:
        monkeypatch.setenv(name, f"127.0.0.1:{proxy.port}")
        for setting, used in ((None, upstream), ("environment", proxy)):
            client = client_of(upstream.url(), setting)
            assert await ask(client) == b"ok"
            assert len(used.requests) == 1
            await client.aclose()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        client = client_of(upstream.url(), "environment")
        assert await ask(client) == b"ok"
        assert len(upstream.requests) == 2
        await client.aclose()
