"""The report of a run, which is written next to the raw data."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from loadtest.rawdata import RawDataError, RawRun, Sample
from loadtest.report import charts, write_report
from loadtest.report.charts import CHARTS, timeline
from loadtest.report.frame import MOST_KEYS, WIDE
from loadtest.report.summary import summarize
from loadtest.report.write import REPORT
from tests.loadtest.runs import call, leg, marked

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert('x')</script> $\\frac{1}{$ \"&\n\x00 \u65e5\u672c \U0001f389"
PNG = b"\x89PNG\r\n\x1a\n"


def write(run: RawRun, directory: Path) -> str:
    """Write raw data and its report, and return the HTML."""
    (directory / "run.json").write_text(json.dumps({"scenario": "made up", **run.about}))
    parts: dict[str, Sequence[Any]] = {"legs": run.legs, "calls": run.calls, "events": run.events}
    for name, records in parts.items():
        lines = (json.dumps(asdict(record)) + "\n" for record in records)
        (directory / f"{name}.jsonl").write_text("".join(lines))
    report = write_report(directory)
    assert report == directory / "report.html"
    return report.read_text(encoding="utf-8")


def size(png: bytes) -> tuple[int, int]:
    """Return the width and the height of a PNG, in dots."""
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def busy(replicas: int = 2, **fields: Any) -> RawRun:
    """A run of 20 seconds in which every replica finishes a call per second."""
    seconds, names = range(20), [f"r{number}" for number in range(1, replicas + 1)]
    legs = [leg(t, call=f"{name}-{t}", replica=name) for t in seconds for name in names]
    calls = [call(t, call=f"{name}-{t}") for t in seconds for name in names]
    return marked(*fields.pop("events", ()), seconds=20, legs=legs, calls=calls, **fields)


def troubled() -> RawRun:
    """A busy run in which a leg was refused."""
    run = busy()
    return replace(run, legs=[*run.legs, leg(3, "refused", reason="-31001")])


@pytest.fixture
def words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing: charts are most of the work, and the test looks at words alone."""
    monkeypatch.setattr(charts, "CHARTS", {})


@pytest.fixture(scope="module")
def busy_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the report of a busy run, for tests that change nothing in it."""
    directory = tmp_path_factory.mktemp("busy")
    write(busy(events=[(5, "r1 leaves")]), directory)
    return directory


class Document(HTMLParser):
    """The content of a report as a browser finds it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "srcset", "href", "action", "data"}]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def pictures(self) -> list[str]:
        head = "data:image/svg+xml;base64,"
        return [base64.b64decode(link.removeprefix(head)).decode() for link in self.links if link.startswith(head)]


def test_every_chart_is_a_png_next_to_the_report_and_a_picture_for_wide_and_narrow_windows_in_it(
    tmp_path: Path,
) -> None:
    document = Document(write(troubled(), tmp_path))
    assert {path.stem for path in tmp_path.glob("*.png")} == CHARTS.keys()
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.glob("*.png"))
    assert {size(path.read_bytes())[0] for path in tmp_path.glob("*.png")} == {1200}
    assert len(document.pictures) == 2 * len(CHARTS)


def test_where_there_is_nothing_to_draw_a_sentence_stands_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "CHARTS", {name: CHARTS[name] for name in ("timeline", "refusals")})
    write(troubled(), tmp_path)
    document = Document(write(busy(), tmp_path))
    assert "No leg was handed on or refused, and none failed." in document.text
    assert {path.stem for path in tmp_path.glob("*.png")} == {"timeline"}
    assert len(document.pictures) == 2


@pytest.mark.usefixtures("words_alone")
def test_a_report_says_what_was_shown_with_which_gateway_on_which_machine(tmp_path: Path) -> None:
    about = {
        "summary": "Nobody notices.",
        "program": {"version": "sealed-gateway 9.8.7 (compiled)", "commit": "0123456789ab", "changed": True},
        "machine": {"cores": 2, "memory_bytes": 16 * 2**30, "python": "CPython 3.11.7", "kernel": "Linux 6.1"},
    }
    text = Document(write(busy(about=about), tmp_path)).text
    assert "Nobody notices." in text
    assert "gateway: sealed-gateway 9.8.7 (compiled), commit 0123456789ab with changes" in text
    assert "machine: 2 cores, 16 GiB of memory, CPython 3.11.7, Linux 6.1" in text
    target = Document(write(busy(about={**about, "target": "https://gateway.example.com"}), tmp_path)).text
    assert "called by: sealed-gateway 9.8.7" in target
    assert "gateway: sealed-gateway 9.8.7" not in target


@pytest.mark.usefixtures("words_alone")
def test_rates_are_shown_from_one_event_to_the_next(tmp_path: Path) -> None:
    text = Document(write(busy(events=[(10.1, "r1 leaves"), (20, "the users stop")]), tmp_path)).text
    assert "the users start 10.0 s 2.0 2.0 0.0 0.0 r1 leaves 9.9 s 2.0 2.0 0.0 0.0" in text


def test_what_workers_did_is_drawn_below_what_replicas_did(tmp_path: Path) -> None:
    def looks(*times: int) -> list[Sample]:
        return [Sample(t, "w1", {"gateway_task_legs_total": 3.0 * t}) for t in times]

    run = replace(busy(), samples=looks(0, 1, 2, 9, 10))
    legs = summarize(run).worker_legs
    assert list(legs) == ["w1"]
    assert legs["w1"][0] == pytest.approx(3, abs=1)
    assert legs["w1"][10] == 0, "it did not run"
    assert sum(legs["w1"]) / 2 == 30
    names = [text.get_text() for text in timeline(summarize(run), WIDE)._figure.texts]
    assert {"r1", "r2", "w1", "Legs of tasks per second, by worker"} <= set(names)


def test_a_report_needs_nothing_but_itself(busy_report: Path) -> None:
    html = (busy_report / REPORT).read_text(encoding="utf-8")
    document = Document(html)
    assert document.links
    assert all(link.startswith("data:image/svg+xml;base64,") for link in document.links)
    assert not {"script", "link", "iframe", "object"} & set(document.tags)
    assert "default-src 'none'" in html
    assert not re.search(r"url\(|@import", html)
    for picture in document.pictures:
        # Names of XML vocabularies are not addresses; pictures refer only to their own parts.
        assert all(reference.startswith("#") for reference in re.findall(r'href="([^"]*)"', picture))
        assert all(reference.startswith("#") for reference in re.findall(r"url\(([^)]*)\)", picture))
        assert "@import" not in picture


def test_pictures_follow_the_reader_from_light_to_dark_ground(busy_report: Path) -> None:
    pictures = Document((busy_report / REPORT).read_text(encoding="utf-8")).pictures
    assert pictures
    for picture in pictures:
        assert "prefers-color-scheme:dark" in picture
        assert "fill: var(--ground)" in picture
        drawn = picture.replace(re.findall(r"<style>.*?</style>", picture)[0], "")
        assert not re.findall(r"#[0-9a-f]{6}\b", drawn)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = marked(
        (1, HOSTILE),
        seconds=5,
        about={
            "scenario": HOSTILE,
            "settings": {HOSTILE: HOSTILE},
            "users": {HOSTILE: 1},
            "target": HOSTILE,
            "verdict": {
                "passed": False,
                "reasons": [{"what": HOSTILE, "bound": HOSTILE, "measured": HOSTILE, "passed": False}],
            },
        },
        legs=[leg(0, replica=HOSTILE, tool=HOSTILE, user=HOSTILE), leg(1, "failed", reason=HOSTILE, call="d")],
        calls=[call(0, user=HOSTILE, tool=HOSTILE), call(1, "failed", call="d", reason=HOSTILE)],
    )
    document = Document(write(run, tmp_path))
    assert "script" not in document.tags
    assert document.text.count("<script>alert('x')</script>") >= 12
    assert not any("<script" in picture for picture in document.pictures)


@pytest.mark.usefixtures("words_alone")
def test_a_verdict_is_at_the_top_with_what_was_broken_first(tmp_path: Path) -> None:
    reasons = [
        {"what": "Calls finished", "bound": "at least 10", "measured": "40", "passed": True},
        {"what": "Calls that failed", "bound": "at most 0", "measured": "3", "passed": False},
    ]
    text = Document(write(busy(about={"verdict": {"passed": False, "reasons": reasons}}), tmp_path)).text
    assert "made up ✗ failed" in text
    assert text.index("✗ broken Calls that failed 3 at most 0") < text.index("✓ held Calls finished 40 at least 10")
    assert text.index("Verdict") < text.index("Ledger")


@pytest.mark.usefixtures("words_alone")
def test_a_run_that_was_not_judged_says_so(tmp_path: Path) -> None:
    assert "no verdict" in Document(write(busy(), tmp_path)).text


@pytest.mark.usefixtures("words_alone")
def test_the_ledger_and_the_latencies_of_each_tool_are_in_numbers_too(tmp_path: Path) -> None:
    text = Document(write(busy(), tmp_path)).text
    assert "calls started 40" in text
    assert "r1 20" in text
    assert "get_weather 40 100 ms 100 ms 100 ms 100 ms" in text


@pytest.mark.usefixtures("words_alone")
def test_breaks_of_streams_and_the_time_to_the_first_segment_are_in_numbers(tmp_path: Path) -> None:
    calls = [call(tool="report", segments=3, breaks=1, resumes=4, first_segment=0.5)]
    text = Document(write(marked(calls=calls), tmp_path)).text
    assert "segments read 3 segment streams broken on purpose 1 requests that resumed after the last segment 4" in text
    assert "Time to the first segment of a result" in text
    assert "report 1 500 ms 500 ms 500 ms 500 ms" in text


@pytest.mark.usefixtures("words_alone")
def test_events_are_listed_by_number_with_their_time(tmp_path: Path) -> None:
    text = Document(write(busy(events=[(5, "r1 leaves"), (7.25, "r1 is new")]), tmp_path)).text
    assert "1 5 s r1 leaves" in text
    assert "2 7.2 s r1 is new" in text


@pytest.mark.usefixtures("words_alone")
def test_settings_that_are_secrets_are_not_passed_on(tmp_path: Path) -> None:
    settings = {
        "GATEWAY_SEAL_KEYS": "hush",
        "GATEWAY_JWT_SECRET": "hush",
        "GATEWAY_REDIS_URL": "redis://:hush@store",
        "GATEWAY_MAX_INFLIGHT": "8",
    }
    html = write(busy(about={"settings": settings}), tmp_path)
    assert "hush" not in html
    assert "GATEWAY_MAX_INFLIGHT 8" in Document(html).text


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(RawRun(), id="that is empty"),
        pytest.param(marked((3, "nobody came"), seconds=10), id="without calls"),
        pytest.param(marked(seconds=0, legs=[leg(0, seconds=0)], calls=[call(0, seconds=0)]), id="of no time"),
        pytest.param(
            marked(
                seconds=5,
                legs=[leg(0, "failed", replica="", reason="connection")],
                calls=[call(0, "failed"), call(1, "refused")],
            ),
            id="that only failed",
        ),
        pytest.param(busy(replicas=30), id="with more replicas than colours"),
        pytest.param(busy(events=[(t / 3, f"event {t}") for t in range(3 * MOST_KEYS)]), id="with very many events"),
        pytest.param(busy(events=[(-1, "before"), (99, "long after" * 20)]), id="with events outside of it"),
        pytest.param(
            marked(
                seconds=7200, legs=[leg(t) for t in range(0, 7200, 60)], calls=[call(t) for t in range(0, 7200, 60)]
            ),
            id="of two hours",
        ),
    ],
)
def test_there_is_a_report_of_a_run(run: RawRun, tmp_path: Path) -> None:
    document = Document(write(run, tmp_path))
    sentences = [drawing.otherwise for drawing in CHARTS.values() if drawing.is_empty(summarize(run))]
    assert len(document.pictures) == 2 * (len(CHARTS) - len(sentences))
    assert all(sentence in document.text for sentence in sentences)


def test_a_wide_picture_is_1200_dots_wide_and_grows_with_what_is_written_above_it() -> None:
    runs = (busy(), busy(events=[(5 + number, f"event {number}") for number in range(4)]))
    plain, crowded = (size(timeline(summarize(run), WIDE).png()) for run in runs)
    assert plain[0] == crowded[0] == WIDE.width * 100 == 1200
    assert 450 <= plain[1] < crowded[1] <= 650


def test_events_at_one_moment_share_a_label_if_there_is_room() -> None:
    def height(*texts: str) -> float:
        return timeline(summarize(busy(events=[(5, text) for text in texts])), WIDE)._figure.get_figheight()

    assert height("r1 is new", "r2 leaves") == height("r1 is new") < height("r1 is new " * 4, "r2 leaves " * 4)


def test_a_report_is_written_again_over_the_old_one(busy_report: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(busy_report, tmp_path / "copied")
    first = (copied / REPORT).read_text(encoding="utf-8")
    assert write_report(copied).read_text(encoding="utf-8") == first


def test_a_directory_without_a_run_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(RawDataError, match=r"run\.json is missing"):
        write_report(tmp_path)
    assert not list(tmp_path.iterdir())
