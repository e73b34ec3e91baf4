"""Users check answers: right ones pass, and mixed-up or incomplete ones do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from loadtest.errand import Check, Errand
from loadtest.users.base import McpUser, some
from loadtest.users.compute import wrong_units
from loadtest.users.ephemeral import accounts, weather, work_item
from loadtest.users.hostile import change_a_character, cut_off, made_up, put_in_front
from loadtest.users.streaming import series_of_breaks, wrong_progress, wrong_sections
from loadtest.users.task import is_cancelled, is_machine
from loadtest.wire import Answer, Reply

ERRANDS = [weather, work_item, accounts]


def an_answer(*texts: str) -> Answer:
    content = [{"type": "text", "text": text} for text in texts]
    return Answer("completed", Reply(1, 200), result={"resultType": "complete", "content": content})


class SomeUser(McpUser):
    """Never started."""

    kind = "ephemeral"

    def __init__(self) -> None:
        """Need no host."""


def right_text(errand: Errand) -> str:
    """Return what the tool answers."""
    match errand.tool:
        case "get_weather":
            name = errand.answers["github_login"]["name"]
            place = errand.arguments["location"]
            return f"Current weather in {place}:\nTemperature: 72°F\nConditions: Partly cloudy\n(looked up for {name})"
        case "update_work_item":
            how, item = errand.answers["resolution"]["resolution"], errand.arguments["workItemId"]
            if how != "Duplicate":
                return f"Bug #{item} resolved as {how}. State set to Resolved."
            original = errand.answers["duplicate_of"]["duplicateOfId"]
            link = "State set to Resolved and duplicate link created."
            return f"Bug #{item} resolved as Duplicate of Bug #{original:g}. {link}"
        case _:
            github, google = errand.answers["github_login"]["name"], errand.answers["google_login"]["name"]
            return f"Linked GitHub account {github} and Google account {google}."


@pytest.mark.parametrize("make", ERRANDS)
def test_the_answer_to_ones_own_call_is_right_and_that_to_another_is_wrong(make: Callable[[McpUser], Errand]) -> None:
    for _ in range(50):
        mine, other = make(SomeUser()), make(SomeUser())
        assert mine.check(an_answer(right_text(mine))) is None
        assert mine.check(an_answer(right_text(other))) is not None
        assert mine.check(an_answer(right_text(mine), right_text(mine))) is not None
        assert mine.check(an_answer()) is not None


def test_an_account_of_either_release_is_right() -> None:
    errand = accounts(SomeUser())
    github, microsoft = errand.answers["github_login"]["name"], errand.answers["microsoft_login"]["name"]
    google = errand.answers["google_login"]["name"]
    assert errand.check(an_answer(f"Linked GitHub account {github} and Microsoft account {microsoft}.")) is None
    assert errand.check(an_answer(f"Linked GitHub account {github} and Microsoft account {google}.")) is not None


UNITS = {
    "Computed 20 units: 20 on r1.": True,
    "Computed 20 units: 7 on r1, 13 on gateway-7d4b9-x2x.": True,
    "Computed 20 units: 19 on r1.": False,
    "Computed 20 units: 20 on r1, 1 on r2.": False,
    "Computed 21 units: 21 on r1.": False,
    "Computed 20 units: .": False,
    "": False,
}


@pytest.mark.parametrize(("text", "right"), UNITS.items())
def test_every_unit_must_have_run_once(text: str, right: bool) -> None:
    assert (wrong_units(an_answer(text), 20) is None) == right


PROGRESS: dict[str, tuple[Sequence[int], bool, bool]] = {
    "all of it": ([1, 2, 3], True, True),
    "some of it": ([3], True, True),
    "not to the end": ([1, 2], False, True),
    "none": ([], False, True),
    "back": ([2, 1, 3], False, False),
    "twice the same": ([1, 1, 3], False, True),
    "too far": ([1, 2, 4], False, True),
}


@pytest.mark.parametrize(("told", "right", "right_of_task"), PROGRESS.values(), ids=PROGRESS)
def test_progress_must_rise(told: Sequence[int], right: bool, right_of_task: bool) -> None:
    params = [{"progress": done, "total": 3} for done in told]
    assert (wrong_progress(params, 3, of_task=False) is None) == right
    if max(told, default=0) <= 3:
        assert (wrong_progress(params, 3, of_task=True) is None) == right_of_task


def test_progress_towards_another_total_is_wrong() -> None:
    params: list[dict[str, Any]] = [{"progress": 3, "total": 4}]
    assert wrong_progress(params, 3, of_task=False) is not None
    assert wrong_progress(params, 3, of_task=True) is not None


def test_every_section_must_be_there_once_in_order() -> None:
    first = "1. Weather in Nairobi: nothing to complain about."
    second = "2. Traffic in Nairobi: nothing to complain about."
    assert wrong_sections(an_answer(first, second), "Nairobi", 2) is None
    for texts in ([first], [second, first], [first, first, second], [first, second.replace("Nairobi", "Oslo")], []):
        assert wrong_sections(an_answer(*texts), "Nairobi", 2) is not None


def test_with_one_seed_a_user_breaks_the_same_connections_in_every_run() -> None:
    def series(seed: int, user: int, probability: float = 0.5) -> list[bool]:
        breaks = series_of_breaks(seed, user, probability)
        return [breaks() for _ in range(100)]

    assert series(1, 1) == series(1, 1)
    assert len({tuple(series(seed, user)) for seed in (1, 2) for user in (1, 2)}) == 4
    assert (set(series(1, 1, 0.0)), set(series(1, 1, 1.0))) == ({False}, {True})


MACHINES: list[tuple[Check, str, bool]] = [
    (is_machine("small"), "vm-0123abcd of size small is running (provisioned in the background).", True),
    (is_machine("small"), "vm-0123abcd of size large is running (provisioned in the background).", False),
    (is_machine("small"), "vm-0123abcd of size small is running.", False),
    (is_machine("small"), "vm-0123abcd was not started.", False),
    (is_cancelled, "vm-0123abcd was not started.", True),
    (is_cancelled, "vm-0123abcd of size small is running (provisioned in the background).", False),
]


@pytest.mark.parametrize(("check", "text", "right"), MACHINES)
def test_a_machine_is_the_one_that_was_requested(check: Check, text: str, right: bool) -> None:
    assert (check(an_answer(text)) is None) == right


@pytest.mark.parametrize("spoil", [change_a_character, cut_off, put_in_front, made_up])
def test_a_spoiled_state_is_never_the_good_one(spoil: Callable[[str], str]) -> None:
    state = "s1." + "AbC-_9" * 20
    assert all(spoil(state) != state for _ in range(500))


def test_users_take_about_as_long_as_configured() -> None:
    assert all(1.0 <= some(2.0) <= 3.0 for _ in range(100))
