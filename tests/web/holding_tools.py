"""A tool that waits until its test lets it continue."""

from __future__ import annotations

import asyncio

from gateway import tool


class Gate:
    """The event that calls wait for, whether one does, and how many have."""

    def clear(self) -> None:
        self.held, self._open = asyncio.Event(), asyncio.Event()
        self.waiting = 0

    def set(self) -> None:
        self._open.set()

    async def wait(self) -> None:
        self.held.set()
        self.waiting += 1
        await self._open.wait()


GATE = Gate()


@tool
async def hold() -> str:
    """Wait."""
    await GATE.wait()
    return "held"


@tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text
