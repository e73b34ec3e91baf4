"""Definitions of upstreams: entries of the operator's file, read and checked.

The annotations of `Definition` say what each option accepts; `reading.py` reads a file by them. A definition that code
makes is not checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

from pydantic import AliasPath, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt

from gateway.http_client.tls import NO_TLS_FILES
from gateway.protocol.uris.globs import beginnings_of_uris, globs_of_uris, protects, tells_uris_apart
from gateway.protocol.uris.readings import inner_readings, is_ambiguous, readings
from gateway.settings.hosts import place_of
from gateway.upstreams.config import options
from gateway.upstreams.config.pins import PINNED_KINDS, Pinned
from gateway.upstreams.config.variables import shown

Transport: TypeAlias = Literal["http", "stdio", "python"]
Era: TypeAlias = Literal["auto", "stateless", "sessionless", "session"]
Ask: TypeAlias = Literal["hold", "replay", "hold,replay", "refuse"]
Scope: TypeAlias = Literal["shared", "caller", "call"]
Pin: TypeAlias = Literal["off", "warn", "refuse"]
TaskMode: TypeAlias = Literal["never", "optional", "required"]
CredentialKind: TypeAlias = Literal["none", "headers", "client_credentials", "token_exchange"]

SEPARATOR: Final = "__"
"""Between the prefix of an upstream and a name of its own."""

IDENTITY_BYTES: Final = 12
_SESSION_SCOPES: Final[Mapping[Transport, Scope]] = {"http": "caller", "stdio": "shared", "python": "call"}
_DAY: Final = 86_400

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which names of an upstream are served: those that match `allow` and do not match `deny`."""

    allow: options.Globs = ("*",)
    deny: options.Globs = ()

    def takes(self, name: str) -> bool:
        """Return whether the upstream's own name, or URI, is served. `deny` wins."""
        return _matches(self.allow, name) and not _matches(self.deny, name)


@dataclass(frozen=True, slots=True)
class _Resources(Choice):
    """A choice of resources: `deny` must not miss a spelling of what it forbids."""

    deny: options.UriGlobs = ()


@dataclass(frozen=True, slots=True)
class ByGlob(Generic[T]):
    """A value for each name, by globs in the order of the file; `default` is for a name that no glob matches."""

    default: T
    globs: tuple[tuple[str, T], ...] = ()

    def of(self, name: str) -> T:
        """Return the value of the most specific glob that matches: the name itself, else the most literal characters.

        Of two that are equally specific, the later one counts.
        """
        best, value = (False, -1), self.default
        for glob, candidate in self.globs:
            rank = (glob == name, sum(character not in "*?[]" for character in glob))
            if rank >= best and (glob == name or fnmatchcase(name, glob)):
                best, value = rank, candidate
        return value

    @property
    def values(self) -> tuple[T, ...]:
        """The values that any name can have."""
        named = tuple(value for _, value in self.globs)
        return named if any(glob == "*" for glob, _ in self.globs) else (self.default, *named)


def _by_glob(default: T, value: Any) -> options.Written:
    """Return what annotates a `ByGlob`. The file has an object of globs, or one value for all names."""

    def read(written: dict[str, T]) -> ByGlob[T]:
        return ByGlob(default, tuple(written.items()))

    or_default = Annotated[value, BeforeValidator(lambda written: default if written is None else written)]
    globs = Annotated[dict[options.GlobKey, or_default], Field(max_length=options.MAX_ITEMS), options.FOR_ALL_NAMES]
    return options.Written(globs, read)


@dataclass(frozen=True, slots=True)
class Scopes:
    """The scopes that callers need, by glob."""

    globs: tuple[tuple[str, frozenset[str]], ...] = ()

    def of(self, name: str) -> frozenset[str]:
        """Return the scopes of every glob that matches, so that a narrower glob never takes one away."""
        return frozenset().union(*(scopes for glob, scopes in self.globs if _matches((glob,), name)))

    def __bool__(self) -> bool:
        """Return whether any name needs a scope."""
        return any(scopes for _, scopes in self.globs)


def _scopes_of(written: dict[str, tuple[str, ...]]) -> Scopes:
    return Scopes(tuple((glob, frozenset(scopes)) for glob, scopes in written.items()))


@dataclass(frozen=True, slots=True)
class TaskRule:
    """Whether calls of a tool run as tasks.

    The answer of a new task waits `after_seconds` for its result; None answers with the handle at once.
    """

    mode: TaskMode = "never"
    after_seconds: Annotated[StrictFloat, options.between(0, 3600)] | None = None


def _spread_rule(value: object) -> object:
    return {"*": value} if isinstance(value, dict) and set(value) == {"after_seconds"} else value


def _read_rule(value: object) -> object:
    if isinstance(value, dict) and set(value) <= {"after_seconds"}:
        seconds = value.get("after_seconds")
        return {"mode": "optional", "after_seconds": 0 if seconds is None else seconds}
    if value not in get_args(TaskMode):
        use = f'{", ".join(get_args(TaskMode))} or {{"after_seconds": 5}}'
        raise ValueError(f"{shown(value)} is not valid; use {use}")
    return {"mode": value}


_RULES: Final = _by_glob(TaskRule(), Annotated[TaskRule, BeforeValidator(_read_rule)])


@dataclass(frozen=True, slots=True)
class Credentials:
    """How the gateway authenticates to an upstream. None leaves an option out of the request for a token.

    Attributes:
        kind: `none` and `headers` need nothing else: the headers are those of the definition. `client_credentials`
            is RFC 6749 section 4.4. `token_exchange` is RFC 8693, as the client of `GATEWAY_TOKEN_EXCHANGE_*`.
        resource: the resource (RFC 8707) of an exchanged token; None leaves it out.
    """

    kind: CredentialKind = "headers"
    token_url: options.TokenUrl = ""
    client_id: options.Text = ""
    client_secret: options.Secret = field(default="", repr=False)
    scope: options.OptionalText = None
    audience: options.OptionalText = None
    resource: options.OptionalText = None


@dataclass(frozen=True, slots=True)
class Definition:
    """An upstream to serve. Two definitions that are equal are the same upstream, which a new file does not replace.

    Its text never contains a secret: headers, address and proxy are left out.

    Attributes:
        name: the upstream's key in the file; metrics, logs and errors name it.
        prefix: what names are served under; "" serves them unchanged.
        url: the address of its MCP endpoint, as the operator wrote it.
        command: the program to run, with its `args`; "" for other upstreams.
        python: the object in a module, `module:object`, that is served in this process.
        path: where an ASGI application among these serves MCP.
        env, env_file: its variables; those of `env` count.
        cwd: where it runs; None is where the gateway runs.
        tools, prompts, resources: what is served. Resources and templates are matched by URI.
        unlisted: whether to serve resources that are not listed; None decides by `judges_resources`.
        scope: who shares a connection, a list and a credential; None lets callers share lists only, see
            `session_scope`.
        forward_headers: lower-case names of the caller's header fields to pass on.
        timeout_seconds: how long the upstream may work on one call, without the time in which users answer.
        held_seconds: how long a call may wait for its user's answer.
        idle_seconds: how long an unused connection stays open.
        rate: how often it is called, by all callers together; None does not limit it.
        instructions: whether the instructions of the upstream join the gateway's.
        pin: what happens to tools, prompts and instructions that differ from the lock file.
        roots: the URIs of folders that the operator declares to a program; those of callers never reach one.
        proxy: the address of an HTTP proxy; "environment" takes that of the environment; None uses none.
        identity: a digest of transport, address or command, and kind of credential. A call cannot continue at another
            identity.
        judges_resources: whether some URIs may be served and others not, or need other scopes.
    """

    name: str
    prefix: options.Prefix
    transport: Transport
    url: options.Url = field(default="", repr=False)
    headers: options.Headers = field(default=(), repr=False)
    command: options.Command = ""
    python: options.ServerObject = ""
    path: options.UrlPath = "/mcp"
    args: options.Arguments = field(default=(), repr=False)
    env: options.Environment = field(default=(), repr=False)
    env_file: Annotated[options.EnvFile, Field(validation_alias="envFile")] = field(default=(), repr=False)
    cwd: options.OptionalFolder = None
    tools: Choice = Choice()
    prompts: Choice = Choice()
    resources: Annotated[Choice, options.Written(_Resources)] = Choice()
    unlisted: Annotated[StrictBool | None, Field(validation_alias=AliasPath("resources", "unlisted"))] = None
    era: Annotated[ByGlob[Era], _by_glob("auto", Era)] = ByGlob("auto")
    scope: Scope | None = None
    ask: Annotated[ByGlob[Ask], _by_glob("hold", Ask)] = ByGlob("hold")
    task: Annotated[ByGlob[TaskRule], _RULES, BeforeValidator(_spread_rule)] = ByGlob(TaskRule())
    scopes: Annotated[Scopes, options.Written(options.ScopesByGlob, _scopes_of)] = Scopes()
    credentials: Credentials = Credentials()
    forward_headers: options.HeaderNames = ()
    timeout_seconds: Annotated[StrictFloat, options.between(0.1, _DAY)] = 60
    held_seconds: Annotated[StrictFloat, options.between(1, _DAY)] = 600
    max_in_flight: Annotated[StrictInt, options.between(1, 10_000, "a whole number")] = 64
    max_connections: Annotated[StrictInt, options.between(1, 10_000, "a whole number")] = 100
    max_result_bytes: Annotated[StrictInt, options.between(1024, 64 * 2**20, "a whole number")] = 16 * 2**20
    idle_seconds: Annotated[StrictFloat, options.between(1, _DAY)] = 300
    rate: options.OptionalRate = None
    instructions: StrictBool = True
    pin: Pin = "off"
    pinned: Pinned = field(default=Pinned(), repr=False)
    roots: options.Roots = ()
    tls: options.Tls = NO_TLS_FILES
    proxy: options.Proxy = field(default=None, repr=False)
    identity: bytes = field(init=False, repr=False, compare=False)
    judges_resources: bool = field(init=False, repr=False, compare=False)
    _is_same_for_all: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the identity, and whether the rules say the same of all resources."""
        parts = (self.transport, self.url or self.command or self.python, self.credentials.kind, *self.args)
        text = "".join(f"{len(part)}:{part}" for part in parts)
        object.__setattr__(self, "identity", hashlib.sha256(text.encode()).digest()[:IDENTITY_BYTES])
        globs = (*self.resources.deny, *(glob for glob, _ in self.scopes.globs))
        is_limited = all(glob.strip("*") for glob in self.resources.allow)
        object.__setattr__(self, "judges_resources", is_limited or any(map(tells_uris_apart, globs)))
        object.__setattr__(self, "_is_same_for_all", not is_limited and not any(glob.strip("*") for glob in globs))

    @property
    def place(self) -> str:
        """The address without user, query and fragment, the program or the object, to show to operators."""
        return place_of(self.url) if self.url else self.command or self.python

    @property
    def place_kind(self) -> str:
        """The key of the file that says what `place` is."""
        return "url" if self.url else "command" if self.command else "python"

    @property
    def variables(self) -> dict[str, str]:
        """The variables that a program is given."""
        return {**dict(self.env_file), **dict(self.env)}

    @property
    def depends_on_caller(self) -> bool:
        """Whether callers may get different lists, since the upstream knows who they are."""
        return self.scope not in (None, "shared") or bool(self.forward_headers)

    @property
    def session_scope(self) -> Scope:
        """The scope of sessions. By default, callers share programs, and calls share nothing of a server object."""
        return self.scope or _SESSION_SCOPES[self.transport]

    def has_sessions_too(self, name: str) -> bool:
        """Return whether the operator lets a tool be called in a session if it cannot do without."""
        return self.transport != "stdio" and self.era.of(name) == "auto"

    def serves_tool(self, name: str) -> bool:
        """Return whether a tool, by the upstream's own name, may be listed and called."""
        return self.tools.takes(name)

    @property
    def serves_unlisted(self) -> bool:
        """Whether resources are served that the upstream does not list, and that no template of it matches."""
        return not self.judges_resources if self.unlisted is None else self.unlisted

    def has_changed(self, kind: str, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry of a list, as it came, is not as the lock file has it."""
        return self.pin != "off" and kind in PINNED_KINDS and not self.pinned.has(kind, entry)

    def pinned_part(self, kind: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the part of an entry that the lock file vouches for if it has not changed."""
        return self.pinned.covered(entry) if self.pin == "refuse" and kind == "tools" else entry

    def serves_resource(self, uri: str | None) -> bool:
        """Return whether a resource or template may be listed and read, by its canonical form; None if it has none.

        `deny` wins, whatever a server may read in the URI. Dot segments do not lead out of what `allow` says.
        """
        if self._is_same_for_all:
            return self.resources.takes("")
        if uri is None:
            return False
        allowed = all(_matches_uri(self.resources.allow, text) for text in inner_readings(uri))
        return allowed and not self._is_denied(uri)

    def serves_made(self, uri: str) -> bool:
        """Return whether a resource that is not listed may be read, by its canonical form, if its rules allow it.

        Where rules are about some resources, it must have one path to all servers.
        """
        return not (self.judges_resources and is_ambiguous(uri))

    def scopes_of_resource(self, uri: str | None) -> frozenset[str]:
        """Return the scopes of every glob that matches what a server may read in a URI, by its canonical form."""
        if uri is None or self._is_same_for_all:
            return self.scopes.of("")
        texts, globs = readings(uri), self.scopes.globs
        return frozenset().union(
            *(scopes for glob, scopes in globs if _matches_uri((glob,), uri) or protects(glob, texts))
        )

    def may_serve(self, beginning: str) -> bool:
        """Return whether a URI that begins so may be served: no rule forbids all of them."""
        heads = [head for glob in self.resources.allow for head in beginnings_of_uris(glob)]
        is_allowed = any(head.startswith(beginning) or beginning.startswith(head) for head in heads)
        return is_allowed and not self._is_denied(beginning)

    def _is_denied(self, uri: str) -> bool:
        globs = self.resources.deny
        if not globs:
            return False
        texts = readings(uri)
        return _matches_uri(globs, uri) or any(protects(glob, texts) for glob in globs)


@dataclass(frozen=True, slots=True)
class UpstreamFile:
    """The content of a file of upstreams.

    Attributes:
        notes: lines for the log, such as keys that have no effect here.
    """

    definitions: tuple[Definition, ...] = ()
    notes: tuple[str, ...] = ()


def _matches(globs: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _matches_uri(globs: Iterable[str], uri: str) -> bool:
    return any(_matches(globs_of_uris(glob), uri) for glob in globs)
