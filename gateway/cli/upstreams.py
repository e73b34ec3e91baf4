"""`gateway upstreams`: asks the upstreams of a file what they offer, and writes their lock file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from gateway.children.children import Children
from gateway.errors import ConfigurationError
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.process.upstreams import Connecting, UpstreamConnection
from gateway.protocol.upstream.cleaning import clean_line
from gateway.protocol.upstream.deviations import Heal, uncounted
from gateway.registry.parts import Part
from gateway.sealing.request_id import ID_BYTES
from gateway.settings.model import Settings, secret_values
from gateway.tokens.request_ids import ReplicaAddress
from gateway.upstreams.breaker import Breaker
from gateway.upstreams.bulkhead import Bulkhead
from gateway.upstreams.client.eras import KnownEra
from gateway.upstreams.config.definition import Definition, UpstreamFile
from gateway.upstreams.config.pins import ToPin, lock_file_of, write_lock
from gateway.upstreams.config.reading import UpstreamReader
from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.guarded import GuardedClient
from gateway.upstreams.healing import Healing
from gateway.upstreams.held.holder import Holder
from gateway.upstreams.lists.listing import (
    GATEWAY,
    MAX_BYTES,
    Listed,
    discover,
    read_all,
    readings_of_lists,
)
from gateway.upstreams.relay import UpstreamRelay
from gateway.upstreams.served_entries import PartMaker

ANSWER_SECONDS: Final = 10.0
"""How long an upstream may take for each page of its lists."""

MOST_CHILDREN: Final = 2
"""How many children one upstream may have here: one for its lists, and one for a call."""

EXIT_UNREACHABLE: Final = 1

_STATES: Final[Mapping[Reason, str]] = {
    Reason.NEEDS_SESSION: "needs a session",
    Reason.REDIRECT: "redirects",
    Reason.NOT_FOUND: "not found",
    Reason.UNAUTHORIZED: "refuses",
    Reason.FORBIDDEN: "refuses",
    Reason.CREDENTIALS: "no credential",
}
"""The state of an upstream by the reason why its lists cannot be read; others count as unreachable."""

UNSERVED: Final[Mapping[str, str]] = {
    "stateless": "",
    "session": "questions are refused",
    "sessionless": "questions and changes of lists are not served",
}
"""A remark on upstreams that answer, by era."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The answer of one upstream.

    Attributes:
        listed: the lists of the upstream as they came; None if it did not answer.
        part: what is served of them.
        era: how it is spoken to; None if that is not known.
        problem: why there is no answer; "" if there is one.
        path: the program that a launcher such as `npx` would run, which is run without it; "" if there is none.
        healed: the kinds of deviations from the protocol that were healed.
    """

    definition: Definition
    listed: Listed | None = None
    part: Part | None = None
    era: KnownEra | None = None
    state: str = "ok"
    problem: str = ""
    path: str = ""
    healed: Sequence[str] = ()


def read_file(settings: Settings, *, needs_lock: bool = True) -> UpstreamFile:
    """Read the file of upstreams that the settings name.

    Raises:
        ConfigurationError: they name none, or something in the file is wrong.
    """
    if settings.upstreams is None:
        raise ConfigurationError("GATEWAY_UPSTREAMS: not set; name a file of upstreams there or with --upstreams")
    return UpstreamReader(Path(settings.upstreams), needs_lock=needs_lock).read()


def show(settings: Settings, *, as_json: bool) -> tuple[str, int]:
    """Return what each upstream serves, for people or as JSON, and the exit code: 1 if one of them does not answer.

    Raises:
        ConfigurationError: the file is wrong.
    """
    found = read_file(settings)
    surveyed = asyncio.run(survey(found.definitions, settings))
    text = json.dumps(_as_json(surveyed), indent=2) if as_json else _as_text(surveyed)
    return text, EXIT_UNREACHABLE if any(each.problem for each in surveyed) else 0


def pin(settings: Settings) -> tuple[str, int]:
    """Write the lock file with what all upstreams serve. Return the outcome in words, and the exit code.

    If an upstream does not answer, nothing is written: its tools and prompts would count as changed.

    Raises:
        ConfigurationError: the file is wrong, or the lock file cannot be written.
    """
    found = read_file(settings, needs_lock=False)
    surveyed = asyncio.run(survey(found.definitions, settings, pinned=False))
    silent = [f"{each.definition.name}: {each.problem}" for each in surveyed if each.problem]
    if silent:
        return "\n".join([*silent, "nothing is pinned; try again when all upstreams answer"]), EXIT_UNREACHABLE
    pins = {each.definition.name: _to_pin(each.definition, each.listed) for each in surveyed if each.listed is not None}
    lock = lock_file_of(Path(str(settings.upstreams)))
    write_lock(lock, pins)
    return f"pinned in {lock}: {_pinned(list(pins.values()))} of {', '.join(pins)}", 0


def _pinned(pins: Sequence[ToPin]) -> str:
    """Return in words how much was pinned."""
    counts = (
        (sum(len(each.tools) for each in pins), "tool", "tools"),
        (sum(len(each.prompts) for each in pins), "prompt", "prompts"),
        (sum(bool(each.instructions) for each in pins), "text of instructions", "texts of instructions"),
    )
    return (
        ", ".join(f"{count} {one if count == 1 else several}" for count, one, several in counts if count) or "nothing"
    )


def _to_pin(definition: Definition, listed: Listed) -> ToPin:
    return ToPin(
        [tool for tool in listed.lists["tools"] if definition.serves_tool(tool["name"])],
        [prompt for prompt in listed.lists["prompts"] if definition.prompts.takes(prompt["name"])],
        listed.discovered.instructions if definition.instructions else "",
    )


async def survey(definitions: Sequence[Definition], settings: Settings, *, pinned: bool = True) -> list[Surveyed]:
    """Ask upstreams, all at once, what they offer. Nothing is called.

    If `pinned`, what differs from the lock file is left out, as its upstream's `pin` says.

    Raises:
        ConfigurationError: an address, a proxy or a certificate cannot be used.
    """
    return list(await asyncio.gather(*(_survey_one(definition, settings, pinned=pinned) for definition in definitions)))


async def _survey_one(definition: Definition, settings: Settings, *, pinned: bool) -> Surveyed:
    metrics = UpstreamMetrics(CollectorRegistry())
    async with connected(definition, settings, metrics) as connection:
        try:
            listed = await read_lists(definition, connection, Healing(definition.name, metrics))
        except (UpstreamFailure, UpstreamError) as failure:
            era, state = connection.client.era, _state_of(definition, failure)
            return Surveyed(definition, era=era, state=state, problem=problem_of(definition, failure))
        part = await _part_of(definition, connection, listed, metrics) if pinned else None
        path = "" if connection.program is None else connection.program.path
        healed = metrics.healed_kinds(definition.name)
        return Surveyed(definition, listed, part, connection.client.era, path=path, healed=healed)


@contextlib.asynccontextmanager
async def connected(
    definition: Definition, settings: Settings, metrics: UpstreamMetrics | None = None
) -> AsyncIterator[UpstreamConnection]:
    """Give a client of an upstream while the context is open."""
    children, telemetry = Children(MOST_CHILDREN), metrics or UpstreamMetrics(CollectorRegistry())
    holder = Holder(address=ReplicaAddress("", os.urandom(ID_BYTES)))
    connecting = Connecting(telemetry, str(settings.upstreams), children, secret_values(settings), holder=holder)
    connection = connecting.connect(definition)
    try:
        yield connection
    finally:
        await holder.calls.aclose()
        await connection.aclose()
        await connecting.objects.aclose()
        await children.aclose()


async def read_lists(definition: Definition, connection: UpstreamConnection, heal: Heal = uncounted) -> Listed:
    """Read all lists of an upstream, as the gateway itself.

    Raises:
        UpstreamFailure, UpstreamError: it does not answer as it should.
    """

    async def ask(method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        return await connection.client.request(
            method, params, requester=GATEWAY, seconds=ANSWER_SECONDS, max_bytes=MAX_BYTES
        )

    discovered = await discover(ask, heal)
    return await read_all(definition.name, ask, discovered, heal)


def _state_of(definition: Definition, failure: UpstreamFailure | UpstreamError) -> str:
    if isinstance(failure, UpstreamError):
        return "refuses"
    if definition.transport != "http" and failure.reason is Reason.UNREACHABLE:
        return "does not run"
    return _STATES.get(failure.reason, "unreachable")


def problem_of(definition: Definition, failure: UpstreamFailure | UpstreamError) -> str:
    """Return why an upstream did not answer, for operators."""
    if isinstance(failure, UpstreamFailure) and failure.reason is Reason.NEEDS_SESSION:
        asks = 'it asks its user in a way that needs a session; the option "era" says how it is called'
        return asks if failure.sent else failure.detail
    if isinstance(failure, UpstreamError):
        return f"it answers with error {failure.code}: {clean_line(str(failure))}"
    if definition.credentials.kind == "token_exchange":
        return "its lists depend on the caller, and this command has no token of one"
    return str(failure).removeprefix(f"{definition.name}: ")


async def _part_of(
    definition: Definition, connection: UpstreamConnection, listed: Listed, metrics: UpstreamMetrics
) -> Part:
    """Return what a replica serves of these lists. The log says what is left out."""
    guarded = GuardedClient(
        definition.name,
        connection.client,
        Breaker(lambda: asyncio.sleep(0, result=True), lambda _is_open: None),
        Bulkhead(definition.max_in_flight, definition.rate, lambda _count: None),
    )
    relay = UpstreamRelay(definition, guarded, connection.credentials, metrics)
    return await PartMaker(definition, guarded, relay, metrics, readings_of_lists()).listed(listed, None)


def _entries(part: Part | None) -> dict[str, list[str]]:
    """Return the names and URIs that clients see, by kind."""
    if part is None:
        return {}
    lists = {
        "tools": part.tools,
        "prompts": part.prompts,
        "resources": part.resources,
        "templates": part.templates,
    }
    return {kind: list(entries) for kind, entries in lists.items()}


def _as_json(surveyed: Sequence[Surveyed]) -> list[dict[str, Any]]:
    return [
        {
            "name": each.definition.name,
            "prefix": each.definition.prefix,
            "transport": each.definition.transport,
            each.definition.place_kind: each.definition.place,
            "era": each.era,
            "state": each.state,
            **({"reason": each.problem} if each.problem else {}),
            **({"program": each.path} if each.path else {}),
            **({"healed": list(each.healed)} if each.healed else {}),
            **_entries(each.part),
        }
        for each in surveyed
    ]


def _as_text(surveyed: Sequence[Surveyed]) -> str:
    rows = [("UPSTREAM", "STATE", "SERVES")]
    rows += [(each.definition.name, each.state, summary(each)) for each in surveyed]
    lines = _table(rows)
    tools = [tool for each in surveyed for tool in _tools(each.part)]
    if tools:
        lines += ["", *_table([("TOOL", "DESCRIPTION"), *tools])]
    return "\n".join(lines)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines in which all columns but the last are as wide as their longest text."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return [
        "  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def summary(surveyed: Surveyed) -> str:
    """Return what an upstream serves, from where and how it is called; or why that is not known."""
    if surveyed.problem:
        return surveyed.problem
    counts = {kind.removesuffix("s"): len(names) for kind, names in _entries(surveyed.part).items()}
    texts = [f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count]
    definition, unserved = surveyed.definition, UNSERVED.get(surveyed.era or "", "")
    served = f"{', '.join(texts) or 'nothing'} from {definition.place} ({definition.transport}, {surveyed.era})"
    runs = f"it runs {surveyed.path}" if surveyed.path else ""
    healed = f"healed: {', '.join(surveyed.healed)}" if surveyed.healed else ""
    return "; ".join(filter(None, (served, runs, unserved, healed)))


def _tools(part: Part | None) -> list[tuple[str, str]]:
    """Return the name and the first line of the description of each tool."""
    tools = {} if part is None else part.tools
    return [
        (name, clean_line(str(tool.catalogue_entry().get("description", "")).strip().partition("\n")[0]))
        for name, tool in tools.items()
    ]
