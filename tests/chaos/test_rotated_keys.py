"""Seal keys are rotated in three phases while tasks wait and run, without a restart and without a loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Worker, new_key, wait_until
from tests.chaos.ground import Ground

OLD, NEW = new_key(), new_key()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "seal-keys"
    path.write_text(OLD)
    return path


@pytest.fixture
def ground(start: Callable[..., Ground], keys: Path) -> Ground:
    return start(GATEWAY_SEAL_KEYS="", GATEWAY_SEAL_KEYS_FILE=str(keys))


def roll_out(ground: Ground, keys: Path, worker: Worker, *ring: str) -> None:
    """Replace the keys, and wait until replica and worker hold them."""
    ids = ", ".join(KeyRing.parse(key).sealing_key.key_id.hex() for key in ring)
    keys.write_text(",".join(ring))
    replica = ground.site.fleet.replicas[0]
    wait_until(
        lambda: all(
            any(record["key_ids"] == ids for record in process.logged("seal keys replaced"))
            for process in (replica, worker)
        ),
        "the keys",
    )


def test_a_task_that_waits_and_one_that_runs_outlast_a_rotation(ground: Ground, keys: Path) -> None:
    site = ground.site
    worker = site.worker("w1")
    waiting, running = site.create("ask"), site.create("work", gate="gate")
    site.wait_for(waiting, "input_required")
    site.wait_for_line("at the gate")
    roll_out(ground, keys, worker, OLD, NEW)
    roll_out(ground, keys, worker, NEW, OLD)
    assert list(site.get(waiting)["inputRequests"]) == ["name"]
    site.answer(waiting, "name", name="Ada")
    site.open("gate w1")
    assert ground.result(waiting) == ["part 0 for Ada"]
    assert ground.result(running) == ["part 0", "part 1", "part 2", "done by w1"]
    new = site.create("work")
    assert len(ground.result(new)) == 4
    ground.assert_balanced(waiting, running, new)
    roll_out(ground, keys, worker, NEW)
    assert site.get(new)["status"] == "completed"


def test_a_task_whose_key_went_too_early_fails_and_holds_up_no_other(ground: Ground, keys: Path) -> None:
    site = ground.site
    worker = site.worker("w1")
    waiting = site.create("ask")
    site.wait_for(waiting, "input_required")
    roll_out(ground, keys, worker, NEW, OLD)
    site.answer(waiting, "name", name="Ada")
    assert ground.result(waiting) == ["part 0 for Ada"]
    old = site.create("ask")
    site.wait_for(old, "input_required")
    roll_out(ground, keys, worker, new_key())
    told = site.get(old)
    assert (told["status"], told["error"]["code"]) == ("failed", -32603)
    new = site.create("work")
    assert len(ground.result(new)) == 4
