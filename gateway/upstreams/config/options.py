"""Reads the values of an upstream's entry. Each mistake becomes one line with file, upstream and key."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from gateway.protocol.uris.globs import problem_of_glob
from gateway.settings.hosts import is_loopback
from gateway.settings.problems import Problems
from gateway.settings.rates import Rate, parse_rate
from gateway.upstreams.config.definition import ByGlob, Choice, Scopes, TaskMode, TaskRule
from gateway.upstreams.config.variables import Hidden, VariableError, Variables

MAX_GLOBS: Final = 256
MAX_URL_CHARACTERS: Final = 2048
MAX_HEADERS: Final = 32
MAX_HEADER_CHARACTERS: Final = 16_384
ENVIRONMENT: Final = "environment"
"""The value of `proxy` that takes the proxy of the environment."""

_TASK_MODES: Final[tuple[TaskMode, ...]] = ("never", "optional", "required")
_SHOWN_CHARACTERS: Final = 60
_SIMILAR: Final = 0.6
_GLOB: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
# RFC 6749 section 3.3; the length is ours.
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,128}")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
_URL: Final = re.compile(r"https?://[!#-;=?-\[\]_a-z~%]+", re.IGNORECASE)

OWN_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "baggage", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version"),
        *("mcp-session-id", "proxy-authorization", "proxy-connection", "te", "traceparent", "tracestate", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
"""Header fields that the gateway writes itself, or that belong to a connection."""

NEVER_FORWARDED: Final = frozenset({"authorization", "cookie"})
"""The caller's credentials for the gateway, which no upstream may see."""

T = TypeVar("T")
Values: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file a value is, to say what is wrong with it.

    `upstream` is "" outside of upstreams. `key` is a path, separated by dots.
    """

    problems: Problems
    file: str
    upstream: str = ""
    key: str = ""

    def inside(self, key: str) -> Place:
        """Return the place of a value in the object at this place."""
        return Place(self.problems, self.file, self.upstream, f"{self.key}.{key}" if self.key else key)

    def wrong(self, text: str) -> None:
        """Add a line that says what is wrong here and what to write. Only the first one for a key counts."""
        parts = (self.file, _short(self.upstream), _short(self.key))
        start = "".join(f"{part}: " for part in parts if part)
        if not self.key or not any(line.startswith(start) for line in self.problems.lines):
            self.problems.add(start + text)

    def not_valid(self, value: object, use: str) -> None:
        """Add the usual line. It quotes the value, unless that is an object or may be a secret."""
        self.wrong(f"missing; write {use}" if value is None else f"{shown(value)} is not valid; use {use}")


def shown(value: object) -> str:
    """Return a value as messages quote it: never what a reference stood for."""
    if isinstance(value, Hidden):
        return "the value"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return repr(_short(value) if isinstance(value, str) else value)
    return {dict: "an object", list: "a list", type(None): "null"}.get(type(value), "the value")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def replaced(value: Any, variables: Variables, place: Place) -> Any:
    """Return a copy of a value with the references in all its texts replaced. Wrong ones are reported, and stay."""
    if isinstance(value, str):
        try:
            return variables.replace(value)
        except VariableError as error:
            place.wrong(str(error))
            return Hidden(value)
    if isinstance(value, dict):
        return {key: replaced(item, variables, place.inside(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, variables, place.inside(str(number))) for number, item in enumerate(value)]
    return value


def refuse_unknown(values: Values, known: Iterable[str], place: Place) -> None:
    """Report every key that is not known, with the one that was probably meant."""
    names = sorted(known)
    for key in values:
        if key not in names:
            close = difflib.get_close_matches(key, names, n=1, cutoff=_SIMILAR)
            advice = f"did you mean {close[0]!r}?" if close else f"use {listed(names)}"
            place.inside(key).wrong(f"not an option; {advice}")


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists the alternatives."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def read_object(value: object, place: Place) -> Values:
    """Return an object; an empty one if it is missing or wrong."""
    if isinstance(value, dict):
        return value
    if value is not None:
        place.not_valid(value, "an object")
    return {}


def read_text(value: object, place: Place, use: str = "a text", *, secret: bool = False) -> str:
    """Return a text that is not empty; "" if it is wrong."""
    if isinstance(value, str) and value and "\0" not in value:
        return str(value)
    place.not_valid(Hidden() if secret and value is not None else value, use)
    return ""


def read_switch(value: object, place: Place) -> bool:
    """Return a boolean; False if it is missing or wrong."""
    if value is not None and not isinstance(value, bool):
        place.not_valid(value, "true or false")
    return value is True


def read_choice(value: object, place: Place, of: Sequence[str], default: T) -> str | T:
    """Return one of some words; the default if it is missing or wrong."""
    if value is None:
        return default
    if isinstance(value, str) and value in of:
        return str(value)
    place.not_valid(value, listed([f'"{word}"' if "," in word else word for word in of]))
    return default


def read_number(value: object, place: Place, least: float, most: float, default: float) -> float:
    """Return a number of seconds; the default if it is missing or wrong."""
    if value is None:
        return default
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and least <= value <= most:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    place.not_valid(value, f"a number between {least:g} and {most:g}")
    return default


def read_count(value: object, place: Place, least: int, most: int, default: int) -> int:
    """Return a whole number; the default if it is missing or wrong."""
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    place.not_valid(value, f"a whole number between {least} and {most}")
    return default


def read_rate(value: object, place: Place) -> Rate | None:
    """Return a rate; None if it is missing, off or wrong."""
    if value is None or value == "off":
        return None
    try:
        if isinstance(value, str):
            return parse_rate(value)
    except ValueError:
        pass
    place.not_valid(value, "a rate such as 100/s, 600/m or 100/s burst 200, or off")
    return None


def read_texts(value: object, place: Place, valid: Callable[[str], object], use: str) -> tuple[str, ...]:
    """Return a list of texts, without those that are wrong."""
    if not isinstance(value, list):
        place.not_valid(value, f"a list of {use}")
        return ()
    if len(value) > MAX_GLOBS:
        place.wrong(f"{len(value)} items are too many; use at most {MAX_GLOBS}")
        return ()
    found = []
    for number, item in enumerate(value):
        if isinstance(item, str) and valid(item):
            found.append(str(item))
        else:
            place.inside(str(number)).not_valid(Hidden() if item is None else item, f"a list of {use}")
    return tuple(found)


def read_served(value: object, place: Place, others: Sequence[str] = ()) -> Choice:
    """Return which names are served. The object may have these other keys."""
    values = read_object(value, place)
    refuse_unknown(values, ("allow", "deny", *others), place)
    globs = {
        key: read_texts(values[key], place.inside(key), _GLOB.fullmatch, 'globs, such as ["search_*"]')
        for key in ("allow", "deny")
        if key in values
    }
    return Choice(**globs)


def check_uri_glob(glob: str, place: Place) -> None:
    """Report a glob that forbids or protects something, and would miss URIs that it is about."""
    problem = problem_of_glob(glob)
    if problem is not None:
        place.inside(shown(glob)).wrong(problem)


def read_by_glob(value: object, place: Place, read: Callable[[object, Place], T], default: T) -> ByGlob[T]:
    """Return a value for each name: an object of globs, or one value for all names."""
    if value is None:
        return ByGlob(default)
    if not isinstance(value, dict):
        return ByGlob(default, (("*", read(value, place)),))
    if len(value) > MAX_GLOBS:
        place.wrong(f"{len(value)} globs are too many; use at most {MAX_GLOBS}")
        return ByGlob(default)
    for glob in value:
        if not _GLOB.fullmatch(glob):
            place.wrong("a key is not a glob; use 1 to 256 printable characters")
    return ByGlob(default, tuple((glob, read(item, place.inside(glob))) for glob, item in value.items()))


def read_task(value: object, place: Place) -> TaskRule:
    """Return whether calls run as tasks."""
    if isinstance(value, dict):
        refuse_unknown(value, ("after_seconds",), place)
        seconds = read_number(value.get("after_seconds"), place.inside("after_seconds"), 0, 3600, 0)
        return TaskRule("optional", seconds)
    for mode in _TASK_MODES:
        if value == mode:
            return TaskRule(mode)
    place.not_valid(value, f'{", ".join(_TASK_MODES)} or {{"after_seconds": 5}}')
    return TaskRule()


def read_scopes(value: object, place: Place) -> Scopes:
    """Return the scopes that callers need: an object of globs, or one list for all names."""
    if value is None:
        return Scopes()
    by_glob = value if isinstance(value, dict) else {"*": value}
    for glob in by_glob:
        check_uri_glob(glob, place)
    return Scopes(
        tuple(
            (
                glob,
                frozenset(
                    read_texts(item, place.inside(glob) if by_glob is value else place, _SCOPE.fullmatch, "scopes")
                ),
            )
            for glob, item in by_glob.items()
        )
    )


def read_url(value: object, place: Place) -> str:
    """Return the address of an upstream; "" if it is wrong. Messages never quote it: it may hold a secret."""
    if not isinstance(value, str):
        place.not_valid(value, "an http or https URL")
        return ""
    problem = _url_problem(value)
    if problem is not None:
        place.wrong(problem)
        return ""
    return str(value)


def _url_problem(url: str) -> str | None:
    if len(url) > MAX_URL_CHARACTERS:
        return f"longer than {MAX_URL_CHARACTERS} characters; use a shorter URL"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a valid URL; use an http or https URL"
    if parts.scheme not in ("http", "https"):
        return "not an http or https URL; use one, such as https://mcp.example.com/mcp"
    if "@" in parts.netloc or "#" in url:
        return "has a user name or a fragment (#…); remove it, and put credentials into headers"
    if not host or port == 0 or not _URL.fullmatch(url):
        return "not a valid URL; use an http or https URL"
    return None


def read_token_url(value: object, place: Place) -> str:
    """Return the address of a token endpoint; "" if it is wrong."""
    url = read_url(value, place)
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.query or (parts.scheme != "https" and not is_loopback(parts.hostname or "")):
        place.wrong("not safe for secrets; use an https URL (http only for this machine) without a query")
        return ""
    return url


def read_proxy(value: object, place: Place) -> str | None:
    """Return the address of a proxy; None if it is missing or wrong. It may contain a user and a password."""
    if value is None:
        return None
    if value == ENVIRONMENT:
        return ENVIRONMENT
    if not isinstance(value, str) or not _is_proxy(value):
        place.wrong(f"not valid; use the http or https URL of a proxy, or {ENVIRONMENT}")
        return None
    return value


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and not parts.path.strip("/") and not parts.query and "#" not in url


def read_headers(value: object, place: Place) -> tuple[tuple[str, str], ...]:
    """Return header fields in their order. Messages never quote a value."""
    values = read_object(value, place)
    if len(values) > MAX_HEADERS:
        place.wrong(f"{len(values)} headers are too many; use at most {MAX_HEADERS}")
        return ()
    found: dict[str, tuple[str, str]] = {}
    for name, text in values.items():
        problem = _header_name_problem(name)
        if problem is None and name.lower() in found:
            problem = "written twice; keep one of them"
        if problem is None and not _is_header_value(text):
            problem = f"not the value of a header; use one line of at most {MAX_HEADER_CHARACTERS} ASCII characters"
        if problem is None:
            found[name.lower()] = (name, str(text).strip(" \t"))
        else:
            place.inside(name).wrong(problem)
    return tuple(found.values())


def _is_header_value(text: object) -> bool:
    return (
        isinstance(text, str)
        and len(text) <= MAX_HEADER_CHARACTERS
        and _HEADER_VALUE.fullmatch(text.strip(" \t")) is not None
    )


def _header_name_problem(name: str) -> str | None:
    if not _HEADER_NAME.fullmatch(name):
        return "not the name of a header; use letters, digits and dashes"
    if name.lower() in OWN_HEADERS or name.lower().startswith("mcp-param-"):
        return "the gateway sets this header itself; remove it"
    return None


def read_forwarded(value: object, place: Place, headers: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the lower-case names of header fields that callers may pass on."""
    if value is None:
        return ()
    names = read_texts(value, place, _HEADER_NAME.fullmatch, "names of headers")
    fixed = {name.lower() for name, _ in headers}
    for name in names:
        problem = _header_name_problem(name)
        if name.lower() in NEVER_FORWARDED:
            problem = "a caller's own credentials are never forwarded; use another header, or token_exchange"
        elif problem is None and name.lower() in fixed:
            problem = "also in headers; keep one of them"
        if problem is not None:
            place.inside(name).wrong(problem)
    if len(names) > MAX_HEADERS:
        place.wrong(f"{len(names)} headers are too many; use at most {MAX_HEADERS}")
    return tuple(dict.fromkeys(name.lower() for name in names))


def read_file_path(value: object, place: Place, variables: Variables) -> Path | None:
    """Return the path of a file that can be read; None if it is missing or wrong."""
    if value is None:
        return None
    text = read_text(value, place, "the path of a file")
    if not text:
        return None
    path = variables.path(text)
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        place.wrong(f"{shown(value)} cannot be read: {error.strerror or type(error).__name__}; name a readable file")
        return None


def read_environment(value: object, place: Place) -> Mapping[str, str]:
    """Return variables for a child process, without those that are wrong."""
    values = read_object(value, place)
    for name, text in values.items():
        if not name or "=" in name or "\0" in name or not isinstance(text, str) or "\0" in text:
            place.inside(name).wrong("not valid; use a text for each variable")
    return {name: str(text) for name, text in values.items() if isinstance(text, str)}
