"""A first leg that a trusted proxy sends to two replicas is one call: its ids, and what derives from them, stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from gateway.auth.tokens import mint
from loadtest.cluster.common import HOST, new_key
from tests.integration.fleet import Fleet
from tests.integration.raw import headers_of, request, tool_call

NAME = "7d5a0f64-2c36-4c1e-9f6e-d0b4f8a1c3e2"
SECRET = "a secret that only these tests have, 32 bytes or more"
OLD, NEW = new_key(), new_key()
ENVIRON = {
    "GATEWAY_TOOLS": "tests.web.repeated_tools",
    "GATEWAY_AUTH": "jwt",
    "GATEWAY_JWT_SECRET": SECRET,
    "GATEWAY_TRUSTED_PROXIES": HOST,
    "GATEWAY_SEAL_KEYS": f"{OLD},{NEW}",
}
FIRST, SECOND, ELSEWHERE, DIRECT = "first", "second", "elsewhere", "direct"
OWN = {
    SECOND: {"GATEWAY_SEAL_KEYS": f"{NEW},{OLD}"},
    ELSEWHERE: {"GATEWAY_AUDIENCE": "elsewhere"},
    DIRECT: {"GATEWAY_TRUSTED_PROXIES": "192.0.2.1"},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two replicas on both sides of a rotation, one of another deployment, and one that trusts another proxy."""
    with Fleet(tmp_path_factory.mktemp("fleet"), ENVIRON, names=(FIRST, *OWN), own=OWN) as fleet:
        yield fleet


class Proxy:
    """Sends requests of one user to replicas, and gives each attempt the same headers."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def send(
        self, replica: str, message: dict[str, Any], *names: str, user: str = "ada", **headers: str
    ) -> dict[str, Any]:
        audience = "elsewhere" if replica == ELSEWHERE else "tests"
        own = {**headers_of(message), "authorization": f"Bearer {mint(SECRET, user, audience)}", **headers}
        given = [*own.items(), *(("x-gateway-request-id", name) for name in names)]
        response = httpx.post(
            self.fleet[replica].url,
            content=msgspec.json.encode(message),
            headers=[(header.encode("latin-1"), value.encode("latin-1")) for header, value in given],
            timeout=20,
            trust_env=False,
            verify=False,
        )
        result: dict[str, Any] = response.json()["result"]
        return result

    def ids(self, replica: str, *names: str, tool: str = "pay", amount: int = 5, user: str = "ada") -> list[Any]:
        result = self.send(replica, tool_call(tool, {"amount": amount}), *names, user=user)
        return ids_in(result["content"][0]["text"])


def ids_in(text: str) -> list[Any]:
    ids: list[Any] = json.loads(text)
    assert len(ids) == 4
    return ids


@pytest.fixture
def proxy(fleet: Fleet) -> Proxy:
    return Proxy(fleet)


def all_differ(*ids: list[Any]) -> bool:
    return all(len(set(values)) == len(ids) for values in zip(*ids, strict=True))


def test_a_repeated_first_leg_keeps_its_ids_on_both_sides_of_a_rotation(proxy: Proxy) -> None:
    call_id, step_id, *_ = first = proxy.ids(FIRST, NAME)
    assert proxy.ids(SECOND, NAME) == first
    assert proxy.ids(FIRST, NAME) == first
    assert step_id == f"{call_id}:pay"


def test_the_same_header_of_another_request_begins_another_call(proxy: Proxy) -> None:
    prompt = proxy.send(FIRST, request("prompts/get", {"name": "pay", "arguments": {}}), NAME)
    assert all_differ(
        proxy.ids(FIRST, NAME),
        proxy.ids(FIRST, NAME, amount=6),
        proxy.ids(FIRST, NAME, tool="refund"),
        proxy.ids(FIRST, NAME, user="eve"),
        proxy.ids(ELSEWHERE, NAME),
        ids_in(prompt["messages"][0]["content"]["text"]),
        proxy.ids(FIRST, NAME.replace("7", "8")),
    )


@pytest.mark.parametrize(
    "names",
    [(), (NAME, NAME), (NAME, "8" * 36), (f"{NAME},{NAME}",), (f"{NAME} x",), ("8" * 15,), ("8" * 65,), ("é" * 20,)],
)
def test_a_request_without_one_good_id_is_a_call_of_its_own(proxy: Proxy, names: tuple[str, ...]) -> None:
    assert all_differ(proxy.ids(FIRST, NAME), proxy.ids(FIRST, *names), proxy.ids(SECOND, *names))


@pytest.mark.parametrize("name", ["8" * 16, "8" * 64, "!#$%&'*+-.^_`|~/:"])
def test_an_id_has_16_to_64_visible_characters(proxy: Proxy, name: str) -> None:
    assert proxy.ids(FIRST, name) == proxy.ids(SECOND, name)


def test_a_client_or_a_proxy_that_is_not_trusted_cannot_choose_a_call(proxy: Proxy) -> None:
    assert all_differ(proxy.ids(FIRST, NAME), proxy.ids(DIRECT, NAME), proxy.ids(DIRECT, NAME))


def test_both_attempts_of_a_leg_that_asks_continue_the_same_call(proxy: Proxy) -> None:
    message = tool_call("sure", {"amount": 5})
    asked = [proxy.send(replica, message, NAME) for replica in (FIRST, SECOND)]
    said = [result["inputRequests"]["sure"]["params"]["message"] for result in asked]
    assert said[0] == said[1]
    answers = {"sure": {"action": "accept", "content": {"yes": True}}}
    ended = [
        proxy.send(
            FIRST,
            tool_call("sure", {"amount": 5}, requestState=result["requestState"], inputResponses=answers),
            "8" * 36,
        )
        for result in asked
    ]
    assert [f"Really pay? {result['content'][0]['text']}" for result in ended] == said


def test_a_call_of_a_session_keeps_its_ids_too(proxy: Proxy, fleet: Fleet) -> None:
    headers = {"authorization": f"Bearer {mint(SECRET, 'ada', 'tests')}", "accept": "application/json"}
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    with httpx.Client(headers=headers, timeout=20, trust_env=False, verify=False) as client:
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
        client.headers["mcp-session-id"] = client.post(fleet[FIRST].url, json=first).headers["mcp-session-id"]
        client.headers["mcp-protocol-version"] = "2025-11-25"
        client.headers["x-gateway-request-id"] = NAME
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "pay", "arguments": {}}}
        ended = [client.post(fleet[replica].url, json=call).json()["result"] for replica in (FIRST, SECOND)]
    first_ids, second_ids = (ids_in(result["content"][0]["text"]) for result in ended)
    assert first_ids == second_ids
