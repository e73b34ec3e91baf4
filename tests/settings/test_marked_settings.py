"""Every setting has a test that is marked with it, and `make disconnected` finds the places that read settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings.model import Settings
from scripts.compiled import TOP
from scripts.disconnected import readings
from scripts.disconnected.__main__ import mistakes

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
FIELDS = ("max_bytes", "strict", "log_level")
TOY = '''
def build(settings):
    """Pass settings.max_bytes on."""
    log.info("starting", extra={"limit": settings.max_bytes})
    assert settings.max_bytes > 0, f"ä {settings.max_bytes}"
    policy = LegPolicy(is_strict=settings.strict)
    print(f"at most {settings.max_bytes} bytes"); return Reader("ä", settings.max_bytes, policy=policy)

class Reader:
    def __init__(self, name, max_bytes, policy, log_level="info"):
        self._max_bytes = max_bytes
        self._checks = Checks(policy.is_strict, log_level=log_level)

    def read(self, body):
        return decode(body, self._max_bytes) if len(body) < self._max_bytes else None
'''.encode()
FOUND = [
    ("strict", b"settings.strict"),
    ("max_bytes", b"settings.max_bytes"),
    ("max_bytes", b"max_bytes"),
    ("strict", b"policy.is_strict"),
    ("max_bytes", b"self._max_bytes"),
]


def test_every_setting_has_a_marked_test() -> None:
    assert readings.marks(TESTS).keys() == set(Settings.model_fields)


def test_code_reads_every_setting_and_no_exception_is_outdated() -> None:
    fields = list(Settings.model_fields)
    assert list(mistakes(fields, readings.all_readings(TOP), fields)) == []


def test_a_setting_that_nothing_reads_or_tests_is_a_mistake() -> None:
    everywhere = [each for each in readings.all_readings(TOP) if each.field != "peers"]
    assert list(mistakes(["auth", "peers", "pears"], everywhere, ["peers"])) == [
        "no test is marked with auth",
        "no code reads peers",
        "pears is not a setting",
    ]


def test_marks_are_found_on_functions_and_parameters(tmp_path: Path) -> None:
    file = tmp_path / "test_toy.py"
    mark = "pytest.mark." + "setting"
    file.write_text(f"@{mark}('a', 'b')\ndef test_one(): ...\n\nCASES = [pytest.param(1, marks={mark}('c'))]\n")
    assert readings.marks(tmp_path) == {name: {file} for name in "abc"}


def test_the_places_where_settings_are_read_and_passed_on_are_found() -> None:
    members = readings.members_of_policy([TOY])
    assert members == {"is_strict": "strict"}
    found = readings.readings_in("toy.py", TOY, FIELDS, members)
    assert [(each.field, TOY[each.start : each.end]) for each in found] == FOUND
    assert [each.text for each in found[:1]] == ["policy = LegPolicy(is_strict=settings.strict)"]
    assert all(TOY.splitlines()[each.line - 1].decode().strip() == each.text for each in found)


def test_a_property_of_the_settings_reads_them_and_a_check_does_not() -> None:
    source = (
        b"class Settings:\n    @property\n    def size(self):\n        return self.max_bytes or self.other\n\n"
        b"    def check(self):\n        return self.strict\n"
    )
    assert [each.field for each in readings.readings_in_properties("toy.py", source, FIELDS)] == ["max_bytes"]


@pytest.mark.parametrize("number", range(len(FOUND)))
def test_a_disconnected_reading_is_the_default_and_nothing_else_changes(number: int) -> None:
    members = readings.members_of_policy([TOY])
    reading = readings.readings_in("toy.py", TOY, FIELDS, members)[number]
    changed = readings.disconnect(TOY, reading, 17)
    assert changed[reading.start :].startswith(b"[17][0]")
    compile(changed, "toy.py", "exec")
    assert changed[: reading.start] + FOUND[number][1] + changed[reading.start + len(b"[17][0]") :] == TOY
