"""The commands, repeated questions and formats of `docs/run/upgrading.md` are right."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from gateway import Elicit, ElicitUrl, Sample
from gateway.authoring.forms.questions import Ask
from gateway.runtime.version import __version__
from gateway.sealing.formats import FORMATS
from tests import forkserver

pytestmark = pytest.mark.slow

TOP = Path(__file__).resolve().parent.parent.parent
TEXT = (TOP / "docs/run/upgrading.md").read_text()
SESSIONS = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    return {**inherited, "PYTHONPATH": str(TOP)}


def shell(commands: str, cwd: Path) -> str:
    """Run commands where `gateway` is the one under test, and return what they print."""
    result = subprocess.run(
        ["bash", "-euc", f'gateway() {{ "{sys.executable}" -m gateway "$@"; }}\n{commands}'],
        env=environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return result.stdout


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.splitlines()[-1][:20])
def test_the_commands_print_what_is_shown(session: str, tmp_path: Path) -> None:
    lines = session.splitlines()
    commands = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    assert shell(commands, tmp_path).splitlines() == [line for line in lines if not line.startswith("$ ")]


def test_the_comparison_says_what_release_2_asks_again(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (source,) = [block for block in blocks if "def asked_again" in block]
    names: dict[str, Any] = {}
    listing = [sys.executable, "-m", "gateway", "tools", "--json", "--tools", "gateway.demo"]
    exec(source, names)
    old, new = (
        json.loads(forkserver.run(listing, env={**environment(), "GATEWAY_DEMO_RELEASE": release}, cwd=tmp_path).stdout)
        for release in "12"
    )
    (told,) = names["asked_again"](old, new)
    assert told.startswith("link_accounts asks microsoft_login: {'method': 'elicitation/create', 'mode': 'form'")
    assert names["asked_again"](new, new) == []


class Form(BaseModel):
    name: str
    size: Literal["S", "L"]


class Annotated(BaseModel):
    name: str = Field(title="Your name", description="In full")
    size: Literal["S", "L"]


class Small(BaseModel):
    name: str
    size: Literal["S", "L"] = "S"


class Large(BaseModel):
    name: str
    size: Literal["S", "L"] = "L"


class Reordered(BaseModel):
    size: Literal["S", "L"]
    name: str


class Shorter(BaseModel):
    name: str


class Limited(BaseModel):
    name: str = Field(max_length=5)
    size: Literal["S", "L"]


class OtherChoices(BaseModel):
    name: str
    size: Literal["L", "S"]


def digest(ask: Ask[Any]) -> bytes:
    return ask.question("key").digest


FORM, PAGE, SAMPLED = Elicit("?", Form), ElicitUrl("?", "https://a.example"), Sample("?", 1)
CHANGES: Mapping[str, tuple[Ask[Any], Ask[Any]]] = {
    "another message, title or description": (FORM, Elicit("Which one?", Annotated)),
    "another default of a field that has one": (Elicit("?", Small), Elicit("?", Large)),
    "another order of the fields": (FORM, Elicit("?", Reordered)),
    "an added or removed field": (FORM, Elicit("?", Shorter)),
    "another name, type, limit or format of a field": (FORM, Elicit("?", Limited)),
    "whether a field is required; in a model, whether it has a default": (FORM, Elicit("?", Small)),
    "an added or removed choice, or another order of the choices": (FORM, Elicit("?", OtherChoices)),
    "a form becomes a page, or a page a form": (FORM, PAGE),
    "another URL of a page": (PAGE, ElicitUrl("?", "https://b.example")),
    "other messages, limits or options of sampling": (SAMPLED, Sample("!", 2, system_prompt="Rhyme")),
    "other tools of sampling": (SAMPLED, Sample("?", 1, tools=[{"name": "search", "inputSchema": {}}])),
}
SECTION = TEXT.partition("## What is asked again")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| (.+?) \| (no|yes).* \|$", SECTION, re.MULTILINE))


def test_the_table_of_changes_is_the_one_that_is_tried_here() -> None:
    assert set(ROWS) == {*CHANGES, "another key"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_question_is_asked_again_where_the_table_says_so(change: str) -> None:
    before, after = CHANGES[change]
    assert ROWS[change] == ("no" if digest(before) == digest(after) else "yes")


def test_every_format_has_its_row_with_its_numbers() -> None:
    section = TEXT.partition("### Format numbers")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    assert rows[2:] == [[each.kind, each.place, str(each.reads), str(each.writes)] for each in FORMATS]


def test_every_release_up_to_this_one_has_a_row_that_says_what_crosses() -> None:
    section = TEXT.partition("## Releases of the gateway")[2].partition("\n### ")[0]
    steps = re.findall(r"^\| ([\d.]+) → ([\d.]+) \|", section, re.MULTILINE)
    assert __version__.startswith(steps[0][1])
    assert all(older[1] == newer[0] for newer, older in itertools.pairwise(steps))
