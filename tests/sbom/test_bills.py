"""A bill of materials has exactly the packages of its lock list, with their hashes. `make sbom` writes and tests it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.locked_lists import TOP, canonical, entries, pins

VALIDATING = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(None if problem is None else str(problem))
"""
BILLS = sorted((TOP / "build/sbom").glob("*.cdx.json"))


def bill_of(path: Path) -> dict[str, Any]:
    bill = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(bill, dict)
    return bill


def problem_of(bill: str) -> str:
    """Return why a bill breaks the schema, which the environment of `make sbom` has; "" if it does not."""
    done = subprocess.run(
        [str(TOP / ".venvs/audit/bin/python"), "-c", VALIDATING],
        input=bill,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr


def list_of(path: Path) -> Path:
    return Path("locked") / path.name.replace(".cdx.json", ".txt")


def test_there_is_a_bill_for_the_image_what_builds_it_and_what_develops_it() -> None:
    assert [path.name.partition(".")[0] for path in BILLS] == ["build", "development", "image"]


@pytest.mark.parametrize("path", BILLS, ids=lambda path: path.name)
def test_a_bill_is_valid_by_the_schema_of_cyclonedx(path: Path) -> None:
    assert problem_of(path.read_text(encoding="utf-8")) == ""


def test_a_bill_that_is_not_valid_is_noticed() -> None:
    bill = bill_of(BILLS[0])
    bill["components"][0]["type"] = "spaceship"
    assert "spaceship" in problem_of(json.dumps(bill))


@pytest.mark.parametrize("path", BILLS, ids=lambda path: path.name)
def test_a_bill_lists_exactly_the_locked_packages(path: Path) -> None:
    listed = [(canonical(part["name"]), part["version"]) for part in bill_of(path)["components"]]
    assert sorted(listed) == sorted(pins(list_of(path)).items())


@pytest.mark.parametrize("path", BILLS, ids=lambda path: path.name)
def test_each_package_of_a_bill_has_its_address_and_its_hashes(path: Path) -> None:
    locked = entries(list_of(path))
    for part in bill_of(path)["components"]:
        name = canonical(part["name"])
        assert part["purl"] == f"pkg:pypi/{name}@{part['version']}"
        hashes = {found["content"] for reference in part["externalReferences"] for found in reference.get("hashes", [])}
        assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", locked[name])), name


@pytest.mark.parametrize("path", BILLS, ids=lambda path: path.name)
def test_a_bill_is_of_this_program_and_the_same_each_time(path: Path) -> None:
    bill = bill_of(path)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "sealed-gateway"
    assert {"serialNumber", "timestamp"}.isdisjoint({*bill, *bill["metadata"]})
