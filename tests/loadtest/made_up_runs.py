"""Raw data of runs that never were, small and always the same, for the tests of those who read it."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]
Tools = Mapping[str, float]


class MadeUpRun:
    """A run that can be written down as raw data.

    Args:
        scenario: its name.
        seconds: how long it took.
    """

    def __init__(self, scenario: str = "made-up", seconds: float = 20.0) -> None:
        self.about: Line = {
            "scenario": scenario,
            "started": "2026-08-01T12:00:00+00:00",
            "seconds": seconds,
            "users": {"ephemeral": 20},
            "replicas": 2,
            "workers": 0,
            "settings": {},
            "bounds": [],
            "peer": None,
        }
        self.legs: list[Line] = []
        self.calls: list[Line] = []
        self.events: list[Line] = []
        self.samples: list[Line] = []
        self._numbers = itertools.count(1)

    def call(
        self,
        t: float,
        replicas: Sequence[str] = ("replica-1",),
        *,
        leg_seconds: float = 0.01,
        tool: str = "get_weather",
        outcome: str = "finished",
        last: str = "completed",
        middle: str = "input_required",
        reason: str = "",
        user: str = "ephemeral",
    ) -> None:
        """Add a call that takes one leg at each of these replicas.

        Args:
            t: when it began.
            replicas: who answers.
            leg_seconds: how long each leg takes.
            tool: what is called.
            outcome: how the call ended.
            last: how its last leg ended.
            middle: how the legs before ended.
            reason: why, for the call and its last leg.
            user: the kind of user.
        """
        call, begin = f"call-{next(self._numbers)}", t
        shared = {"user": user, "call": call, "tool": tool}
        for number, replica in enumerate(replicas, 1):
            is_last = number == len(replicas)
            self.legs.append({
                "t": t, "seconds": leg_seconds, **shared, "leg": number, "method": "tools/call", "replica": replica,
                "status": 200 if replica else 0, "outcome": last if is_last else middle,
                "reason": reason if is_last else "", "state_bytes": 0 if is_last else 300,
            })  # fmt: skip
            t += leg_seconds
        self.calls.append({
            "t": begin, "seconds": t - begin, **shared, "legs": len(replicas),
            "hops": sum(one != other for one, other in itertools.pairwise(replicas)),
            "sheds": sum(leg == "shed" for leg in [middle] * (len(replicas) - 1)), "refusals": int(last == "refused"),
            "retries": 0, "asked": {"github_login": 1} if len(replicas) > 1 else {}, "outcome": outcome,
            "reason": reason,
        })  # fmt: skip

    def event(self, t: float, what: str, detail: str = "") -> None:
        """Add something that was done to the deployment."""
        self.events.append({"t": t, "what": what, "detail": detail})

    def judge(self, *reasons: tuple[str, str, str, bool]) -> None:
        """Give it a verdict: what, bound, measured, passed."""
        named = [dict(zip(("what", "bound", "measured", "passed"), reason, strict=True)) for reason in reasons]
        self.about["verdict"] = {"passed": all(reason[-1] for reason in reasons), "reasons": named}

    def write(self, directory: Path) -> Path:
        """Write it down, and return the directory."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "run.json").write_text(json.dumps(self.about))
        for name, lines in (("legs", self.legs), ("calls", self.calls)):
            _write(directory / f"{name}.jsonl", sorted(lines, key=lambda line: line["t"] + line["seconds"]))
        _write(directory / "events.jsonl", self.events)
        _write(directory / "metrics.jsonl", self.samples)
        return directory


def _write(path: Path, lines: Iterable[Line]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def steady(
    run: MadeUpRun, rate: float, alive: Callable[[float], Sequence[str]], tools: Tools, *, seed: int = 1
) -> None:
    """Add calls of two legs to a run, evenly over its time.

    Args:
        run: where they go.
        rate: how many calls begin a second.
        alive: tells who answers at a time.
        tools: each tool, and how long its legs take in the middle.
        seed: makes other runs with another.
    """
    chance = random.Random(seed)
    for number in range(int(run.about["seconds"] * rate)):
        t = number / rate
        tool = chance.choice(list(tools))
        answering = [chance.choice(alive(t)) for _ in range(2)]
        run.call(t, answering, tool=tool, leg_seconds=tools[tool] * chance.lognormvariate(0, 0.5))
