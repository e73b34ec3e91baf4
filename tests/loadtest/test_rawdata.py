"""The raw data of a run is read back as it was written, even for an interrupted run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from loadtest.rawdata import Call, Event, Leg, RawDataError, RawRun, Sample, increase, parse_series, percentile, read
from tests.loadtest.runs import call, leg, marked, samples


def write(directory: Path, run: RawRun) -> None:
    (directory / "run.json").write_text(json.dumps(dict(run.about)))
    files: dict[str, Sequence[Leg | Call | Event | Sample]] = {
        "legs": run.legs,
        "calls": run.calls,
        "events": run.events,
        "metrics": run.samples,
    }
    for name, records in files.items():
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    run = marked((1.0, "killed"), legs=[leg()], calls=[call()], samples=samples("r1", {"gateway_x": 1.0}))

    write(tmp_path, run)

    assert read(tmp_path) == run


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, marked(legs=[leg(), leg()]))
    legs = tmp_path / "legs.jsonl"
    legs.write_text(legs.read_text()[:-2])

    assert read(tmp_path).legs == [leg()]


def test_files_that_were_never_written_are_empty(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")

    assert read(tmp_path) == RawRun({}, [], [], [], [])


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RawDataError, match=rf"no run in \S*{tmp_path.name}: run\.json is missing"):
        read(tmp_path)


def test_a_line_of_something_else_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "legs.jsonl").write_text('{"something": "else"}\n')

    with pytest.raises(RawDataError, match="is not that of a run"):
        read(tmp_path)


def test_an_event_is_found_by_what_happened_first() -> None:
    run = marked((1.0, "killed"), (2.0, "killed"))

    assert run.moment("killed") == 1.0
    assert run.moment("never") == math.inf


def test_a_run_without_its_length_is_as_long_as_its_calls() -> None:
    assert RawRun(calls=[call(4.0, seconds=2.0)]).seconds == 6.0
    assert RawRun().seconds == 0.0


def test_series_are_split_into_name_and_labels() -> None:
    assert parse_series('m{a="1",b="x y"}') == ("m", {"a": "1", "b": "x y"})
    assert parse_series("m") == ("m", {})


@pytest.mark.parametrize(
    ("values", "risen"),
    [
        ([{"m": 3.0}, {"m": 5.0}], {"": 2.0}),
        ([{}, {"m": 5.0}], {"": 5.0}),
        ([{"m": 3.0}, {"m": 5.0}, {"m": 1.0}, {"m": 4.0}], {"": 6.0}),
        ([{"m": 3.0}], {}),
        ([], {}),
    ],
    ids=["what was there before does not count", "a new series", "a restart", "one look", "no look"],
)
def test_a_counter_rises_over_restarts(values: list[dict[str, float]], risen: dict[str, float]) -> None:
    assert increase(samples("r1", *values), "m") == risen


def test_a_counter_is_told_apart_by_a_label() -> None:
    values = [{}, {'m{kind="a",x="1"}': 1.0, 'm{kind="b",x="1"}': 2.0, 'm{kind="b",x="2"}': 4.0, "other": 8.0}]

    assert increase(samples("r1", *values), "m", by="kind") == {"a": 1.0, "b": 6.0}
    assert increase(samples("r1", *values), "m", {"x": "1"}) == {"": 3.0}


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (1.0, 4.0)],
)
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 0.5))
