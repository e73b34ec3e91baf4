"""Which request is the same one again is believed of trusted proxies alone, and a task that it orders is made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.web.endpoint import ARRIVAL, Arrival
from gateway.web.proxies import TrustedProxies
from tests.workers.conftest import server, start_site
from tests.workers.site import EXTENSION, META, VERSION, Site

__all__ = ["server", "start_site"]

ID = (b"x-gateway-request-id", b"one-0123456789ab")


async def seen(address: str, *headers: tuple[bytes, bytes], trusted: str = "192.0.2.0/24") -> tuple[str, str]:
    """Return the client's address and the request's id as the application sees them."""
    scopes: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], *_: object) -> None:
        scopes.append(scope)

    arrival = Arrival({}, b"", None, None)
    scope = {"type": "http", "client": (address, 1), "headers": headers, ARRIVAL: arrival}
    await TrustedProxies(app, [trusted])(scope, None, None)
    return scopes[0]["client"][0], scopes[0][ARRIVAL].forwarded_id


async def test_the_id_of_a_request_is_believed_of_trusted_proxies_alone() -> None:
    assert await seen("192.0.2.7", ID) == ("192.0.2.7", "one-0123456789ab")
    assert await seen("198.51.100.7", ID) == ("198.51.100.7", "")
    assert await seen("192.0.2.7", ID, (b"x-forwarded-for", b"203.0.113.9")) == ("203.0.113.9", "one-0123456789ab")
    assert await seen("192.0.2.7") == ("192.0.2.7", "")
    assert await seen("192.0.2.7", ID, (ID[0], b"two-0123456789ab")) == ("192.0.2.7", "")
    assert await seen("192.0.2.7", (ID[0], b"short")) == ("192.0.2.7", "")


@pytest.mark.parametrize(("trusted", "tasks"), [("127.0.0.1", 1), ("192.0.2.1", 2)])
def test_an_order_that_a_trusted_proxy_sends_to_two_replicas_is_one_task(
    start_site: Callable[..., Site], trusted: str, tasks: int
) -> None:
    site = start_site("r1", "r2", GATEWAY_TRUSTED_PROXIES=trusted)
    ordered = [order(site, replica, ID[1].decode()) for replica in (0, 1)]
    assert len(set(ordered)) == tasks
    assert order(site, 0, "another-0123456789") not in ordered
    assert order(site, 1, ID[1].decode(), text="another") not in ordered


def order(site: Site, replica: int, name: str, text: str = "said") -> str:
    """Create a task through a load balancer that gives the request an id, and return the id of the task."""
    meta = {f"{META}/protocolVersion": VERSION, f"{META}/clientCapabilities": {"extensions": {EXTENSION: {}}}}
    params = {"name": "say", "arguments": {"text": text}, "_meta": meta}
    headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "say"}
    response = site._http.post(
        site.fleet.replicas[replica].url,
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={**headers, "x-gateway-request-id": name},
    )
    return str(response.json()["result"]["taskId"])
