"""`gateway check`: finds what would keep a deployment from working, without serving or changing anything.

Each subject is checked independently, so one run reports all problems, each with its solution.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from gateway.auth import inspect_exchange, inspect_provider
from gateway.auth.fetch import FetchFailed
from gateway.authoring.server import identity_of
from gateway.cli.check_replicas import examine_replicas, unencrypted
from gateway.ensured import ensured
from gateway.errors import AuthoringError, ConfigurationError, TaskStoreDown
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.process.preflight import find_problems, find_tool_problems
from gateway.process.services import make_task_store, redis_url_of
from gateway.registry.inventory import inventory
from gateway.registry.registry import load_registry
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.settings.model import Settings
from gateway.settings.problems import Problems
from gateway.tokens.key_holder import KeyHolder

State: TypeAlias = Literal["ok", "unreachable", "wrong"]

if TYPE_CHECKING:
    from gateway.cli.upstreams import Surveyed
    from gateway.upstreams.config.definition import UpstreamFile

SETTINGS: Final = "settings"
KEYS: Final = "keys"
TOOLS: Final = "tools"
UPSTREAMS: Final = "upstreams"
STORE: Final = "store"
PROVIDER: Final = "identity provider"
REPLICAS: Final = "replicas"
SUBJECTS: Final = (SETTINGS, KEYS, TOOLS, UPSTREAMS, STORE, PROVIDER, REPLICAS)

EXIT_CODES: Final[Mapping[State, int]] = {"ok": 0, "unreachable": 1, "wrong": 2}
"""1: the problem may be temporary. 2: somebody has to change the configuration."""

_OWNERS: Final = {
    "GATEWAY_SEAL_KEYS": KEYS,
    "GATEWAY_TOOLS": TOOLS,
    "--tools": TOOLS,
    "GATEWAY_UPSTREAMS": UPSTREAMS,
    "--upstreams": UPSTREAMS,
    "GATEWAY_REDIS_URL": STORE,
    "GATEWAY_AUTH:": PROVIDER,
    "GATEWAY_JWT": PROVIDER,
    "GATEWAY_JWKS": PROVIDER,
    "GATEWAY_TOKEN_EXCHANGE": PROVIDER,
    "GATEWAY_REPLICA_URL": REPLICAS,
    "GATEWAY_PEERS": REPLICAS,
    "GATEWAY_HOLDERS": REPLICAS,
}
"""The subject of a problem, by the prefix of its setting. All others belong to `SETTINGS`."""

_NARROW_BITS: Final[Mapping[int, int]] = {4: 24, 6: 64}
"""The shortest prefix of a network of proxies that gets no warning, by version of IP: one customary subnet."""


@dataclass(slots=True)
class Finding:
    """The result for one subject, in lines for people.

    Attributes:
        subject: one of `SUBJECTS`.
        notes: facts that are worth knowing but not a problem.
        warnings: what is valid but may not be meant, each worth a line of its own.
        unreachable: servers that do not answer; trying again may help.
        wrong: configuration that has to change.
    """

    subject: str
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def state(self) -> State:
        """The worst state that was found."""
        if self.wrong:
            return "wrong"
        return "unreachable" if self.unreachable else "ok"


@dataclass(frozen=True, slots=True)
class Report:
    """The results for all subjects."""

    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """The exit code of the worst state; see `EXIT_CODES`."""
        return max(EXIT_CODES[finding.state] for finding in self.findings)

    def as_text(self) -> str:
        """Return lines for people: one for each subject without problems, one for each warning and problem."""
        lines = []
        for finding in self.findings:
            if finding.state == "ok":
                lines.append((finding.subject, "ok", "; ".join(finding.notes)))
            else:
                lines += [(finding.subject, "note", line) for line in finding.notes]
            lines += [(finding.subject, "warning", line) for line in finding.warnings]
            lines += [(finding.subject, "unreachable", line) for line in finding.unreachable]
            lines += [(finding.subject, "wrong", line) for line in finding.wrong]
        return "\n".join(f"{subject:<18} {state:<12} {text}".rstrip() for subject, state, text in lines)

    def as_json(self) -> str:
        """Return the report for programs."""
        subjects = [{"subject": finding.subject, "state": finding.state} | asdict(finding) for finding in self.findings]
        return json.dumps({"exit_code": self.exit_code, "subjects": subjects}, indent=2)


def examine(
    tools: str | None = None, environ: Mapping[str, str] | None = None, *, upstreams: str | None = None
) -> Report:
    """Check everything that a replica needs to serve.

    The `tools` are modules, separated by commas. An argument that is None comes from the environment.
    """
    problems = Problems()
    settings = Settings.load(environ, problems=problems, tools=tools, upstreams=upstreams)
    find_problems(settings, problems)
    findings = {subject: Finding(subject) for subject in SUBJECTS}
    tool_problems = Problems()
    # Keep what tool modules print on import out of the report.
    with contextlib.redirect_stdout(sys.stderr):
        find_tool_problems(settings, tool_problems)
        if settings.tools and not tool_problems.lines:
            with tool_problems.noted():
                findings[TOOLS].notes += _describe_tools(settings)
    findings[TOOLS].wrong += [line for line in tool_problems.lines if _owner(line) != STORE]
    for line in (*problems.lines, *(line for line in tool_problems.lines if _owner(line) == STORE)):
        findings[_owner(line)].wrong.append(line)
    upstreams_found = _examine_upstreams(settings, environ, findings[UPSTREAMS])
    _describe_settings(settings, findings)
    asyncio.run(_connect(settings, findings, upstreams_found))
    return Report(tuple(findings.values()))


def _owner(line: str) -> str:
    return next((subject for name, subject in _OWNERS.items() if line.startswith(name)), SETTINGS)


def _describe_settings(settings: Settings, findings: Mapping[str, Finding]) -> None:
    for name, meant in settings.unknown.items():
        guess = "" if meant is None else f" (did you mean {meant}?)"
        findings[SETTINGS].notes.append(f"{name} is not a setting and has no effect{guess}")
    findings[SETTINGS].warnings += _trusted_too_widely(settings.trusted_proxies)
    ring = _ring(settings, findings[KEYS])
    if ring is not None:
        first, *others = (key.key_id.hex() for key in ring.keys)
        findings[KEYS].notes.append(", ".join([f"{first} seals", *(f"{key_id} opens" for key_id in others)]))


def _trusted_too_widely(proxies: Sequence[str]) -> list[str]:
    """Warn of networks that hold more than balancers: every machine in them can choose a request's address and id."""
    networks = [ipaddress.ip_network(proxy) for proxy in proxies]
    return [
        f"GATEWAY_TRUSTED_PROXIES: every machine in {network} is believed what it says about a request; name the "
        f"addresses of your balancers, or a network of at least {_NARROW_BITS[network.version]} bits"
        for network in networks
        if network.prefixlen < _NARROW_BITS[network.version]
    ]


def _examine_upstreams(settings: Settings, environ: Mapping[str, str] | None, finding: Finding) -> UpstreamFile | None:
    """Read the file of upstreams, and return it if nothing is wrong with it."""
    if settings.upstreams is None:
        return None
    from gateway.upstreams.config import checks, reading  # noqa: PLC0415 - most deployments have none

    try:
        found = reading.UpstreamReader(Path(settings.upstreams), environ).read()
    except ConfigurationError as error:
        finding.wrong += error.problems
        return None
    finding.wrong += checks.setting_problems(found, settings, settings.upstreams)
    finding.wrong += checks.object_problems(found, settings.upstreams)
    finding.notes += checks.describe(found)
    finding.warnings += checks.warnings(found, settings)
    return found


async def _ask_upstreams(settings: Settings, found: UpstreamFile | None, finding: Finding) -> None:
    """Ask each upstream what it serves and how it is called. A replica also starts if one does not answer."""
    if found is None or finding.wrong:
        return
    from gateway.cli.upstreams import summary, survey  # noqa: PLC0415 - most deployments have none

    try:
        surveyed = await survey(found.definitions, settings)
    except ConfigurationError as error:
        finding.wrong += error.problems
        return
    for each in surveyed:
        depends_on_caller = each.definition.credentials.kind == "token_exchange"
        lines = finding.warnings if each.problem and not depends_on_caller else finding.notes
        lines.append(f"{each.definition.name}: {each.state}: {summary(each)}")
    if not settings.holders and (settings.peers or settings.replica_url is not None):
        finding.notes += _keep_connections(surveyed)


def _keep_connections(surveyed: Sequence[Surveyed]) -> Iterator[str]:
    """Yield a note of the upstreams of which each replica has its own state."""
    names = [each.definition.name for each in surveyed if each.definition.transport != "http" or each.era == "session"]
    if names:
        yield (
            f"{', '.join(names)}: each replica has its own sessions, programs and objects, and their state; "
            "GATEWAY_HOLDERS gives all replicas the same"
        )


def _ring(settings: Settings, finding: Finding) -> KeyRing | None:
    if finding.wrong or settings.seal_keys is None:
        return None
    return KeyRing.parse(settings.seal_keys.get_secret_value())


def _describe_tools(settings: Settings) -> list[str]:
    """Return how much is served, and which names some clients refuse, after making everything that clients would see.

    Raises:
        ConfigurationError: a schema or a declared question is wrong, or there is nothing to serve.
    """
    try:
        registry = load_registry(settings.tools)
        entries = inventory(registry)
    except AuthoringError as error:
        raise ConfigurationError(f"GATEWAY_TOOLS: {error}") from None
    if not entries:
        raise ConfigurationError(
            f"GATEWAY_TOOLS: no tool, prompt or resource in {', '.join(settings.tools)}; name the modules that define "
            "yours"
        )
    identity = identity_of(settings, registry.introduction)
    notes = [_counted(entries), f"served as {identity.summary}"]
    refused = ", ".join(tool.name for tool in registry.tools.values() if not tool.has_portable_name)
    if refused:
        notes.append(f"some clients refuse the tool name {refused}: use 1 to 64 of A-Z a-z 0-9 _ -")
    return notes


def _counted(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return in words how many tools, prompts and resources there are."""
    counts = {kind: sum(entry["kind"] == kind for entry in entries) for kind in ("tool", "prompt", "resource")}
    return ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items() if count)


async def _connect(settings: Settings, findings: Mapping[str, Finding], upstreams: UpstreamFile | None) -> None:
    ring = _ring(settings, findings[KEYS])
    await asyncio.gather(
        _examine_store(settings, ring, findings[STORE]),
        _examine_provider(settings, findings[PROVIDER]),
        _examine_replicas(settings, ring, findings[REPLICAS]),
        _ask_upstreams(settings, upstreams, findings[UPSTREAMS]),
    )


async def _examine_replicas(settings: Settings, ring: KeyRing | None, finding: Finding) -> None:
    if finding.wrong or ring is None or settings.audience is None:
        return
    notes, warnings = await examine_replicas(settings, ring, settings.audience)
    finding.notes += notes or ([] if warnings else ["GATEWAY_REPLICA_URL and GATEWAY_PEERS are not set"])
    finding.warnings += [*warnings, *unencrypted(settings)]


async def _examine_store(settings: Settings, ring: KeyRing | None, finding: Finding) -> None:
    if finding.wrong:
        return
    if settings.redis_url is None:
        finding.notes.append("GATEWAY_REDIS_URL is not set, so tools cannot run as tasks")
        return
    audience = settings.audience
    if ring is None or audience is None:
        # Without the real key and audience, what all processes agree on cannot be compared. The server itself can.
        ring, audience = KeyRing.parse(generate_entry(secrets.token_bytes)), secrets.token_hex(16)
    keys = KeyHolder(ring, audience, clock=time.time, random_bytes=os.urandom)
    store = ensured(make_task_store(settings, redis_url_of(settings), keys, ProcessTelemetry()), "there is a URL")
    try:
        inspected = await store.inspect()
        finding.notes.append(inspected.kind)
        if not inspected.keeps_tasks:
            finding.warnings.append(
                "GATEWAY_REDIS_URL: the server keeps no append-only file, so a restart of it loses tasks; set its "
                "appendonly to yes"
            )
    except ConfigurationError as error:
        finding.wrong += error.problems
    except TaskStoreDown:
        finding.unreachable.append(
            f"GATEWAY_REDIS_URL: the server does not answer ({store.why_down}); start it or correct the URL"
        )
    finally:
        await store.aclose()


async def _examine_provider(settings: Settings, finding: Finding) -> None:
    if finding.wrong:
        return
    try:
        finding.notes.append(await inspect_provider(settings))
    except ConfigurationError as error:
        finding.wrong += error.problems
    except FetchFailed as error:
        finding.unreachable.append(
            f"GATEWAY_JWKS_URL: the keys cannot be read ({error}); correct the URL or wait for the provider"
        )
    try:
        note = await inspect_exchange(settings)
        finding.notes += [] if note is None else [note]
    except ConfigurationError as error:
        finding.wrong += error.problems
    except FetchFailed as error:
        finding.unreachable.append(
            f"GATEWAY_TOKEN_EXCHANGE_URL: the endpoint cannot be asked ({error}); correct the URL or wait for the "
            "provider"
        )
