"""Reads the operator's file of upstreams: that of a desktop client, with our options under `gateway`.

Every mistake is reported, all of them at once, and none of the lines contains a secret.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gateway.errors import ConfigurationError
from gateway.http_client.tls import TlsFiles
from gateway.settings.problems import Problems
from gateway.upstreams.config.definition import Choice, Definition, Transport, UpstreamFile
from gateway.upstreams.config.documents import DocumentError, parse_json, parse_toml, repeated_names
from gateway.upstreams.config.options import PREFIX
from gateway.upstreams.config.pins import Pinned, lock_file_of, read_lock
from gateway.upstreams.config.variables import SecretText, VariableError, Variables, shortened, shown

MAX_FILE_BYTES: Final = 1 << 20
MAX_UPSTREAMS: Final = 256
SECTIONS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""The paths of the object that holds the upstreams: that of most desktop clients, and those of VS Code."""
URL_KEYS: Final = ("url", "httpUrl", "serverUrl")
"""The names of the URL: that of most desktop clients, of Gemini CLI and of Windsurf."""

_PREFIX_CHARACTERS: Final = 32
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,64}")

_HTTP_TYPES: Final = ("http", "streamable-http", "streamableHttp", "streamable_http")
_BY_KEY: Final[Mapping[str, Transport]] = {
    **dict.fromkeys(URL_KEYS, "http"),
    "command": "stdio",
    "python": "python",
}


_OPTIONS: Final = TypeAdapter(Definition)
_KEYS: Final[Mapping[Transport, Collection[str]]] = {
    "http": (*URL_KEYS, "headers"),
    "stdio": ("command", "args", "env", "envFile", "cwd"),
    "python": ("python",),
}
_COMMON_KEYS: Final = ("type", "disabled", "gateway")

OPTIONS: Final = frozenset(field.name for field in fields(Definition) if field.init).difference(
    (
        *("name", "transport", "url", "headers", "command", "python", "args", "env", "env_file", "cwd"),
        *("unlisted", "pinned"),
    )
)
_HTTP_OPTIONS: Final = frozenset({"credentials", "forward_headers", "tls", "proxy"})
_SESSION_ERAS: Final = frozenset({"auto", "session"})
_STDIO_CONNECTIONS: Final = 4
"""How many children an upstream may have, unless its option says so."""
_CHOICE: Final = tuple(field.name for field in fields(Choice))
_MEMBERS: Final[Mapping[str, Collection[str]]] = {
    "tools": _CHOICE,
    "prompts": _CHOICE,
    "resources": (*_CHOICE, "unlisted"),
    "tls": tuple(field.name for field in fields(TlsFiles)),
}
"""The members of the options that are objects."""

_REQUIRED: Final = ("token_url", "client_id", "client_secret")
_CREDENTIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "none": (),
    "headers": (),
    "client_credentials": (*_REQUIRED, "scope", "audience"),
    "token_exchange": ("audience", "scope", "resource"),
}
"""The members of each kind of credentials."""

_USES: Final = {"bool_type": "true or false", "dict_type": "an object", "dataclass_type": "an object"}
"""What to use instead, by pydantic's type of an error; a list for all others."""

_SHORTHANDS: Final = ("*", "kind", "[key]")
"""Members that a value without an object stands for, and what pydantic calls the name of a member."""

_SIMILAR: Final = 0.6

T = TypeVar("T")
Values: TypeAlias = dict[str, Any]


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
            found = _DocumentReading(FilePlace(problems, str(self.path)), variables).file(self._document(content))
            if self._needs_lock and any(definition.pin != "off" for definition in found.definitions):
                with problems.noted():
                    found = _with_pins(found, read_lock(lock))
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


def _with_pins(found: UpstreamFile, pinned: Mapping[str, Pinned]) -> UpstreamFile:
    definitions = (
        each if each.pin == "off" else replace(each, pinned=pinned.get(each.name, Pinned()))
        for each in found.definitions
    )
    return replace(found, definitions=tuple(definitions))


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where in a file a value is, to say what is wrong with it.

    `upstream` is "" outside of upstreams. `key` is a path, separated by dots.
    """

    problems: Problems
    file: str
    upstream: str = ""
    key: str = ""

    def inside(self, *keys: str) -> FilePlace:
        """Return the place of a value in the object at this place."""
        shown_keys = [key if key.isprintable() else repr(key)[1:-1] for key in keys]
        return replace(self, key=".".join((self.key, *shown_keys) if self.key else shown_keys))

    def wrong(self, text: str) -> None:
        """Add a line that says what is wrong here and what to write. Only the first one for a key counts."""
        parts = (self.file, shortened(self.upstream), shortened(self.key))
        start = "".join(f"{part}: " for part in parts if part)
        if not self.key or not any(line.startswith(start) for line in self.problems.lines):
            self.problems.add(start + text)

    def object(self, value: object) -> Values:
        """Return an object; an empty one if it is missing or wrong."""
        if value is not None and not isinstance(value, dict):
            self.wrong(f"{shown(value)} is not valid; use an object")
        return value if isinstance(value, dict) else {}

    def known(self, values: Values, names: Collection[str]) -> Values:
        """Return the members with these names. Report every other, with the one that was probably meant."""
        for key in [key for key in values if key not in names]:
            close = difflib.get_close_matches(key, names, n=1, cutoff=_SIMILAR)
            advice = f"did you mean {close[0]!r}?" if close else f"use {_listed(sorted(names))}"
            self.inside(key).wrong(f"not an option; {advice}")
        return {key: value for key, value in values.items() if key in names}

    def replaced(self, value: Any, variables: Variables) -> Any:
        """Return a copy of a value with the references in all its texts replaced. Wrong ones are reported, and stay."""
        if isinstance(value, str):
            try:
                return variables.replace(value)
            except VariableError as error:
                self.wrong(str(error))
                return SecretText(value)
        if isinstance(value, dict):
            return {key: self.inside(key).replaced(item, variables) for key, item in value.items()}
        if isinstance(value, list):
            return [self.inside(str(number)).replaced(item, variables) for number, item in enumerate(value)]
        return value


class _DocumentReading:
    """One reading of a document. Mistakes are added to the problems of its place."""

    def __init__(self, place: FilePlace, variables: Variables) -> None:
        self._place = place
        self._variables = variables
        self._without_effect: list[str] = []
        self._prefixes: dict[str, str] = {}

    def file(self, document: Any) -> UpstreamFile:
        """Return what the document says, without entries that are wrong."""
        for path in repeated_names(document):
            self._place.inside(*path).wrong("written twice in one object; keep one of them")
        found = [self._entry(name, value) for name, value in self._entries(document).items()]
        effectless = ", ".join(self._without_effect)
        return UpstreamFile(
            tuple(entry for entry in found if entry is not None),
            (f"{self._place.file}: keys that have no effect here: {effectless}",) if effectless else (),
        )

    def _entries(self, document: Any) -> Values:
        if not isinstance(document, dict):
            self._place.wrong(f"{shown(document)} is not valid; use an object")
            return {}
        found = {path: section for path in SECTIONS if (section := _holder(document, path)) is not None}
        if len(found) != 1:
            names = " and ".join(map(".".join, found))
            self._place.wrong(f"has both {names}; keep one" if found else "has no mcpServers; add it")
            return {}
        ((path, section),) = found.items()
        self._without_effect += [key for key in document if key != path[0]]
        self._without_effect += [f"{path[0]}.{key}" for key in section if section is not document and key != path[-1]]
        place = self._place.inside(*path)
        entries = place.object(section[path[-1]])
        if not entries:
            place.wrong("names no upstream; add one")
        if len(entries) > MAX_UPSTREAMS:
            place.wrong(f"names {len(entries)} upstreams; use at most {MAX_UPSTREAMS}")
            return {}
        return entries

    def _entry(self, name: str, value: object) -> Definition | None:
        place = replace(self._place, upstream=name if _NAME.fullmatch(name) else repr(name))
        if not _NAME.fullmatch(name):
            place.wrong("not a name for an upstream; use 1 to 64 printable characters")
        if value == {}:
            place.wrong("says nothing; add a url, a command or a python object")
        values = place.object(value)
        if not values or _is_disabled(values, place):
            return None
        values = place.replaced(values, self._variables)
        transport = _transport(values, place)
        if transport is None:
            return None
        known = (*_KEYS[transport], *_COMMON_KEYS)
        self._without_effect += [f"{name}.{key}" for key in values if key not in known]
        return self._read(name, transport, values, place)

    def _read(self, name: str, transport: Transport, values: Values, place: FilePlace) -> Definition | None:
        given = values["gateway"] = place.inside("gateway").object(values.get("gateway"))
        options = _options(given, transport, place.inside("gateway"))
        if "prefix" not in options:
            options["prefix"] = _prefix_of(name)
        options |= {"url" if key in URL_KEYS else key: values[key] for key in values if key in _KEYS[transport]}
        misfits = (*_header_misfits(options), *_option_misfits(options)) if transport == "http" else ()
        for key, text in misfits:
            place.inside(key).wrong(text)
        definition = self._validated(_OPTIONS, {**options, "name": name, "transport": transport}, values, place)
        self._claim(name, options["prefix"], place)
        if definition is not None and transport == "stdio" and not _SESSION_ERAS.issuperset(definition.era.values):
            place.inside("gateway.era").wrong("a program is always called in a session; use auto or session")
        return definition

    def _validated(self, model: TypeAdapter[T], values: Values, document: Values, place: FilePlace) -> T | None:
        try:
            return model.validate_python(values, context=self._variables)
        except ValidationError as error:
            for mistake in error.errors(include_url=False):
                loc = mistake["loc"]
                if loc[0] == "url":
                    loc = (next((key for key in URL_KEYS if key in document), "url"),)
                path = loc if any(loc[0] in keys for keys in _KEYS.values()) else ("gateway", *loc)
                place.inside(*_path(path, document)).wrong(_line(mistake))
            return None

    def _claim(self, name: str, prefix: object, place: FilePlace) -> None:
        """Check that no other upstream has this prefix."""
        other = self._prefixes.setdefault(prefix, name) if isinstance(prefix, str) else name
        if other != name:
            advice = "write another one" if prefix else "only one upstream may have none"
            place.inside("gateway.prefix").wrong(f"{shown(prefix)} is also the prefix of {shown(other)}; {advice}")


def _holder(document: Values, path: Sequence[str]) -> Values | None:
    """Return the object that has the last member of a path; None if there is none."""
    holder: Any = document
    for name in path[:-1]:
        holder = holder.get(name)
    return holder if isinstance(holder, dict) and path[-1] in holder else None


def _prefix_of(name: str) -> str:
    """Return the prefix that the name of an upstream makes. Two names may make the same."""
    prefix = name.lower().replace("_", "-")
    if PREFIX.fullmatch(prefix):
        return prefix
    words = "-".join(re.findall("[a-z0-9]+", prefix)) or hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{'' if words[0].isalpha() else 'u-'}{words}"[:_PREFIX_CHARACTERS].rstrip("-")


def _is_disabled(values: Values, place: FilePlace) -> bool:
    disabled = values.get("disabled")
    if disabled is not None and not isinstance(disabled, bool):
        place.inside("disabled").wrong(f"{shown(disabled)} is not valid; use true or false")
    return disabled is True


def _transport(values: Values, place: FilePlace) -> Transport | None:
    kind = values.get("type")
    if kind == "sse":
        place.inside("type").wrong(
            "the gateway does not speak the SSE transport of 2024-11-05; use the Streamable HTTP URL of the "
            "upstream, or put mcp-proxy in front of it"
        )
        return None
    given = [key for key in _BY_KEY if key in values]
    if len(given) != 1:
        found = f"has {' and '.join(given)}; keep" if given else "has no url, command or python; add"
        place.wrong(f"{found} one of them")
        return None
    transport = _BY_KEY[given[0]]
    if kind is None:
        return transport
    if kind not in (*_HTTP_TYPES, "stdio"):
        place.inside("type").wrong(f"{shown(kind)} is not valid; use http or stdio")
    elif (kind == "stdio") != (transport == "stdio") or transport == "python":
        place.inside("type").wrong(f"{shown(kind)} does not fit {given[0]}; remove it")
    return transport


def _options(given: Values, transport: Transport, place: FilePlace) -> Values:
    """Return the options that are known, in the form of the model. Null is the same as nothing."""
    options = {key: value for key, value in place.known(given, OPTIONS).items() if value is not None}
    if transport == "stdio":
        options.setdefault("max_connections", _STDIO_CONNECTIONS)
    if transport != "http":
        for key in sorted(_HTTP_OPTIONS & given.keys()):
            place.inside(key).wrong("only upstreams with a url have this option; remove it")
            options.pop(key, None)
    if transport != "stdio" and "roots" in options:
        place.inside("roots").wrong("only upstreams with a command have this option; remove it")
        options.pop("roots", None)
    if transport != "python" and "path" in options:
        place.inside("path").wrong("only upstreams with a python object have this option; remove it")
        options.pop("path", None)
    for key, names in _MEMBERS.items():
        if isinstance(options.get(key), dict):
            options[key] = place.inside(key).known(options[key], names)
    if "credentials" in options:
        options["credentials"] = _credentials(options["credentials"], place.inside("credentials"))
        if options["credentials"]["kind"] == "token_exchange":
            options.setdefault("scope", "caller")
    return options


def _credentials(value: object, place: FilePlace) -> Values:
    """Return how to authenticate: one word, or an object with the word as `kind` and what it needs."""
    values = value if isinstance(value, dict) else {"kind": value}
    if "kind" not in values:
        place.wrong(f"has no kind; add it: {_listed(_CREDENTIALS)}")
        return {"kind": "headers"}
    kind = "headers" if values["kind"] is None else values["kind"]
    if not isinstance(kind, str) or kind not in _CREDENTIALS:
        return {"kind": kind}
    missing = dict.fromkeys(name for name in _CREDENTIALS[kind] if name in _REQUIRED)
    return missing | place.known(values, ("kind", *_CREDENTIALS[kind])) | {"kind": kind}


def _header_misfits(options: Values) -> Iterator[tuple[str, str]]:
    """Yield the key of each header that does not fit another option, and why. The values may be wrong too."""
    headers, forwarded = options.get("headers"), options.get("forward_headers")
    names = list(headers) if isinstance(headers, dict) else []
    seen = {name.lower() for name in names}
    for number, name in enumerate(names):
        if name.lower() in map(str.lower, names[:number]):
            yield f"headers.{name}", "written twice; keep one of them"
    for number, name in enumerate(forwarded if isinstance(forwarded, list) else ()):
        if isinstance(name, str) and name.lower() in seen:
            yield f"gateway.forward_headers.{number}", "also in headers; keep one of them"
    kind = options["credentials"]["kind"] if "credentials" in options else "headers"
    if kind in ("none", "client_credentials", "token_exchange") and "authorization" in seen:
        yield "headers", f"Authorization does not fit credentials of kind {kind}; remove one of them"


def _option_misfits(options: Values) -> Iterator[tuple[str, str]]:
    """Yield the same for the other options."""
    credentials, tls = options.get("credentials", {}), options.get("tls")
    if credentials.get("kind") == "token_exchange":
        if not {"audience", "resource"} & credentials.keys():
            yield "gateway.credentials", "token_exchange has no audience and no resource; add what the tokens are for"
        if options["scope"] == "shared":
            text = "shared, but token_exchange gives each caller a token of its own; use caller, or other credentials"
            yield "gateway.scope", text
    if isinstance(tls, dict) and tls and str(options["url"]).lower().startswith("http:"):
        yield "gateway.tls", "the url is not https; use an https URL, or remove it"
    if isinstance(tls, dict) and "key" in tls and "cert" not in tls:
        yield "gateway.tls", "has a key without a cert; add the cert"


def _path(loc: Sequence[int | str], value: Any) -> Iterator[str]:
    """Yield the path of a mistake as the file has it, without the members that a shorthand stands for."""
    for part in loc:
        has = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if has or part not in _SHORTHANDS:
            yield str(part)
            value = value[part] if has else None


def _line(mistake: ErrorDetails) -> str:
    kind, context, value = mistake["type"], mistake.get("ctx", {}), mistake["input"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "too_long":
        return f"{context['actual_length']} are too many; use at most {context['max_length']}"
    use = context.get("use") or context.get("expected") or _USES.get(kind, 'a list of texts, such as ["a", "b"]')
    if value is None and not isinstance(mistake["loc"][-1], int):
        return f"missing; write {use}"
    return f"{shown(value)} is not valid; use {use}"


def _listed(names: Collection[str]) -> str:
    """Return names as a sentence lists the alternatives."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
