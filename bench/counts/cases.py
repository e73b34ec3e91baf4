"""The counted cases: requests to a replica set up as in production, and their expected answers."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from bench import servers
from bench.cases import FORMS_AND_TASKS, answering, call, check_complete, check_question, request
from bench.clients import Answer, WrongAnswer
from bench.counts.replica import PORT, Replica
from gateway.admission.leg_limit import FixedLimit
from gateway.auth.tokens import mint
from gateway.process.replica import build
from gateway.sealing.keyring import generate_entry
from gateway.settings.model import Settings

Check = Callable[[Answer], str | None]
"""Returns what is wrong with an answer, or None."""

STORE_SECONDS: Final = 0.001
"""How long to wait so that the task store has always answered when the event loop looks next, and never by chance."""

NUMBER: Final = 1000
TEXT: Final = "hello from request 1000"
SECRET: Final = "a-secret-for-tokens-of-this-process-alone-0123456789"
AUDIENCE: Final = "bench"
SEAL_KEYS: Final = generate_entry(secrets.token_bytes)
"""Shared by all replicas of this process."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request that is counted repeatedly.

    Attributes:
        requests: sent in turn; they differ only where the same request cannot be sent twice.
        check: checks each answer.
        meanwhile: a context manager, entered while they are sent.
    """

    name: str
    replica: Replica
    requests: Sequence[bytes]
    check: Check
    meanwhile: Callable[[], Any] = nullcontext

    async def send(self, number: int, meter: Any = None) -> None:
        """Send the next request in turn, and check the answer.

        Raises:
            WrongAnswer: the answer is wrong.
        """
        answer = await self.replica.exchange(self.requests[number % len(self.requests)], meter)
        problem = self.check(answer)
        if problem is not None:
            raise WrongAnswer(f"{self.name}: {problem}")


@asynccontextmanager
async def all_cases(tokens: int) -> AsyncIterator[list[Case]]:
    """Start the replicas and the store, and make all cases.

    Args:
        tokens: how many requests need different tokens.

    Raises:
        WrongAnswer: a call failed before the leg that is counted.
        ServerError: there is no Redis server.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        redis = stack.enter_context(servers.redis_server(None))
        plain, many, stored = [
            await stack.enter_async_context(make_replica(folder, tools, **more).running())
            for tools, more in (
                ("bench.tools", {}),
                ("bench.many_tools", {}),
                (
                    "bench.tools",
                    {"redis_url": redis.url, "tasks_per_principal": 1_000_000, "task_bytes_per_principal": 2**40},
                ),
            )
        ]
        stored.patience_seconds = STORE_SECONDS
        yield [
            *_plain_cases(plain, tokens),
            *[case for count in (1, 3) for case in await _rounds(plain, count)],
            *[await last_leg(plain, count) for count in (10, 50)],
            *[await carrying(plain, kib) for kib in (16, 64)],
            Case("echo, 1,000 tools", many, [echo()], completes(TEXT)),
            Case("create a task", stored, [create()], creates),
        ]


def make_replica(folder: Path, tools: str, **more: Any) -> Replica:
    """Make a replica as in production: identity, limits, metrics, and an audit log that is written."""
    settings: dict[str, Any] = {
        "seal_keys": SEAL_KEYS,
        "audience": AUDIENCE,
        "jwt_secret": SECRET,
        "rate_limit": "1000000/s",
        "audit_log": str(folder / "audit.log"),
        "state_max_bytes": 2 * 65536,
        "replica_id": "r1",
    }
    return Replica(build(Settings.load({}, tools=(tools,), **settings | more)))


def _plain_cases(replica: Replica, tokens: int) -> Iterator[Case]:
    yield Case("echo", replica, [echo()], completes(TEXT))
    strangers = [echo(token=token_of(f"user-{number:04d}")) for number in range(tokens)]
    yield Case("echo, new token", replica, strangers, completes(TEXT))
    yield Case("tools/list", replica, [request(PORT, NUMBER, "tools/list", "", {}, token=token_of())], _lists)
    told = request(PORT, NUMBER, "tools/call", "tell", _params("tell", count=10), token=token_of(), progress_token="p")
    yield Case("10 progress events", replica, [told], _streams)
    yield Case("refused, bad token", replica, [echo(token=token_of() + "x")], _has_status(401))
    yield Case("refused, overloaded", replica, [echo()], _has_status(503), partial(_full, replica))


async def _rounds(replica: Replica, questions: int) -> list[Case]:
    """Make a case for each leg of a call with `questions` questions in sequence."""
    params: dict[str, Any] = {}
    cases = []
    name = "one question" if questions == 1 else f"{questions} questions"
    for leg in range(1, questions + 1):
        sent = greet(questions, params)
        cases.append(Case(f"{name}, leg {leg}", replica, [sent], _asks))
        params = answering((await replica.exchange(sent)).body, "Ada")
    cases.append(Case(f"{name}, leg {questions + 1}", replica, [greet(questions, params)], _greets(questions)))
    return cases


async def last_leg(replica: Replica, questions: int) -> Case:
    """Make a case for the leg with the last of `questions` answers; the state carries the others."""
    params: dict[str, Any] = {}
    for _ in range(questions):
        params = answering((await replica.exchange(greet(questions, params))).body, "Ada")
    return Case(f"last leg, {questions} answers", replica, [greet(questions, params)], _greets(questions))


async def carrying(replica: Replica, kib: int) -> Case:
    """Make a case for the last leg of a call whose state has `kib` KiB."""
    size = kib * 1024
    asked = await replica.exchange(_carry(size, {}))
    return Case(
        f"last leg, {kib} KiB of state",
        replica,
        [_carry(size, answering(asked.body, "Ada"))],
        completes(f"Hello, Ada, with {size} bytes!"),
    )


def echo(*, token: str | None = None) -> bytes:
    """Return a call that is answered at once."""
    return call(PORT, NUMBER, "echo", {"text": TEXT}, token=token or token_of())


def greet(count: int, params: Mapping[str, Any]) -> bytes:
    """Return a leg of a call that asks `count` questions."""
    return call(PORT, NUMBER, "greet", {"count": count}, token=token_of(), **params)


def _carry(size: int, params: Mapping[str, Any]) -> bytes:
    return call(PORT, NUMBER, "carry", {"size": size}, token=token_of(), **params)


def create() -> bytes:
    """Return a call that becomes a task."""
    params = _params("repeat", text=TEXT)
    return request(PORT, NUMBER, "tools/call", "repeat", params, token=token_of(), capabilities=FORMS_AND_TASKS)


def _params(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def token_of(subject: str = "user") -> str:
    """Return a token that all replicas of this process accept."""
    return mint(SECRET, subject, AUDIENCE, ttl_seconds=86400)


@contextmanager
def _full(replica: Replica) -> Iterator[None]:
    """Let somebody else occupy every place."""
    load = replica.services.load
    with patch.object(load, "_limit", FixedLimit(1)):
        visit = load.arrive()
        assert visit is not None
        visit.enter("somebody else", goes_on=False)
        try:
            yield
        finally:
            visit.leave()


def completes(text: str) -> Check:
    """Return a check that the call is done, with this text."""
    return lambda answer: check_complete(answer.body, NUMBER, text)


def _greets(count: int) -> Check:
    return completes(f"Hello, {', '.join(['Ada'] * count)}!")


def _asks(answer: Answer) -> str | None:
    return check_question(answer.body, NUMBER)


def _lists(answer: Answer) -> str | None:
    names = [tool["name"] for tool in json.loads(answer.body).get("result", {}).get("tools", [])]
    return None if {"echo", "ask"} <= set(names) else f"expected tools, got {answer.body[:300]!r}"


def _streams(answer: Answer) -> str | None:
    events = answer.body.count(b"notifications/progress")
    return None if events == 10 and b'"done"' in answer.body else f"expected 10 events, got {answer.body[:300]!r}"


def creates(answer: Answer) -> str | None:
    """Check that the call has become a task."""
    result = json.loads(answer.body).get("result", {})
    return None if result.get("resultType") == "task" else f"expected a task, got {answer.body[:300]!r}"


def _has_status(status: int) -> Check:
    return lambda answer: None if answer.status == status else f"expected {status}, got {answer}"
