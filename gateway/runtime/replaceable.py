"""A value that changes while others use it, in any thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Replaceable(Generic[T]):
    """The current value. Those who keep something made from it compare it with the value that they used."""

    value: T
