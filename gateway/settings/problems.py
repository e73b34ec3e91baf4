"""Collects what is wrong with a configuration, so that an operator sees all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import ConfigurationError


class Problems:
    """What was found wrong so far, one line each, in the order in which it was found."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, *lines: str) -> None:
        """Note problems, each once."""
        self.lines += [line for line in dict.fromkeys(lines) if line not in self.lines]

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the problems of a `ConfigurationError` raised in the block, and go on after it."""
        try:
            yield
        except ConfigurationError as error:
            self.add(*error.problems)

    def raise_any(self) -> None:
        """Raise what was noted.

        Raises:
            ConfigurationError: something was noted; it has all of it.
        """
        if self.lines:
            raise ConfigurationError(*self.lines)
