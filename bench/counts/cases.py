"""What is counted: requests to a replica that is set up as in production, and what their answers must be."""

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

from bench import servers
from bench.cases import FORMS_AND_TASKS, call, check_complete, check_question, request
from bench.clients import Answer, WrongAnswer
from bench.counts.replica import PORT, Replica
from gateway.auth.tokens import mint
from gateway.bootstrap import build
from gateway.sealing.keyring import generate_entry
from gateway.settings import Settings

Check = Callable[[Answer], str | None]
"""Says what is wrong with an answer, or None."""

MANY_TOOLS: Final = 1000
NUMBER: Final = 1000
TEXT: Final = "hello from request 1000"
SECRET: Final = "a-secret-for-tokens-of-this-process-alone-0123456789"
AUDIENCE: Final = "bench"


@dataclass(frozen=True, slots=True)
class Case:
    """One request that is counted again and again.

    Attributes:
        name: of the case.
        replica: the one that is asked.
        requests: sent in turn; they differ only where one alone could not be sent twice.
        check: what each answer must be.
        meanwhile: is entered while they are sent.
    """

    name: str
    replica: Replica
    requests: Sequence[bytes]
    check: Check
    meanwhile: Callable[[], Any] = nullcontext

    async def send(self, number: int, meter: Any = None) -> None:
        """Send the request whose turn it is, and check the answer.

        Raises:
            WrongAnswer: it is not as it must be.
        """
        answer = await self.replica.exchange(self.requests[number % len(self.requests)], meter)
        problem = self.check(answer)
        if problem is not None:
            raise WrongAnswer(f"{self.name}: {problem}")


@asynccontextmanager
async def all_cases(tokens: int) -> AsyncIterator[list[Case]]:
    """Start what all cases need, and make them.

    Args:
        tokens: how many requests with tokens of their own are needed.

    Raises:
        WrongAnswer: a call could not be brought to where it is counted.
        ServerError: there is no Redis server.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        redis = stack.enter_context(servers.redis_server(None))
        plain, many, stored = [
            await stack.enter_async_context(_replica(folder, tools, **more).running())
            for tools, more in (
                ("bench.tools", {}),
                ("bench.many_tools", {}),
                ("bench.tools", {"redis_url": redis.url, "tasks_per_principal": 1_000_000}),
            )
        ]
        yield [
            *_plain_cases(plain, tokens),
            *[case for count in (1, 3) for case in await _rounds(plain, count)],
            *[await _last_leg(plain, count) for count in (10, 50)],
            *[await _carrying(plain, kib) for kib in (16, 64)],
            Case("echo, 1,000 tools", many, [_echo()], _completes(TEXT)),
            Case("create a task", stored, [_create()], _creates),
        ]


def _replica(folder: Path, tools: str, **more: Any) -> Replica:
    """Make a replica as in production: identity, limits, metrics, and an audit log that is written."""
    settings = Settings.load(
        {},
        tools=(tools,),
        seal_keys=generate_entry(secrets.token_bytes),
        audience=AUDIENCE,
        jwt_secret=SECRET,
        rate_limit="1000000/s",
        audit_log=str(folder / "audit.log"),
        state_max_bytes=2 * 65536,
        replica_id="r1",
        **more,
    )
    return Replica(build(settings))


def _plain_cases(replica: Replica, tokens: int) -> Iterator[Case]:
    yield Case("echo", replica, [_echo()], _completes(TEXT))
    strangers = [_echo(token=_token(f"user-{number:04d}")) for number in range(tokens)]
    yield Case("echo, new token", replica, strangers, _completes(TEXT))
    yield Case("tools/list", replica, [request(PORT, NUMBER, "tools/list", "", {}, token=_token())], _lists)
    told = request(PORT, NUMBER, "tools/call", "tell", _params("tell", count=10), token=_token(), progress_token="p")
    yield Case("10 progress events", replica, [told], _streams)
    yield Case("refused, bad token", replica, [_echo(token=_token() + "x")], _has_status(401))
    yield Case("refused, overloaded", replica, [_echo()], _has_status(503), partial(_full, replica))


async def _rounds(replica: Replica, questions: int) -> list[Case]:
    """Each leg of a call that asks so many questions, one after the other."""
    params: dict[str, Any] = {}
    cases = []
    name = "one question" if questions == 1 else f"{questions} questions"
    for leg in range(1, questions + 1):
        sent = _greet(questions, params)
        cases.append(Case(f"{name}, leg {leg}", replica, [sent], _asks))
        params = _answering((await replica.exchange(sent)).body)
    cases.append(Case(f"{name}, leg {questions + 1}", replica, [_greet(questions, params)], _greets(questions)))
    return cases


async def _last_leg(replica: Replica, questions: int) -> Case:
    params: dict[str, Any] = {}
    for _ in range(questions):
        params = _answering((await replica.exchange(_greet(questions, params))).body)
    return Case(f"last leg, {questions} answers", replica, [_greet(questions, params)], _greets(questions))


async def _carrying(replica: Replica, kib: int) -> Case:
    size = kib * 1024
    asked = await replica.exchange(_carry(size, {}))
    return Case(
        f"last leg, {kib} KiB of state",
        replica,
        [_carry(size, _answering(asked.body))],
        _completes(f"Hello, Ada, with {size} bytes!"),
    )


def _echo(*, token: str | None = None) -> bytes:
    return call(PORT, NUMBER, "echo", {"text": TEXT}, token=token or _token())


def _greet(count: int, params: Mapping[str, Any]) -> bytes:
    return call(PORT, NUMBER, "greet", {"count": count}, token=_token(), **params)


def _carry(size: int, params: Mapping[str, Any]) -> bytes:
    return call(PORT, NUMBER, "carry", {"size": size}, token=_token(), **params)


def _create() -> bytes:
    params = _params("repeat", text=TEXT)
    return request(PORT, NUMBER, "tools/call", "repeat", params, token=_token(), capabilities=FORMS_AND_TASKS)


def _params(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def _answering(question: bytes) -> dict[str, Any]:
    """What goes on with a call that asked a question."""
    problem = check_question(question, NUMBER)
    if problem is not None:
        raise WrongAnswer(problem)
    result = json.loads(question)["result"]
    (key,) = result["inputRequests"]
    answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
    return {"inputResponses": answer, "requestState": result["requestState"]}


def _token(subject: str = "user") -> str:
    return mint(SECRET, subject, AUDIENCE, ttl_seconds=86400)


@contextmanager
def _full(replica: Replica) -> Iterator[None]:
    """Let others take every place meanwhile."""
    visits = list(iter(replica.services.load.arrive, None))
    try:
        yield
    finally:
        for visit in visits:
            visit.leave()


def _completes(text: str) -> Check:
    return lambda answer: check_complete(answer.body, NUMBER, text)


def _greets(count: int) -> Check:
    return _completes(f"Hello, {', '.join(['Ada'] * count)}!")


def _asks(answer: Answer) -> str | None:
    return check_question(answer.body, NUMBER)


def _lists(answer: Answer) -> str | None:
    names = [tool["name"] for tool in json.loads(answer.body).get("result", {}).get("tools", [])]
    return None if {"echo", "ask"} <= set(names) else f"expected tools, got {answer.body[:300]!r}"


def _streams(answer: Answer) -> str | None:
    events = answer.body.count(b"notifications/progress")
    return None if events == 10 and b'"done"' in answer.body else f"expected 10 events, got {answer.body[:300]!r}"


def _creates(answer: Answer) -> str | None:
    result = json.loads(answer.body).get("result", {})
    return None if result.get("resultType") == "task" else f"expected a task, got {answer.body[:300]!r}"


def _has_status(status: int) -> Check:
    return lambda answer: None if answer.status == status else f"expected {status}, got {answer}"
