"""Three rollouts of workers under 102 tasks that may be tried once; `tests/workers/rollouts.py` says what counts."""

from __future__ import annotations

from collections.abc import Callable

from tests.workers.rollouts import roll_out
from tests.workers.site import Site


def test_no_line_of_102_tasks_that_may_be_tried_once_runs_twice(start_site: Callable[..., Site]) -> None:
    roll_out(start_site, tasks=102, rollouts=3)
