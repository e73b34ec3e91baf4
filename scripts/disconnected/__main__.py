"""Disconnect each setting wherever the code reads it, and run the tests that are marked with it.

`make disconnected` does this in copies of the tree. It replaces one reading at a time with the setting's default, as if
somebody had forgotten to pass the setting on. A marked test must then fail:

    @pytest.mark.setting("max_json_depth")

`SETTINGS` may name the settings to try, separated by spaces.
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gateway.settings.model import Settings
from scripts.compiled import TOP
from scripts.disconnected.copies import Copy, Marked
from scripts.disconnected.readings import WITHOUT_EFFECT, Reading, all_readings, marks

COPIES: Final = 2


def main() -> int:
    """Disconnect the readings of the chosen settings, and return 1 if no test notices one of them."""
    began = time.monotonic()
    chosen = os.environ.get("SETTINGS", "").split() or list(Settings.model_fields)
    everywhere, found = all_readings(TOP), marks(TOP / "tests")
    readings = [each for each in everywhere if each.field in chosen and each.place not in WITHOUT_EFFECT]
    problems = list(mistakes(chosen, everywhere, found.keys()))
    paths = sorted({str(path.relative_to(TOP)) for field in chosen for path in found.get(field, ())})
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(COPIES)]
        tests = run_unchanged(copies, paths)
        problems += [f"{each.test} fails while every setting has its effect" for each in tests if not each.passed]
        by_field = {field: tests_of(field, tests) for field in chosen}
        tried = [each for each in readings if by_field[each.field]]
        problems += [f"pytest finds no test that is marked with {field}" for field in chosen if not by_field[field]]
        unnoticed = try_all(copies, tried, by_field)
    for problem in problems:
        print(problem)
    print(
        f"{len(tried)} of {len(readings)} readings tried: {len(tried) - unnoticed} noticed, {unnoticed} unnoticed; "
        f"{len(chosen)} settings, {len(tests)} marked tests, {time.monotonic() - began:.0f} seconds"
    )
    return 1 if problems or unnoticed else 0


def mistakes(chosen: list[str], everywhere: list[Reading], marked: Collection[str]) -> Iterator[str]:
    """Yield what makes a run worthless, whatever the tests say."""
    read = {each.field for each in everywhere}
    for field in chosen:
        if field not in Settings.model_fields:
            yield f"{field} is not a setting"
        elif field not in read:
            yield f"no code reads {field}"
        elif field not in marked:
            yield f"no test is marked with {field}"
    for path, text in WITHOUT_EFFECT.keys() - {each.place for each in everywhere}:
        yield f"{path} no longer reads a setting in {text!r}"


def run_unchanged(copies: list[Copy], paths: list[str]) -> list[Marked]:
    """Run the marked tests of these files on the unchanged code, a share of the files in each copy."""
    shares = [paths[number :: len(copies)] for number in range(len(copies))]
    with ThreadPoolExecutor() as threads:
        found = threads.map(lambda copy, share: copy.run_marked(share) if share else [], copies, shares)
        return [test for tests in found for test in tests]


def tests_of(field: str, tests: Iterable[Marked]) -> list[str]:
    """Return the tests that are marked with a setting, fastest first."""
    return [each.test for each in sorted(tests, key=lambda each: each.seconds) if field in each.settings]


def try_all(copies: list[Copy], readings: list[Reading], tests: Mapping[str, list[str]]) -> int:
    """Disconnect readings in all copies at once, print what notices each, and return how many nothing notices."""
    waiting: queue.SimpleQueue[Reading | None] = queue.SimpleQueue()
    for each in (*readings, *(None for _ in copies)):
        waiting.put(each)

    def run(copy: Copy) -> int:
        unnoticed = 0
        for reading in iter(waiting.get, None):
            noticed_by = copy.noticed_by(reading, tests[reading.field])
            unnoticed += noticed_by is None
            result = noticed_by or f"SURVIVED  {reading.text}"
            print(f"{reading.field}  {reading.path}:{reading.line}  {result}", flush=True)
        return unnoticed

    with ThreadPoolExecutor() as threads:
        return sum(threads.map(run, copies))


if __name__ == "__main__":
    sys.exit(main())
