"""What `docs/run/operating.md` and `docs/run/runbooks.md` quote exists: messages, labels and files."""

from __future__ import annotations

import functools
import re
from typing import Final

import pytest

from gateway.cli.check import EXIT_CODES, SUBJECTS, Finding, Report
from gateway.errors import HopReason, RejectReason
from gateway.observability.metrics import OUTCOMES, RefusalReason
from gateway.upstreams.failures import Reason
from gateway_workers.metrics import LegEnd
from tests.docs import runbooks
from tests.docs.markdown import TOP, blocks_of, rows_of, section_of, text_of
from tests.docs.sources import SERVED, files_in, strings_of

PAGE: Final = "docs/run/operating.md"
TEXT: Final = text_of(PAGE) + text_of(runbooks.PAGE)
RUNBOOKS: Final = runbooks.runbooks()
IN_PARTS: Final = {"task lost": "task %s"}
"""Messages whose words come from somewhere else too."""


@functools.cache
def strings() -> frozenset[str]:
    """Return every text of the source; of a formatted one, the parts between its values."""
    return frozenset(text for path in files_in(*SERVED) for text in strings_of(path))


def logged(text: str) -> set[str]:
    quotes = re.findall(r"\blog line\s+(`[^`]+`(?:\s+or\s+`[^`]+`)?)", text)
    return {message for quote in quotes for message in re.findall(r"`([^`]+)`", quote)}


LOGGED: Final = logged(TEXT)


def test_log_messages_are_quoted() -> None:
    assert len(LOGGED) > 20


@pytest.mark.parametrize("message", sorted(LOGGED))
def test_a_log_message_that_is_quoted_is_logged(message: str) -> None:
    wanted = IN_PARTS.get(message, message.removeprefix("… "))
    assert any(wanted in text for text in strings())


ANSWERS: Final = [
    "Invalid or expired requestState",
    "This server does not answer for that host",
    "Pages of that origin may not call this server",
    "did not finish within",
    "This call has collected more state than it can carry",
    "The server stopped before the request was done",
    "Unknown tool",
    "The task cannot be read",
    "cannot listen on",
    "cannot serve metrics on",
    "is already in use",
    "may evict tasks",
    "but the tasks in Redis are spread over",
]


def test_every_message_that_the_page_about_tasks_names_exists() -> None:
    for message in ("a tool blocks the event loop", "task store is not available", "task %s"):
        assert any(message in text for text in strings())


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_is_quoted_is_given(answer: str) -> None:
    assert f"`{answer}`" in TEXT
    assert any(answer in text for text in strings())


@pytest.mark.parametrize("runbook", RUNBOOKS, ids=lambda runbook: runbook.anchor)
def test_each_runbook_says_what_is_seen_why_and_what_to_do(runbook: runbooks.Runbook) -> None:
    assert list(runbook.parts) == list(runbooks.PARTS)
    assert all(runbook.parts.values())


def test_no_two_runbooks_have_one_heading() -> None:
    assert len({runbook.anchor for runbook in RUNBOOKS}) == len(RUNBOOKS) >= 40


def test_every_reason_outcome_and_kind_that_is_named_exists() -> None:
    reasons = {*RejectReason, *RefusalReason, *HopReason, *Reason}
    outcomes = {*OUTCOMES, *LegEnd}
    named = {label: set(re.findall(rf'{label}="(\w+)"', TEXT)) for label in ("reason", "outcome", "kind", "result")}
    assert named["reason"] <= reasons
    assert named["outcome"] <= outcomes
    assert all(named.values())
    assert [value for label in ("kind", "result") for value in named[label] if value not in strings()] == []


def test_the_example_of_a_check_has_the_form_of_its_report() -> None:
    (block,) = [block for block in blocks_of(PAGE) if block.language == "text"]
    findings = {subject: Finding(subject) for subject in SUBJECTS}
    for line in block.text.splitlines():
        subject = next(name for name in SUBJECTS if line.startswith(name))
        state, _, words = line.removeprefix(subject).strip().partition(" ")
        kept = {"ok": "notes", "unreachable": "unreachable", "wrong": "wrong"}[state]
        getattr(findings[subject], kept).extend([words.strip()] * bool(words))
    assert Report(tuple(findings.values())).as_text() == block.text.strip()


def test_the_exit_codes_and_subjects_of_a_check_are_all_told() -> None:
    section = section_of(PAGE, "Check before a start")
    first = {row[0] for row in rows_of(section, 2)}
    assert {str(code) for code in EXIT_CODES.values()} | set(SUBJECTS) <= first


def test_every_file_that_is_named_exists() -> None:
    assert [name for name in re.findall(r"`(deploy/[\w./]+)`", TEXT) if not (TOP / name).exists()] == []
