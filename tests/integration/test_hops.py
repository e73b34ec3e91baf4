"""The real client finishes calls whose legs run in different processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import REPOSITORY, clean_environment
from tests import forkserver
from tests.integration.client import Answers, connect
from tests.integration.fleet import Fleet

RESOLVE = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}
DUPLICATE: Answers = {"resolution": {"resolution": "Duplicate"}, "duplicateOfId": {"duplicateOfId": 4301}}
NAME: Answers = {"name": {"name": "octocat"}}
RESOLVED = (
    "Bug #4522 resolved as Duplicate of Bug #4301. State set to Resolved and duplicate link created.",
    False,
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet that tests may break."""
    with Fleet(tmp_path, names=("r1", "r2", "r3")) as fleet:
        yield fleet


async def test_both_rounds_of_a_call_finish_with_each_leg_in_another_process(fleet: Fleet) -> None:
    async with connect(fleet, DUPLICATE) as connection:
        assert await connection.call("update_work_item", RESOLVE) == RESOLVED
        first, second, third = connection.balancer.legs("update_work_item")
    assert first != second != third
    assert fleet["r1"].pid != fleet["r2"].pid


async def test_a_call_finishes_though_the_process_that_served_each_leg_is_killed_at_once(own_fleet: Fleet) -> None:
    async def kill_the_last_one_that_served(_name: str) -> None:
        own_fleet[connection.balancer.served[-1].replica].kill()

    async with connect(own_fleet, DUPLICATE, before_answer=kill_the_last_one_that_served) as connection:
        assert await connection.call("update_work_item", RESOLVE) == RESOLVED
        legs = connection.balancer.legs("update_work_item")
    assert len(set(legs)) == 3
    assert [replica.name for replica in own_fleet.replicas if replica.alive] == legs[2:]


async def test_a_call_finishes_though_the_whole_fleet_is_restarted_between_its_legs(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        pids = [{replica.pid for replica in fleet.replicas}]

        async def restart(_name: str) -> None:
            fleet.restart()
            pids.append({replica.pid for replica in fleet.replicas})

        async with connect(fleet, DUPLICATE, before_answer=restart) as connection:
            assert await connection.call("update_work_item", RESOLVE) == RESOLVED
            assert len(connection.balancer.legs("update_work_item")) == 3
        assert len(pids) == 3
        assert len(set.union(*pids)) == 6


async def test_two_questions_of_one_leg_are_answered_together(fleet: Fleet) -> None:
    async with connect(fleet, NAME) as connection:
        text = await connection.call("link_accounts", {})
        legs = connection.balancer.legs("link_accounts")
    assert text == ("Linked GitHub account octocat and Google account octocat.", False)
    assert len(legs) == len(set(legs)) == 2


async def test_one_question_takes_two_legs(fleet: Fleet) -> None:
    async with connect(fleet, NAME) as connection:
        text, is_error = await connection.call("get_weather", {"location": "New York"})
        legs = connection.balancer.legs("get_weather")
    assert text.startswith("Current weather in New York:")
    assert "octocat" in text
    assert not is_error
    assert len(legs) == len(set(legs)) == 2


async def test_a_call_that_asks_nothing_takes_one_leg(fleet: Fleet) -> None:
    async with connect(fleet, {}) as connection:
        text = await connection.call("crunch", {"units": 3, "unitMs": 1})
        (leg,) = connection.balancer.legs("crunch")
    assert text == (f"Computed 3 units: 3 on {leg}.", False)


async def test_the_client_lists_the_demo_tools_in_the_order_of_their_registration(fleet: Fleet) -> None:
    async with connect(fleet, {}) as connection:
        listed = await connection.client.list_tools()
    names = [tool.name for tool in listed.tools]
    assert names == ["get_weather", "update_work_item", "link_accounts", "crunch", "report", "provision_vm"]


async def test_a_rolling_upgrade_keeps_the_answer_that_the_new_release_still_needs(tmp_path: Path) -> None:
    """Release 1 asks for two logins; release 2 keeps the first answer and asks only for the one it adds."""
    asked: list[str] = []
    new = {"GATEWAY_DEMO_RELEASE": "2"}

    async def note(name: str) -> None:
        asked.append(name)

    with Fleet(tmp_path, names=("r1", "r2", "r3"), own={"r2": new, "r3": new}) as fleet:
        async with connect(fleet, NAME, before_answer=note) as connection:
            connection.balancer.turn_to("r1")
            text = await connection.call("link_accounts", {})
            assert connection.balancer.legs("link_accounts") == ["r1", "r2", "r3"]
    assert text == ("Linked GitHub account octocat and Microsoft account octocat.", False)
    assert len(asked) == 3


async def test_calls_hop_with_identity_too(tmp_path: Path) -> None:
    """The token is what `gateway token` prints in the environment of the replicas."""
    environ = {"GATEWAY_AUTH": "jwt", "GATEWAY_JWT_SECRET": "a secret that only this test knows, 32 bytes"}
    with Fleet(tmp_path, environ) as fleet:
        async with connect(fleet, DUPLICATE, token=_printed_token(fleet)) as connection:
            assert await connection.call("update_work_item", RESOLVE) == RESOLVED
            first, second, third = connection.balancer.legs("update_work_item")
        assert first != second != third
        assert {served.status for served in connection.balancer.served} == {200}


def _printed_token(fleet: Fleet) -> str:
    command = [sys.executable, "-m", "gateway", "token", "--sub", "alice"]
    environ = clean_environment(fleet.environ)
    printed = forkserver.run(command, cwd=REPOSITORY, env=environ)
    printed.check_returncode()
    return printed.stdout.strip()
