"""Servers of the SDKs on standard streams, behind two replicas: results are those of direct calls, to the byte."""

from __future__ import annotations

from tests.published.checks import (
    test_a_result_is_that_of_a_direct_call,
    test_every_tool_is_listed_and_is_called_here_or_says_why_not,
)

__all__ = [
    "test_a_result_is_that_of_a_direct_call",
    "test_every_tool_is_listed_and_is_called_here_or_says_why_not",
]

FILE = "sdks"
