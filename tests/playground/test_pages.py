"""The playground in Chromium, against real replicas. Each script in `pages/` has the tests of one subject."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.test_dev import Dev

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / ".venvs/browser"
SECONDS = 240


def run(script: str, **environ: str) -> None:
    """Run a script of tests in the browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    assert chromium is not None
    done = subprocess.run(
        [str(PEERS / "bin/node"), "--test", "--test-reporter=spec", str(HERE / "pages" / f"{script}.test.mjs")],
        env={**os.environ, "PEERS": str(PEERS), "CHROMIUM": chromium, **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_modules_of_the_page_keep_their_promises() -> None:
    scripts = sorted(str(path) for path in (HERE / "modules").glob("*.test.mjs"))
    done = subprocess.run(
        [str(PEERS / "bin/node"), "--test", *scripts], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("script", ["stories", "tasks"])
def test_people_see_calls_and_tasks_survive(demo: Dev, script: str) -> None:
    run(script, DEV_URL=demo.page)


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("script", ["tools", "access"])
def test_people_can_call_answer_and_inspect_everything(asking: Dev, script: str) -> None:
    run(script, ASKING_URL=asking.page)


@pytest.mark.timeout(SECONDS)
def test_people_see_which_process_holds_a_call_of_a_server_that_waits(holding: Dev) -> None:
    run("held", HELD_URL=holding.page)


@pytest.mark.timeout(SECONDS)
def test_texts_stay_texts_and_other_pages_can_do_nothing(hostile: Dev) -> None:
    run("hostile", HOSTILE_URL=hostile.page)


@pytest.mark.timeout(SECONDS)
def test_it_works_without_a_fleet_and_with_a_token(served: Mapping[str, str]) -> None:
    run("serve", **served)
