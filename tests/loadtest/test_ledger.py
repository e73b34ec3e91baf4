"""Every call and leg of a run is in its ledger once."""

from __future__ import annotations

from loadtest.ledger import Ledger, ledger
from loadtest.rawdata import RawRun
from tests.loadtest.runs import call, leg, marked, samples


def test_a_run_is_added_up() -> None:
    run = marked(
        legs=[leg(), leg(outcome="shed"), leg(outcome="refused", replica="r2"), leg(outcome="failed", replica="")],
        calls=[
            call(asked={"resolution": 1, "duplicate_of": 1}, hops=1, sheds=2),
            call(asked={"resolution": 1}, hops=2, refusals=3),
            call(outcome="failed", reason="connection", retries=4, user="compute"),
            call(outcome="unfinished", reason="GreenletExit"),
            call(segments=3, breaks=1, resumes=2),
            call(segments=2),
        ],
    )

    sums = ledger(run)

    assert (sums.started, sums.finished, sums.failed) == (6, 4, 1)
    assert sums.calls == {"finished": 4, "failed": 1, "unfinished": 1}
    assert sums.calls_by_user == {"ephemeral": {"finished": 4, "unfinished": 1}, "compute": {"failed": 1}}
    assert sums.legs == {"completed": 1, "shed": 1, "refused": 1, "failed": 1}
    assert sums.legs_by_replica == {"r1": 2, "r2": 1, "": 1}
    assert sums.why == {"connection": 1, "GreenletExit": 1}
    assert (sums.hops, sums.sheds, sums.refusals, sums.retries, sums.questions) == (3, 2, 3, 4, 3)
    assert (sums.segments, sums.breaks, sums.resumes) == (5, 1, 2)


def test_states_are_what_all_processes_count_over_their_restarts() -> None:
    sealed, opened, rejected = (
        'gateway_states_sealed_total{key_id="01"}',
        'gateway_states_opened_total{key_id="01"}',
        'gateway_state_rejections_total{reason="expired"}',
    )
    run = marked(
        samples=[
            *samples("r1", {}, {sealed: 10.0, opened: 4.0}, {sealed: 2.0, opened: 1.0}),
            *samples("r2", {sealed: 100.0}, {sealed: 101.0, rejected: 3.0}),
        ]
    )

    assert ledger(run).states == {"sealed": 13, "opened": 5, "rejected": 3}


def test_without_metrics_nothing_is_said_of_states() -> None:
    assert ledger(RawRun()) == Ledger(calls={}, legs={}, calls_by_user={}, legs_by_replica={}, why={}, states={})
    assert ledger(RawRun()).started == 0


def test_its_lines_name_every_way_that_calls_ended() -> None:
    rows = dict(ledger(marked(calls=[call(), call(outcome="failed"), call(outcome="refused")])).rows())

    assert rows["calls started"] == 3
    assert (rows["calls finished"], rows["calls failed"], rows["calls refused"]) == (1, 1, 1)
