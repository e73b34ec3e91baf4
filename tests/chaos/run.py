"""Every fault that calls and tasks must survive, the tests that show it, and the command that runs them: `make chaos`.

The tests have real replicas and workers, or at least a real server. Those of `tests/chaos` stand between the processes
and their server and strike at an exact command. Some faults are shown where the part they hit is tested; these tests
are listed here, not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

STORAGE = "tests/storage/test_faults.py::test_"
WORKERS = "tests/workers/test_faults.py::test_"
OUTAGES = "tests/chaos/test_outages.py::test_"

FAULTS: dict[str, tuple[str, ...]] = {
    "a worker is killed: claimed, in a step, at a checkpoint, emitting, asking, before and after its last write": (
        "tests/chaos/test_killed_workers.py",
        f"{WORKERS}the_task_of_a_killed_worker_is_finished_by_another_with_no_step_done_twice",
        f"{WORKERS}a_tool_that_may_be_tried_once_is_not_tried_again",
    ),
    "clients of a thousand streams disconnect and resume elsewhere, and a worker is killed": (
        "tests/chaos/test_streams.py",
    ),
    "a worker is paused past its lease and continues": (
        "tests/chaos/test_paused_workers.py",
        f"{WORKERS}a_worker_that_stood_still_past_its_lease_cannot_write_any_more",
    ),
    "a replica is killed between accepting a request and answering it": ("tests/chaos/test_killed_replicas.py",),
    "the server is killed and restarted": (
        f"{OUTAGES}a_server_that_is_killed_comes_back_with_every_task_as_it_was",
        f"{STORAGE}acknowledged_writes_survive_a_killed_server",
        f"{WORKERS}a_running_tool_outlasts_an_outage_of_the_store_and_its_result_is_stored",
        f"{WORKERS}a_worker_that_starts_without_its_store_waits_for_it",
    ),
    "the server cannot be reached": (
        f"{OUTAGES}a_server_that_cannot_be_reached_for_30_seconds_costs_time_and_nothing_else",
        f"{OUTAGES}calls_send_the_store_nothing",
        f"{STORAGE}a_server_that_hangs_is_given_up_and_found_again",
        f"{STORAGE}a_store_that_was_down_at_the_start_is_checked_at_its_first_use",
    ),
    "the server is paused for 3 and for 9 seconds, or its replies are lost": (
        "tests/chaos/test_paused_stores.py",
        f"{STORAGE}a_script_that_arrives_after_its_deadline_does_nothing",
        f"{STORAGE}while_a_server_is_known_to_be_silent_nothing_is_sent_that_changes_anything",
        f"{STORAGE}a_leg_that_is_taken_but_not_begun_falls_free",
    ),
    "the server, or a replica and a worker, are paused for 3 and for 35 seconds, and continue": (
        "tests/chaos/test_standstills.py",
    ),
    "a replica is killed or frozen while an upstream works on its calls": ("tests/chaos/test_lost_replicas.py",),
    "a replica is frozen for good": ("tests/chaos/test_frozen_replicas.py",),
    "the disk of a log is full, its reader is dead, or nobody reads it": (
        "tests/integration/test_log_faults.py",
        f"{WORKERS}an_audit_log_whose_reader_is_gone_blocks_no_worker",
        f"{WORKERS}a_worker_whose_log_nobody_reads_works_and_stops",
        f"{WORKERS}a_worker_that_must_record_every_leg_claims_no_task_while_it_cannot",
    ),
    "readers are slow": ("tests/integration/test_slow_readers.py",),
    "the clock of a replica, a worker, or the store is an hour off": ("tests/chaos/test_shifted_clocks.py",),
    "the identity provider hangs, or its clock is an hour off": (
        "tests/security/test_hanging_provider.py",
        "tests/integration/test_providers_clock.py",
    ),
    "the server's clock is set": (f"{STORAGE}a_server_whose_clock_is_set_is_asked_for_its_time_again",),
    "replies get lost": (f"{STORAGE}every_transition_can_be_sent_twice",),
    "the server is full": (
        f"{OUTAGES}a_server_that_is_full_refuses_new_tasks_and_finishes_old_ones",
        f"{OUTAGES}a_server_that_is_full_still_takes_a_result",
        f"{STORAGE}a_full_server_takes_nothing_new_and_still_lets_tasks_end",
    ),
    "the server is slow": (f"{OUTAGES}a_slow_server_makes_tasks_slow_and_no_call",),
    "the server forgets its scripts": (
        f"{OUTAGES}a_server_that_forgets_its_scripts_before_each_command_serves_all_of_them",
        f"{STORAGE}a_server_that_forgot_its_scripts_gets_them_again",
    ),
    "the server loses everything": (f"{STORAGE}a_server_that_lost_everything_serves_new_tasks",),
    "two replicas get the same update or cancellation at once": ("tests/chaos/test_races.py",),
    "an upstream is killed and restarted while it is busy": ("tests/chaos/test_killed_upstreams.py",),
    "a tool never yields": (
        f"{WORKERS}a_tool_that_blocks_its_worker_is_named_and_not_started_a_second_time",
        f"{WORKERS}tasks_beside_a_tool_that_blocks_continue_at_another_worker",
        "tests/workers/test_leaving.py::test_a_tool_that_never_yields_cannot_keep_a_worker_from_leaving",
    ),
    "keys rotate while tasks wait": (
        "tests/chaos/test_rotated_keys.py",
        f"{STORAGE}a_worker_without_the_key_leaves_the_task_to_one_that_has_it",
        f"{STORAGE}a_record_whose_key_is_gone_is_reported_as_such_and_stays_for_those_who_have_the_key",
    ),
    "any of these at any time, while customers continue": ("tests/chaos/test_soak.py",),
}


def main(options: Sequence[str]) -> int:
    """Run the tests of all faults, with further options for pytest."""
    return pytest.main([*(test for tests in FAULTS.values() for test in tests), *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
