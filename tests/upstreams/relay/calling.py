"""Calls to a real upstream, leg by leg, with the journal packed in between as in production."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from gateway.authoring.asyncio_host import AsyncioHost
from gateway.engine.capabilities import supports
from gateway.engine.driver import run_leg
from gateway.engine.journal import Journal, journal_key
from gateway.engine.leg import Detaching, Leg
from gateway.engine.outcomes import Completed, Failed, NeedsInput, Outcome
from gateway.engine.questions import Answer, Question
from gateway.http_client.client import HttpClient
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.protocol.caller import Requester
from gateway.protocol.upstream.entries import Entry, Kind, clean_entry
from gateway.registry.relayed import Relayed, RelayedPrompt, RelayedResource, RelayedTool
from gateway.runtime.sources import Clock
from gateway.sealing.packing import pack, unpack
from gateway.upstreams.client.stateless import StatelessClient
from gateway.upstreams.config.definition import Definition
from gateway.upstreams.credentials import credentials_of
from gateway.upstreams.relay import UpstreamRelay
from tests.calls.policies import POLICY

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}


class Counting(UpstreamMetrics):
    """Counts what is reported of upstreams."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.failures: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.heals: Counter[str] = Counter()

    def failed(self, _upstream: str, reason: str) -> None:
        self.failures[reason] += 1

    def dropped(self, _upstream: str, what: str, count: int = 1) -> None:
        self.drops[what] += count

    def healed(self, _upstream: str, kind: str) -> bool:
        self.heals[kind] += 1
        return False


class Notes:
    def __init__(self) -> None:
        self.progressed: list[tuple[Any, Any, Any]] = []
        self.logged: list[tuple[Any, Any]] = []

    def progress(self, done: Any, total: Any, message: Any) -> None:
        self.progressed.append((done, total, message))

    def log(self, level: Any, data: Any, _logger: Any) -> None:
        self.logged.append((level, data))


class Keeper:
    """Stores the slots of a task; the newest one is what a worker finds after a crash."""

    def __init__(self) -> None:
        self.slots: list[dict[str, Any]] = []

    async def keep_slot(self, slot: dict[str, Any]) -> None:
        self.slots.append(unpack(pack(slot)))

    async def keep_step(self, key: str, value: Any) -> None: ...

    async def keep_emit(self, number: int, block: dict[str, Any]) -> None: ...

    async def keep_checkpoint(self, _checkpoint: Any) -> bool:
        return False


class Pauses:
    """Notes how long a relay would wait, and does not."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Replica:
    """One process that relays to an upstream."""

    def __init__(
        self, definition: Definition, client: Any = None, credentials: Any = None, clock: Clock = time.monotonic
    ) -> None:
        self.telemetry = Counting()
        self.pauses = Pauses()
        self.http = HttpClient(definition.url)
        credentials = credentials or credentials_of(definition)
        client = client or StatelessClient(
            definition.name, self.http, credentials, self.telemetry, client_info={"name": "gateway", "version": "1"}
        )
        self.relay = UpstreamRelay(definition, client, credentials, self.telemetry, clock=clock, pause=self.pauses)

    def serve(self, kind: Kind, raw: Mapping[str, Any]) -> Relayed:
        entry = clean_entry(kind, self.relay.definition.prefix, dict(raw))
        assert isinstance(entry, Entry), entry
        relay = self.relay.of(entry)
        match kind:
            case "tools":
                return RelayedTool(relay, entry.entry)
            case "prompts":
                return RelayedPrompt(relay, entry.entry)
        return RelayedResource(relay, entry.entry)

    def tool(self, name: str, **schema: Any) -> Relayed:
        return self.serve("tools", {"name": name, "inputSchema": {"type": "object", "properties": schema}})


@contextlib.asynccontextmanager
async def replica_of(url: str, **options: Any) -> AsyncIterator[Replica]:
    given = {"client": options.pop("client", None), "credentials": options.pop("credentials", None)}
    given["clock"] = options.pop("clock", time.monotonic)
    replica = Replica(Definition(**{"name": "up", "prefix": "up", "transport": "http", "url": url, **options}), **given)
    yield replica
    await replica.http.aclose()


class Call:
    """One call; each leg may run on another replica. `rest` is the journal, as its carrier has it."""

    def __init__(
        self,
        served: Relayed,
        arguments: dict[str, Any] | None = None,
        *,
        target: str = "",
        can: dict[str, Any] | None = None,
        in_task: bool = False,
        **requester: Any,
    ) -> None:
        self.served = served
        self.target = target or served.name
        self.arguments = arguments or {}
        self.can = ALL if can is None else can
        self.in_task = in_task
        self.requester = Requester(capabilities=self.can, in_task=in_task, **requester)
        self.rest: Any = Journal.begin(now_ms=1_000, flow_max_ms=60_000, random_bytes=bytes).to_map()
        self.notes = Notes()
        self.keeper = Keeper()
        self.host = AsyncioHost(None, "r1")

    @property
    def journal(self) -> Journal:
        return Journal.from_map(unpack(pack(self.rest)))

    async def leg(
        self, answers: Mapping[str, Answer] | None = None, *, on: Relayed | None = None, may_shed: bool = False
    ) -> Outcome:
        journal = self.journal
        leg = Leg(
            journal,
            answers or {},
            self.host,
            POLICY,
            supports=lambda path: supports(self.can, path),
            detaching=Detaching.DONE if self.in_task else Detaching.FORBIDDEN,
            notices=self.notes,
            keeper=self.keeper if self.in_task else None,
            sheds=(lambda: False) if may_shed else None,
        )
        try:
            begin = (on or self.served).begin
            function = begin(self.target, dict(self.arguments), self.requester, lambda: self.requester, journal)
        except Exception as error:  # noqa: BLE001 - as the runner does
            return Failed(error)
        outcome = await run_leg(function, leg, limited=False)
        self.rest = journal.to_map()
        return outcome

    async def prepare_task(self, journal: Journal) -> None:
        """Keep in the journal what the legs of a task need."""
        await self.served.prepare_task(lambda: self.requester, journal)

    async def result(self, answers: Mapping[str, Answer] | None = None, **options: Any) -> dict[str, Any]:
        """Run a leg, and return its result as a client gets it."""
        outcome = await self.leg(answers, **options)
        assert isinstance(outcome, Completed), outcome
        return self.served.whole_result(outcome.value, self.target, self.journal)

    async def asked(self, answers: Mapping[str, Answer] | None = None, **options: Any) -> Mapping[str, Question]:
        outcome = await self.leg(answers, **options)
        assert isinstance(outcome, NeedsInput), outcome
        return outcome.questions

    async def error(self, answers: Mapping[str, Answer] | None = None, **options: Any) -> Exception:
        outcome = await self.leg(answers, **options)
        assert isinstance(outcome, Failed), outcome
        return outcome.error

    def answer_in_store(self, answers: Mapping[str, Answer]) -> None:
        """Record answers as the store of a task does."""
        journal = self.journal
        for key, answer in answers.items():
            recorded_as = journal_key(journal, key)
            journal.record(recorded_as, journal.pending[recorded_as], answer)
        self.rest = journal.to_map()


def text_of(result: Mapping[str, Any]) -> str:
    (block,) = result["content"]
    text = block["text"]
    assert isinstance(text, str)
    return text


def said(result: Mapping[str, Any]) -> Any:
    """Return what the upstream says that it got."""
    return msgspec.json.decode(text_of(result))


def accept(**content: Any) -> Answer:
    return {"result": {"action": "accept", "content": content}}
