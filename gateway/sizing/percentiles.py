"""Pure: the percentiles of this package."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed; NaN if there are none."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)] if ascending else math.nan
