"""The tools by which the upstream breaks calls, for the server and for the caller that calls them."""

from __future__ import annotations

FAILS = "fails"
HANGS = "hangs"
HUGE = "huge"
HUGE_BYTES = 2 * 2**20
