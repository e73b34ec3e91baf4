"""The tools of our server where it is compared with others: as many as theirs, and the same."""

from bench.tools import ask, carry, echo

__all__ = ["ask", "carry", "echo"]
