"""Pure: rates of requests, as settings write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MAX_REQUESTS: Final = 1_000_000
"""The highest number in a rate. A higher limit would never be reached."""

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_RATE: Final = re.compile(r"([0-9]{1,7})/([smh])(?:\s+burst\s+([0-9]{1,7}))?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of requests, averaged over time.

    A caller may send `burst` requests at once after sending none for long enough.
    """

    requests: int
    seconds: int
    burst: int

    def __str__(self) -> str:
        """Return the rate as `parse_rate` reads it."""
        unit = next(name for name, seconds in _SECONDS.items() if seconds == self.seconds)
        burst = "" if self.burst == self.requests else f" burst {self.burst}"
        return f"{self.requests}/{unit}{burst}"


def parse_rate(text: str) -> Rate:
    """Parse a rate: `100/s`, `600/m` or `1000/h`, with an optional burst as in `100/s burst 200`.

    Without a burst, all requests of one unit of time may come at once.

    Raises:
        ValueError: the text is not a rate, or a number in it is 0 or above `MAX_REQUESTS`.
    """
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise ValueError("not a rate")
    count, unit, at_once = found.groups()
    requests = int(count)
    burst = requests if at_once is None else int(at_once)
    if not 1 <= requests <= MAX_REQUESTS or not 1 <= burst <= MAX_REQUESTS:
        raise ValueError(f"the numbers must be between 1 and {MAX_REQUESTS}")
    return Rate(requests, _SECONDS[unit.lower()], burst)
