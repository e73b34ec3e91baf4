"""The fuzz targets: each takes any bytes, and fails if the code breaks a promise.

The bytes are a small format of each target's own, given in its docstring, so that the corpus can be read and written
by hand. Everything is deterministic: keys, nonces and times are fixed.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import random
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from gateway.auth.keys import KeySet, SharedSecret
from gateway.auth.verifier import TokenVerifier
from gateway.authoring.uri_templates import UriTemplate
from gateway.engine.journal import Journal, MalformedJournal
from gateway.errors import (
    AuthoringError,
    ConfigurationError,
    HeaderMismatch,
    HttpRefusal,
    InvalidParams,
    InvalidRequest,
    ParseError,
    RpcError,
)
from gateway.protocol import headers as http
from gateway.protocol import requests as params
from gateway.protocol.jsonrpc import (
    MAX_ID_CHARS,
    Notification,
    Request,
    Response,
    error_response,
    parse_message,
    request_id_of,
)
from gateway.protocol.method_table import NAMED_METHODS
from gateway.protocol.param_headers import check_param_headers, compile_param_headers
from gateway.protocol.released import requests as released
from gateway.protocol.strict_json import decode, encode
from gateway.protocol.uris.canonical import MAX_URI_CHARACTERS, NotCanonical, canonical, canonical_listed
from gateway.protocol.uris.globs import globs_of_uris
from gateway.protocol.uris.templates import ForeignTemplate
from gateway.protocol.wire_choice import choose_wire
from gateway.sealing import base64url
from gateway.sealing.digest import arguments_digest
from gateway.sealing.envelope import LABEL, Rejected, Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker
from gateway.sealing.packing import pack, unpack
from gateway.sealing.state import open_state
from gateway.settings.hosts import is_loopback, without_port
from gateway.settings.model import Settings
from gateway.upstreams.config.definition import Choice, Definition
from gateway.web.origins import OriginPolicy
from tests.fuzz import budgets as hostile_requests
from tests.fuzz import growth, slow_json
from tests.protocol.header_values import encode_header_value
from tests.protocol.uris.hostile import by_pydantic, by_urllib

Target: TypeAlias = Callable[[bytes], None]
T = TypeVar("T")

NOW: Final = 1_700_000_000.0
MAX_CHARS: Final = 4096
RING: Final = KeyRing.parse(f"{'5c' * 32},{'a7' * 32}")
AAD: Final = b"what the state is bound to"
JWT_SECRET: Final = "a secret that only the fuzzer knows, 32 bytes"
ALLOWED_HOST: Final = "mcp.example.com"


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are the same, including types, signs and the order of names."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def json_bodies(data: bytes) -> None:
    """Check a body: both readers return the same value, or both reject it."""
    try:
        expected, strict = slow_json.read(data), True
    except slow_json.NotStrict:
        expected, strict = None, False
    try:
        value = decode(data)
    except ParseError as error:
        assert not strict, f"refused: {error}"
        assert error_response(None, error)
        return
    assert strict, "accepted"
    assert same(value, expected), (value, expected)
    assert same(decode(encode(value)), value)


def requests(data: bytes) -> None:
    """Check a body with matching headers: it is a request, or rejected with an error that can be sent."""
    try:
        value = decode(data)
    except ParseError:
        return
    try:
        _read_request(value)
    except RpcError as error:
        told = decode(error_response(request_id_of(value), error))
        assert same(told.get("id"), _readable_id(value))
        assert told["error"]["code"] == error.code


def _readable_id(value: Any) -> Any:
    """Return the id that an error must repeat: exactly the client's own, if it is a valid one."""
    if not isinstance(value, dict) or ("method" not in value and ("result" in value or "error" in value)):
        return None
    sent = value.get("id")
    return sent if type(sent) is int or (type(sent) is str and len(sent) <= MAX_ID_CHARS) else None


def _read_request(value: Any) -> None:
    message = parse_message(value)
    if isinstance(message, Response):
        return
    given = _fitting_headers(message)
    choose_wire(message, given.get(http.PROTOCOL_VERSION))
    if isinstance(message, Notification):
        return
    request = released.read_request(message, given)
    assert request.method == message.method
    assert same(request.id, value["id"])
    for read in (
        params.read_tool_call,
        params.read_prompt_get,
        params.read_resource_read,
        params.read_completion,
        released.read_listen,
        params.read_cursor,
    ):
        try:
            read(request.params)
        except InvalidParams as error:
            assert len(error.message) < 1000, "a refusal repeats what the client sent"
    call = params.read_continuation(request.params)
    assert isinstance(call.input_responses, dict)


def _fitting_headers(message: Request | Notification) -> http.Headers:
    """Return the headers that a careful client would send with this body."""
    raw: list[tuple[bytes, bytes]] = []
    meta = message.params.get("_meta")
    version = meta.get("io.modelcontextprotocol/protocolVersion") if isinstance(meta, dict) else None
    name = message.params.get(NAMED_METHODS.get(message.method, ""))
    for header, text in ((http.PROTOCOL_VERSION, version), (http.METHOD, message.method), (http.NAME, name)):
        if isinstance(text, str):
            raw.append((header, encode_header_value(text).encode("ascii")))
    return http.Headers(raw)


def headers(data: bytes) -> None:
    """Header lines, `name: value`, and nothing between them but line feeds."""
    lines = [line.partition(b":") for line in data.split(b"\n") if line]
    raw = [(name.strip().lower(), value) for name, _, value in lines]
    names = [name for name, _ in raw]
    decisive = [name for name in names if name in {b"host", b"authorization"} or name.startswith(b"mcp-")]
    try:
        given = http.Headers(raw)
    except InvalidRequest:
        assert len(set(decisive)) < len(decisive)
        return
    assert len(set(decisive)) == len(decisive), "a header that decides something was accepted twice"
    try:
        http.check_content(given)
    except HttpRefusal as refusal:
        assert refusal.status == 415
    else:
        coding = given.get(b"content-encoding")
        assert coding is None or coding.lower() in {"", "identity"}
    for name in names:
        _check_value(given.get(name) or "")
    try:
        check_param_headers(PARAM_HEADERS, {"region": "eu", "count": 42, "deep": {"flag": True}}, given)
    except HeaderMismatch:
        return
    assert [http.decode_header_value(given.get(key) or "") for key in (b"mcp-param-region", b"mcp-param-flag")] == [
        "eu",
        "true",
    ]


PARAM_HEADERS: Final = compile_param_headers(
    {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
        }
    }
)


def _check_value(sent: str) -> None:
    assert http.decode_header_value(encode_header_value(sent)) == sent
    text = http.decode_header_value(sent)
    if text is None:
        return
    written = encode_header_value(text)
    assert written.isascii()
    assert http.decode_header_value(written) == text
    if sent.startswith("=?base64?") and text != sent:
        assert sent == f"=?base64?{written_base64(text)}?=", "two spellings of one sentinel"


def written_base64(text: str) -> str:
    """Write a text in standard Base64, the slow way."""
    return msgspec.json.encode(text.encode()).decode().strip('"')


def tokens(data: bytes) -> None:
    """Check a text as a state or a cursor: only the two sealed ones open."""
    text = data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace") if _is_text(data) else data.hex()
    for token in (text, LABEL + base64url.encode(data), LABEL + text):
        opened = _opens(token)
        assert opened == (token in SEALED), f"opened: {token!r}"
        try:
            CURSORS.read("tools", token)
        except Rejected:
            pass
        else:
            assert token in SEALED_CURSORS, f"read: {token!r}"
    assert all(not cipher._opening or len(cipher._opening) == 1 for cipher in OPENER._ciphers.values())


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _opens(token: object) -> bool:
    try:
        open_state(OPENER, token, aad=AAD, now=NOW, max_bytes=MAX_CHARS)
    except Rejected:
        return False
    return True


def _fixed_sealer(ring: KeyRing) -> Sealer:
    return Sealer(ring, random.Random(20260728).randbytes)


OPENER: Final = _fixed_sealer(RING)
CURSORS: Final = CursorMaker(RING)
SEALED: Final = frozenset(
    _fixed_sealer(ring).seal(pack({"v": 1, "iat": NOW, "exp": NOW + 60, "j": {"n": number}}), AAD)
    for number, ring in enumerate((RING, KeyRing(RING.keys[::-1])))
)
SEALED_CURSORS: Final = frozenset({CURSORS.make("tools", "echo")})


def journals(data: bytes) -> None:
    """Check MessagePack that an owner of our keys could seal: a journal that survives a round trip, or rejected."""
    try:
        opened = open_state(OPENER, _fixed_sealer(RING).seal(data, AAD), aad=AAD, now=NOW, max_bytes=1 << 16)
        contents: Any = opened.journal
    except Rejected:
        try:
            contents = unpack(data)
        except ValueError:
            return
    if not isinstance(contents, dict):
        return
    try:
        journal = Journal.from_map(contents)
    except MalformedJournal:
        return
    again = Journal.from_map(journal.to_map())
    assert repr(again) == repr(journal)


def uri_templates(data: bytes) -> None:
    """Check a template, a line feed, and a URI: matches can be put together again, and none is missed."""
    template, _, uri = data.decode("utf-8", "replace").partition("\n")
    try:
        compiled = UriTemplate(template)
    except AuthoringError as error:
        assert "\n" not in str(error)
        return
    if compiled._query:
        _check_query(compiled, uri)
        return
    spans = compiled._spans(uri)
    if len(uri) < 80 and len(compiled.variables) < 4:
        assert (spans is not None) == _could_match(template, uri)
    if spans is not None:
        literals = compiled._literals
        assert literals[0] + "".join(span + text for span, text in zip(spans, literals[1:], strict=True)) == uri
    values = compiled.match(uri)
    if values is None:
        return
    assert spans is not None
    assert list(values) == list(compiled.variables)
    for name, value in values.items():
        parts = value.split("/")
        assert value
        assert not {".", ".."} & set(parts)
        assert "" not in parts[:-1]
        assert len(parts) == 1 or f"{{+{name}}}" in template


def _check_query(template: UriTemplate, uri: str) -> None:
    """Check a match with a query: it has each variable once, and the path matches without the query, too."""
    values = template.match(uri)
    if values is None:
        return
    path, _, query = uri.partition("?")
    assert "#" not in uri
    sent = [part.partition("=")[0] for part in query.split("&")] if query else []
    assert sorted(sent) == sorted(values.keys() & {*template._query})
    assert {name: values[name] for name in template._path} == template.match(path)
    assert values.keys() == {*template._path, *sent}
    for value in values.values():
        assert not {".", ".."} & set(value.split("/"))


def _could_match(template: str, uri: str) -> bool:
    pieces = re.split(r"\{[^{}]*\}", template)
    return re.fullmatch(".+?".join(map(re.escape, pieces)), uri, re.DOTALL) is not None


def uris(data: bytes) -> None:
    """Check a URI, a line feed, and a template of an upstream: all parsers read what is judged and sent."""
    uri, _, template = data.decode("utf-8", "surrogatepass" if _is_text(data) else "replace").partition("\n")
    listed = canonical_listed(uri)
    try:
        form = canonical(uri)
    except NotCanonical as problem:
        assert len(str(problem)) < 200, "a refusal repeats what the client sent"
        return
    assert form.isprintable()
    assert len(form) <= MAX_URI_CHARACTERS
    assert form == canonical(form) == listed
    for parse in (by_pydantic, by_urllib):
        assert parse is by_urllib or parse(form) in (None, form), "a parser changes what is sent"
        for spelling in (parse(uri), parse(form)):
            assert spelling is None or canonical(spelling) == form, "a parser reads another URI"
    assert set("*?[") & set(uri) or any(fnmatchcase(form, glob) for glob in globs_of_uris(uri)), "a glob is not found"
    sent = ForeignTemplate(template).text_of(form)
    assert sent is None or canonical_listed(sent) == form, "a template sends what was not judged"
    judged = SECRETS.serves_resource(form)
    assert not (judged and "secret" in form.partition("?")[0].split("/")), "a rule does not match"


SECRETS: Final = Definition("up", "up", "http", resources=Choice(deny=("*secret*",)))


def hosts(data: bytes) -> None:
    """Check a `Host`, a line feed, and perhaps an `Origin`: only names that are clearly ours pass."""
    host, newline, origin = data.partition(b"\n")
    raw = [(b"host", host), *([(b"origin", origin)] if newline else [])]
    given = http.Headers(raw)
    name = given.get(b"host") or ""
    for policy, plain in ((PUBLIC, PLAIN_PUBLIC), (LOCAL, PLAIN_LOCAL)):
        try:
            cors = policy.check(given)
        except HttpRefusal as refusal:
            assert refusal.status == 403
            continue
        assert plain.fullmatch(name), f"served for {name!r}"
        told = given.get(b"origin")
        assert (told is not None) == bool(cors)
        if told is not None:
            assert PLAIN_ORIGIN[policy is LOCAL].fullmatch(told), f"allowed for {told!r}"
    assert len(PUBLIC._known_hosts) <= 1024
    bare = without_port(name)
    assert bare is None or name.startswith(bare)
    assert not is_loopback(name) or PLAIN_LOCAL.fullmatch(name) or ":" in name


_PORT: Final = r"(?::[0-9]{1,5})?"
_LOOPBACK: Final = r"(?:localhost|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|\[[0-9a-fA-F:.]+\])"
PUBLIC: Final = OriginPolicy([ALLOWED_HOST], [f"https://{ALLOWED_HOST}"], loopback=False)
LOCAL: Final = OriginPolicy((), (), loopback=True)
PLAIN_PUBLIC: Final = re.compile(rf"{re.escape(ALLOWED_HOST)}\.?{_PORT}", re.IGNORECASE)
PLAIN_LOCAL: Final = re.compile(rf"(?:localhost\.|{_LOOPBACK}){_PORT}", re.IGNORECASE)
PLAIN_ORIGIN: Final = {
    False: re.compile(f"https://{re.escape(ALLOWED_HOST)}(?::443)?", re.IGNORECASE),
    True: re.compile(f"https?://{_LOOPBACK}{_PORT}", re.IGNORECASE),
}


def digests(data: bytes) -> None:
    """Check two JSON objects, separated by a line feed: their digests are equal exactly if they mean the same."""
    one, other = (_arguments(part) for part in data.partition(b"\n")[::2])
    if one is None:
        return
    digest = arguments_digest(one)
    assert digest == arguments_digest(_written_otherwise(one)), "the same arguments in another spelling"
    if other is not None:
        assert (digest == arguments_digest(other)) == (_meaning(one) == _meaning(other))


def _arguments(text: bytes) -> dict[str, Any] | None:
    try:
        value = decode(text)
    except ParseError:
        return None
    return value if isinstance(value, dict) else None


def _meaning(value: Any) -> Any:
    """Return a form that two values share exactly if they mean the same."""
    if isinstance(value, dict):
        return "object", frozenset((name, _meaning(member)) for name, member in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_meaning, value))
    if isinstance(value, float):
        return ("integer", int(value)) if value.is_integer() and abs(value) < 2**53 else ("fraction", value)
    if isinstance(value, bool) or not isinstance(value, int):
        return type(value).__name__, value
    return "integer", value


def _written_otherwise(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _written_otherwise(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [_written_otherwise(element) for element in value]
    if type(value) is int and abs(value) < 2**53:
        return -0.0 if value == 0 else float(value)
    return value


def bearer_tokens(data: bytes) -> None:
    """The header and the claims of a token, with a line feed between them; it is signed with the right secret.

    Without a line feed it is an `Authorization` header as it is.
    """
    head, newline, claims = data.partition(b"\n")
    VERIFIER._verified.clear()
    if newline:
        signed = ".".join(base64url.encode(part) for part in (head, claims))
        mac = hmac.digest(JWT_SECRET.encode(), signed.encode(), hashlib.sha256)
        authorization = f"Bearer {signed}.{base64url.encode(mac)}"
    else:
        authorization = data.decode("latin-1")
    try:
        verified = at_once(VERIFIER.authenticate(authorization))
    except HttpRefusal as refusal:
        assert refusal.status == 401
        assert all(value.isascii() and value.isprintable() for _, value in refusal.headers)
        return
    assert newline, "a token that nobody signed was accepted"
    principal = verified.principal
    assert principal is not None
    assert principal.subject or principal.client_id
    assert all(name == name.encode().decode() for name in (principal.issuer, principal.subject, principal.client_id))
    assert NOW - 30 < verified.expires_at < math.inf
    assert msgspec.json.decode(head)["alg"] == "HS256"


def at_once(waiting: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        waiting.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


VERIFIER: Final = TokenVerifier(SharedSecret(JWT_SECRET), ("tests",), clock=lambda: NOW)


def key_sets(data: bytes) -> None:
    """Check the keys of an identity provider: keys that verify tokens, or one line with the reason why not."""
    accepted = ("RS256", "ES256", "EdDSA")
    try:
        found = KeySet.parse(data, accepted, source="GATEWAY_JWKS_URL")
    except ConfigurationError as error:
        told = str(error)
        assert told.isprintable()
        assert len(told) < 200, "a refusal repeats what the provider sent"
        return
    assert 0 < len(found.keys) <= 64
    for key in found.keys:
        assert key.algorithms
        assert key.algorithms <= set(accepted)
        assert not isinstance(key.public_key, bytes | str), "a secret among public keys"
        assert not hasattr(key.public_key, "private_bytes"), "a private key was kept"


def settings(data: bytes) -> None:
    """Lines `NAME=value`, the names without prefix. They make settings, or a list of mistakes that shows no secret."""
    environ: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").split("\n"):
        name, _, value = line.partition("=")
        if name.isidentifier() and name.isupper() and not name.endswith("_FILE"):
            environ[f"GATEWAY_{name}"] = value
    hidden = [environ.get(f"GATEWAY_{name}", "") for name in SECRET_SETTINGS]
    shown = [value for name, value in environ.items() if name.removeprefix("GATEWAY_") not in SECRET_SETTINGS]
    # A value that is also in another setting may be shown there, as it is not known to be a secret.
    secrets = [secret for secret in hidden if len(secret) > 16 and not any(secret in value for value in shown)]
    try:
        made = Settings.load(environ)
        made.check_serving()
        KeyRing.parse(environ.get("GATEWAY_SEAL_KEYS"))
        told = repr(made)
    except ConfigurationError as error:
        told = str(error)
        assert all(line.isprintable() for line in error.problems), told
    assert not any(secret in told for secret in secrets)


def costs(data: bytes) -> None:
    """Letters of a schema, a line feed, and those of a unit. A value of twice as many units costs about twice as much.

    `tests.fuzz.growth.Generator` says what each letter means.
    """
    schema, unit = growth.read_case(data)
    growth.check_growth(schema, unit, growth.CHECKS)


def budgets(data: bytes) -> None:
    """Two letters for each request of a hostile and of another caller.

    `tests.fuzz.budgets` says what each letter means.
    """
    hostile_requests.play(data)


SECRET_SETTINGS: Final = ("SEAL_KEYS", "JWT_SECRET")


TARGETS: Final[Mapping[str, Target]] = {
    target.__name__: target
    for target in (
        json_bodies,
        requests,
        headers,
        tokens,
        journals,
        uri_templates,
        uris,
        hosts,
        digests,
        bearer_tokens,
        key_sets,
        settings,
        costs,
        budgets,
    )
}


def chosen(names: Sequence[str]) -> Mapping[str, Target]:
    """Return the targets with these names, by default all."""
    return {name: TARGETS[name] for name in names or TARGETS}
