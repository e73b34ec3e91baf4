"""Notifications are what the published types of 2026-07-28 say they are, each on one line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from gateway.protocol.released.notifications import (
    ListName,
    acknowledged,
    list_changed,
    resource_updated,
)
from gateway.protocol.released.requests import ListenFilter
from tests.protocol.notices import ids, read

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def test_the_acknowledgement_names_what_is_honoured() -> None:
    method, params = read(acknowledged(1, ListenFilter(True, True, True, ("test://a", "test://b"))))
    assert method == "notifications/subscriptions/acknowledged"
    assert params == {
        "_meta": {SUBSCRIPTION: 1},
        "notifications": {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["test://a", "test://b"],
        },
    }


@pytest.mark.parametrize(
    ("honoured", "told"),
    [
        (ListenFilter(), {}),
        (ListenFilter(tools=True), {"toolsListChanged": True}),
        (ListenFilter(prompts=True), {"promptsListChanged": True}),
        (ListenFilter(resources=True), {"resourcesListChanged": True}),
        (ListenFilter(uris=("test://a",)), {"resourceSubscriptions": ["test://a"]}),
    ],
)
def test_the_acknowledgement_leaves_out_what_is_not_honoured(honoured: ListenFilter, told: dict[str, Any]) -> None:
    assert read(acknowledged("listen", honoured))[1]["notifications"] == told


@pytest.mark.parametrize("name", ["tools", "prompts", "resources"])
def test_a_changed_list_is_announced_by_its_own_method(name: ListName) -> None:
    assert read(list_changed(name, 1)) == (f"notifications/{name}/list_changed", {"_meta": {SUBSCRIPTION: 1}})


def test_a_changed_resource_is_announced_by_its_uri() -> None:
    assert read(resource_updated("test://a", 1)) == (
        "notifications/resources/updated",
        {"uri": "test://a", "_meta": {SUBSCRIPTION: 1}},
    )


@given(ids)
def test_everything_on_a_listen_stream_carries_the_id_of_its_request(subscription_id: str | int) -> None:
    for encoded in (
        acknowledged(subscription_id, ListenFilter(tools=True)),
        list_changed("tools", subscription_id),
        resource_updated("test://a", subscription_id),
    ):
        told = read(encoded)[1]["_meta"][SUBSCRIPTION]
        assert told == subscription_id
        assert type(told) is type(subscription_id)
