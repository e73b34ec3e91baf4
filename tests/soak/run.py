"""`make soak`: customers run tasks of every kind while everything fails at random; in the end the ledger balances.

`SOAK_SECONDS` (600) is the duration. `SOAK_SEED` decides which faults strike in which order and what customers do; if
unset, it is random and printed. Exit codes: 0 every task is accounted for exactly once, 1 one is not. Then the logs of
all processes, the store's append-only file and the record of side effects are kept, and their directory is printed.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import httpx

from tests.soak.customers import Customer, Market
from tests.soak.effects import read_effects
from tests.soak.ground import OTHER_FAULTS, PATIENCE_SECONDS, PROCESS_FAULTS, STORE_FAULTS, TTL_SECONDS, Fault, Ground
from tests.soak.history import read_history, read_lost
from tests.soak.ledger import Ledger
from tests.soak.orders import POST
from tests.soak.wired import DraftCustomer, SessionCustomer

TOOLS: Final = "tests.soak.tools"
CUSTOMERS: Final = (*[Customer] * 12, *[SessionCustomer] * 4, *[DraftCustomer] * 4)
Lanes: TypeAlias = Sequence[tuple[Mapping[str, Fault], tuple[float, float]]]
LANES: Final[Lanes] = ((PROCESS_FAULTS, (0.2, 2.0)), (STORE_FAULTS, (1.0, 5.0)), (OTHER_FAULTS, (3.0, 10.0)))
"""Faults that strike one after the other, and the seconds of quiet between two. No lane waits for another."""

REPORT_SECONDS: Final = 30.0
CONNECTION_SECONDS: Final = 10.0


def soak(
    directory: Path, seconds: float, seed: int, tools: str = TOOLS, *, lanes: Lanes = LANES, kinds: Sequence[str] = ()
) -> Ledger:
    """Soak for `seconds`, and return the ledger.

    Args:
        directory: for logs, keys, effects and the store.
        seconds: how long faults strike and orders are placed.
        seed: decides what happens, as far as possible.
        tools: the modules with the tools.
        lanes: the faults.
        kinds: what customers order, if not everything.
    """
    with Ground(directory, tools) as ground:
        market = Market(ground.url, ground.tokens(seconds + 3600), TTL_SECONDS, seed, kinds)
        asyncio.run(_trade(ground, market, seconds, lanes))
        rest = ground.leave()
    return Ledger(
        market.orders,
        read_effects(directory),
        read_history(ground.store.folders),
        rest,
        incidents=ground.incidents,
        faults=ground.struck,
        lost=read_lost(ground.store.folders),
    )


async def _trade(ground: Ground, market: Market, seconds: float, lanes: Lanes) -> None:
    """Let customers place orders while faults strike; then let them follow their orders to the end."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=len(CUSTOMERS))
    async with httpx.AsyncClient(timeout=CONNECTION_SECONDS, limits=limits, trust_env=False, verify=False) as http:
        customers = [kind(number, market, http) for number, kind in enumerate(CUSTOMERS)]
        ground.crowd = _crowd(Customer(len(customers), market, http))
        buying = [asyncio.create_task(customer.buy()) for customer in customers]
        striking = [
            asyncio.create_task(_strike(ground, market, faults, quiet, random.Random(f"{market.seed} lane {number}")))
            for number, (faults, quiet) in enumerate(lanes)
        ]
        telling = asyncio.create_task(_tell(ground, market))
        await asyncio.sleep(seconds)
        market.closed = True
        await asyncio.gather(*striking)
        await asyncio.wait(buying, timeout=PATIENCE_SECONDS)
        for task in (*buying, telling):
            task.cancel()
        await asyncio.gather(*buying, telling, return_exceptions=True)
        await asyncio.gather(*(customer.check_all() for customer in customers))


def _crowd(customer: Customer) -> Callable[[int], int]:
    """Return a function for other threads that places many orders at once, and returns how many were refused."""
    loop = asyncio.get_running_loop()

    async def place(count: int) -> int:
        orders = await asyncio.gather(*(customer.place(POST) for _ in range(count)))
        return sum(order.refused for order in orders)

    return lambda count: asyncio.run_coroutine_threadsafe(place(count), loop).result()


async def _strike(
    ground: Ground, market: Market, faults: Mapping[str, Fault], quiet: tuple[float, float], chance: random.Random
) -> None:
    """Let one fault strike after the other, in changing order, each equally often."""
    deck: list[str] = []
    while not market.closed:
        if not deck:
            deck = chance.sample(list(faults), len(faults))
        # Whatever a fault draws, the next ones stay the same.
        own = random.Random(chance.random())
        await asyncio.to_thread(ground.strike, deck.pop(), own)
        await asyncio.sleep(own.uniform(*quiet))


async def _tell(ground: Ground, market: Market) -> None:
    """Print the progress now and then."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        tasks = sum(order.task_id is not None for order in market.orders)
        ended = sum(order.final is not None for order in market.orders)
        faults = ground.struck.total()
        print(f"{time.monotonic() - began:5.0f} s: {tasks:,} tasks, {ended:,} ended, {faults} faults", flush=True)


def main() -> int:
    """Soak as configured in the environment, and return the exit code."""
    seconds = float(os.environ.get("SOAK_SECONDS") or 600)
    seed = int(os.environ.get("SOAK_SEED") or random.randrange(1_000_000))
    directory = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"soaking for {seconds:g} seconds in {directory}, SOAK_SEED={seed}", flush=True)
    ledger = soak(directory, seconds, seed)
    print(f"\n{ledger.report()}")
    if ledger.balanced:
        shutil.rmtree(directory)
        return 0
    print(f"The logs, the store's file and the record of side effects are in {directory}; this was SOAK_SEED={seed}.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
