"""The tools of our server in comparisons: the same as those of its peers."""

from bench.tools import ask, carry, echo

__all__ = ["ask", "carry", "echo"]
