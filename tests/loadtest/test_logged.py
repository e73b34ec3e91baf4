"""Log records are found by their message, whatever else the log holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cluster import Worker

LINES = (
    json.dumps({"message": "task ended", "task": "one"}),
    json.dumps({"message": "task ended", "task": "two"}),
    json.dumps({"message": 'no module named "tools"', "about": "task ended"}),
    json.dumps({"message": "größer"}, ensure_ascii=False),
    json.dumps({"message": ""}),
    'Traceback "task ended"',
    "[1]",
)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    log = tmp_path / "w1.log"
    log.write_text("\n".join(LINES))
    return Worker("w1", {}, log)


def test_every_message_is_found_as_all_lines_show_it(worker: Worker) -> None:
    lines = worker.log_lines()
    assert len(lines) == len(LINES)
    for message in {str(line["message"]) for line in lines} | {"task", "module"}:
        assert worker.logged(message) == [line for line in lines if line["message"] == message]


def test_fields_narrow_down_what_is_found(worker: Worker) -> None:
    assert [line["task"] for line in worker.logged("task ended", task="two")] == ["two"]
    assert len(worker.logged(about="task ended")) == 1
    assert worker.logged("task ended", about="task ended") == []


def test_the_address_of_metrics_is_found_though_its_line_is_written_late(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps({"message": "metrics", "url": "http://127.0.0.1:1/metrics"})
    monkeypatch.setattr("time.sleep", lambda _seconds: worker.log_path.write_text(f"{line}\n"))
    assert worker.metrics_url == "http://127.0.0.1:1/metrics"
