"""The scenarios, options and files that `docs/run/loadtest.md` names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtest import rawdata
from loadtest.__main__ import main
from loadtest.scenarios import SCENARIOS

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/run/loadtest.md").read_text()
USERS = TEXT.partition("## The users")[2].partition("## ")[0]


def test_every_scenario_has_its_line() -> None:
    scenarios = TEXT.partition("## Scenarios")[2].partition("## ")[0]
    assert re.findall(r"^\| `([a-z][a-z-]*)` \|", scenarios, re.MULTILINE) == list(SCENARIOS)


def test_every_option_that_is_named_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["baseline", "--help"])
    options = set(re.findall(r"--[a-z]+", capsys.readouterr().out))
    assert set(re.findall(r"`(--[a-z]+)", TEXT.replace(USERS, ""))) <= options


def test_every_option_of_the_users_is_listed_with_its_variable() -> None:
    names = re.findall(r'^    add\("([a-z-]+)"', (TOP / "loadtest/users/base.py").read_text(), re.MULTILINE)
    assert len(names) > 5
    assert set(re.findall(r"`--([a-z-]+)`", USERS)) - {"host"} == set(names)
    assert set(re.findall(r"LOADTEST_\w+", USERS)) == {f"LOADTEST_{name.upper().replace('-', '_')}" for name in names}


def test_every_class_of_users_and_every_tag_is_listed() -> None:
    sources = "".join(path.read_text() for path in (TOP / "loadtest/users").glob("*.py"))
    assert set(re.findall(r"^\| `(\w+User)`", USERS, re.MULTILINE)) == set(
        re.findall(r"class (\w+)\(McpUser\)", sources)
    )
    tags = re.findall(r"^\| `\w+User` .* \| (.+) \|$", USERS, re.MULTILINE)
    assert set(re.findall(r"`([a-z-]+)`", " ".join(tags))) == set(re.findall(r'@tag\("([a-z-]+)"\)', sources))


def test_every_file_of_a_run_is_listed() -> None:
    files = {rawdata.RUN, rawdata.LEGS, rawdata.CALLS, rawdata.EVENTS, rawdata.METRICS}
    assert set(re.findall(r"^\| `(\w+\.jsonl?)`", TEXT, re.MULTILINE)) == files
