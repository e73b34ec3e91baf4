"""The output of the command at the end of a run."""

from __future__ import annotations

import pytest

from loadtest.__main__ import _tell
from loadtest.scenario import SOUND
from loadtest.verdict import judge
from tests.loadtest.runs import call, leg, marked


def test_no_line_ends_without_a_reason_or_sounds_as_if_somebody_was_asked_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls = [call(t, asked={"who": 1}) for t in range(10)]
    run = marked(
        (10.0, "the users stop"), legs=[leg(t) for t in range(10)], calls=[*calls, call(9, "unfinished", reason="")]
    )

    _tell(run, judge(run, SOUND))

    printed = capsys.readouterr().out
    assert "1  not finished: no reason given" in printed
    assert "ok  Questions asked again in the same call: 0 (at most 0)" in printed
    assert "for 9.9 s from: the users start" in printed
    assert not [line for line in printed.splitlines() if line.endswith((": ", ":")) and line != "Per second:"]
    assert printed.endswith("PASSED\n")
