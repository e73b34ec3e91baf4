"""Every setting of the process, read once from the environment into one frozen object.

Only `Settings.load` reads the environment. It reports all mistakes together. Each is one line that names the variable,
says what is wrong and what to write. It never contains the value of a secret.

A secret in a variable `X` can come from a file instead, if `X_FILE` names it, as is usual for Docker and Kubernetes
secrets. An empty variable counts as unset.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from typing_extensions import override

from gateway.errors import ConfigurationError
from gateway.settings.hosts import is_loopback, without_port
from gateway.settings.problems import Problems
from gateway.settings.rates import MAX_REQUESTS, Rate, parse_rate
from gateway.settings.tool_files import names_file

PREFIX = "GATEWAY_"
FILE_SUFFIX = "_FILE"
ENDPOINT_PATH = "/mcp"
DEFAULT_PORT = 8080
MIN_JWT_SECRET_BYTES = 32
"""HS256 needs a key at least as long as its hash (RFC 7518 section 3.2)."""

SYMMETRIC_ALGORITHMS = ("HS256",)
ASYMMETRIC_ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
DEFAULT_KEY_SET_ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""The algorithms that tokens may use if keys come from a JWKS and `GATEWAY_JWT_ALGORITHMS` is unset."""

REDIS_SCHEMES = ("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://")
"""Schemes of the task store's URL: one server, with TLS, on a Unix socket; a node of a cluster, with TLS."""

MAX_STORED_BYTES = 64 * 2**20
"""The largest value that the task store accepts, and the limit of all that one task may store."""

READ_ELSEWHERE = frozenset({"GATEWAY_DEMO_RELEASE"})
"""Variables with our prefix that are not settings: the demo tools read this one themselves."""

MAX_CLAIMS = 32
"""How many claims tools may see."""

_NAME_PATTERN = r"[A-Za-z0-9._-]{1,64}"
_SHOWN_VALUE_CHARACTERS = 60
_SIMILAR = 0.75
"""How similar an unknown name must be to a setting for it to be suggested, as `difflib` measures it."""
_NEVER_SHOWN = frozenset({"authorization", "cookie", "cookie2", "set-cookie"})
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
# RFC 6749 section 3.3; the length is ours.
_SCOPE = re.compile(r"[!#-\[\]-~]{1,128}")
# RFC 6749 appendix A.1, without commas.
_CLIENT_ID = re.compile(r"[ -+\--~]{1,256}")
_CLAIM = re.compile(r"[!-+\--~]{1,256}")
_URL = re.compile(r"https?://[!#-;=?-\[\]_a-z~]+", re.IGNORECASE)
# redis-py guesses where an unencoded password ends, and calls the rest host, port, path or fragment.
_REDIS_USER = r"(?:(?:(?![%/?#@\[\]\\])[!-~]|%[0-9A-Fa-f]{2})*+@)?"
_REDIS_URL = re.compile(
    rf"(?:unix://{_REDIS_USER}/[^@?#\s]*+|rediss?(?:\+cluster)?://{_REDIS_USER}"
    r"(?:[\w.~-]*+|\[[0-9A-Za-z:.%]++\])(?::[0-9]{1,5})?(?:/[0-9]*+/?)?)(?:\?[^@#\s]*+)?",
    re.ASCII,
)
_MAX_REPLICA_URL_CHARACTERS = 255
_HOST_NAME = "{hostname}"
"""Placeholder for this host's name in `GATEWAY_REPLICA_URL`, since containers of one service share one environment."""

_YEAR_SECONDS = 31_536_000
_MIN_LIMIT_BYTES = 256
_MAX_LIMIT_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Expects:
    """The values that a setting accepts, as the end of the line "GATEWAY_X: 'abc' is not valid; use …"."""

    text: str


def _check_module(module: str) -> str:
    if not names_file(module) and not all(part.isidentifier() for part in module.split(".")):
        raise ValueError(f"{module!r} is neither a module name nor a file")
    return module


def _trim_secret(secret: SecretStr) -> SecretStr:
    trimmed = secret.get_secret_value().strip()
    if not trimmed:
        raise ValueError("only blanks")
    return SecretStr(trimmed)


def _check_jwt_secret(secret: SecretStr) -> SecretStr:
    size = len(secret.get_secret_value().encode())
    if size < MIN_JWT_SECRET_BYTES:
        raise ValueError(f"only {size} bytes long")
    return secret


def _read_port(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() == "off" else value


def _without_service(value: object) -> object:
    """Overlook the value that Kubernetes and Docker give to a variable of this name for a service called `gateway`."""
    return DEFAULT_PORT if isinstance(value, str) and value.startswith("tcp://") else value


def _split_names(value: object) -> object:
    if isinstance(value, str):
        return tuple(name for name in (part.strip() for part in value.split(",")) if name)
    return value


def _check_host(host: str) -> str:
    if without_port(host) is None or "/" in host or "*" in host:
        raise ValueError(f"{host!r} is not a host")
    return host


def _check_origin(origin: str) -> str:
    parts = urlsplit(origin)
    is_bare = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    if origin != "*" and not (parts.scheme and parts.netloc and is_bare):
        raise ValueError(f"{origin!r} is not an origin")
    return origin


def _check_network(network: str) -> str:
    ipaddress.ip_network(network)
    return network


def _check_redis_url(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    if not text.startswith(REDIS_SCHEMES):
        raise ValueError("unknown scheme")
    if not _REDIS_URL.fullmatch(text):
        raise ValueError("not a Redis URL; in a password, write % as %25, / as %2F, @ as %40, ? as %3F, # as %23")
    return url


def _check_algorithms(algorithms: tuple[str, ...]) -> tuple[str, ...]:
    for algorithm in algorithms:
        if algorithm not in SYMMETRIC_ALGORITHMS + ASYMMETRIC_ALGORITHMS:
            raise ValueError(f"{algorithm!r} is not supported")
    if 0 < len(set(algorithms) & set(SYMMETRIC_ALGORITHMS)) < len(set(algorithms)):
        raise ValueError("HS256, which needs a shared secret, is mixed with algorithms that need public keys")
    return algorithms


def is_web_url(text: str, *, query: bool = False) -> bool:
    """Return whether a text is an absolute URL that is safe to trust: https, or http on this machine."""
    if not _is_url(text, query=query):
        return False
    parts = urlsplit(text)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def _is_url(text: str, *, query: bool) -> bool:
    """Return whether a text is an absolute http or https URL without a user or a fragment."""
    if not _URL.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    # Behind an @, also one in the path or query, may be what was meant to be the host, and before it a password.
    return bool(host) and port != 0 and "@" not in text and "#" not in text and (query or "?" not in text)


def _check_replica_url(url: str) -> str:
    """Return the URL as other replicas use it, without the path of the endpoint.

    Replicas may share a private network, so http is allowed.
    """
    url = url.replace(_HOST_NAME, socket.gethostname())
    good = len(url) <= _MAX_REPLICA_URL_CHARACTERS and _is_url(url, query=False)
    path = urlsplit(_check_url(url, good)).path
    return url.removesuffix(path) + path.rstrip("/").removesuffix(ENDPOINT_PATH).rstrip("/")


def _check_page(url: str) -> str:
    return _check_url(url, is_web_url(url, query=True), shown=re.split("[?#]", url)[0])


def _check_place(url: str) -> str:
    return _check_url(url, is_web_url(url))


def _check_url(url: str, good: bool, *, shown: str | None = None) -> str:
    if not good:
        # Do not quote a URL with a user: a password often follows the name.
        raise ValueError(
            "contains a user name, or an @ that is not %40" if "@" in url else f"{shown or url!r} is not valid"
        )
    return url


def _check_scope(scope: str) -> str:
    if not _SCOPE.fullmatch(scope):
        raise ValueError(f"{scope!r} is not a scope")
    return scope


def _check_claims(claims: tuple[str, ...]) -> tuple[str, ...]:
    if len(claims) > MAX_CLAIMS:
        raise ValueError(f"names {len(claims)} claims")
    return tuple(map(_check_claim, claims))


def _check_claim(claim: str) -> str:
    if not _CLAIM.fullmatch(claim):
        raise ValueError(f"{claim[:_SHOWN_VALUE_CHARACTERS]!r} is not the name of a claim")
    return claim


def _check_client_id(client_id: str) -> str:
    if not _CLIENT_ID.fullmatch(client_id):
        raise ValueError(f"{client_id[:_SHOWN_VALUE_CHARACTERS]!r} is not a client id")
    return client_id


def _check_tool_header(name: str) -> str:
    if not HEADER_NAME.fullmatch(name) or name == "*":
        raise ValueError(f"{name[:_SHOWN_VALUE_CHARACTERS]!r} is not the name of a header")
    lower = name.lower()
    if lower in _NEVER_SHOWN or lower.startswith(("mcp-", "proxy-")):
        raise ValueError(f"{name} may hold credentials or belong to the protocol, so tools never see it")
    return lower


def _read_rate(value: object) -> object:
    if not isinstance(value, str):
        return value
    return None if value.strip().lower() == "off" else parse_rate(value)


def _strip(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _option(field_name: str) -> str:
    return f"--{field_name.replace('_', '-')}"


def make_replica_id() -> str:
    """Make up a replica id: the start of the host's name, then enough randomness to be unique."""
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0]).strip("-")[:20]
    return f"{host or 'replica'}-{secrets.token_hex(3)}"


def _whole(least: int, most: int | None = None, unit: str = "") -> tuple[object, ...]:
    """Return the metadata of a whole number within limits; the unit is a plural, such as `bytes`."""
    of = f"a whole number of {unit}" if unit else "a whole number"
    limits = f"of at least {least}" if most is None else f"between {least} and {most}"
    return Field(ge=least, le=most), Expects(f"{of} {limits}")


def _number(least: float, most: float, unit: str) -> tuple[object, ...]:
    return Field(ge=least, le=most), Expects(f"a number of {unit} between {least} and {most}")


def _list(check: Callable[[str], str], of: str) -> tuple[object, ...]:
    """Return the metadata of values separated by commas, each of which is checked."""

    def check_all(values: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(map(check, values))
        except ValueError:
            # A password with a comma has been split, so no part may be quoted.
            if any("@" in value for value in values):
                raise ValueError("not valid; in the path of a URL, write @ as %40") from None
            raise

    return BeforeValidator(_split_names), AfterValidator(check_all), Expects(f"a comma-separated list of {of}")


_Seconds = Annotated[int, *_whole(1, _YEAR_SECONDS, "seconds")]
_Bytes = Annotated[int, *_whole(_MIN_LIMIT_BYTES, _MAX_LIMIT_BYTES, "bytes")]
_StoredBytes = Annotated[int, *_whole(1024, MAX_STORED_BYTES, "bytes")]
_Count = Annotated[int, *_whole(1, MAX_REQUESTS)]
_ShortSeconds = Annotated[float, *_number(0.1, 3600, "seconds")]
_DrainSeconds = Annotated[float, Field(ge=0, le=_YEAR_SECONDS), Expects("a number of seconds, 0 or more")]
_Switch = Annotated[bool, BeforeValidator(_lower), Expects("on or off")]
_Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]
_Text = Annotated[str, BeforeValidator(_strip)]
_Line = Annotated[_Text, Field(pattern=r"^[^\x00-\x1f\x7f]{1,512}\Z"), Expects("one line of 1 to 512 characters")]
_Path = Annotated[_Text, Field(pattern=r"^[^\x00-\x1f\x7f]{1,4096}\Z"), Expects("a path")]
_A_URL = Expects("an https URL (http only for this machine) without a user or a fragment")
_Secret = Annotated[SecretStr, AfterValidator(_trim_secret)]
_Page = Annotated[_Text, AfterValidator(_check_page), _A_URL]
_Place = Annotated[_Text, AfterValidator(_check_place), _A_URL]

_OwnAddress = Annotated[
    _Text,
    Field(pattern=r"^[A-Za-z0-9.:%_-]{1,255}\Z"),
    Expects("a name or an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::"),
]


class Settings(BaseSettings):
    """The settings of one process. Create them with `Settings.load`.

    An attribute has the name of its variable, in lower case and without the prefix. `docs/run/settings.md` repeats each
    description for operators. `repr` masks secrets.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        validate_default=False,
        regex_engine="python-re",  # the other one takes 8 MB for patterns like that of `_Line`
    )

    tools: Annotated[
        tuple[str, ...], *_list(_check_module, "Python modules or files, such as my_tools,my_other.tools,./bugs.py")
    ] = ()
    """The Python modules that define the tools, separated by commas: names, such as `bugs`, or paths of files, such as
    `bugs.py`."""

    upstreams: _Path | None = None
    """A file that names other MCP servers to serve, such as `upstreams.json`. The gateway reads it again when it
    changes."""

    max_children: Annotated[int, *_whole(0, 1000)] = 16
    """How many programs of upstreams one process runs at once. 0, the default of a mounted gateway, allows none."""

    server_name: _Line | None = None
    """The name of the server for programs. Unset: that of the tool modules, else `sealed-gateway`."""

    server_title: _Line | None = None
    """The name of the server for people. Unset: that of the tool modules."""

    server_version: _Line | None = None
    """The version of what is served. Unset: that of the tool modules, else the gateway's own."""

    server_instructions: Annotated[_Text, Field(min_length=1, max_length=65536), Expects("a text")] | None = None
    """How to use the server, for the language model. Unset: the instructions of the tool modules."""

    server_website_url: _Page | None = None
    """The URL of the server's website. Unset: that of the tool modules."""

    server_icons: Annotated[tuple[str, ...], *_list(_check_page, "https URLs")] = ()
    """The URLs of the server's icons, separated by commas. Unset: those of the tool modules."""

    seal_keys: Annotated[_Secret, Expects("what `gateway keys new` prints")] | None = None
    """The keys that seal unfinished calls, the same on all replicas, separated by commas or newlines. The first seals,
    all open."""

    audience: _Line | None = None
    """The name that all replicas of a deployment share. State sealed for another name does not open."""

    state_ttl_seconds: _Seconds = 3600
    """How long a client may take for each answer before it has to start the call again."""

    flow_max_seconds: _Seconds = 86400
    """How long a call may take in total, including the time its user takes to answer."""

    state_max_bytes: _Bytes = 65536
    """The largest state of an unfinished call that travels through the client."""

    answer_seconds: _Seconds = 3600
    """How long a call of a client with a session waits for each answer, at most `GATEWAY_STATE_TTL_SECONDS`."""

    session_ttl_seconds: _Seconds = 2592000
    """How long a client of an older protocol version may use a session before it needs a new one."""

    auth: Annotated[Literal["jwt", "none"], BeforeValidator(_lower), Expects("jwt or none")] = "jwt"
    """`jwt`: each request needs a bearer token. `none`: no authentication, only on a loopback address."""

    jwt_secret: (
        Annotated[
            _Secret,
            AfterValidator(_check_jwt_secret),
            Expects(f"a secret of at least {MIN_JWT_SECRET_BYTES} bytes, such as `openssl rand -hex 32` prints"),
        ]
        | None
    ) = None
    """The shared secret of HS256 bearer tokens, at least 32 bytes."""

    jwks_url: _Page | None = Field(default=None, repr=False)  # its query may hold a key
    """The URL where the identity provider publishes the public keys of its bearer tokens (a JWKS)."""

    jwks_file: _Path | None = None
    """A file that contains the JWKS, instead of its URL. The gateway reads it again when it changes."""

    jwks_refresh_seconds: Annotated[int, *_whole(5, 86_400, "seconds")] = 300
    """How often the JWKS is read again from its URL. Until then, a key that was withdrawn stays valid."""

    jwt_algorithms: Annotated[
        _Names,
        AfterValidator(_check_algorithms),
        Expects(f"HS256 alone, or a comma-separated list of {', '.join(ASYMMETRIC_ALGORITHMS)}"),
    ] = ()
    """The algorithms that may sign bearer tokens, separated by commas. Unset: `HS256` with a shared secret, `RS256`,
    `ES256`, `EdDSA` with a JWKS."""

    jwt_audience: _Line | None = None
    """The `aud` that bearer tokens must carry. Unset: `GATEWAY_AUDIENCE` or, with `GATEWAY_PUBLIC_URL`, the URL of the
    endpoint, which clients request tokens for."""

    jwt_issuer: _Line | None = None
    """The `iss` that bearer tokens must carry. Required with a JWKS. Unset: any issuer that knows the secret."""

    jwt_leeway_seconds: Annotated[int, *_whole(0, 3600, "seconds")] = 30
    """The tolerated clock difference when the `exp`, `nbf` and `iat` of a bearer token are checked."""

    jwt_claims: Annotated[
        _Names,
        AfterValidator(_check_claims),
        Expects(f"a comma-separated list of at most {MAX_CLAIMS} claims, such as email,groups"),
    ] = ()
    """The claims of a bearer token that tools see in `ctx.principal.claims`, separated by commas, such as
    `email,groups`."""

    tool_headers: Annotated[tuple[str, ...], *_list(_check_tool_header, "names of headers")] = ()
    """The request headers that tools see in `ctx.headers`, separated by commas, such as `x-tenant,accept-language`."""

    jwt_scope_claim: Annotated[_Text, AfterValidator(_check_claim), Expects("the name of a claim")] | None = None
    """The claim of a bearer token that has its scopes, such as `permissions`. Unset: `scope`, or `scp` if there is no
    `scope`."""

    jwt_client_ids: Annotated[tuple[str, ...], *_list(_check_client_id, "client ids")] = ()
    """The clients whose access tokens need no `aud`, separated by commas, for Amazon Cognito. Unset: every token needs
    one."""

    token_exchange_url: _Place | None = None
    """The token endpoint where `ctx.exchange_token` exchanges callers' tokens (RFC 8693). Unset: tools cannot."""

    token_exchange_client_id: _Line | None = None
    """The client id of this deployment at the token endpoint."""

    token_exchange_client_secret: Annotated[_Secret, Expects("the secret of the client")] | None = None
    """The secret of that client."""

    public_url: _Place | None = None
    """The URL of this deployment as clients see it, with or without `/mcp`."""

    authorization_servers: Annotated[tuple[str, ...], *_list(_check_place, "https URLs")] = ()
    """The issuer URLs of the authorization servers that clients can get tokens from, separated by commas. Unset:
    `GATEWAY_JWT_ISSUER` if it is a URL."""

    login_scopes: Annotated[tuple[str, ...], *_list(_check_scope, "scopes")] = ()
    """The scopes that clients request when they log in, separated by commas. Unset: all scopes that tools, prompts and
    resources require."""

    leg_seconds: Annotated[float, Field(gt=0, le=_YEAR_SECONDS), Expects("a number of seconds greater than 0")] = 60.0
    """How long a tool may run for one request."""

    max_body_bytes: _Bytes = 1_048_576
    """The largest request body. A larger one is rejected while it arrives."""

    max_unanswered_bytes: Annotated[int, *_whole(1 << 20)] = 1 << 26
    """How many bytes of unanswered bodies and kept answers one replica holds. Each caller may use a quarter. Four of
    the largest bodies always fit."""

    max_header_bytes: Annotated[int, *_whole(1024, 262_144, "bytes")] = 32768
    """The largest head of a request: its first line and all headers."""

    max_headers: Annotated[int, *_whole(16, 10_000)] = 100
    """The largest number of headers in a request."""

    max_json_depth: Annotated[int, *_whole(8, 200)] = 100
    """How deeply arrays and objects in a request body may be nested."""

    max_json_values: Annotated[int, *_whole(1000)] = 150_000
    """How many JSON values a request body may have. Each array, object and number with an exponent counts as 5."""

    max_answers: _Count = 100
    """The largest number of answers in one request."""

    max_result_bytes: _Bytes = 16 * 2**20
    """The largest result, question or message of a tool, prompt or resource, as JSON. Each upstream has its own for
    results."""

    rate_limit: Annotated[
        Rate | None, BeforeValidator(_read_rate), Expects("a rate such as 100/s, 600/m or 100/s burst 200, or off")
    ] = None
    """The requests of one caller on one replica: `100/s`, `600/m` or `1000/h`, optionally with `burst 200`. `off`: no
    limit."""

    streams_per_principal: _Count = 32
    """How many streams each caller may keep open at one replica: streams that listen, and requests that wait for a task
    or an answer."""

    head_seconds: _ShortSeconds = 10.0
    """How long a client may take to send the head of a request; for the first one, from connecting on."""

    body_seconds: _ShortSeconds = 10.0
    """How long a client may take to send the body of a request after its head."""

    unread_seconds: _ShortSeconds = 30.0
    """How long a client may read nothing of a response. Then the connection is closed; the client can reconnect."""

    max_unread_bytes: Annotated[int, *_whole(1 << 20)] = 1 << 26
    """How many bytes of responses may wait for slow readers, on all connections of a replica together."""

    max_connections: _Count = 4096
    """How many connections one replica keeps open. Further ones are closed at once."""

    replica_id: Annotated[
        str, Field(pattern=f"^{_NAME_PATTERN}\\Z"), Expects("1 to 64 letters, digits, dots, dashes or underscores")
    ] = Field(default_factory=make_replica_id)
    """The name of this process in logs and in `X-Gateway-Replica`. Unset: derived from the host's name."""

    replica_url: (
        Annotated[
            _Text,
            AfterValidator(_check_replica_url),
            Expects("an http or https URL without a user, a query or a fragment"),
        ]
        | None
    ) = None
    """The URL where the other replicas reach this one, with or without `/mcp`. `{hostname}` stands for the name of this
    host."""

    peers: Annotated[
        tuple[str, ...], *_list(_check_replica_url, "http or https URLs without a user, a query or a fragment")
    ] = ()
    """The URLs of all replicas, separated by commas, or one URL whose host name resolves to all of them."""

    holders: Annotated[
        tuple[str, ...], *_list(_check_replica_url, "http or https URLs without a user, a query or a fragment")
    ] = ()
    """The URLs of the replicas that have all sessions, programs and server objects of upstreams, separated by commas.
    Unset: each replica has its own."""

    replica_header: _Switch = True
    """Whether responses carry `X-Gateway-Replica` with the replica's id."""

    connection_close: _Switch = False
    """Whether each response closes its connection, so a load balancer chooses a replica for every request. `gateway
    dev` turns it on for its replicas."""

    strict_asks: _Switch = False
    """Whether a tool that declares questions may ask only those. `gateway dev` turns it on for its replicas."""

    show_errors: _Switch = False
    """Whether the client of a tool that failed gets the error and the line of code. `gateway dev` turns it on for all
    its processes."""

    playground: Annotated[Literal["off", "on", "dev"], BeforeValidator(_lower), Expects("on or off")] = "off"
    """Whether `/` serves the playground, a page that calls the tools. With `dev`, which `gateway dev` sets, it also
    controls processes."""

    allowed_hosts: Annotated[
        tuple[str, ...], *_list(_check_host, "hosts, such as mcp.example.com,mcp.example.com:8443")
    ] = ()
    """The hosts that requests may name, separated by commas. Unset: loopback names on a loopback address, otherwise
    any."""

    allowed_origins: Annotated[
        tuple[str, ...], *_list(_check_origin, "origins, such as https://app.example.com, or *")
    ] = ()
    """The origins of web pages that may send requests, separated by commas, or `*`. Other origins are rejected."""

    trusted_proxies: Annotated[
        tuple[str, ...], *_list(_check_network, "addresses or networks, such as 10.0.0.0/8,192.0.2.7")
    ] = ()
    """The addresses or networks of proxies whose `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Gateway-Request-Id` are
    trusted, separated by commas."""

    host: _OwnAddress = "127.0.0.1"
    """The address that a replica listens on. `0.0.0.0` or `::` stands for all addresses of the machine."""

    port: Annotated[
        int,
        Field(ge=0, le=65535),
        BeforeValidator(_without_service),
        Expects("a port between 1 and 65535, or 0 for any free port"),
    ] = DEFAULT_PORT
    """The port that a replica listens on. `0` picks a free one."""

    metrics_host: _OwnAddress = "127.0.0.1"
    """The address that serves `GET /metrics`. It has no authentication: let only Prometheus reach it."""

    metrics_port: Annotated[
        Annotated[int, Field(ge=0, le=65535)] | None,
        BeforeValidator(_read_port),
        Expects("a port between 1 and 65535, 0 for any free port, or off"),
    ] = 9464
    """The port of `GET /metrics`. `0` picks a free one, `off` serves no metrics."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(_lower), Expects("debug, info, warning or error")
    ] = "info"
    """The least important messages to log: `debug`, `info`, `warning` or `error`."""

    log_format: Annotated[Literal["text", "json"], BeforeValidator(_lower), Expects("text or json")] = "text"
    """`text`: lines for people. `json`: one JSON object per line."""

    audit_log: _Line = "stderr"
    """Where the audit log goes: `stderr`, `off`, or a file to append to."""

    audit_log_required: _Switch = False
    """`on`: no call runs without an audit line. `off`: lines that cannot be written are dropped and counted."""

    redis_url: (
        Annotated[
            _Secret, AfterValidator(_check_redis_url), Expects(f"a URL that starts with {', '.join(REDIS_SCHEMES)}")
        ]
        | None
    ) = None
    """The Redis (6.2 or newer) or Valkey that stores tasks. Unset: tools cannot run as tasks."""

    task_partitions: Annotated[int, *_whole(1, 1024)] = 8
    """The number of queues that tasks are spread over, the same for all processes of a deployment."""

    task_max_ttl_seconds: _Seconds = 86400
    """The longest time to live of a task."""

    tasks_per_principal: Annotated[int, *_whole(1, 10_000_000)] = 1000
    """How many tasks one caller may have stored, including ended ones."""

    task_bytes_per_principal: Annotated[
        int,
        Field(ge=_MIN_LIMIT_BYTES, le=2**40),
        Expects(f"a whole number of bytes between {_MIN_LIMIT_BYTES} and 2^40"),
    ] = 67_108_864
    """How many sealed bytes all tasks of one caller may occupy in Redis: arguments, journals, segments and results.
    Ended tasks count until they expire."""

    task_max_argument_bytes: _StoredBytes = 262_144
    """The largest arguments of a task."""

    task_max_result_bytes: _StoredBytes = 4_194_304
    """The largest result of a task, including everything that it emitted, and the largest step, checkpoint, question or
    answer that it may store."""

    task_lease_seconds: _ShortSeconds = 30.0
    """How long a worker may send no heartbeat before another worker takes over its tasks."""

    immediate_wait_ms: Annotated[int, *_whole(0, 10_000)] = 250
    """How long a call on the draft wire waits for a task if its client asks for the result at once."""

    hide_task_tools: _Switch = False
    """Whether to hide tools that run only as tasks from clients that do not declare support for tasks."""

    worker_concurrency: Annotated[int, *_whole(1, 10_000)] = 32
    """How many tasks one worker runs at once."""

    max_inflight: Annotated[int, *_whole(1, 100_000)] | None = None
    """How many requests one replica works on at once. Unset: the limit adapts to the load."""

    queue_target_ms: Annotated[float, *_number(1, 3_600_000, "milliseconds")] = 50.0
    """The target for how long requests wait until their leg starts, as the 90th percentile."""

    shed_input_requests: _Switch = False
    """Whether the result of a shed leg carries an empty `inputRequests` in addition to its state, for clients that
    require one."""

    drain_notice_seconds: _DrainSeconds = 3.0
    """How long a stopping replica still accepts requests while `/readyz` returns 503."""

    drain_seconds: _DrainSeconds = 25.0
    """How long a stopping process waits for requests and tasks before it cuts them off."""

    _unknown: Mapping[str, str | None] = PrivateAttr(default_factory=dict)
    _files: Mapping[str, Path] = PrivateAttr(default_factory=dict)
    _wrong: frozenset[str] = PrivateAttr(default=frozenset())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing implicitly: `load` passes the environment as arguments, so a test can pass another one."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        problems: Problems | None = None,
        named: Callable[[str], str] = _option,
        **overrides: object,
    ) -> Self:
        """Read and check every setting.

        Args:
            environ: the environment; None is that of the process.
            problems: collects what is wrong, instead of raising it. A wrong value is then replaced with its default,
                and the settings are good for further checks but not for serving.
            named: returns the name of an override in messages, given its field name.
            overrides: values by field name that win over the environment, such as those of command-line options.
                None counts as not given.

        Raises:
            ConfigurationError: values are wrong or given twice, or a file cannot be read.
        """
        found = Problems() if problems is None else problems
        given = {name: value for name, value in overrides.items() if value is not None}
        source = _Environment(cls, os.environ if environ is None else environ, found)
        values = {**source(), **given}
        wrong = set(source.wrong) - set(given)
        try:
            settings = cls(**values)
        except ValidationError as error:
            mistakes = _mistakes(error, {name: named(name) for name in given})
            found.add(*mistakes.values())
            wrong |= set(mistakes)
            settings = cls(**{name: value for name, value in values.items() if name not in mistakes})
        if problems is None:
            found.raise_any()
        settings._unknown = source.unknown
        settings._files = {name: path for name, path in source.files.items() if name not in given}
        settings._wrong = frozenset(wrong)
        return settings

    def is_wrong(self, name: str) -> bool:
        """Return whether the value given for this setting was wrong and its default is used instead."""
        return name in self._wrong

    @property
    def unknown(self) -> Mapping[str, str | None]:
        """Variables that have our prefix but are not settings, each with the setting that was probably meant."""
        return self._unknown

    def file_of(self, field_name: str) -> Path | None:
        """Return the file that a secret was read from; None if it was not read from a file."""
        return self._files.get(field_name)

    @property
    def token_algorithms(self) -> tuple[str, ...]:
        """The algorithms that may sign bearer tokens."""
        if self.jwt_algorithms:
            return self.jwt_algorithms
        return SYMMETRIC_ALGORITHMS if self.jwt_secret is not None else DEFAULT_KEY_SET_ALGORITHMS

    @property
    def resource(self) -> str | None:
        """The URL of the endpoint as clients write it, which identifies it as a protected resource (RFC 9728)."""
        if self.public_url is None:
            return None
        parts = urlsplit(self.public_url)
        scheme = parts.scheme.lower()
        place = parts.netloc.lower().removesuffix(":443" if scheme == "https" else ":80")
        path = parts.path.rstrip("/").removesuffix(ENDPOINT_PATH) + ENDPOINT_PATH
        return urlunsplit((scheme, place, path, "", ""))

    @property
    def token_audiences(self) -> tuple[str, ...]:
        """The values that bearer tokens may carry as `aud`. `gateway token` uses the first one."""
        if self.jwt_audience is not None:
            return (self.jwt_audience,)
        return tuple(name for name in (self.audience, self.resource) if name is not None)

    def check_serving(self) -> None:
        """Check that a replica has what it needs: tools or upstreams, keys, an audience, and a way to verify tokens.

        Raises:
            ConfigurationError: settings are missing or contradict each other; the error lists all problems.
        """
        identity = [*self._token_problems(), *self._exchange_problems()] if self.auth == "jwt" else []
        self._check([*self._common_problems(), *identity])

    def check_working(self) -> None:
        """Check that a worker has what it needs: tools or upstreams, keys, an audience, and a task store.

        Raises:
            ConfigurationError: settings are missing or contradict each other; the error lists all problems.
        """
        self._check([*self._common_problems(), *self._store_problems("a worker needs a task store")])

    def check_storing(self) -> None:
        """Check that the stored tasks can be reached: by their store, the seal keys and the audience.

        Raises:
            ConfigurationError: one of them is missing.
        """
        common = (problem for problem in self._common_problems() if not problem[0].startswith("tools"))
        self._check([*common, *self._store_problems("that is where tasks are stored")])

    def _store_problems(self, why: str) -> Iterator[tuple[str, str]]:
        if self.redis_url is None:
            yield (
                "redis_url",
                f"GATEWAY_REDIS_URL: not set, but {why}; set it to the same URL as on the replicas, such as "
                "redis://127.0.0.1:6379/0",
            )

    def check_tools(self) -> None:
        """Raise `ConfigurationError` if the settings name neither tool modules nor upstreams."""
        self._check(problem for problem in self._common_problems() if problem[0].startswith("tools"))

    def check_sealing(self) -> None:
        """Raise `ConfigurationError` if there are no seal keys."""
        self._check(problem for problem in self._common_problems() if problem[0] == "seal_keys")

    def check_minting(self) -> None:
        """Check that there are a secret and an audience to make bearer tokens for development with.

        Raises:
            ConfigurationError: one or both are missing.
        """
        missing = []
        if self.jwt_secret is None:
            missing.append(("jwt_secret", "GATEWAY_JWT_SECRET: not set; set it to the same secret as on the replicas"))
        if not self.token_audiences:
            text = "GATEWAY_AUDIENCE: not set; set it (or GATEWAY_JWT_AUDIENCE) to the same value as on the replicas"
            missing.append(("audience", text))
        self._check(missing)

    def _check(self, problems: Iterable[tuple[str, str]]) -> None:
        """Raise problems, except those of settings whose value is already known to be wrong."""
        lines = [text for names, text in problems if self._wrong.isdisjoint(names.split())]
        if lines:
            raise ConfigurationError(*lines)

    def _common_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems that replicas and workers share: the names of the fields, and the line."""
        if self.audit_log_required and self.audit_log == "off":
            yield (
                "audit_log audit_log_required",
                "GATEWAY_AUDIT_LOG: off, but GATEWAY_AUDIT_LOG_REQUIRED is on; set it to stderr or a file",
            )
        if not self.tools and self.upstreams is None:
            yield (
                "tools upstreams",
                "GATEWAY_TOOLS: not set; name the modules that define your tools there or with --tools, such as "
                "--tools gateway.demo, or name a file of other servers with --upstreams",
            )
        if self.seal_keys is None:
            yield (
                "seal_keys",
                "GATEWAY_SEAL_KEYS: not set; set it (or GATEWAY_SEAL_KEYS_FILE) to what `gateway keys new` prints, "
                "the same on all replicas",
            )
        if self.audience is None:
            yield (
                "audience",
                "GATEWAY_AUDIENCE: not set; set it to a name for the whole deployment, such as its public URL",
            )

    def _exchange_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems with exchanging tokens, in the same form."""
        fields = ("token_exchange_url", "token_exchange_client_id", "token_exchange_client_secret")
        given = [name for name in fields if getattr(self, name) is not None]
        for name in fields:
            if given and name not in given:
                yield (
                    f"{name} {given[0]}",
                    f"{variable(name)}: not set, but {variable(given[0])} is; an exchange of tokens needs both",
                )

    def _token_problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems with verifying bearer tokens, in the same form."""
        fields = ("jwt_secret", "jwks_url", "jwks_file")
        given = [name for name in fields if getattr(self, name) is not None]
        names = [variable(name) for name in given]
        if not given:
            yield (
                " ".join(("auth", *fields)),
                "GATEWAY_JWT_SECRET: not set, so bearer tokens cannot be verified; set it or GATEWAY_JWT_SECRET_FILE, "
                "set GATEWAY_JWKS_URL or GATEWAY_JWKS_FILE, or serve only this machine with GATEWAY_AUTH=none",
            )
            return
        if len(given) > 1:
            yield (
                "auth",
                f"{names[0]}: set together with {' and '.join(names[1:])}; keep the one that verifies your tokens",
            )
            return
        symmetric = self.token_algorithms[0] in SYMMETRIC_ALGORITHMS
        if symmetric != (self.jwt_secret is not None):
            fitting = SYMMETRIC_ALGORITHMS if self.jwt_secret is not None else ASYMMETRIC_ALGORITHMS
            yield (
                "auth jwt_algorithms",
                f"GATEWAY_JWT_ALGORITHMS: {names[0]} cannot verify {','.join(self.jwt_algorithms)}; unset it or "
                f"choose from {', '.join(fitting)}",
            )
        if self.jwt_secret is None and self.jwt_issuer is None:
            yield (
                "auth jwt_issuer",
                f"GATEWAY_JWT_ISSUER: not set, but {names[0]} needs it; set it to the `iss` of your identity "
                "provider's tokens",
            )


class _Environment(PydanticBaseSettingsSource):
    """Reads the variables of a given environment, secrets also from files."""

    def __init__(self, settings_cls: type[BaseSettings], environ: Mapping[str, str], problems: Problems) -> None:
        super().__init__(settings_cls)
        self._environ = environ
        self._problems = problems
        self.files: dict[str, Path] = {}
        self.wrong: list[str] = []

    @override
    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = variable(field_name)
        value = self._environ.get(name) or None
        if field_name in secret_fields():
            path = self._environ.get(name + FILE_SUFFIX) or None
            if path is not None and value is not None:
                raise ConfigurationError(f"{name}: set together with {name}{FILE_SUFFIX}; keep one of them")
            if path is not None:
                value = _read_secret_file(name + FILE_SUFFIX, path)
                self.files[field_name] = Path(path)
        return value, field_name, False

    def __call__(self) -> dict[str, Any]:
        read = {}
        for name, field in self.settings_cls.model_fields.items():
            try:
                value = self.get_field_value(field, name)[0]
            except ConfigurationError as error:
                self._problems.add(*error.problems)
                self.wrong.append(name)
            else:
                if value is not None:
                    read[name] = value
        return read

    @property
    def unknown(self) -> dict[str, str | None]:
        known = sorted(set(known_variables()) | READ_ELSEWHERE)
        unknown = sorted(name for name in self._environ if name.startswith(PREFIX) and name not in known)
        return {name: _nearest(name, known) for name in unknown}


def _nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the setting that a misspelt name most likely means. The prefix, which all share, does not count."""
    words = {setting.removeprefix(PREFIX): setting for setting in known}
    found = difflib.get_close_matches(name.removeprefix(PREFIX).upper(), words, n=1, cutoff=_SIMILAR)
    return words[found[0]] if found else None


def variable(field_name: str) -> str:
    """Return the environment variable of a field of `Settings`."""
    return PREFIX + field_name.upper()


@cache
def secret_fields() -> frozenset[str]:
    """Return the names of the fields that hold secrets, which may come from files and must never be shown."""
    return frozenset(name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation))


def secret_values(settings: Settings) -> frozenset[str]:
    """Return every secret, and each seal key: no program that the gateway runs gets a variable with such a value."""
    secrets = [getattr(settings, name) for name in secret_fields()]
    texts = {secret.get_secret_value() for secret in secrets if secret is not None}
    keys = re.split(r"[,\s]+", settings.seal_keys.get_secret_value()) if settings.seal_keys is not None else []
    return frozenset(text for text in (*texts, *keys) if text)


def known_variables() -> Iterable[str]:
    """Yield every environment variable that is a setting, including the `_FILE` forms."""
    for name in Settings.model_fields:
        yield variable(name)
        if name in secret_fields():
            yield variable(name) + FILE_SUFFIX


def _read_secret_file(name: str, path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(f"{name}: {path!r} cannot be read: {reason}; name a readable file") from None
    except ValueError:
        raise ConfigurationError(f"{name}: {path!r} is not a UTF-8 text file; name one that is") from None
    if not text.strip():
        raise ConfigurationError(f"{name}: {path!r} is empty; write the secret to it")
    return text


def _find_expects(annotation: object) -> str | None:
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, Expects):
            return part.text
    for inner in getattr(annotation, "__args__", ()):
        found = _find_expects(inner)
        if found is not None:
            return found
    return None


def _expected(field: FieldInfo) -> str:
    """Return what a field accepts. Pydantic keeps outer metadata on the field, inner metadata in the annotation."""
    for part in field.metadata:
        if isinstance(part, Expects):
            return part.text
    found = _find_expects(field.annotation)
    if found is None:
        raise LookupError("every setting needs an Expects")
    return found


def _mistakes(error: ValidationError, names: Mapping[str, str]) -> dict[str, str]:
    """Return a line for each wrong field, by field name; `names` overrides the variables' names in the lines."""
    lines: dict[str, str] = {}
    for details in error.errors(include_url=False):
        name = str(details["loc"][0]) if details["loc"] else ""
        lines.setdefault(name, _mistake(name, details, names))
    return lines


def _mistake(field_name: str, details: Any, names: Mapping[str, str]) -> str:
    field = Settings.model_fields.get(field_name)
    if field is None:
        return f"{field_name!r} is not a setting"
    name = names.get(field_name) or variable(field_name)
    use = f"use {_expected(field)}"
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, ValueError):
        return f"{name}: {cause}; {use}"
    if field_name in secret_fields():
        return f"{name}: not valid; {use}"
    shown = str(details["input"])
    if len(shown) > _SHOWN_VALUE_CHARACTERS:
        shown = shown[:_SHOWN_VALUE_CHARACTERS] + "…"
    return f"{name}: {shown!r} is not valid; {use}"
