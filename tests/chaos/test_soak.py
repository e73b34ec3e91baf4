"""A short soak with random faults ends with a balanced ledger; with a broken gateway, the ledger does not balance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.broken import BREAKAGE
from tests.soak.ground import PROCESS_FAULTS
from tests.soak.ledger import Ledger
from tests.soak.orders import POST
from tests.soak.run import TOOLS, soak

SECONDS = 15.0
BROKEN_SECONDS = 4.0
REPEATED_SECONDS = 10.0
SEED = 1


def wrong(ledger: Ledger) -> set[str]:
    return {account.name for account in ledger.accounts if account.problems}


@pytest.mark.timeout(300)
def test_every_task_is_accounted_for_exactly_once_whatever_fails(tmp_path: Path) -> None:
    ledger = soak(tmp_path, SECONDS, SEED)
    assert ledger.balanced, ledger.report()


@pytest.mark.timeout(300)
def test_the_ledger_shows_that_the_balancer_repeats_calls_of_upstreams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BREAKAGE, "the balancer repeats calls of upstreams")
    kills = [({name: PROCESS_FAULTS[name] for name in ("replica killed",)}, (1.0, 2.0))]
    ledger = soak(tmp_path, REPEATED_SECONDS, SEED, f"{TOOLS},tests.soak.broken", lanes=kills, kinds=[POST])
    assert "one flow an order, and no other's work" in wrong(ledger), ledger.report()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("breakage", "account"),
    [
        ("acknowledged tasks are lost", "each of them ended once"),
        ("answers are lost", "no customer had to complain"),
        ("tasks end twice", "no task went a forbidden way"),
    ],
)
def test_the_ledger_shows_that(breakage: str, account: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BREAKAGE, breakage)
    ledger = soak(tmp_path, BROKEN_SECONDS, SEED, f"{TOOLS},tests.soak.broken")
    assert account in wrong(ledger), ledger.report()
