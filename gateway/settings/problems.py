"""Collects the problems of a configuration, so an operator sees all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import ConfigurationError


class Problems:
    """The problems found so far, one line each, in the order in which they were found."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, *lines: str) -> None:
        """Add problems, without duplicates."""
        self.lines += [line for line in dict.fromkeys(lines) if line not in self.lines]

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Collect the problems of a `ConfigurationError` raised in the block, and continue after the block."""
        try:
            yield
        except ConfigurationError as error:
            self.add(*error.problems)

    def raise_any(self) -> None:
        """Raise all collected problems as one `ConfigurationError`, if there are any."""
        if self.lines:
            raise ConfigurationError(*self.lines)
