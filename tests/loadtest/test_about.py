"""A run records the gateway's version and the machine, and no private facts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gateway import __version__
from loadtest import about
from loadtest.cluster import REPOSITORY


def test_version_commit_and_machine_are_recorded_without_a_name_or_a_path() -> None:
    told = {**about.program(), **about.machine()}

    assert told["version"].startswith(f"sealed-gateway {__version__} (")
    assert re.fullmatch(r"[0-9a-f]{12,}", told.get("commit", "0" * 12))
    assert told["cores"] >= 1
    facts = {"version", "commit", "changed", "cores", "memory_bytes", "python", "kernel"}
    assert told.keys() <= facts
    assert str(REPOSITORY) not in json.dumps(told)


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert not {"commit", "changed"} & about.program(tmp_path).keys()
