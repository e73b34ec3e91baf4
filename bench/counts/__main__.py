"""Count the cost of requests, and compare it with the accepted numbers.

Exit code 0: all numbers are as accepted; 1: some differ; 2: the count failed; 3: there are no accepted numbers for
this version of Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from bench.clients import WrongAnswer
from bench.counts import functions, shares
from bench.counts.accepted import NUMBERS, PYTHON, Accepted, Difference
from bench.counts.meters import TOP
from bench.counts.run import Counted, count
from bench.load import LoadError
from bench.servers import ServerError
from bench.tables import table

COMMAND = "python -m bench.counts"
FILE = NUMBERS.relative_to(TOP)
LOWER = f"The cost went down. Accept it with {COMMAND} --write, and commit {FILE} with the change that caused it."
RAISE = f'The cost went up. If it is worth it: {COMMAND} --raise "why", which records the reason in {FILE}.'
UNKNOWN = f"{FILE} has no accepted numbers for Python {PYTHON}. {COMMAND} --write accepts the current ones."


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and return the exit code of the module's docstring."""
    given = _parse(arguments)
    try:
        counted = count(lambda name: name in shares.LEGS if given.shares else given.only is None or given.only in name)
    except (WrongAnswer, LoadError, ServerError) as error:
        print(f"counts: {error}", file=sys.stderr)
        return 2
    if not counted:
        print(f"counts: no case has a name with {given.only!r}", file=sys.stderr)
        return 2
    if given.functions or given.functions_to is not None or given.shares:
        return _show(given, counted)
    accepted = Accepted.load()
    if given.reason is not None:
        accepted.replace(counted, given.reason)
        accepted.save()
        print(f"Written to {FILE}.")
        return 0
    return _write(accepted, counted) if given.write else _compare(accepted, counted, partly=given.only is not None)


def _show(given: argparse.Namespace, counted: Mapping[str, Counted]) -> int:
    """Show the counts without comparing them."""
    if given.shares:
        return _show_shares(counted)
    if given.functions:
        _show_functions(counted)
    else:
        functions.write(given.functions_to, {case: now.functions for case, now in counted.items()})
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="count only the cases whose names contain this")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="accept lower numbers and new cases")
    what.add_argument("--raise", dest="reason", metavar="WHY", help="accept all current numbers, including higher ones")
    what.add_argument("--functions", action="store_true", help="show the functions with the most instructions")
    what.add_argument(
        "--functions-to", metavar="FILE", type=Path, help="write the instructions of each function, as JSON"
    )
    what.add_argument("--shares", action="store_true", help="show the modules that the instructions of a leg are in")
    given = parser.parse_args(arguments)
    if given.only is not None and (given.write or given.reason is not None):
        parser.error("--only cannot be used with options that write accepted numbers, which cover all cases")
    if given.reason is not None and not given.reason.strip():
        parser.error("say why")
    return given


def _write(accepted: Accepted, counted: Mapping[str, Counted]) -> int:
    worse = [difference for difference in accepted.differences(counted) if difference.is_worse]
    if worse:
        _tell(worse, counted)
        print(RAISE)
        return 1
    accepted.lower(counted)
    accepted.save()
    print(f"Written to {FILE}.")
    return 0


def _compare(accepted: Accepted, counted: Mapping[str, Counted], *, partly: bool) -> int:
    print("\n".join(table(("case", *next(iter(counted.values())).numbers), map(_row, counted.items()))) + "\n")
    if not accepted.numbers:
        print(UNKNOWN)
        return 3
    differences = [
        difference for difference in accepted.differences(counted) if not partly or difference.counted is not None
    ]
    _tell(differences, counted)
    if any(difference.is_worse for difference in differences):
        print(RAISE)
    elif differences:
        print(LOWER)
    else:
        print("As accepted.")
    return 1 if differences else 0


def _row(item: tuple[str, Counted]) -> list[str]:
    case, counted = item
    return [case, *(f"{number:,}" for number in counted.numbers.values())]


def _tell(differences: Sequence[Difference], counted: Mapping[str, Counted]) -> None:
    """Print the differences, and the functions that they come from."""
    before = functions.count_before(NUMBERS) if differences else {}
    changed = {}
    for case, of_case in groupby(differences, key=lambda difference: difference.case):
        print("\n".join(map(str, of_case)))
        if case in before and case in counted:
            changed[case] = functions.changed(before[case], counted[case].functions)
            print(f"{case}: instructions of {functions.in_words(changed[case])}")
    if changed:
        functions.write(functions.FILE, changed)
        print(f"All differences by function: {functions.FILE.relative_to(TOP)}")


def _show_shares(counted: Mapping[str, Counted]) -> int:
    largest, compiled = shares.largest_shares(counted), shares.compiled_modules()
    print("\n".join(shares.lines(largest, compiled)))
    leaving = shares.leaving(largest, compiled)
    for module in leaving:
        print(f"Remove {module} from setup.py: less than {shares.LEAST_PERCENT} percent of every leg.")
    return 1 if leaving else 0


def _show_functions(counted: Mapping[str, Counted]) -> None:
    for case, now in counted.items():
        total = sum(now.functions.values())
        most = sorted(now.functions.items(), key=lambda item: (-item[1], item[0]))
        print(f"\n{case}: {total:,} instructions")
        for name, number in most[:40]:
            print(f"{number:7,}  {number / total:4.0%}  {name}")


if __name__ == "__main__":
    sys.exit(main())
