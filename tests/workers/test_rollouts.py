"""Rollouts of workers run no line of a tool twice that may be tried once. A longer one is in `tests/chaos`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.workers.rollouts import roll_out
from tests.workers.site import Site

pytestmark = pytest.mark.slow


def test_no_line_of_a_task_that_may_be_tried_once_runs_twice(start_site: Callable[..., Site]) -> None:
    roll_out(start_site, tasks=12, rollouts=2)
