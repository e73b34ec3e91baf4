"""A call driven leg by leg, with its journal packed in between as in production."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.driver import LegFunction, run_leg
from gateway.engine.host import Notices
from gateway.engine.journal import Journal
from gateway.engine.leg import Detaching, Leg, Migration
from gateway.engine.leg_policy import LegPolicy
from gateway.engine.outcomes import Outcome
from gateway.engine.questions import ELICIT, Answer, InvalidAnswer, Question, question_digest
from gateway.errors import Declined
from gateway.sealing.packing import pack, unpack
from tests.calls.policies import STRICT

INTEGER_FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Call:
    """One call of `function`. Each leg may be run by another version of the function, on another host."""

    def __init__(self, function: LegFunction, host: AsyncioHost) -> None:
        self.function = function
        self.host = host
        self.rest: Any = Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=bytes).to_map()

    @property
    def journal(self) -> Journal:
        """The journal of the call, read from its stored form."""
        return Journal.from_map(unpack(pack(self.rest)))

    async def leg(
        self,
        answers: Mapping[str, Answer] | None = None,
        *,
        function: LegFunction | None = None,
        can: Callable[[tuple[str, ...]], bool] = lambda _path: True,
        version: int = 1,
        migrations: Mapping[int, tuple[int, Migration]] | None = None,
        declared: Mapping[str, bytes] | None = None,
        notices: Notices | None = None,
        detaching: Detaching = Detaching.FORBIDDEN,
        sheds: Callable[[], bool] | None = None,
        policy: LegPolicy = STRICT,
    ) -> Outcome:
        """Run one leg with these fresh answers."""
        leg = Leg(
            self.journal,
            answers or {},
            self.host,
            policy,
            supports=can,
            version=version,
            migrations=migrations,
            declared=declared,
            notices=notices,
            detaching=detaching,
            sheds=sheds,
        )
        outcome = await run_leg(function or self.function, leg)
        self.rest = leg.journal.to_map()
        return outcome


@pytest.fixture
def host() -> Iterator[AsyncioHost]:
    made = AsyncioHost(20, "replica-1")
    yield made
    made.close()


@pytest.fixture
def begin(host: AsyncioHost) -> Callable[..., Call]:
    """Return a function that begins a call of another function, on `host` unless another host is given."""
    return lambda function, on=host: Call(function, on)


@pytest.fixture
def integer() -> Callable[..., Question]:
    """Return a question for an integer `n`; its value is that integer."""

    def make(key: str = "n", form: Mapping[str, Any] = INTEGER_FORM, message: str = "How many?") -> Question:
        def read(answer: Answer) -> Any:
            if answer.get("result", {}).get("action") == "decline":
                raise Declined(key)
            content = answer.get("result", {}).get("content", {})
            if type(content.get("n")) is not int:
                raise InvalidAnswer
            return content["n"]

        params = {"mode": "form", "message": message, "requestedSchema": form}
        return Question(ELICIT, params, (("elicitation", "form"),), question_digest(ELICIT, params), read)

    return make


@pytest.fixture
def accept() -> Callable[[Any], Answer]:
    """Return the answer that fills in `n`."""
    return lambda n: {"result": {"action": "accept", "content": {"n": n}}}
