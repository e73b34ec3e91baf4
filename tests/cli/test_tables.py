"""Tables and durations for people."""

from __future__ import annotations

import pytest

from gateway.cli.tables import duration, moment, table


def test_columns_are_as_wide_as_their_longest_cell_and_lines_have_no_blanks_at_the_end() -> None:
    assert list(table(("ID", "TOOL"), ("t_1", "x"), ("t_12345", ""))) == ["ID       TOOL", "t_1      x", "t_12345"]


def test_what_could_change_a_terminal_is_replaced() -> None:
    assert list(
        table(
            ("\x1b[2J", "a\nb\u202e"),
        )
    ) == ["?[2J  a?b?"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0.4, "0s"), (59, "59s"), (60, "1m 0s"), (7500, "2h 5m"), (86_400, "1d 0h"), (273_600, "3d 4h")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_moment_is_written_as_in_the_log() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
