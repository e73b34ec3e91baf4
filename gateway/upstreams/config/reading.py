"""Reads the operator's file of upstreams: that of a desktop client, with our options under `gateway`.

Every mistake is reported, all of them at once, and none of the lines contains a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from gateway.errors import ConfigurationError
from gateway.http_client.tls import TlsFiles
from gateway.settings.problems import Problems
from gateway.upstreams.config.definition import (
    Ask,
    ByGlob,
    Choice,
    CredentialKind,
    Credentials,
    Definition,
    Era,
    NotServed,
    Pin,
    Scope,
    TaskRule,
    Transport,
    UpstreamFile,
)
from gateway.upstreams.config.documents import DocumentError, parse_json, parse_toml, repeated_names
from gateway.upstreams.config.options import (
    Place,
    Values,
    check_uri_glob,
    listed,
    read_by_glob,
    read_choice,
    read_count,
    read_environment,
    read_file_path,
    read_forwarded,
    read_headers,
    read_number,
    read_object,
    read_proxy,
    read_rate,
    read_scopes,
    read_served,
    read_switch,
    read_task,
    read_text,
    read_texts,
    read_token_url,
    read_url,
    refuse_unknown,
    replaced,
    shown,
)
from gateway.upstreams.config.pins import Pinned, lock_file_of, read_lock
from gateway.upstreams.config.variables import Variables

MAX_FILE_BYTES: Final = 1 << 20
MAX_UPSTREAMS: Final = 256
SECTIONS: Final = ("mcpServers", "servers")
"""The names of the object that holds the upstreams: that of most desktop clients, and that of VS Code."""

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_PREFIX_USE: Final = "1 to 32 of a-z, 0-9 and -, starting with a letter"
_PYTHON: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_DAY: Final = 86_400.0

_TYPES: Final[Mapping[str, Transport]] = {
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "stdio": "stdio",
}
_BY_KEY: Final[Mapping[str, Transport]] = {"url": "http", "command": "stdio", "python": "python"}
_ENTRY_KEYS: Final[Mapping[Transport, frozenset[str]]] = {
    "http": frozenset({"url", "headers"}),
    "stdio": frozenset({"command", "args", "env", "cwd", "envFile"}),
    "python": frozenset({"python"}),
}
_COMMON_KEYS: Final = frozenset({"type", "disabled", "gateway"})
_HTTP_OPTIONS: Final = frozenset({"credentials", "forward_headers", "max_connections", "tls", "proxy"})
OPTIONS: Final = _HTTP_OPTIONS | {
    *("prefix", "tools", "prompts", "resources", "era", "scope", "ask", "task", "scopes", "timeout_seconds"),
    *("held_seconds", "max_in_flight", "max_result_bytes", "idle_seconds", "rate", "pin", "instructions"),
}
_CREDENTIAL_OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "none": frozenset(),
    "headers": frozenset(),
    "client_credentials": frozenset({"token_url", "client_id", "client_secret", "scope", "audience"}),
    "token_exchange": frozenset({"audience", "scope", "resource"}),
}
_REASONS: Final[Mapping[Transport, str]] = {
    "http": "it is called in sessions only (era), and the gateway does not serve such upstreams yet",
    "stdio": "the gateway does not run commands yet; only upstreams with a url are served",
    "python": "the gateway does not serve Python objects yet; only upstreams with a url are served",
}

_Entry: TypeAlias = Definition | NotServed


class UpstreamReader:
    """Reads one file of upstreams, as often as it changes.

    The file is JSON with comments, or TOML if its name ends in `.toml`. Its variables are those of the process, unless
    there is an `environ`. Only what writes the lock file of pins does not need it.

    Attributes:
        files: the further files that the last reading depended on, whether they could be read or not.
    """

    def __init__(self, path: Path, environ: Mapping[str, str] | None = None, *, needs_lock: bool = True) -> None:
        self.path = path
        self._needs_lock = needs_lock
        self.files: tuple[Path, ...] = ()
        self._environ = os.environ if environ is None else environ

    def read(self) -> UpstreamFile:
        """Read the file. A mistake in it raises `ConfigurationError`, with one line for each."""
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigurationError(
                f"GATEWAY_UPSTREAMS: {str(self.path)!r} cannot be read: {reason}; name a readable file"
            ) from None
        return self.parse(content)

    def parse(self, content: bytes) -> UpstreamFile:
        """Read the content of the file. Mistakes raise `ConfigurationError`, with one line for each."""
        variables = Variables(self._environ, self.path.parent)
        lock = lock_file_of(self.path)
        problems = Problems()
        try:
            document = self._document(content)
            reading = _Reading(Place(problems, str(self.path)), variables)
            found = reading.file(document)
            if self._needs_lock and any(definition.pin != "off" for definition in found.definitions):
                with problems.noted():
                    pinned = read_lock(lock)
                    found = replace(
                        found,
                        definitions=tuple(
                            definition
                            if definition.pin == "off"
                            else replace(definition, pinned=pinned.get(definition.name, Pinned()))
                            for definition in found.definitions
                        ),
                    )
        finally:
            self.files = (*dict.fromkeys(variables.files), lock)
        problems.raise_any()
        return found

    def _document(self, content: bytes) -> Any:
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"{self.path}: larger than {MAX_FILE_BYTES} bytes; use a smaller file")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ConfigurationError(f"{self.path}: not UTF-8 text; save it as UTF-8") from None
        try:
            return parse_toml(text) if self.path.suffix.lower() == ".toml" else parse_json(text)
        except DocumentError as error:
            raise ConfigurationError(f"{self.path}: {error}") from None


class _Reading:
    """One reading of a document."""

    def __init__(self, place: Place, variables: Variables) -> None:
        self._place = place
        self._variables = variables
        self._without_effect: list[str] = []
        self._prefixes: dict[str, str] = {}

    def file(self, document: Any) -> UpstreamFile:
        """Return what the document says; mistakes are among the problems."""
        place = self._place
        for path in repeated_names(document):
            place.inside(".".join(path)).wrong("written twice in one object; keep one of them")
        values = read_object(document, place)
        found = self._entries(values) if isinstance(document, dict) else []
        return UpstreamFile(
            tuple(entry for entry in found if isinstance(entry, Definition)),
            tuple(entry for entry in found if isinstance(entry, NotServed)),
            self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        if not self._without_effect:
            return ()
        return (f"{self._place.file}: keys that have no effect here: {', '.join(self._without_effect)}",)

    def _entries(self, values: Values) -> list[_Entry]:
        sections = [name for name in SECTIONS if name in values]
        if len(sections) != 1:
            self._place.wrong("has both mcpServers and servers; keep one" if sections else "has no mcpServers; add it")
            return []
        self._without_effect += [key for key in values if key not in SECTIONS]
        return self._section(values[sections[0]], self._place.inside(sections[0]))

    def _section(self, value: object, place: Place) -> list[_Entry]:
        entries = read_object(value, place)
        if not entries:
            place.wrong("names no upstream; add one")
        if len(entries) > MAX_UPSTREAMS:
            place.wrong(f"names {len(entries)} upstreams; use at most {MAX_UPSTREAMS}")
            return []
        return [entry for name, each in entries.items() for entry in self._entry(name, each)]

    def _entry(self, name: str, value: object) -> list[_Entry]:
        place = Place(self._place.problems, self._place.file, name)
        if not _NAME.fullmatch(name):
            place = Place(self._place.problems, self._place.file, repr(name))
            place.wrong("not a name for an upstream; use 1 to 64 printable characters")
        values = read_object(value, place)
        if not values:
            if isinstance(value, dict):
                place.wrong("says nothing; add a url, a command or a python object")
            return []
        if read_switch(values.get("disabled"), place.inside("disabled")):
            return []
        values = replaced(values, self._variables, place)
        transport = self._transport(values, place)
        if transport is None:
            return []
        known = _ENTRY_KEYS[transport] | _COMMON_KEYS
        self._without_effect += [f"{name}.{key}" for key in values if key not in known]
        entry = _EntryReader(name, transport, values, place, self._variables).entry()
        self._claim(entry, values, place)
        return [entry]

    def _transport(self, values: Values, place: Place) -> Transport | None:
        kind = values.get("type")
        if kind == "sse":
            place.inside("type").wrong(
                "the gateway does not speak the SSE transport of 2024-11-05; use the Streamable HTTP URL of the "
                "upstream, or put mcp-proxy in front of it"
            )
            return None
        given = [key for key in _BY_KEY if key in values]
        if len(given) != 1:
            found = f"has {' and '.join(given)}" if given else "has no url, command or python"
            place.wrong(f"{found}; {'keep one of them' if given else 'add one of them'}")
            return None
        transport = _BY_KEY[given[0]]
        if kind is not None:
            _check_type(kind, given[0], place.inside("type"))
        return transport

    def _claim(self, entry: _Entry, values: Values, place: Place) -> None:
        """Check that no other upstream has the prefix of this one."""
        prefix = _prefix_of(entry.name, values)
        if prefix is None:
            return
        other = self._prefixes.setdefault(prefix, entry.name)
        if other != entry.name:
            where = place.inside("gateway.prefix")
            if prefix:
                where.wrong(f"{prefix!r} is also the prefix of {shown(other)}; write another one")
            else:
                where.wrong(f'"" is also the prefix of {shown(other)}; only one upstream may have none')


def _check_type(kind: object, key: str, place: Place) -> None:
    """Check that the type of an entry fits the key that says where its upstream is."""
    if not isinstance(kind, str) or kind not in _TYPES:
        place.not_valid(kind, "http or stdio")
    elif _TYPES[kind] != _BY_KEY[key]:
        place.wrong(f"{shown(kind)} does not fit {key}; remove it")


def _prefix_of(name: str, values: Values) -> str | None:
    """Return the prefix of an entry, which is by default made of its name; None if it is wrong."""
    options = values.get("gateway")
    given = options.get("prefix") if isinstance(options, dict) else None
    prefix = name.lower().replace("_", "-") if given is None else given
    is_prefix = isinstance(prefix, str) and (prefix == "" or _PREFIX.fullmatch(prefix))
    return str(prefix) if is_prefix else None


class _EntryReader:
    """Reads one entry."""

    def __init__(self, name: str, transport: Transport, values: Values, place: Place, variables: Variables) -> None:
        self._name = name
        self._transport = transport
        self._values = values
        self._place = place
        self._variables = variables
        self._at = place.inside("gateway")
        self._options = read_object(values.get("gateway"), self._at)

    def entry(self) -> _Entry:
        refuse_unknown(self._options, OPTIONS, self._at)
        if self._transport == "stdio":
            self._check_command()
        elif self._transport == "python":
            self._check_python()
        if self._transport != "http":
            for key in sorted(_HTTP_OPTIONS & self._options.keys()):
                self._at.inside(key).wrong("only upstreams with a url have this option; remove it")
        definition = self._definition()
        if self._transport != "http" or set(definition.era.values) == {"session"}:
            return NotServed(self._name, self._transport, _REASONS[self._transport])
        return definition

    def _definition(self) -> Definition:
        url = headers = None
        if self._transport == "http":
            url = read_url(self._values.get("url"), self._place.inside("url"))
            headers = read_headers(self._values.get("headers"), self._place.inside("headers"))
        credentials = self._credentials(headers or ())
        forwarded = read_forwarded(
            self._options.get("forward_headers"), self._at.inside("forward_headers"), headers or ()
        )
        return Definition(
            name=self._name,
            prefix=self._prefix(),
            transport=self._transport,
            url=url or "",
            headers=headers or (),
            tools=read_served(self._options.get("tools"), self._at.inside("tools")),
            prompts=read_served(self._options.get("prompts"), self._at.inside("prompts")),
            resources=self._resources(),
            unlisted=self._unlisted(),
            era=self._era(),
            scope=self._scope(credentials),
            ask=self._ask(),
            task=read_by_glob(self._task_value(), self._at.inside("task"), read_task, TaskRule()),
            scopes=read_scopes(self._options.get("scopes"), self._at.inside("scopes")),
            credentials=credentials,
            forward_headers=forwarded,
            timeout_seconds=self._number("timeout_seconds", 0.1, _DAY, 60),
            held_seconds=self._number("held_seconds", 1, _DAY, 600),
            max_in_flight=self._count("max_in_flight", 10_000, 64),
            max_connections=self._count("max_connections", 10_000, 100),
            max_result_bytes=self._count("max_result_bytes", 64 * 2**20, 4 * 2**20, least=1024),
            idle_seconds=self._number("idle_seconds", 1, _DAY, 300),
            rate=read_rate(self._options.get("rate"), self._at.inside("rate")),
            instructions=self._instructions(),
            pin=self._pin(),
            tls=self._tls(url or ""),
            proxy=read_proxy(self._options.get("proxy"), self._at.inside("proxy")),
        )

    def _resources(self) -> Choice:
        place = self._at.inside("resources")
        choice = read_served(self._options.get("resources"), place, ("unlisted",))
        for glob in choice.deny:
            check_uri_glob(glob, place.inside("deny"))
        return choice

    def _unlisted(self) -> bool | None:
        resources = self._options.get("resources")
        value = resources.get("unlisted") if isinstance(resources, dict) else None
        return None if value is None else read_switch(value, self._at.inside("resources.unlisted"))

    def _prefix(self) -> str:
        prefix = _prefix_of(self._name, self._values)
        if prefix is None and self._options.get("prefix") is None:
            self._at.inside("prefix").wrong(f"the name of the upstream does not make a prefix; write {_PREFIX_USE}")
        elif prefix is None:
            self._at.inside("prefix").not_valid(self._options["prefix"], _PREFIX_USE)
        return prefix or ""

    def _era(self) -> ByGlob[Era]:
        def read(value: object, place: Place) -> Era:
            return cast("Era", read_choice(value, place, ("auto", "stateless", "session"), "auto"))

        return read_by_glob(self._options.get("era"), self._at.inside("era"), read, "auto")

    def _ask(self) -> ByGlob[Ask]:
        def read(value: object, place: Place) -> Ask:
            return cast("Ask", read_choice(value, place, ("hold", "replay", "hold,replay", "refuse"), "hold"))

        return read_by_glob(self._options.get("ask"), self._at.inside("ask"), read, "hold")

    def _task_value(self) -> object:
        value = self._options.get("task")
        # {"after_seconds": 5} is one rule for all tools, not a glob.
        return {"*": value} if isinstance(value, dict) and set(value) == {"after_seconds"} else value

    def _scope(self, credentials: Credentials) -> Scope:
        place = self._at.inside("scope")
        given = read_choice(self._options.get("scope"), place, ("shared", "caller", "call"), None)
        exchanges = credentials.kind == "token_exchange"
        if exchanges and given == "shared":
            place.wrong(
                "shared, but token_exchange gives each caller a token of its own; use caller, or other credentials"
            )
        by_transport: Mapping[Transport, Scope] = {"stdio": "caller", "python": "call", "http": "shared"}
        default: Scope = "caller" if exchanges else by_transport[self._transport]
        return cast("Scope", given or default)

    def _instructions(self) -> bool:
        value = self._options.get("instructions")
        return value is None or read_switch(value, self._at.inside("instructions"))

    def _pin(self) -> Pin:
        return cast(
            "Pin", read_choice(self._options.get("pin"), self._at.inside("pin"), ("off", "warn", "refuse"), "off")
        )

    def _number(self, key: str, least: float, most: float, default: float) -> float:
        return read_number(self._options.get(key), self._at.inside(key), least, most, default)

    def _count(self, key: str, most: int, default: int, least: int = 1) -> int:
        return read_count(self._options.get(key), self._at.inside(key), least, most, default)

    def _credentials(self, headers: tuple[tuple[str, str], ...]) -> Credentials:
        """Return how to authenticate: one word, or an object with the word as `kind` and what it needs."""
        place = self._at.inside("credentials")
        value = self._options.get("credentials")
        values = value if isinstance(value, dict) else {} if value is None else {"kind": value}
        kinds = tuple(_CREDENTIAL_OPTIONS)
        if isinstance(value, dict) and "kind" not in value:
            place.wrong(f"has no kind; add it: {listed(kinds)}")
            return Credentials()
        kind_at = place.inside("kind") if isinstance(value, dict) else place
        kind = read_choice(values.get("kind"), kind_at, kinds, "headers")
        refuse_unknown(values, {"kind", *_CREDENTIAL_OPTIONS[kind]}, place)
        if kind != "headers":
            self._refuse_authorization(headers, kind)
        if kind == "client_credentials":
            return self._client_credentials(values, place)
        if kind == "token_exchange":
            return self._token_exchange(values, place)
        return Credentials(kind=cast("CredentialKind", kind))

    def _refuse_authorization(self, headers: tuple[tuple[str, str], ...], kind: str) -> None:
        if any(name.lower() == "authorization" for name, _ in headers):
            self._place.inside("headers").wrong(
                f"Authorization does not fit credentials of kind {kind}; remove one of them"
            )

    def _client_credentials(self, values: Values, place: Place) -> Credentials:
        return Credentials(
            kind="client_credentials",
            token_url=read_token_url(values.get("token_url"), place.inside("token_url")),
            client_id=read_text(values.get("client_id"), place.inside("client_id")),
            client_secret=read_text(values.get("client_secret"), place.inside("client_secret"), secret=True),
            scope=_optional(values, place, "scope"),
            audience=_optional(values, place, "audience"),
        )

    def _token_exchange(self, values: Values, place: Place) -> Credentials:
        if "audience" not in values and "resource" not in values:
            place.wrong("token_exchange has no audience and no resource; add what the tokens are for")
        return Credentials(
            kind="token_exchange",
            scope=_optional(values, place, "scope"),
            audience=_optional(values, place, "audience"),
            resource=_optional(values, place, "resource"),
        )

    def _tls(self, url: str) -> TlsFiles:
        place = self._at.inside("tls")
        values = read_object(self._options.get("tls"), place)
        refuse_unknown(values, ("ca", "cert", "key"), place)
        if values and url.lower().startswith("http:"):
            place.wrong("the url is not https; use an https URL, or remove it")
        if "key" in values and "cert" not in values:
            place.wrong("has a key without a cert; add the cert")
        ca, cert, key = (
            read_file_path(values.get(name), place.inside(name), self._variables) for name in ("ca", "cert", "key")
        )
        return TlsFiles(ca, cert, key)

    def _check_command(self) -> None:
        values, place = self._values, self._place
        read_text(values.get("command"), place.inside("command"), "the name or path of a program")
        if "args" in values:
            read_texts(values["args"], place.inside("args"), lambda text: "\0" not in text, "texts")
        read_environment(values.get("env"), place.inside("env"))
        read_file_path(values.get("envFile"), place.inside("envFile"), self._variables)
        if "cwd" in values:
            folder = read_text(values["cwd"], place.inside("cwd"), "the path of a folder")
            if folder and not self._variables.path(folder).is_dir():
                place.inside("cwd").wrong(f"{shown(values['cwd'])} is not a folder; name one")

    def _check_python(self) -> None:
        value = self._values.get("python")
        if not isinstance(value, str) or not _PYTHON.fullmatch(value):
            self._place.inside("python").not_valid(value, "a module and an object in it, such as bugs_server:mcp")


def _optional(values: Values, place: Place, key: str) -> str | None:
    return read_text(values[key], place.inside(key)) or None if key in values else None
