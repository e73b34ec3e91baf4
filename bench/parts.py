"""The cost of the parts of a leg: the token that carries its state, and the cipher in it."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

from bench import goals
from bench.cases import answering, check_question
from bench.clients import Answer, WrongAnswer
from bench.counts.cases import NUMBER, SEAL_KEYS, greet, make_replica
from bench.options import Options
from bench.report import Section
from bench.servers import Cores
from bench.tables import table
from gateway.sealing.cipher import NONCE_BYTES, Cipher
from gateway.sealing.envelope import SEALS_PER_PREFIX, Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.state import open_state, seal_state

KIB: Final = 1024
CODECS: Final = {1: goals.CODEC_1_KIB, 64: goals.CODEC_64_KIB}
"""KiB in the token → its goal."""
STATE_BYTES: Final = 200
"""About the size of the state of a call with one question."""
TIMES: Final = 200
LEG_TIMES: Final = 50


def section(options: Options, _cores: Cores) -> Section:
    """Measure the parts and sum them up."""
    codec = {kib: least_us(options.rounds, TIMES, _codec(kib * KIB)) for kib in CODECS}
    cipher = least_us(options.rounds, TIMES, _cipher(STATE_BYTES, new_schedules=False))
    schedule = least_us(options.rounds, TIMES, _cipher(STATE_BYTES, new_schedules=True)) - cipher
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        leg = runner.run(_leg_us(options.rounds))
    share = (cipher + schedule / SEALS_PER_PREFIX) / leg
    verdicts = [
        goals.CIPHER_SHARE.judge(100 * share, f"{100 * share:.1f} %, {cipher:.1f} of {leg:.0f} µs"),
        *(goal.judge(codec[kib]) for kib, goal in CODECS.items()),
    ]
    lines = [
        "## Parts",
        "",
        "CPU time in process, the lowest of all rounds. The leg opens the state of its call and seals the next.",
        "",
        *table(
            ("part", "µs"),
            (
                *((goal.what, f"{codec[kib]:.1f}") for kib, goal in CODECS.items()),
                (f"cipher, both ways, {STATE_BYTES} bytes", f"{cipher:.1f}"),
                (f"new key schedules, both ways, once in {SEALS_PER_PREFIX:,} seals", f"{schedule:.1f}"),
                ("a leg", f"{leg:.1f}"),
            ),
        ),
    ]
    document = {
        "codec_us": {f"{kib} KiB": value for kib, value in codec.items()},
        "cipher_us": cipher,
        "schedule_us": schedule,
        "leg_us": leg,
    }
    return Section("parts", "modules and a replica in this process", "\n".join(lines) + "\n", document, verdicts)


def least_us(rounds: int, times: int, work: Callable[[], object]) -> float:
    """Return the CPU time of `work` in microseconds, the lowest of `rounds` rounds of `times` runs each."""
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


def _cipher(size: int, *, new_schedules: bool) -> Callable[[], object]:
    """Encrypt and decrypt this many bytes, by default with existing key schedules, as a replica nearly always does."""
    cipher, plaintext, same = Cipher(os.urandom(32)), os.urandom(size), os.urandom(NONCE_BYTES)

    def both_ways() -> object:
        nonce = os.urandom(NONCE_BYTES) if new_schedules else same
        return cipher.open(cipher.seal(plaintext, b"aad", nonce), b"aad", nonce)

    return both_ways


async def _leg_us(rounds: int) -> float:
    """Return the CPU time of the middle leg of a call with two questions, which opens a state and seals one."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with make_replica(Path(folder), "bench.tools").running() as replica:
            asked = _question(await replica.exchange(greet(2, {})))
            leg, least = greet(2, answering(asked, "Ada")), float("inf")
            _question(await replica.exchange(leg))
            for _ in range(max(rounds, 3)):
                before = time.process_time()
                for _ in range(LEG_TIMES):
                    await replica.exchange(leg)
                least = min(least, (time.process_time() - before) * 1e6 / LEG_TIMES)
    return least


def _question(answer: Answer) -> bytes:
    """Return the body of an answer that must be a question.

    Raises:
        WrongAnswer: it is not.
    """
    problem = check_question(answer.body, NUMBER)
    if problem is not None:
        raise WrongAnswer(problem)
    return answer.body
