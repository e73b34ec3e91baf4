"""Answers of single-use legs are kept for a minute, as many bytes as an owner may have."""

from __future__ import annotations

import pytest

from gateway.errors import ValueTooLarge
from gateway.storage import RedisTaskStore, task_store
from gateway.storage.lua import shared_scripts
from gateway.tasks.ports import Spending
from tests.storage.deployments import BOB, Deployment

MINUTE_MS = 60_000
BODY = b"x" * 2000


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two of these answers, as they are sealed."""
    monkeypatch.setattr(task_store, "SPENT_ANSWER_BYTES", 6000)


async def answered(store: RedisTaskStore, owner: str, flow: str, body: bytes = BODY) -> Spending:
    """Use a leg, keep its answer, and return what a repetition gets."""
    spent = await store.spend(owner, flow, 1, b"digest", MINUTE_MS, leg_ms=MINUTE_MS)
    assert spent.outcome is Spending.FIRST
    await store.store_answer(owner, flow, 1, b"digest", body)
    return (await store.spend(owner, flow, 1, b"digest", MINUTE_MS, leg_ms=MINUTE_MS)).outcome


async def test_an_owner_has_room_for_some_answers_and_each_other_owner_too(here: Deployment) -> None:
    store, mine = here.store(), here.owner()
    for flow in ("one", "two"):
        assert await answered(store, mine, flow) is Spending.ANSWERED
    with pytest.raises(ValueTooLarge):
        await answered(store, mine, "three")
    repeated = await store.spend(mine, "three", 1, b"digest", MINUTE_MS, leg_ms=MINUTE_MS)
    assert repeated.outcome is Spending.REFUSED
    assert await answered(store, here.owner(BOB), "one") is Spending.ANSWERED


async def test_there_is_room_again_after_a_minute(here: Deployment) -> None:
    store, mine = here.store(), here.owner()
    assert await answered(store, mine, "one") is Spending.ANSWERED
    assert await answered(store, mine, "two") is Spending.ANSWERED
    left = await store._client.command("PTTL", here.keys.spent_sizes(mine))
    assert 0 < left <= shared_scripts.SPENT_ANSWER_MS


async def test_one_answer_may_be_larger_than_that(here: Deployment) -> None:
    assert await answered(here.store(), here.owner(), "one", 5 * BODY) is Spending.ANSWERED
