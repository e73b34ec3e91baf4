"""Coverage-guided fuzzing of all parsers of untrusted input: `make fuzz`.

Usage: `python -m tests.fuzz.run [TARGET…]`, with atheris installed (`.venvs/fuzz`). The targets share `FUZZ_SECONDS`
(600) and run side by side on all cores, each from `FUZZ_SEED` (1) and its corpus in `tests/fuzz/corpus`. New
inputs go to `reports/fuzz/<target>` and are used again the next time. An input that breaks a promise is stored there as
`crash-…`; the run then exits with 1 and prints how to reproduce it.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
CORPUS: Final = HERE / "corpus"
FOUND: Final = Path("reports/fuzz")
MAX_INPUT_BYTES: Final = 4096
SLOWEST_INPUT_SECONDS: Final = 20
RSS_LIMIT_MB: Final = 2048
SHOWN_CHARACTERS: Final = 4000

_RUNS: Final = re.compile(r"^Done (\d+) runs", re.MULTILINE)


def main(names: Sequence[str]) -> int:
    """Fuzz the named targets, all without any; return the exit code."""
    from tests.fuzz.targets import chosen  # noqa: PLC0415 - a child instruments this import

    try:
        targets = list(chosen(names))
    except KeyError as error:
        print(f"{error.args[0]!r} is not a target", file=sys.stderr)
        return 2
    cores = min(os.cpu_count() or 1, len(targets))
    seconds = max(1, round(_number("FUZZ_SECONDS", 600) * cores / len(targets)))
    print(f"{len(targets)} targets, {seconds} seconds each, {cores} at a time")
    with ThreadPoolExecutor(cores) as pool:
        return max(pool.map(lambda name: _fuzz(name, seconds), targets))


def _number(variable: str, default: int) -> int:
    return int(os.environ.get(variable) or default)


def _fuzz(name: str, seconds: int) -> int:
    """Fuzz one target in a separate process, as libFuzzer ends its own process."""
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    options = {
        "seed": _number("FUZZ_SEED", 1),
        "max_total_time": seconds,
        "max_len": MAX_INPUT_BYTES,
        "timeout": SLOWEST_INPUT_SECONDS,
        "rss_limit_mb": RSS_LIMIT_MB,
        "artifact_prefix": f"{found}/",
    }
    command = [sys.executable, "-m", "tests.fuzz.run", "--child", name]
    command += [*(f"-{option}={value}" for option, value in options.items()), str(found), str(CORPUS / name)]
    child = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    runs = _RUNS.search(child.stderr)
    if child.returncode == 0 and runs is not None:
        print(f"{name:14} {int(runs[1]):>12,} inputs, none breaks a promise", flush=True)
        return 0
    report = "\n".join(line for line in child.stderr.splitlines() if not line.startswith(("#", "INFO:", "WARNING:")))
    shown = report[-SHOWN_CHARACTERS:] + child.stdout[-SHOWN_CHARACTERS:]  # the traceback is in the latter
    print(f"{name:14} BROKEN\n{shown}", file=sys.stderr, flush=True)
    print(
        f"Keep the input: copy it from {found}/crash-… to {CORPUS / name}; then `pytest tests/fuzz` shows it.",
        file=sys.stderr,
    )
    return 1


def fuzz_here(name: str, arguments: Sequence[str]) -> None:
    """Fuzz one target in this process; never returns."""
    atheris: Any = importlib.import_module("atheris")  # only the fuzzer's environment has it
    with atheris.instrument_imports(include=["gateway"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - instrumented here

    target: Callable[[bytes], Any] = TARGETS[name]
    atheris.Setup([name, *arguments], target)
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        fuzz_here(sys.argv[2], sys.argv[3:])
    sys.exit(main(sys.argv[1:]))
