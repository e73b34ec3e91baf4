"""Change a database exactly once, even if the step that does it runs twice.

Run it with ``BANK_FILE=bank.db gateway dev --tools transaction.py``.

A step runs at least once. If a process dies after the database has committed, but before the journal has the result,
the step runs again. So the transaction also stores the id of the step, which is the same each time. If the id is
already there, the money was moved, and the stored result is the result.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel

from gateway import Context, tool

TABLES = """
CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, euros INTEGER NOT NULL CHECK (euros >= 0));
CREATE TABLE IF NOT EXISTS done (step_id TEXT PRIMARY KEY, result INTEGER NOT NULL);
"""


class Confirm(BaseModel):
    """The form that the user fills in."""

    transfer: bool


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Open the database and a transaction, which is committed at the end and rolled back by an exception."""
    database = sqlite3.connect(os.environ["BANK_FILE"], timeout=10, isolation_level=None)
    try:
        database.execute("PRAGMA synchronous = FULL")
        database.executescript(TABLES)
        database.execute("BEGIN IMMEDIATE")  # takes the lock now: of two processes, one waits here
        yield database
        database.execute("COMMIT")
    finally:
        database.close()  # an open transaction is rolled back


def move(step_id: str, source: str, target: str, euros: int) -> int:
    """Move money, unless this step has done so before. Return what is left in the source account."""
    with transaction() as database:
        for (left,) in database.execute("SELECT result FROM done WHERE step_id = ?", [step_id]):
            return int(left)
        add(database, target, euros)
        left = add(database, source, -euros)
        # In the same transaction as the effect: either both are in the database or neither is.
        database.execute("INSERT INTO done VALUES (?, ?)", [step_id, left])
        return left


def add(database: sqlite3.Connection, name: str, euros: int) -> int:
    """Add money to an account, and return what it has then."""
    change = "UPDATE accounts SET euros = euros + ? WHERE name = ? RETURNING euros"
    for (now,) in database.execute(change, [euros, name]).fetchall():
        return int(now)
    raise LookupError(f"There is no account {name}.")


@tool
async def transfer(ctx: Context, source: str, target: str, euros: int) -> str:
    """Transfer money between two accounts."""
    if euros <= 0:
        return "Only positive amounts can be transferred."
    sure = await ctx.elicit("sure", f"Transfer {euros} euros from {source} to {target}?", Confirm)
    if not sure.transfer:
        return "Nothing was transferred."
    try:
        left = await ctx.step("move", move, ctx.step_id("move"), source, target, euros)
    except sqlite3.IntegrityError:
        return f"{source} does not have enough money."
    except LookupError as error:
        return str(error)
    return f"{source} has {left} euros left."
