"""Raw data is written as whole lines, by many writers at once, and reads back unchanged."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from loadtest import recorder as recorder_module
from loadtest.rawdata import LEGS, RUN, read
from loadtest.recorder import Recorder, run_clock
from tests.loadtest.runs import call, leg

WAIT_SECONDS = 40.0


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    legs = [leg(0.5, "refused", reason="-31001", status=503), leg(1.25, "input_required", state_bytes=300)]
    calls = [call(0.5, asked={"github_login": 1}, legs=2, refusals=1)]
    with Recorder(tmp_path, time.time()) as recorder:
        for written in legs:
            recorder.write(written)
        recorder.write(calls[0])
    (tmp_path / RUN).write_text("{}")
    run = read(tmp_path)
    assert (list(run.legs), list(run.calls)) == (legs, calls)


def test_lines_of_several_processes_and_many_threads_stay_whole(tmp_path: Path) -> None:
    recorders = [Recorder(tmp_path, time.time()) for _ in range(2)]

    def write(recorder: Recorder, number: int) -> None:
        for place in range(500):
            recorder.write(leg(call=f"c{number}", leg=place, reason="x" * 500))

    threads = [
        threading.Thread(target=write, args=(recorder, id(recorder) + n)) for recorder in recorders for n in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for recorder in recorders:
        recorder.close()
        recorder.close()
        recorder.write(leg())  # too late
    (tmp_path / RUN).write_text("{}")
    written = read(tmp_path).legs
    assert len(written) == 2000
    assert len({(line.call, line.leg) for line in written}) == 2000


def test_waiting_records_are_written_during_the_run(tmp_path: Path) -> None:
    with Recorder(tmp_path, time.time()) as recorder:
        recorder.write(leg())
        deadline = time.monotonic() + WAIT_SECONDS
        while not (tmp_path / LEGS).stat().st_size:
            assert time.monotonic() < deadline, "nothing was written"
            time.sleep(0.02)


def test_no_more_than_a_bounded_amount_waits(tmp_path: Path) -> None:
    records = 2 * recorder_module.FULL_BYTES // 200
    with Recorder(tmp_path, time.time()) as recorder:
        for _ in range(records):
            recorder.write(leg(reason="x" * 200))
        assert sum(len(unwritten) for unwritten in recorder._unwritten.values()) <= recorder_module.FULL_BYTES


def test_all_processes_of_a_run_tell_the_same_time() -> None:
    began = time.time() - 100
    first, second = run_clock(began), run_clock(began)
    assert 100 <= first() <= second() + 1
