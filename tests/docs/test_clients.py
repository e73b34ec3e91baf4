"""The versions, messages and frameworks that `docs/start/clients.md` names exist."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.errors import RejectReason
from gateway.protocol.versions import DRAFT, LEGACY_VERSIONS, RELEASED
from tests.agents.programs import AGENTS
from tests.docs.markdown import rows_of, section_of
from tests.integration.frameworks.known import FRAMEWORKS, INSPECTOR

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/start/clients.md").read_text()


def test_every_served_version_is_listed() -> None:
    table = TEXT.partition("## Which clients work")[2].partition("## What differs")[0]
    assert [version for version in (RELEASED, *LEGACY_VERSIONS, DRAFT) if version not in table] == []


def test_every_message_and_every_reason_that_is_named_exists() -> None:
    source = "".join(path.read_text() for path in (TOP / "gateway").rglob("*.py"))
    assert set(re.findall(r'reason="(\w+)"', TEXT)) <= set(RejectReason)
    assert "answer not delivered" in source
    assert "`answer not delivered`" in " ".join(TEXT.split())


def test_the_table_of_frameworks_has_what_is_locked_and_tested() -> None:
    tested = {framework.package: framework for framework in (*FRAMEWORKS.values(), INSPECTOR)}
    rows = {_named(row[0])[0]: row for row in rows_of(section_of("docs/start/clients.md", "Frameworks"), 6)}
    assert rows.keys() == tested.keys()
    for package, (_, version, sdks, wire, asks, _) in rows.items():
        framework = tested[package]
        assert (version, wire.partition(";")[0], asks == "yes") == (
            framework.version,
            framework.protocol,
            framework.asks,
        ), package
        for sdk, told in re.findall(r"`([^`]+)` ([\d.]+)", sdks):
            assert framework.version_of(sdk) == told, (package, sdk)


def test_the_table_of_agents_has_what_is_locked_and_tested() -> None:
    rows = rows_of(section_of("docs/start/clients.md", "Agents"), 6)
    told = [(version, protocol, forms == "in a terminal") for _, version, protocol, forms, _, _ in rows]
    assert told == [(agent.version, agent.protocol, agent.shows_forms) for agent in AGENTS.values()]
    names = [name for name, *_ in rows]
    assert [
        agent.section
        for agent in AGENTS.values()
        if f"#{agent.section.lower().replace(' ', '-')})" not in "".join(names)
    ] == []


def _named(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)
