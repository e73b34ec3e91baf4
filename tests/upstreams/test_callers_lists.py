"""An upstream whose entries differ between tenants: no caller's list decides about the calls of another one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from gateway.upstreams.config.pins import ToPin, lock_file_of, write_lock
from tests.upstreams.servers.plain_http import Exchange, PlainServer
from tests.upstreams.site import Site, User, entry
from tests.wires.draft.messages import call_params

pytestmark = pytest.mark.slow

READERS = ("ada", "bob", "cleo")


def _tools(tenant: str) -> list[dict[str, Any]]:
    """Return the tools of a tenant. Those of Bob's differ."""
    is_bobs = tenant.startswith("bob")
    amount = {"type": "string", "x-mcp-header": "Amount"} if is_bobs else {"type": "string"}
    return [
        {"name": "pay", "inputSchema": {"type": "object", "properties": {"amount": amount}}},
        {"name": "busy", "inputSchema": {"type": "object"}, "annotations": {"idempotentHint": is_bobs}},
    ]


class Tenants:
    """Counts the calls of each tenant, and the headers of their arguments. Its tool `busy` never has time.

    Attributes:
        hides_from: the tenant whose list is an error.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.param_headers: list[list[str]] = []
        self.hides_from = ""

    async def answer(self, exchange: Exchange) -> None:
        message = json.loads(exchange.body)
        method, tenant = message["method"], exchange.header("x-tenant") or ""
        told: dict[str, Any] = {"resultType": "complete"}
        if method == "server/discover":
            told |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            told["serverInfo"] = {"name": "tenants", "version": "1"}
        elif method == "tools/list" and tenant == self.hides_from:
            return exchange.reply(500, b"")
        elif method == "tools/list":
            told |= {"tools": _tools(tenant), "ttlMs": 300_000, "cacheScope": "private"}
        elif method == "tools/call":
            name = message["params"]["name"]
            self.calls[tenant, name] += 1
            if name == "busy":
                return exchange.reply(503, b"", [("retry-after", "0")])
            self.param_headers.append([name for name, _ in exchange.headers if name.startswith("mcp-param")])
            told["content"] = [{"type": "text", "text": tenant}]
        return exchange.json({"jsonrpc": "2.0", "id": message["id"], "result": told})


@pytest.fixture(scope="module")
def tenants() -> Tenants:
    return Tenants()


@pytest.fixture(scope="module")
def site(tenants: Tenants, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("tenants")
    write_lock(lock_file_of(directory / "upstreams.json"), {"pinned": ToPin(_tools("ada"))})
    with PlainServer(tenants.answer) as server:
        one: dict[str, Any] = {"url": server.url, "forward_headers": ["X-Tenant"]}
        with Site(directory, {"free": entry(**one), "pinned": entry(**one, pin="refuse")}, names=["r1"]) as site:
            yield site


def _of(user: User, tenant: str) -> User:
    user.headers = {"x-tenant": tenant}
    return user


async def test_a_callers_tool_is_pinned_repeated_and_mirrored_as_its_own_list_says(
    site: Site, tenants: Tenants
) -> None:
    async with site.user("ada") as ada, site.user("bob") as bob, site.user("cleo") as cleo:
        users = dict(zip(READERS, (ada, bob, cleo), strict=True))
        for number, order in enumerate(permutations(READERS)):
            for reader in order:  # each time, they have lists that nobody has read before
                await _of(users[reader], f"{reader} {number}").names()
            tenants.calls.clear()
            for reader, user in users.items():
                await user.call("free__busy")
                paid = await user.send("tools/call", call_params("free__pay", {"amount": "5"}))
                pinned = await user.send("tools/call", call_params("pinned__pay", {"amount": "5"}))
                if reader == "bob":
                    assert (paid.status, paid.error["code"]) == (400, -32020), "his client must mirror the amount"
                    assert (pinned.status, pinned.error["message"]) == (400, "Unknown tool: pinned__pay")
                else:
                    assert "result" in paid.response
                    assert "result" in pinned.response
            assert tenants.calls == {
                **{(f"{reader} {number}", "pay"): 2 for reader in ("ada", "cleo")},
                **{(f"{reader} {number}", "busy"): 2 if reader == "bob" else 1 for reader in READERS},
            }
    assert not any(tenants.param_headers)


async def test_a_call_is_not_sent_while_its_callers_list_cannot_be_read(site: Site, tenants: Tenants) -> None:
    async with site.user("ada") as ada, site.user("bob") as bob:
        await _of(bob, "bob").names()
        tenants.hides_from = "ada"
        tenants.calls.clear()
        reply = await _of(ada, "ada").call("free__pay", {"amount": "5"})
    assert reply.result["isError"]
    assert "Nothing was sent" in reply.text
    assert not tenants.calls
