"""`docs/examples/transaction.py`: money moves exactly once, whatever runs twice or dies in between."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from pathlib import Path

import pytest

from docs.examples import transaction
from gateway.testing import run

ARGUMENTS = {"source": "ada", "target": "bob", "euros": 30}
YES = {"sure": {"transfer": True}}


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BANK_FILE", str(tmp_path / "bank.db"))
    with transaction.transaction() as database:
        database.execute("INSERT INTO accounts VALUES ('ada', 100), ('bob', 0)")
    return tmp_path / "bank.db"


def accounts() -> dict[str, int]:
    with transaction.transaction() as database:
        return dict(database.execute("SELECT name, euros FROM accounts").fetchall())


def test_money_moves_once_although_every_leg_runs_twice() -> None:
    done = run(transaction.transfer, ARGUMENTS, answers=YES, lose_responses=True)
    assert done.text == "ada has 70 euros left."
    assert accounts() == {"ada": 70, "bob": 30}


def test_two_calls_move_money_twice() -> None:
    for _ in range(2):
        run(transaction.transfer, ARGUMENTS, answers=YES)
    assert accounts() == {"ada": 40, "bob": 60}


def die_before_the_commit() -> None:
    add = transaction.add

    def add_or_die(database: sqlite3.Connection, name: str, euros: int) -> int:
        left = add(database, name, euros)
        if name == "ada":
            os._exit(9)  # like kill -9: nothing is cleaned up
        return left

    transaction.add = add_or_die
    transaction.move("step 1", "ada", "bob", 30)


def die_after_the_commit() -> None:
    transaction.move("step 1", "ada", "bob", 30)
    os._exit(9)


@pytest.mark.parametrize("die", [die_before_the_commit, die_after_the_commit])
def test_a_process_that_dies_leaves_a_step_that_can_run_again(die: object) -> None:
    process = multiprocessing.get_context("fork").Process(target=die)  # type: ignore[arg-type]
    process.start()
    process.join()
    assert process.exitcode == 9
    assert sum(accounts().values()) == 100
    assert transaction.move("step 1", "ada", "bob", 30) == 70
    assert accounts() == {"ada": 70, "bob": 30}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"euros": 101}, "ada does not have enough money."),
        ({"euros": -1}, "Only positive amounts can be transferred."),
        ({"target": "mallory"}, "There is no account mallory."),
    ],
)
def test_a_transfer_that_is_refused_changes_nothing(changes: dict[str, object], told: str) -> None:
    assert run(transaction.transfer, {**ARGUMENTS, **changes}, answers=lambda key, _: YES[key]).text == told
    assert accounts() == {"ada": 100, "bob": 0}
