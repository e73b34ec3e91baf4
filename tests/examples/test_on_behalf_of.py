"""`docs/examples/on_behalf_of.py`: a request to another service as the user, with a real token endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from docs.examples import on_behalf_of
from gateway.testing import run
from tests.examples.services import Service
from tests.examples.serving import call, serving
from tests.token_endpoint import TokenEndpoint

YES = {"sure": {"action": "accept", "content": {"really": True}}}


def orders(method: str, path: str, authorization: str) -> tuple[int, Any]:
    if not authorization.startswith("Bearer issued-") or not authorization.endswith("-for-orders"):
        return 401, {}
    return 200, "order 7, two books" if method == "GET" else f"cancelled {path}"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint() as endpoint:
        yield endpoint


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service(orders).running() as service:
        monkeypatch.setenv("ORDERS_URL", service.url)
        yield service


@pytest.fixture
def client(endpoint: TokenEndpoint, service: Service) -> Iterator[TestClient]:
    with serving("docs.examples.on_behalf_of", **endpoint.settings) as client:
        yield client


def test_each_request_carries_a_token_for_the_service_with_the_scope_that_it_needs(
    client: TestClient, endpoint: TokenEndpoint, service: Service
) -> None:
    asked = call(client, "ada", "cancel_order", {"number": 7})
    assert "two books" in asked.result["inputRequests"]["sure"]["params"]["message"]
    done = call(client, "ada", "cancel_order", {"number": 7}, requestState=asked.state, inputResponses=YES)
    assert done.text == '"cancelled /orders/7"'
    assert service.seen == [
        ("GET", "/orders/7", "Bearer issued-1-for-orders"),
        ("DELETE", "/orders/7", "Bearer issued-2-for-orders"),
    ]
    assert [form["scope"] for form in endpoint.forms] == ["orders:read", "orders:write"]


def test_a_user_who_may_not_is_told_so(client: TestClient, endpoint: TokenEndpoint, service: Service) -> None:
    endpoint.answer(lambda request: endpoint.refuse(request, "invalid_scope"))
    answer = call(client, "bob", "cancel_order", {"number": 7})
    assert answer.text == "You may not use the order service (invalid_scope)."
    assert service.seen == []


def test_a_user_for_whom_no_token_could_be_obtained_is_told_so(
    client: TestClient, endpoint: TokenEndpoint, service: Service
) -> None:
    endpoint.send(b"", 500)
    answer = call(client, "ada", "cancel_order", {"number": 7})
    assert answer.text == "No token for the order service could be obtained."
    assert service.seen == []


def test_it_is_safe_to_lose_a_response(service: Service) -> None:
    tokens = {"orders": "issued-0-for-orders"}
    answers = {"sure": {"really": False}}
    done = run(on_behalf_of.cancel_order, {"number": 7}, tokens=tokens, answers=answers, lose_responses=True)
    assert done.text == "Nothing was cancelled."
    assert {method for method, _path, _token in service.seen} == {"GET"}
