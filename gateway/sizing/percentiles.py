"""Pure: percentiles as this package counts them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def nearest_rank(ascending: Sequence[float], share: float) -> float:
    """Return one of the values: the one that this share of all does not exceed; NaN of none."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)] if ascending else math.nan
