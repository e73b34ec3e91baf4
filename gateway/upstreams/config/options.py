"""The types of the options of an upstream: what each of them accepts, and what the line about a mistake says.

They annotate the model in `definition.py`. Messages never quote a value that may hold a secret.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import custom_error_schema, no_info_after_validator_function

from gateway.http_client.tls import TlsFiles
from gateway.protocol.uris.globs import problem_of_glob
from gateway.settings.hosts import is_loopback
from gateway.settings.model import HEADER_NAME
from gateway.settings.rates import Rate, parse_rate
from gateway.upstreams.config.env_files import EnvFileError, parse_env_file
from gateway.upstreams.config.variables import MAX_FILE_BYTES, SecretText, Variables, shown

ENVIRONMENT: Final = "environment"
"""The value of `proxy` that takes the proxy of the environment."""

MAX_ITEMS: Final = 256
MAX_URL_CHARACTERS: Final = 2048
MAX_HEADERS: Final = 32
MAX_HEADER_CHARACTERS: Final = 16_384

PREFIX_USE: Final = "1 to 32 of a-z, 0-9 and -, starting with a letter"
PREFIX: Final = re.compile(r"(?:[a-z][a-z0-9-]{0,31})?")
_GLOB: Final = re.compile(r"[^\x00-\x1f\x7f]{1,256}")
# RFC 6749 section 3.3; the length is ours.
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,128}")
_HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
_URL: Final = re.compile(r"https?://[!#-;=?-\[\]_a-z~%]+", re.IGNORECASE)
_OBJECT: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_URL_PATH: Final = re.compile(r"/[A-Za-z0-9._~/-]{0,255}")
_OWN_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "baggage", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "last-event-id", "mcp-method", "mcp-name", "mcp-protocol-version"),
        *("mcp-session-id", "proxy-authorization", "proxy-connection", "te", "traceparent", "tracestate", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
"""Header fields that the gateway writes itself, or that belong to a connection."""


@dataclass(frozen=True, slots=True)
class Use:
    """Annotates a type with what it accepts, as the end of the line "'abc' is not valid; use …"."""

    text: str
    accepts: Callable[[Any], object] = lambda _: True

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the type, with one error for all that it refuses."""
        return custom_error_schema(
            no_info_after_validator_function(self._check, handler(source)),
            custom_error_type="use",
            custom_error_message=self.text,
            custom_error_context={"use": self.text},
        )

    def _check(self, value: Any) -> Any:
        if not self.accepts(value):
            raise ValueError
        return value


def between(least: float, most: float, of: str = "a number") -> Use:
    """Return what annotates a number with its limits."""
    return Use(f"{of} between {least} and {most}", lambda value: least <= value <= most)


@dataclass(frozen=True, slots=True)
class Written:
    """Annotates a type that the file writes as another one, `of`, which `make` turns into it."""

    of: Any
    make: Callable[[Any], Any] = lambda value: value

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of what the file has."""
        return no_info_after_validator_function(self.make, handler.generate_schema(self.of))


def _check_uri_glob(glob: str) -> str:
    """Check a glob that forbids or protects something: it must not miss URIs that it is about."""
    problem = problem_of_glob(glob)
    if problem is not None:
        raise ValueError(problem)
    return glob


def _check_url(url: str) -> str:
    if len(url) > MAX_URL_CHARACTERS:
        raise ValueError(f"longer than {MAX_URL_CHARACTERS} characters; use a shorter URL")
    parts, port = _split(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("not an http or https URL; use one, such as https://mcp.example.com/mcp")
    # Behind a port, an @ may be that of a user whose password has a slash.
    if "@" in parts.netloc or "#" in url or (port is not None and "@" in url):
        raise ValueError("has a user name or a fragment (#…); remove it, and put credentials into headers")
    if not parts.hostname or port == 0 or not _URL.fullmatch(url):
        raise ValueError("not a valid URL; use an http or https URL")
    return url


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("not a valid URL; use an http or https URL") from None
    return parts, port


def _check_token_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.query or (parts.scheme != "https" and not is_loopback(parts.hostname or "")):
        raise ValueError("not safe for secrets; use an https URL (http only for this machine) without a query")
    return url


def _check_proxy(value: object) -> object:
    if value != ENVIRONMENT and not (isinstance(value, str) and _is_proxy(value)):
        raise ValueError(f"not valid; use the http or https URL of a proxy, or {ENVIRONMENT}")
    return value


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_bare = not parts.path.strip("/") and not parts.query and "#" not in url and parts.netloc.count("@") <= 1
    return has_host and is_bare


def _check_header_name(name: str) -> str:
    if not HEADER_NAME.fullmatch(name):
        raise ValueError("not the name of a header; use letters, digits and dashes")
    if name.lower() in _OWN_HEADERS or name.lower().startswith("mcp-param-"):
        raise ValueError("the gateway sets this header itself; remove it")
    return name


def _check_header_value(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_HEADER_CHARACTERS and _HEADER_VALUE.fullmatch(value.strip(" \t")):
        return value.strip(" \t")
    raise ValueError(f"not the value of a header; use one line of at most {MAX_HEADER_CHARACTERS} ASCII characters")


def _check_forwarded(name: str) -> str:
    if name.lower() in ("authorization", "cookie"):
        raise ValueError("a caller's own credentials are never forwarded; use another header, or token_exchange")
    return _check_header_name(name).lower()


def _read_rate(value: object) -> Rate | None:
    return None if value == "off" else parse_rate(str(value))


def _read_file(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo[Variables]) -> Path:
    path = info.context.path(read(value))
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ValueError(f"{shown(value)} cannot be read: {reason}; name a readable file") from None


def _read_env_file(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo[Variables]) -> object:
    path = _read_file(value, read, info)
    info.context.files.append(path)
    try:
        return tuple(parse_env_file(path.read_text("utf-8")[:MAX_FILE_BYTES]).items())
    except UnicodeDecodeError:
        raise ValueError(f"{shown(value)} is not UTF-8 text; name a file that is") from None
    except EnvFileError as error:
        raise ValueError(f"{shown(value)}: {error}") from None


def _read_folder(value: object, read: ValidatorFunctionWrapHandler, info: ValidationInfo[Variables]) -> Path:
    path = info.context.path(read(value))
    with contextlib.suppress(OSError):  # the name is too long
        if path.is_dir():
            return path
    raise ValueError(f"{shown(value)} is not a folder; name one")


def _hide(value: object) -> SecretText | None:
    """Return a value that no message quotes; one that no option accepts if it is not a text. None stays."""
    return None if value is None else SecretText(value if isinstance(value, str) else "\0")


def is_text(text: str) -> bool:
    """Return whether a text is neither empty nor has a null character."""
    return text != "" and "\0" not in text


Text = Annotated[str, Use("a text", is_text)]
Prefix = Annotated[str, Use(PREFIX_USE, PREFIX.fullmatch)]
OptionalText = Annotated[str | None, Written(Text)]
Secret = Annotated[Text, BeforeValidator(_hide)]
_Argument = Annotated[str, Use("a list of texts", lambda text: "\0" not in text)]
Arguments = Annotated[tuple[_Argument, ...], Field(max_length=MAX_ITEMS)]
_Variables = dict[
    Annotated[str, Use("names of variables", lambda name: is_text(name) and "=" not in name)],
    Annotated[str, Use("a text for each variable", lambda text: "\0" not in text), BeforeValidator(_hide)],
]
Environment = Annotated[
    tuple[tuple[str, str], ...], Written(_Variables | None, lambda variables: tuple((variables or {}).items()))
]
File = Annotated[str, Use("the path of a file", is_text), WrapValidator(_read_file)]
_Folder = Annotated[str, Use("the path of a folder", is_text), WrapValidator(_read_folder)]
OptionalFolder = Annotated[Path | None, Written(_Folder)]
Roots = Annotated[
    tuple[str, ...],
    Written(
        Annotated[tuple[_Folder, ...], Field(max_length=MAX_ITEMS)],
        lambda folders: tuple(folder.resolve().as_uri() for folder in folders),
    ),
]
_EnvFile = Annotated[str, Use("the path of a file", is_text), WrapValidator(_read_env_file)]
EnvFile = Annotated[tuple[tuple[str, str], ...], Written(_EnvFile | None, lambda variables: variables or ())]
Command = Annotated[str, Use("the name or path of a program", is_text)]
ServerObject = Annotated[str, Use("a module and an object in it, such as bugs_server:mcp", _OBJECT.fullmatch)]
UrlPath = Annotated[str, Use("a path that starts with /, such as /mcp", _URL_PATH.fullmatch)]
Tls = Annotated[TlsFiles, Written(dict[str, File | None], lambda files: TlsFiles(**files))]

GlobKey = Annotated[str, Use("1 to 256 printable characters", _GLOB.fullmatch)]
_Glob = Annotated[str, Use('a list of globs, such as ["search_*"]', _GLOB.fullmatch)]
Globs = Annotated[tuple[_Glob, ...], Field(max_length=MAX_ITEMS)]
UriGlobs = Annotated[tuple[Annotated[_Glob, AfterValidator(_check_uri_glob)], ...], Field(max_length=MAX_ITEMS)]
FOR_ALL_NAMES: Final = BeforeValidator(lambda value: value if isinstance(value, dict) else {"*": value})
"""Reads a value that is not an object of globs as one for all names."""

_Scope = Annotated[str, Use("a list of scopes", _SCOPE.fullmatch)]
_Scopes = Annotated[tuple[_Scope, ...], Field(max_length=MAX_ITEMS)]
ScopesByGlob = Annotated[dict[Annotated[str, AfterValidator(_check_uri_glob)], _Scopes], FOR_ALL_NAMES]

Url = Annotated[str, Use("an http or https URL"), AfterValidator(_check_url)]
TokenUrl = Annotated[Url, AfterValidator(_check_token_url)]
Proxy = Annotated[str | None, BeforeValidator(_check_proxy)]
_HeaderName = Annotated[str, AfterValidator(_check_header_name)]
_HeaderValue = Annotated[str, BeforeValidator(_check_header_value)]
Headers = Annotated[
    tuple[tuple[str, str], ...],
    Written(
        Annotated[dict[_HeaderName, _HeaderValue], Field(max_length=MAX_HEADERS)] | None,
        lambda headers: tuple((headers or {}).items()),
    ),
]
_Forwarded = Annotated[str, Use("a list of names of headers", HEADER_NAME.fullmatch), AfterValidator(_check_forwarded)]
HeaderNames = Annotated[
    tuple[_Forwarded, ...],
    Field(max_length=MAX_HEADERS),
    AfterValidator(lambda names: tuple(dict.fromkeys(names))),
]
OptionalRate = Annotated[
    Rate | None, PlainValidator(_read_rate), Use("a rate such as 100/s, 600/m or 100/s burst 200, or off")
]
