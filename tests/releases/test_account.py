"""The account of a rollout shows a failed order, a doubled effect, and everything else that must not be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.releases.account import Account, Effect, EffectFile, Order

OLD, NEW = "0.2.0-r1", "0.3.0-r2"
BOTH_WAYS = {("0.2.0", "0.3.0"), ("0.3.0", "0.2.0")}


def leg(order: str, process: str, at: float, flow: str = "") -> Effect:
    return Effect("leg", order, flow or f"flow of {order}", "", "derived", process, at)


def step(order: str, key: str, process: str, at: float) -> Effect:
    return replace_in(leg(order, process, at), what="step", key=key)


def replace_in(effect: Effect, **changes: Any) -> Effect:
    return msgspec.structs.replace(effect, **changes)


@pytest.fixture
def account() -> Account:
    """A call that crossed, and one that ended early and was made again; everything as it should be."""
    asked = Order("a", "asked", steps=frozenset({"pay"}), answers=[(1, OLD), (3, NEW), (5, OLD)], over=True)
    held = Order("h", "held", steps=frozenset({"look", "pay"}), early=frozenset({"look"}), over=True)
    held.end_early(OLD)
    effects = [leg("a", OLD, 0), leg("a", NEW, 2), leg("a", OLD, 4), step("a", "pay", OLD, 4)]
    effects += [leg("h", OLD, 0), step("h", "look", OLD, 0), leg("h+1", NEW, 2)]
    effects += [step("h+1", "look", NEW, 2), step("h+1", "pay", NEW, 2)]
    return Account([asked, held], effects, frozenset({OLD}))


def test_nothing_is_wrong_when_each_order_had_its_effects_once(account: Account) -> None:
    assert account.problems() == {}
    assert not account.is_lost
    assert "2 orders, 4 side effects" in account.report()


def fail(account: Account) -> None:
    account.orders[0].problem = "Wrong: Task not found"


def never_end(account: Account) -> None:
    account.orders[0].over = False


def change_derived(account: Account) -> None:
    account.effects[0] = replace_in(account.effects[0], derived="another")


WRONG: dict[str, tuple[str, Callable[[Account], object]]] = {
    "a client got an error": ("failed orders", fail),
    "an order never ended": ("failed orders", never_end),
    "a side effect was had twice": ("doubled effects", lambda a: a.effects.append(step("a", "pay", NEW, 9))),
    "a side effect is missing": ("missing effects", lambda a: a.effects.remove(step("a", "pay", OLD, 4))),
    "a call that ended early had a later effect": (
        "effects that nobody ordered",
        lambda a: a.effects.append(step("h", "pay", NEW, 9)),
    ),
    "something ran that was never ordered": (
        "effects that nobody ordered",
        lambda a: a.effects.append(leg("?", NEW, 9)),
    ),
    "a leg belongs to another flow": ("calls that changed", lambda a: a.effects.append(leg("a", NEW, 9, "another"))),
    "an id was derived otherwise": ("calls that changed", change_derived),
    "a call ended early at a replica that stayed": (
        "calls that ended early",
        lambda a: setattr(a, "left", frozenset({NEW})),
    ),
    "news of the other release came late": ("slow news", lambda a: a.orders[0].news.extend([(4.9, OLD, NEW)] * 4)),
    "a process failed": ("processes", lambda a: a.incidents.append(f"{OLD} ended with 1")),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_reports_that(wrong: str, account: Account) -> None:
    sort, spoil = WRONG[wrong]
    account = replace(account, incidents=[])
    spoil(account)
    assert list(account.problems()) == [sort]
    assert f"1 {sort}:\n" in account.report()


def test_news_are_not_slow_if_few_or_one_release_saw_them_late(account: Account) -> None:
    account.orders[0].news += [(4.9, OLD, NEW)] * 3 + [(0.1, NEW, OLD)] * 4 + [(4.9, OLD, OLD)] * 9
    assert account.problems() == {}


@pytest.mark.parametrize("wrong", ["a client got an error", "a side effect was had twice"])
def test_a_rollout_need_not_go_on_after_that(wrong: str, account: Account) -> None:
    WRONG[wrong][1](account)
    assert account.is_lost


def test_an_order_crosses_when_one_release_works_on_it_after_the_other(account: Account) -> None:
    assert account.crossings()["asked"] == BOTH_WAYS
    assert account.crossings()["held"] == {("0.2.0", "0.3.0")}
    assert account.not_crossed(["asked", "held", "unknown"]) == ["held", "unknown"]


def test_only_orders_that_have_ended_and_began_late_enough_count_as_crossed(account: Account) -> None:
    assert account.not_crossed(["asked"], since=1) == ["asked"]
    account.orders[0].over = False
    assert account.not_crossed(["asked"]) == ["asked"]


def test_a_server_behind_the_gateway_does_not_count_as_a_release(account: Account) -> None:
    account.orders[0].answers = [(1, OLD), (5, OLD)]
    effects = [leg("a", OLD, 0), leg("a", "upstream", 2)]
    assert replace(account, effects=effects).not_crossed(["asked"]) == ["asked"]


def test_effects_are_read_as_their_file_grows(tmp_path: Path) -> None:
    effects = EffectFile(tmp_path / "effects")
    assert effects.update() == []
    line = msgspec.json.encode(leg("a", OLD, 0)) + b"\n"
    (tmp_path / "effects").write_bytes(line + line[:9])
    assert effects.update() == [leg("a", OLD, 0)]
    (tmp_path / "effects").write_bytes(line + line)
    assert effects.update() == [leg("a", OLD, 0)] * 2
