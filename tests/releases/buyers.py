"""Clients that place one order after the other while the site is rolled out, and notice everything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import httpx

from tests.releases.account import Effect, EffectFile, Order
from tests.upstreams.site import CAPABILITIES, WITHOUT_TASKS, User
from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import Answers, accept
from tests.wires.draft.transport import RpcError

HASTY_SECONDS: Final = 120.0
"""How long an order of a hasty buyer may take, and every other one after the market has closed."""

PATIENT_SECONDS: Final = 3600.0
"""Longer than any rollout."""

POLL_SECONDS: Final = 0.2
PAUSE_SECONDS: Final = (0.3, 0.9)
NOTHING_RAN: Final = -31001
NAME: Final = "Ada"
SIZE: Final = 7
COLOUR: Final = "red"
SAMPLED: Final = {"role": "assistant", "content": {"type": "text", "text": COLOUR}, "model": "a model"}

NO_DIFFERENCE: Final[Mapping[str, list[str]]] = {"missing": [], "too many": []}

T = TypeVar("T")


class Wrong(Exception):
    """A client noticed something that it should not."""


@dataclass
class Market:
    """The site that buyers use.

    Attributes:
        url: of the balancer.
        token: makes the token of a user.
        effects: what tools have done.
        orders: all orders so far.
        stage: of the rollout.
        closed: whether buyers place no more orders, and think no longer.
        sessions: those that were opened so far, by user and version.
        stock: the tasks of the user who only lists tasks.
        stocking: held while they are made.
    """

    url: str
    token: Callable[[str], str]
    effects: EffectFile
    orders: list[Order] = field(default_factory=list)
    stage: int = 0
    closed: bool = False
    sessions: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    stock: list[str] = field(default_factory=list)
    stocking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._moved = asyncio.Event()

    def move(self) -> None:
        """Begin the next stage."""
        self.stage += 1
        self._moved.set()
        self._moved = asyncio.Event()

    def close(self) -> None:
        """Let buyers finish what they have begun."""
        self.closed = True
        self.move()

    async def moved(self) -> None:
        """Wait for the next stage."""
        if not self.closed:
            await self._moved.wait()

    async def until_noted(self, call: str, what: str, key: str = "") -> Effect:
        """Wait until a tool has noted something for a call, and return it."""
        while True:
            for effect in self.effects.update():
                if (effect.order, effect.what, effect.key) == (call, what, key):
                    return effect
            await asyncio.sleep(POLL_SECONDS)


@dataclass
class Buyer:
    """A client who places orders of one kind.

    Attributes:
        market: the site.
        kind: what it does.
        number: its own.
        patient: whether it thinks until the next stage before it continues an order.
    """

    market: Market
    kind: Kind
    number: int
    patient: bool = False

    def __post_init__(self) -> None:
        self.user = self.kind.name.replace(" ", "-").replace(".", "-")
        self._random = random.Random(self.number)
        self.seconds = PATIENT_SECONDS if self.patient else HASTY_SECONDS

    async def buy(self) -> None:
        """Place orders until the market closes."""
        while not self.market.closed:
            await self._place()
            await asyncio.sleep(self._random.uniform(*PAUSE_SECONDS))

    async def _place(self) -> None:
        kind, market = self.kind, self.market
        name = f"{self.user}.{self.number}.{len(market.orders)}"
        order = Order(name, kind.name, market.stage, self.patient, kind.steps, kind.early)
        market.orders.append(order)
        try:
            async with asyncio.timeout(self.seconds):
                await kind.place(self, order)
        except Exception as error:  # noqa: BLE001 - whatever a client notices is reported
            order.problem = f"{type(error).__name__}: {error}"
        order.over = True

    async def think(self) -> None:
        """Wait for the next stage, if this is a patient buyer."""
        if self.patient:
            await self.market.moved()

    def answers(self, order: Order) -> Answers:
        """Return the answers to all questions of an order. Each is given once, and after some thought."""

        def to(question: str, answer: Mapping[str, Any]) -> Callable[[object], Awaitable[Mapping[str, Any]]]:
            async def give(_question: object) -> Mapping[str, Any]:
                order.asked[order.call, question] += 1
                if (
                    order.asked[order.call, question] > 1 + order.again
                ):  # a stream that begins again repeats its question
                    raise Wrong(f"the question {question} was asked again")
                await self.think()
                return answer

            return give

        answers = {"name": accept(name=NAME), "size": accept(size=SIZE), "sampling/createMessage": SAMPLED}
        return {question: to(question, answer) for question, answer in answers.items()}

    def receipt(self, order: Order) -> str:
        """Return how the result of an order must be signed."""
        return f"{order.call} for {self.user}, {self.user}@example.com, shop"

    # Connections. Each request goes to the balancer over a connection of its own or an idle one.

    @contextlib.asynccontextmanager
    async def modern(self, order: Order, *, tasks: bool = False) -> AsyncIterator[User]:
        """Return a client of 2026-07-28."""
        capabilities = CAPABILITIES if tasks else WITHOUT_TASKS
        token = self.market.token(self.user)
        async with User([self.market.url], token, capabilities=capabilities, seconds=self.seconds) as user:
            self._record(user.http, order)
            yield user

    @contextlib.asynccontextmanager
    async def draft(self, order: Order) -> AsyncIterator[DraftClient]:
        """Return a client of the draft without a session."""
        token = self.market.token(self.user)
        async with DraftClient([self.market.url], token=token, seconds=self.seconds) as client:
            self._record(client.transport._http, order)
            yield client

    @contextlib.asynccontextmanager
    async def session(self, order: Order, version: str) -> AsyncIterator[DraftClient]:
        """Return a client in a session of a version: a new one, or one that this user has opened at any time before."""
        async with self.draft(order) as client:
            client.transport.headers["MCP-Protocol-Version"] = version
            known = self.market.sessions[self.user, version]
            if known and self._random.random() < 0.7:
                client.transport.headers["Mcp-Session-Id"] = self._random.choice(known)
            else:
                await client.initialize(version)
                known.append(client.transport.headers["Mcp-Session-Id"])
            yield client

    def _record(self, http: httpx.AsyncClient, order: Order) -> None:
        """Note which process gives each response."""

        async def note(response: httpx.Response) -> None:
            order.answers.append((time.time(), response.headers.get("x-gateway-replica", "")))

        http.event_hooks["response"].append(note)


Place: TypeAlias = Callable[[Buyer, Order], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    """A kind of orders.

    Attributes:
        name: unique.
        place: places an order and follows it to its end; it raises whatever the client must not notice.
        steps: the side effects of such an order.
        early: those that a call may have had that ended early.
        hasty: how many hasty buyers there are.
        asks: whether patient buyers have something to think about.
    """

    name: str
    place: Place
    steps: frozenset[str]
    early: frozenset[str]
    hasty: int
    asks: bool


def expect(found: object, wanted: object) -> None:
    """Raise `Wrong` unless both are equal."""
    if found != wanted:
        raise Wrong(f"{found!r} instead of {wanted!r}")


def expect_all(found: Iterable[str], wanted: Iterable[str]) -> None:
    """Raise `Wrong` unless both have the same elements in any order, each equally often."""
    has, needs = Counter(found), Counter(wanted)
    expect({"missing": sorted((needs - has).elements()), "too many": sorted((has - needs).elements())}, NO_DIFFERENCE)


def texts(result: Mapping[str, Any]) -> list[str]:
    """Return the texts of a result's blocks."""
    return [block["text"] for block in result["content"]]


async def insist(order: Order, request: Callable[[], Awaitable[T]]) -> T:
    """Send a request until it is not refused with the promise that nothing ran."""
    while True:
        try:
            return await request()
        except RpcError as error:
            if error.code != NOTHING_RAN:
                raise
            order.again += 1
        await asyncio.sleep(POLL_SECONDS)
