"""The answers of calls that wait for further answers use up neither the memory nor the room of a replica."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from tests.integration.fleet import Fleet
from tests.security.asking_crowd import Asked
from tests.security.crowd import AUDIENCE, SECRET, peak_bytes, times_of
from tests.security.hostile_bodies import KINDS

pytestmark = pytest.mark.slow

CALLS = 32
"""As many as one caller may have open."""

SIZE = 2**17
"""All answers of one call fit in the size of a body, but those of all calls do not fit in the caller's share."""

MAX_PEAK_BYTES = 512 * 2**20
ENVIRON = {
    "GATEWAY_TOOLS": "tests.security.crowd,tests.security.asking_crowd",
    "GATEWAY_AUDIENCE": AUDIENCE,
    "GATEWAY_AUTH": "jwt",
    "GATEWAY_JWT_SECRET": SECRET,
}


def test_answers_of_one_caller_take_little_memory_and_others_are_served(tmp_path: Path) -> None:
    value = KINDS["arrays 90 deep"].filled(SIZE)
    with Fleet(tmp_path, ENVIRON, names=["r1"]) as fleet:
        replica = fleet["r1"]
        greedy = Asked(replica, "greedy")
        ended = threading.Event()

        def answer() -> None:
            for *first, _ in asked:
                for question in first:
                    greedy.answer(question, value)
            for *_, last in asked:
                greedy.answer(last, '"short"')
            ended.set()

        with contextlib.closing(greedy), greedy.calling(CALLS) as asked:
            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            _, statuses = times_of(replica, "benign", ended)
            thread.join()
            assert set(statuses) == {200}
            assert peak_bytes(replica) < MAX_PEAK_BYTES
            assert greedy.statuses.keys() == {202, 503}
