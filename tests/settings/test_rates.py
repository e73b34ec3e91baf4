"""Rates, as operators write them."""

from __future__ import annotations

import pytest

from gateway.settings.rates import MAX_REQUESTS, Rate, parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/s", Rate(100, 1, 100)),
        ("600/m", Rate(600, 60, 600)),
        ("1000/h", Rate(1000, 3600, 1000)),
        ("100/s burst 200", Rate(100, 1, 200)),
        ("  5/S   BURST   1 ", Rate(5, 1, 1)),
        (f"{MAX_REQUESTS}/s burst {MAX_REQUESTS}", Rate(MAX_REQUESTS, 1, MAX_REQUESTS)),
    ],
)
def test_a_rate_is_so_many_requests_a_unit_of_time_and_so_many_at_once(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate
    assert parse_rate(str(rate)) == rate


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "100",
            "/s",
            "100/",
            "100/d",
            "100/sec",
            "-1/s",
            "1.5/s",
            "1e3/s",
            "100 / s",
            "100/s 200",
            "100/sburst 2",
        ),
        *(
            "0/s",
            "5/s burst 0",
            "5/s burst",
            "1000001/s",
            "5/s burst 9999999",
            "99999999/s",
            "٣/s",
            "100/s\nburst\n2 x",
        ),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a rate|the numbers"):
        parse_rate(text)
