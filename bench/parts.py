"""What parts of a leg cost by themselves: the token that carries its state, and the cipher in it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

from bench.counts.cases import SEAL_KEYS, last_leg, make_replica
from bench.options import Options
from bench.report import Goal, Section, goals_document, goals_table
from bench.servers import Cores
from gateway.sealing.cipher import NONCE_BYTES, Cipher
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.state import open_state, seal_state

KIB: Final = 1024
CODEC_MOST_US: Final = {1: 10.0, 64: 150.0}
"""By KiB of what the token carries."""
CIPHER_SHARE: Final = 0.05
STATE_BYTES: Final = 200
"""About what the state of a call with one question holds."""
TIMES: Final = 200
LEG_TIMES: Final = 50


def section(options: Options, _cores: Cores) -> Section:
    """Measure the parts and sum them up."""
    codec = {kib: least_us(options.rounds, TIMES, _codec(kib * KIB)) for kib in CODEC_MOST_US}
    cipher = least_us(options.rounds, TIMES, _cipher(STATE_BYTES))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        leg = runner.run(_leg_us(options.rounds))
    goals = [
        *(
            Goal(
                f"a token of {kib} KiB sealed and opened in at most {most:g} µs",
                f"{codec[kib]:.1f} µs",
                codec[kib] <= most,
            )
            for kib, most in CODEC_MOST_US.items()
        ),
        Goal(
            f"the cipher takes at most {CIPHER_SHARE:.0%} of a leg, both ways",
            f"{cipher:.1f} of {leg:.0f} µs, {cipher / leg:.1%}",
            cipher / leg <= CIPHER_SHARE,
        ),
    ]
    lines = ["## Parts", "", "CPU time in process, the least of all rounds.", "", *goals_table(goals)]
    document = {
        "goals": goals_document(goals),
        "codec_us": {f"{kib} KiB": value for kib, value in codec.items()},
        "cipher_us": cipher,
        "leg_us": leg,
    }
    return Section("parts", "\n".join(lines) + "\n", document)


def least_us(rounds: int, times: int, work: Callable[[], object]) -> float:
    """The CPU time of `work` in microseconds, the least of some rounds of so many times each."""
    work()
    least = float("inf")
    for _ in range(max(rounds, 3)):
        before = time.process_time()
        for _ in range(times):
            work()
        least = min(least, (time.process_time() - before) * 1e6 / times)
    return least


def _codec(size: int) -> Callable[[], object]:
    """Seal a journal of this size, and open the token."""
    sealer, journal, now = Sealer(KeyRing.parse(SEAL_KEYS), os.urandom), {"text": "x" * size}, time.time()

    def both_ways() -> object:
        token = seal_state(sealer, journal, aad=b"aad", now=now, expires_at=now + 60, max_bytes=2**20)
        return open_state(sealer, token, aad=b"aad", now=now, max_bytes=2**20)

    return both_ways


def _cipher(size: int) -> Callable[[], object]:
    """Encrypt and decrypt this many bytes; the key schedule is made once for many, as in a replica."""
    cipher, nonce, plaintext = Cipher(os.urandom(32)), os.urandom(NONCE_BYTES), os.urandom(size)
    return lambda: cipher.open(cipher.seal(plaintext, b"aad", nonce), b"aad", nonce)


async def _leg_us(rounds: int) -> float:
    """The CPU time of the last leg of a call with one question."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with make_replica(Path(folder), "bench.tools").running() as replica:
            case, least = await last_leg(replica, 1), float("inf")
            await case.send(0)
            for _ in range(max(rounds, 3)):
                before = time.process_time()
                for _ in range(LEG_TIMES):
                    await replica.exchange(case.requests[0])
                least = min(least, (time.process_time() - before) * 1e6 / LEG_TIMES)
    return least
