"""docs/run/logs.md: every event and field that it names exists."""

from __future__ import annotations

import ast
import functools
import json
import logging
import re
from collections.abc import Iterator

import pytest

from gateway.errors import InvalidRequestState, RejectReason
from gateway.observability.audit import AuditLog
from gateway.observability.logs import JsonFormatter, TextFormatter
from gateway.observability.metrics import RefusalReason
from gateway.sealing.principal import Principal
from tests.docs.markdown import TOP, blocks_of
from tests.docs.sources import SERVED, files_in, nodes_of

TEXT = (TOP / "docs/run/logs.md").read_text(encoding="utf-8")
EXAMPLES = ("text", "json")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def rows(heading: str) -> Iterator[tuple[str, ...]]:
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| `"):
            yield tuple(cell.strip() for cell in line.strip("|").split(" | "))


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Give each call that logs, with its place."""
    for path in files_in(*SERVED):
        for node in nodes_of(path):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "log"
            ):
                yield f"{path.relative_to(TOP)}:{node.lineno}", node


@functools.cache
def source() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in files_in(*SERVED))


MESSAGES = sorted(
    {name for row in rows("Events that operators should know") for name in re.findall(r"`([^`]+)`", row[0])}
)


def test_the_pages_tables_are_read() -> None:
    assert len(MESSAGES) > 20
    assert len(list(calls())) > 40


@pytest.mark.parametrize("message", MESSAGES)
def test_every_event_that_is_named_is_logged(message: str) -> None:
    if message in ("task lost", "task expired"):  # the ends of a leg, by their names
        assert '"task %s", end.value' in source()
        return
    assert f'"{message}' in source()


@pytest.mark.parametrize("field", [row[0] for row in rows("Fields")])
def test_every_field_that_is_named_is_written(field: str) -> None:
    for name in re.findall(r"`([^`]+)`", field):
        assert f'"{name}"' in source()


def test_a_message_is_a_fixed_text_and_what_varies_is_a_field() -> None:
    for place, call in calls():
        assert {keyword.arg for keyword in call.keywords} <= {"extra", "exc_info"}, place
        if isinstance(call.args[0], ast.Constant):
            assert "%" not in str(call.args[0].value).replace("task %s", ""), place


def audit_fields() -> dict[str, set[str]]:
    """Return the fields of each kind of audit line with all values present."""
    lines: list[bytes] = []
    audit, caller = AuditLog(lines.append, "r1", lambda: 0.0, as_json=True), Principal("i", "s", "c")
    audit.leg(
        caller,
        "tools/call",
        "x",
        flow="f",
        leg=1,
        outcome="completed",
        seconds=0.0,
        task="t",
        upstream="u",
        late_answer=True,
    )
    audit.refused(InvalidRequestState(RejectReason.EXPIRED), caller, method="tools/call", target="x", client="c")
    audit.task(caller, "tasks/update", "x", task="t", phase="queued")
    audit.operator("root", "tasks/cancel", "x", task="t", owner="0" * 64, phase="queued")
    return {line["audit"]: set(line) for line in map(json.loads, lines)}


def test_every_field_of_the_audit_log_is_in_its_table_and_the_other_way_round() -> None:
    written = audit_fields()
    told: dict[str, set[str]] = {kind: set() for kind in written}
    for names, kinds, _ in rows("The audit log"):
        for kind in written if kinds.startswith("all") else re.findall(r"`(\w+)`", kinds):
            told[kind] |= set(re.findall(r"`(\w+)`", names))
    assert told == written


def test_the_examples_have_the_form_of_what_is_written() -> None:
    text, as_json = (
        next(block for block in blocks_of("docs/run/logs.md") if block.language == name) for name in EXAMPLES
    )
    written: list[str] = []
    for created, formatter in ((1795512600.25, TextFormatter()), (1795512600.25, JsonFormatter("r1"))):
        record = logging.makeLogRecord(
            {"msg": "serving", "levelname": "INFO", "name": "gateway.http.draining_server", "created": created}
        )
        record.url = "http://127.0.0.1:8080/mcp"
        written.append(formatter.format(record))
    lines: list[bytes] = []
    AuditLog(lines.append, "r1", lambda: 1795512607.125, as_json=False).leg(
        None, "tools/call", "echo", flow="9c1f63d051a8be2e", leg=1, outcome="completed", seconds=0.000412
    )
    assert text.text.splitlines() == [written[0], lines[0].decode().rstrip()]
    assert as_json.text.strip() == written[1]


def test_every_reason_that_is_named_exists() -> None:
    section = TEXT.partition("## The audit log\n")[2].rpartition("Not in the audit log")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert len(named) > 4
    assert named <= set(RefusalReason)
