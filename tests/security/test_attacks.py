"""The attacks that this gateway withstands, one row each, against two live replicas.

Each row says what is sent and which refusal is expected. Both replicas must give it, byte for byte; it must hold
nothing internal; and right after it the replica must serve a good request. The change of a row is the only fault of its
request: a test for each group shows that the unchanged request is served.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from os import urandom
from typing import Any

import msgspec
import pytest

from gateway.auth.providers import MIN_ASKED_SECONDS
from gateway.engine.journal import Journal
from gateway.sealing import base64url
from gateway.sealing.binding import (
    cursor_binding,
    field_binding,
    request_id_binding,
    request_state_binding,
    session_binding,
)
from gateway.sealing.digest import arguments_digest
from gateway.sealing.envelope import LABEL, Sealer
from gateway.sealing.formats import REQUEST_STATE
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker, ListPlace
from gateway.sealing.packing import pack
from gateway.sealing.principal import Principal
from gateway.sealing.state import seal_state
from loadtest.cluster import Replica, new_key
from tests.integration.fleet import Fleet
from tests.integration.raw import (
    SECONDS,
    Answer,
    RawConnection,
    accept,
    head_of,
    headers_of,
    post_bytes,
    request,
    tool_call,
)
from tests.security import provider as idp
from tests.security.provider import FOREIGN_KEYS, ISSUER, KEYS, claims, token, with_key, with_secret, written

pytestmark = pytest.mark.slow

SECRET = "a secret that only these tests know, 32 bytes"
KEY, SECOND_KEY, REMOVED_KEY = new_key(), new_key(), new_key()
MAX_STATE_BYTES = 4096
MAX_BODY_BYTES = 1 << 20
HEADER_BYTES = 28
"""Key id and nonce of a sealed token."""
ALICE = Principal(ISSUER, "alice", "app")
RESOURCE = "https://mcp.example.com/tools/mcp"
"""The audience of tokens for the replicas."""
ECHO = tool_call("echo", {"text": "hello"})
ECHO_BODY = msgspec.json.encode(ECHO)

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH = -32700, -32600, -32602, -32020
INTERNALS = (
    *("Traceback", 'File "', ".py", "site-packages", "msgspec", "pydantic", "cryptography", "PyJWT", "jwt.", "0x7f"),
    *("AssertionError", "KeyError", "TypeError", "ValueError", "not_authentic", "unknown_key"),
)
"""Text that no answer may contain, besides keys and secrets."""


@pytest.fixture(scope="module")
def provider() -> Iterator[idp.Provider]:
    with idp.serving() as provider:
        yield provider


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, provider: idp.Provider) -> Iterator[Fleet]:
    """Replicas with one key ring: two with a provider's public keys, two with a shared secret, two without identity."""
    environ = {
        "GATEWAY_TOOLS": "tests.security.served",
        "GATEWAY_SEAL_KEYS": f"{KEY},{SECOND_KEY}",
        "GATEWAY_AUDIENCE": idp.AUDIENCE,
        "GATEWAY_STATE_MAX_BYTES": str(MAX_STATE_BYTES),
        "GATEWAY_JWT_ISSUER": ISSUER,
        "GATEWAY_PUBLIC_URL": "https://mcp.example.com/tools",
    }
    public = {"GATEWAY_AUTH": "jwt", "GATEWAY_JWKS_URL": provider.url}
    shared = {"GATEWAY_AUTH": "jwt", "GATEWAY_JWT_SECRET": SECRET}
    own = {"r1": public, "r2": public, "s1": shared, "s2": shared, "a1": {}, "a2": {}}
    with Fleet(tmp_path_factory.mktemp("attacked"), environ, names=tuple(own), own=own) as fleet:
        yield fleet


GROUPS: dict[str, tuple[str, str]] = {"public": ("r1", "r2"), "shared": ("s1", "s2"), "anonymous": ("a1", "a2")}


def shared_token(**changes: Any) -> str:
    return written({"alg": "HS256", "typ": "JWT"}, claims(**changes), with_secret(SECRET.encode()))


GOOD_TOKEN: dict[str, Callable[[], str | None]] = {"public": token, "shared": shared_token, "anonymous": lambda: None}


def headers_with(message: Mapping[str, Any], bearer: str | None) -> dict[str, str]:
    return {**headers_of(message), **({} if bearer is None else {"authorization": f"Bearer {bearer}"})}


def send(replica: Replica, message: Mapping[str, Any], bearer: str | None) -> Answer:
    return post_bytes(replica, msgspec.json.encode(message), headers_with(message, bearer))


def check_serving(replica: Replica, group: str) -> None:
    """Check that the replica serves a good request, and has logged no internal error."""
    assert send(replica, ECHO, GOOD_TOKEN[group]()).text == "hello"
    assert replica.alive
    assert replica.logged("request failed") == []


def check_nothing_internal(told: str) -> None:
    secrets = [KEY, SECOND_KEY, SECRET, *(key.secret.hex() for key in KeyRing.parse(f"{KEY},{SECOND_KEY}").keys)]
    assert [word for word in (*INTERNALS, *secrets) if word in told] == []
    assert "alice" not in told


def attack(fleet: Fleet, group: str, hit: Callable[[Replica], Answer]) -> Answer:
    """Send an attack to both replicas of a group, check what holds for every row, and return their answer."""
    answers = []
    for name in GROUPS[group]:
        answer = hit(fleet[name])
        assert answer.headers["x-gateway-replica"] == name
        check_nothing_internal(answer.body.decode() + str(dict(answer.headers)))
        check_serving(fleet[name], group)
        answers.append(answer)
    one, other = answers
    assert (one.status, one.body) == (other.status, other.body)
    names = set(one.headers) - {"date"}
    assert names == set(other.headers) - {"date"}
    assert {name: one.headers[name] for name in names - {"x-gateway-replica"}} == {
        name: other.headers[name] for name in names - {"x-gateway-replica"}
    }
    return one


# ---------------------------------------------------------------------------------------------------------------------
# Tokens: who calls
# ---------------------------------------------------------------------------------------------------------------------

Make = Callable[[], str]


def by_header(header: Mapping[str, Any], sign: idp.Sign | bytes = b"") -> Make:
    """Write claims that are good when the row runs, under any header and signature."""
    return lambda: written(header, claims(), sign)


def hs256_rows() -> dict[str, Make]:
    """HS256, signed with a public key as if it were a secret."""
    return {
        f"HS256 with the {key_id} key as {form}, {'with' if names_key else 'without'} its id": (
            by_header(header, with_secret(secret))
        )
        for key_id in KEYS
        for form, secret in idp.public_forms(key_id).items()
        for names_key, header in ((True, {"alg": "HS256", "kid": key_id}), (False, {"alg": "HS256"}))
    }


def mismatch_rows() -> dict[str, Make]:
    """Label a right signature with another algorithm or another key."""
    return {
        f"{signer} signs as {SIGNER[signer]}, the header says {algorithm} by {named}": (
            by_header({"alg": algorithm, "kid": named}, with_key(KEYS[signer], SIGNER[signer]))
        )
        for signer in KEYS
        for named in KEYS
        for algorithm in (*SIGNER.values(), "RS512", "PS256", "ES384", "HS256", "HS512")
        if (algorithm, named) != (SIGNER[signer], signer)
    }


SIGNER = idp.SIGNERS


def foreign(header: Mapping[str, Any], key_id: str = "rsa") -> str:
    """Sign with an untrusted key, and name its URL."""
    key = FOREIGN_KEYS[key_id]
    return written({"alg": SIGNER[key_id], **header}, claims(), with_key(key, SIGNER[key_id]))


FOREIGN_JWK = idp.public_jwk(FOREIGN_KEYS["rsa"])
KEY_IDS: tuple[Any, ...] = (
    "",
    "EC",
    "ec ",
    "ec\0",
    "../../dev/null",
    "' OR 1=1 --",
    "\ud800",
    "e" * 3000,
    1,
    True,
    ["ec"],
    {},
)
FORGED: dict[str, Make] = {
    **{
        f"unsigned, {algorithm!r}": by_header({"alg": algorithm, "kid": "ec"})
        for algorithm in ("none", "None", "NONE", "nOnE", "", " none", None, 0, [], ["ES256"], {"alg": "ES256"})
    },
    "unsigned, no algorithm": lambda: written({"typ": "JWT"}, claims()),
    "none with a signature": lambda: written({"alg": "none"}, claims(), with_key(KEYS["ec"], "ES256")),
    **hs256_rows(),
    **mismatch_rows(),
    "RSA with another hash": lambda: written({"alg": "RS512", "kid": "rsa"}, claims(), with_key(KEYS["rsa"], "RS512")),
    "RSA with PSS": lambda: written({"alg": "PS256", "kid": "rsa"}, claims(), with_key(KEYS["rsa"], "PS256")),
    "HS256 with nothing": lambda: written({"alg": "HS256"}, claims(), with_secret(b"")),
    "HS256 with another's secret": lambda: written({"alg": "HS256"}, claims(), with_secret(SECRET.encode())),
    "another's key": lambda: foreign({"kid": "rsa"}),
    "another's key, embedded": lambda: foreign({"jwk": FOREIGN_JWK}),
    "another's key, embedded under a known id": lambda: foreign({"kid": "rsa", "jwk": {**FOREIGN_JWK, "kid": "rsa"}}),
    "another's key, embedded as certificate": lambda: foreign({"x5c": ["MIIB"], "kid": "rsa"}),
    "critical extensions": lambda: token("ec", {"crit": ["b64"], "b64": False}),
    "critical extensions, known ones": lambda: token("ec", {"crit": ["exp"]}),
    "critical extensions, none": lambda: token("ec", {"crit": []}),
    **{
        f"key id {str(kid)[:30]!r}": by_header({"alg": "ES256", "kid": kid}, with_key(KEYS["ec"], "ES256"))
        for kid in KEY_IDS
    },
    "signature of nothing": lambda: written({"alg": "ES256", "kid": "ec"}, claims()),
    "signature of zeros": lambda: written({"alg": "ES256", "kid": "ec"}, claims(), bytes(64)),
    "signature of the curve's order": lambda: written(
        {"alg": "ES256", "kid": "ec"},
        claims(),
        bytes.fromhex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551") * 2,
    ),
    "signature cut": lambda: token()[:-2],
    "signature extended": lambda: token() + "AA",
    "signature of another token": lambda: token().rpartition(".")[0] + "." + token(sub="bob").rpartition(".")[2],
    "claims of another token": lambda: swapped(1),
    "header of another token": lambda: swapped(0),
    "two parts": lambda: token().rpartition(".")[0],
    "four parts": lambda: token() + ".AAAA",
    "five parts, as if encrypted": lambda: "e30.AAAA.AAAA.AAAA.AAAA",
    "JSON instead": lambda: json.dumps({"payload": "e30", "signatures": []}).replace(" ", ""),
    "only dots": lambda: "..",
    "header no JSON": lambda: written(b"{", claims()),
    "header a list": lambda: written([], claims()),
    "header that nests without end": lambda: written(
        b'{"alg":"ES256","kid":"ec","x":' + b"[" * 2000 + b"]" * 2000 + b"}", b"{}"
    ),
    "header with endless digits": lambda: written(b'{"alg":"ES256","kid":"ec","x":' + b"1" * 4400 + b"}", b"{}"),
    "header that is no UTF-8": lambda: written(b'{"alg":"ES256","kid":"\xff"}', claims()),
    "longer than any header may be": lambda: token(more="x" * 9000),
}


def swapped(part: int) -> str:
    """Replace one part of a good token with that of another user's."""
    own, other = token("ed").split("."), token("ec", sub="bob").split(".")
    own[part] = other[part]
    return ".".join(own)


def raw_claims(text: str) -> str:
    """Sign handwritten claims, inserted after the good ones."""
    return written(
        {"alg": "EdDSA", "kid": "ed"}, json.dumps(claims())[:-1].encode() + text.encode(), with_key(KEYS["ed"], "EdDSA")
    )


CLAIMS: dict[str, Make] = {
    **{
        f"issuer {str(issuer)[:40]!r}": partial(token, iss=issuer)
        for issuer in (
            *("https://evil.test", ISSUER + "/", ISSUER.upper(), ISSUER + "\0", " " + ISSUER, ISSUER[:-1], "", None, 1),
            *([ISSUER], {"iss": ISSUER}, ISSUER.replace("i", "і")),  # noqa: RUF001 - Cyrillic
        )
    },
    "no issuer": lambda: token(iss=...),
    "issuer with half a character": lambda: token(iss="\ud800"),
    **{
        f"audience {str(audience)!r}": partial(token, aud=audience)
        for audience in (
            *("production", "Tests", "tests ", "test", "", None, 1, [], ["production"], {"tests": 1}, [1]),
            *("https://mcp.example.com/tools", "https://mcp.example.com/mcp", "http://mcp.example.com/tools/mcp"),
            *(RESOURCE + "/", RESOURCE + "/x", RESOURCE + "?", RESOURCE.upper(), RESOURCE[:-1], [RESOURCE + "/"]),
            *(f"tests {RESOURCE}", f"tests,{RESOURCE}", {RESOURCE: 1}, [RESOURCE, 1], "http://127.0.0.1/mcp"),
        )
    },
    "no audience": lambda: token(aud=...),
    "expired": lambda: token(iat=time.time() - 7200, exp=time.time() - 3600),
    "no expiry": lambda: token(exp=...),
    **{
        f"expiry {str(expiry)[:30]!r}": partial(raw_claims, f',"exp":{expiry}' + "}")
        for expiry in ("null", '"9999999999"', "true", "NaN", "Infinity", "-1", "0", "1e400", "1" * 400, "[]", "{}")
    },
    "not valid yet": lambda: token(nbf=time.time() + 3600),
    "not valid before a text": lambda: token(nbf="soon"),
    "issued in the future": lambda: token(iat=time.time() + 3600),
    "issued at a text": lambda: token(iat="today"),
    "neither user nor client": lambda: token(sub=..., client_id=...),
    "neither user nor client, but empty ones": lambda: token(sub="", client_id="", azp=""),
    **{
        f"user {str(user)[:30]!r}": partial(token, sub=user)
        for user in (None, 1, True, ["alice"], {"sub": "alice"}, "\ud800", "alice\udfff")
    },
    **{f"client {client!r}": partial(token, client_id=client) for client in (1, ["app"], "\ud800")},
    "authorized party a number": lambda: token(client_id=..., azp=1),
    **{
        f"{name} {str(scopes)!r}": partial(token, **{"scope": ..., name: scopes})
        for name in ("scope", "scp")
        for scopes in (None, 1, True, {"mcp": True}, ["mcp", 1], [["mcp"]], [None])
    },
    "claims a list": lambda: written({"alg": "EdDSA", "kid": "ed"}, [], with_key(KEYS["ed"], "EdDSA")),
    "claims no JSON": lambda: written({"alg": "EdDSA", "kid": "ed"}, b"alice", with_key(KEYS["ed"], "EdDSA")),
}


def check_bad_token(answer: Answer) -> None:
    assert answer.error == (401, INVALID_REQUEST), answer
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("make", FORGED.values(), ids=FORGED)
def test_a_forged_token_proves_nothing(fleet: Fleet, make: Make) -> None:
    forged = make()
    check_bad_token(attack(fleet, "public", lambda replica: send(replica, ECHO, forged)))


@pytest.mark.parametrize("make", CLAIMS.values(), ids=CLAIMS)
def test_a_signed_token_with_wrong_claims_proves_nothing(fleet: Fleet, make: Make) -> None:
    signed = make()
    check_bad_token(attack(fleet, "public", lambda replica: send(replica, ECHO, signed)))


SHARED: dict[str, Make] = {
    "unsigned": lambda: written({"alg": "none"}, claims()),
    "another secret": lambda: written({"alg": "HS256"}, claims(), with_secret(b"x" * 32)),
    "no secret": lambda: written({"alg": "HS256"}, claims(), with_secret(b"")),
    "a part of the secret": lambda: written({"alg": "HS256"}, claims(), with_secret(SECRET[:-1].encode())),
    "a longer hash": lambda: written({"alg": "HS512"}, claims(), with_secret(SECRET.encode(), "sha512")),
    "a longer hash, told as HS256": lambda: written({"alg": "HS256"}, claims(), with_secret(SECRET.encode(), "sha512")),
    "a signature cut": lambda: shared_token()[:-4],
    "a public key": lambda: foreign({"jwk": FOREIGN_JWK}),
    "a secret, embedded": lambda: written(
        {"alg": "HS256", "jwk": {"kty": "oct", "k": base64url.encode(b"x" * 32)}}, claims(), with_secret(b"x" * 32)
    ),
    "critical extensions": lambda: written(
        {"alg": "HS256", "crit": ["b64"], "b64": False}, claims(), with_secret(SECRET.encode())
    ),
    "another issuer": lambda: shared_token(iss="https://evil.test"),
    "another audience": lambda: shared_token(aud="production"),
    "expired": lambda: shared_token(exp=time.time() - 3600),
    "no expiry": lambda: shared_token(exp=...),
    "issued in the future": lambda: shared_token(iat=time.time() + 3600),
    "nobody": lambda: shared_token(sub=..., client_id=...),
}


@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_a_forged_token_proves_nothing_where_a_secret_is_shared(fleet: Fleet, make: Make) -> None:
    forged = make()
    check_bad_token(attack(fleet, "shared", lambda replica: send(replica, ECHO, forged)))


@pytest.mark.parametrize("key_id", KEYS)
@pytest.mark.parametrize("changes", [{}, {"client_id": ...}, {"sub": ...}, {"aud": ["other", "tests"]}, {"iat": ...}])
def test_the_tokens_that_the_rows_are_made_from_are_good(fleet: Fleet, key_id: str, changes: dict[str, Any]) -> None:
    for name in GROUPS["public"]:
        assert send(fleet[name], ECHO, token(key_id, **changes)).text == "hello"


def elsewhere(provider: idp.Provider) -> dict[str, Make]:
    """Tokens that name a URL for their own key."""
    place = provider.url.replace("/keys", "/elsewhere")
    return {
        "jku": partial(foreign, {"jku": place, "kid": "unknown by jku"}, "ec"),
        "x5u": partial(foreign, {"x5u": place, "kid": "unknown by x5u"}, "ec"),
        "both": partial(foreign, {"jku": place, "x5u": place, "iss": place}, "ec"),
    }


def test_a_token_sends_nobody_to_fetch_a_key(fleet: Fleet, provider: idp.Provider) -> None:
    for make in elsewhere(provider).values():
        check_bad_token(attack(fleet, "public", partial(send, message=ECHO, bearer=make())))
    assert set(provider.asked) == {"/keys"}


def test_a_flood_of_unknown_key_ids_asks_the_provider_no_more_than_now_and_then(
    fleet: Fleet, provider: idp.Provider
) -> None:
    began, before = time.monotonic(), len(provider.asked)
    flood = [foreign({"kid": f"flood {number}"}, "ec") for number in range(100)]
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(send, fleet[name], ECHO, forged) for forged in flood for name in GROUPS["public"]]
        statuses = {job.result().status for job in jobs}
    assert statuses == {401}
    elapsed = time.monotonic() - began
    assert len(provider.asked) - before <= 2 * (1 + elapsed // MIN_ASKED_SECONDS)
    for name in GROUPS["public"]:
        check_serving(fleet[name], "public")


AUTHORIZATION: dict[str, tuple[Callable[[], list[tuple[str, str]]], bool]] = {
    "none": (list, False),
    "empty": (lambda: [("Authorization", "")], False),
    "another scheme": (lambda: [("Authorization", "Basic YWxpY2U6c2VjcmV0")], False),
    "a token without a scheme": (lambda: [("Authorization", token())], False),
    "a scheme without a token": (lambda: [("Authorization", "Bearer")], True),
    "a colon": (lambda: [("Authorization", f"Bearer:{token()}")], False),
    "a tab": (lambda: [("Authorization", f"Bearer\t{token()}")], False),
    "a quoted token": (lambda: [("Authorization", f'Bearer "{token()}"')], True),
    "two tokens": (lambda: [("Authorization", f"Bearer {token()} {token(sub='bob')}")], True),
    "a list": (lambda: [("Authorization", f"Bearer {token()}, Bearer {token(sub='bob')}")], True),
    "a parameter": (lambda: [("Authorization", f"Bearer {token()};realm=x")], True),
    "a named token": (lambda: [("Authorization", f"Bearer token={token()}")], True),
    "a letter beyond ASCII": (lambda: [("Authorization", f"Bearer {token()}\xe9")], True),
    "a proxy's header": (lambda: [("Proxy-Authorization", f"Bearer {token()}")], False),
    "a cookie": (lambda: [("Cookie", f"access_token={token()}; authorization=Bearer {token()}")], False),
    "names that proxies give": (
        lambda: [("X-Forwarded-User", "alice"), ("X-Remote-User", "alice"), ("Remote-User", "alice")],
        False,
    ),
    "an underscore": (lambda: [("HTTP_AUTHORIZATION", f"Bearer {token()}")], False),
}


def raw(
    replica: Replica,
    more: list[tuple[str, str]],
    *,
    message: Mapping[str, Any] = ECHO,
    body: bytes | None = None,
    drop: tuple[str, ...] = (),
    path: str = "/mcp",
) -> Answer:
    """Send a request with raw headers, including repeated ones."""
    content = msgspec.json.encode(message) if body is None else body
    kept = [(name, value) for name, value in head_of(message) if name.lower() not in drop]
    with RawConnection(replica) as connection:
        connection.head([*kept, *more, ("Content-Length", str(len(content)))], path=path)
        connection.socket.sendall(content)
        return connection.answer()


def authorized() -> tuple[str, str]:
    return "Authorization", f"Bearer {token()}"


@pytest.mark.parametrize(("make", "was_sent"), AUTHORIZATION.values(), ids=AUTHORIZATION)
def test_only_one_bearer_token_in_its_place_counts(
    fleet: Fleet, make: Callable[[], list[tuple[str, str]]], was_sent: bool
) -> None:
    headers = make()
    answer = attack(fleet, "public", lambda replica: raw(replica, headers))
    assert answer.error == (401, INVALID_REQUEST)
    assert ('error="invalid_token"' in answer.headers["www-authenticate"]) is was_sent


@pytest.mark.parametrize("names", [("Authorization", "Authorization"), ("authorization", "AUTHORIZATION")])
@pytest.mark.parametrize("second", ["good", "bad", "same"])
def test_two_authorization_headers_are_none(fleet: Fleet, names: tuple[str, str], second: str) -> None:
    good = token()
    values = {"good": token(sub="bob"), "bad": "x", "same": good}
    headers = [(names[0], f"Bearer {good}"), (names[1], f"Bearer {values[second]}")]
    answer = attack(fleet, "public", lambda replica: raw(replica, headers))
    assert answer.error == (400, INVALID_REQUEST)


def test_a_token_in_the_address_or_in_the_body_does_not_count(fleet: Fleet) -> None:
    bearer = token()
    with_token = {**ECHO, "params": {**ECHO["params"], "access_token": bearer}}
    in_address = attack(fleet, "public", lambda replica: raw(replica, [], path=f"/mcp?access_token={bearer}"))
    in_body = attack(fleet, "public", lambda replica: raw(replica, [], message=with_token))
    assert in_address.error == in_body.error == (401, INVALID_REQUEST)


# ---------------------------------------------------------------------------------------------------------------------
# Sealed state: whose call
# ---------------------------------------------------------------------------------------------------------------------

ARGUMENTS = {"greeting": "Hi"}
REFUSAL = (
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid or expired requestState",'
    b'"data":{"reason":"invalid_request_state"}}}'
)


@dataclass(frozen=True)
class Retry:
    """A second leg; its fields say how it differs from Alice's own."""

    state: Any = None
    user: Mapping[str, Any] = field(default_factory=dict)
    group: str = "public"
    method: str = "tools/call"
    target: str = "greet"
    arguments: Mapping[str, Any] = field(default_factory=lambda: ARGUMENTS)

    def send(self, replica: Replica) -> Answer:
        params: dict[str, Any] = {"requestState": self.state, "inputResponses": accept(name="Ada")}
        if self.method == "resources/read":
            params["uri"] = self.target
        else:
            params |= {"name": self.target, "arguments": self.arguments}
        message = request(self.method, params)
        bearers: dict[str, Callable[..., str | None]] = {"public": token, "shared": shared_token}
        bearer = bearers[self.group](**self.user) if self.group in bearers else None
        headers = {**headers_with(message, bearer), "mcp-name": self.target}
        return post_bytes(replica, msgspec.json.encode(message), headers)


@pytest.fixture(scope="module")
def state(fleet: Fleet) -> str:
    """A state of Alice's."""
    return first_leg(fleet)


def first_leg(fleet: Fleet, replica: str = "r1", bearer: str | None = None) -> str:
    bearer = None if replica[0] == "a" else bearer or token()
    return send(fleet[replica], tool_call("greet", ARGUMENTS), bearer).state


def check_refused(fleet: Fleet, retry: Retry, reason: str) -> None:
    """Check that both replicas answer with the uniform refusal, and log the reason for the operator."""
    names = GROUPS[retry.group]
    counted = [fleet[name].metric("gateway_state_rejections_total", reason=reason) for name in names]
    answer = attack(fleet, retry.group, retry.send)
    assert (answer.status, answer.body) == (400, REFUSAL)
    for name, before in zip(names, counted, strict=True):
        assert fleet[name].metric("gateway_state_rejections_total", reason=reason) == before + 1


def test_the_state_that_the_rows_are_made_from_is_good(fleet: Fleet, state: str) -> None:
    assert [Retry(state).send(fleet[name]).text for name in ("r1", "r2", "r1")] == ["Hi Ada"] * 3


OTHERS: dict[str, Retry] = {
    "another user": Retry(user={"sub": "mallory"}),
    "a user in capitals": Retry(user={"sub": "Alice"}),
    "a user with a blank": Retry(user={"sub": "alice "}),
    "a user with NUL": Retry(user={"sub": "alice\0"}),
    "a user with a look-alike": Retry(user={"sub": "аlice"}),  # noqa: RUF001 - Cyrillic
    "a user in another normal form": Retry(user={"sub": "alice\u0301"}),
    "a user with a huge name": Retry(user={"sub": "alice" * 800}),
    "a client with a huge name": Retry(user={"client_id": "app" * 1000}),
    "user and client joined": Retry(user={"sub": "aliceapp", "client_id": ...}),
    "user and client split elsewhere": Retry(user={"sub": "alic", "client_id": "eapp"}),
    "user and client exchanged": Retry(user={"sub": "app", "client_id": "alice"}),
    "a client of the same name": Retry(user={"sub": ..., "client_id": "alice"}),
    "the user through another client": Retry(user={"client_id": "other"}),
    "the user without a client": Retry(user={"client_id": ...}),
    "the client without a user": Retry(user={"sub": ...}),
    "the client as authorized party of another": Retry(user={"client_id": "other", "azp": "app"}),
    "another tool": Retry(target="greet_too"),
    "a prompt of that name": Retry(method="prompts/get"),
    "a resource of that name": Retry(method="resources/read", target="greet://Hi"),
    "no arguments": Retry(arguments={}),
    "another argument": Retry(arguments={"greeting": "Hello"}),
    "one argument more": Retry(arguments={**ARGUMENTS, "more": None}),
    "an argument in capitals": Retry(arguments={"greeting": "HI"}),
    "an argument with NUL": Retry(arguments={"greeting": "Hi\0"}),
    "nobody": Retry(group="anonymous"),
}


@pytest.mark.parametrize("retry_", OTHERS.values(), ids=OTHERS)
def test_a_state_is_of_no_use_to_anybody_else_and_for_nothing_else(fleet: Fleet, state: str, retry_: Retry) -> None:
    check_refused(fleet, replace(retry_, state=state), "not_authentic")


def test_an_anonymous_state_is_of_no_use_to_a_user(fleet: Fleet) -> None:
    anonymous = first_leg(fleet, "a1")
    assert Retry(anonymous, group="anonymous").send(fleet["a2"]).text == "Hi Ada"
    check_refused(fleet, Retry(anonymous), "not_authentic")
    check_refused(fleet, Retry(anonymous, group="shared", user={"iss": ISSUER, "sub": "anonymous"}), "not_authentic")


def test_one_user_is_the_same_however_they_prove_it(fleet: Fleet, state: str) -> None:
    """Only issuer, user and client matter, so this is not an attack; the rows above show real differences."""
    assert Retry(state, group="shared").send(fleet["s1"]).text == "Hi Ada"


def test_one_user_is_the_same_by_either_audience_and_nobody_else_is(fleet: Fleet, state: str) -> None:
    assert Retry(state, user={"aud": RESOURCE}).send(fleet["r2"]).text == "Hi Ada"
    other_way = first_leg(fleet, "r2", token(aud=[RESOURCE]))
    assert Retry(other_way).send(fleet["r1"]).text == "Hi Ada"
    for user in ({"sub": "bob"}, {"client_id": "other"}, {"sub": "bob", "aud": ["tests", RESOURCE]}):
        check_refused(fleet, Retry(state, user={"aud": RESOURCE, **user}), "not_authentic")


def body_of(state: str) -> bytes:
    return base64url.decode(state.removeprefix(LABEL))


def token_of(raw_bytes: bytes) -> str:
    return LABEL + base64url.encode(raw_bytes)


def flipped(position: int) -> Callable[[str], str]:
    def flip(state: str) -> str:
        changed = bytearray(body_of(state))
        changed[position] ^= 1
        return token_of(bytes(changed))

    return flip


SECOND_KEY_ID = KeyRing.parse(SECOND_KEY).keys[0].key_id
REMOVED_KEY_ID = KeyRing.parse(REMOVED_KEY).keys[0].key_id
ALTERED: dict[str, tuple[Callable[[str], Any], str]] = {
    "a bit of the key id": (flipped(0), "unknown_key"),
    "a bit of the nonce's prefix": (flipped(4), "not_authentic"),
    "a bit of the nonce": (flipped(27), "not_authentic"),
    "a bit of the ciphertext": (flipped(60), "not_authentic"),
    "a bit of the tag": (flipped(-1), "not_authentic"),
    "cut by a byte": (lambda state: token_of(body_of(state)[:-1]), "not_authentic"),
    "cut to its tag": (lambda state: token_of(body_of(state)[:HEADER_BYTES] + body_of(state)[-16:]), "not_authentic"),
    "cut below a tag": (lambda state: token_of(body_of(state)[: HEADER_BYTES + 15]), "malformed"),
    "extended by a byte": (lambda state: token_of(body_of(state) + b"\0"), "not_authentic"),
    "extended by itself": (lambda state: token_of(body_of(state) * 2), "not_authentic"),
    "twice": (lambda state: state + state, "malformed"),
    "key id of another key": (lambda state: token_of(SECOND_KEY_ID + body_of(state)[4:]), "not_authentic"),
    "key id of a removed key": (lambda state: token_of(REMOVED_KEY_ID + body_of(state)[4:]), "unknown_key"),
    "padded": (lambda state: state + "=" * (-len(state[3:]) % 4 or 4), "malformed"),
    "the standard alphabet": (lambda state: state[:-4] + "+/+/", "malformed"),
    "a blank before": (lambda state: " " + state, "malformed"),
    "a line break after": (lambda state: state + "\n", "malformed"),
    "a line break inside": (lambda state: state[:20] + "\n" + state[20:], "malformed"),
    "NUL after": (lambda state: state + "\0", "malformed"),
    "hexadecimal": (lambda state: LABEL + body_of(state).hex() * 2, "unknown_key"),
    "percent": (lambda state: state.replace(".", "%2E"), "malformed"),
    "look-alikes": (lambda state: "ѕ" + state[1:], "malformed"),  # noqa: RUF001 - Cyrillic
    "full width": (lambda state: "s１" + state[2:], "malformed"),  # noqa: RUF001 - this is the point
    "another label": (lambda state: "s2" + state[2:], "malformed"),
    "a label in capitals": (lambda state: "S" + state[1:], "malformed"),
    "no label": (lambda state: state[3:], "malformed"),
    "empty": (lambda _: "", "malformed"),
    "over the size cap": (lambda state: state + "A" * MAX_STATE_BYTES, "too_large"),
    "a megabyte": (lambda state: state + "A" * (MAX_BODY_BYTES - 5000), "too_large"),
    "a number": (lambda _: 7, "malformed"),
    "false": (lambda _: False, "malformed"),
    "a list": (lambda state: [state], "malformed"),
    "an object": (lambda state: {"requestState": state}, "malformed"),
}


@pytest.mark.parametrize(("alter", "reason"), ALTERED.values(), ids=ALTERED)
def test_an_altered_state_does_not_open(fleet: Fleet, state: str, alter: Callable[[str], Any], reason: str) -> None:
    check_refused(fleet, Retry(alter(state)), reason)


@pytest.mark.parametrize("cut", [16, HEADER_BYTES, HEADER_BYTES + 10, -16])
def test_two_states_do_not_splice(fleet: Fleet, state: str, cut: int) -> None:
    other = first_leg(fleet, "r2")
    check_refused(fleet, Retry(token_of(body_of(state)[:cut] + body_of(other)[cut:])), "not_authentic")


def sealed(
    *, key: str = KEY, aad: bytes | None = None, audience: str = idp.AUDIENCE, now: float | None = None, ttl: float = 60
) -> str:
    """Seal a state as a replica with this key, clock and purpose would."""
    now = time.time() if now is None else now
    journal = Journal.begin(now_ms=int(now * 1000), flow_max_ms=3_600_000, random_bytes=urandom).to_map()
    binding = request_state_binding(audience, ALICE, "tools/call", "greet", arguments_digest(ARGUMENTS))
    sealer = Sealer(KeyRing.parse(key), urandom)
    return seal_state(sealer, journal, aad=aad or binding, now=now, expires_at=now + ttl, max_bytes=MAX_STATE_BYTES)


SEALED: dict[str, tuple[Callable[[], Any], str]] = {
    "expired": (lambda: sealed(now=time.time() - 61), "expired"),
    "expired long ago": (lambda: sealed(now=0), "expired"),
    "a removed key": (lambda: sealed(key=REMOVED_KEY), "unknown_key"),
    "another deployment": (lambda: sealed(audience="production"), "not_authentic"),
    "a session": (lambda: sealed(aad=session_binding(idp.AUDIENCE, ALICE)), "not_authentic"),
    "a request id": (lambda: sealed(aad=request_id_binding(idp.AUDIENCE, ALICE)), "not_authentic"),
    "a cursor of tasks": (lambda: sealed(aad=cursor_binding(idp.AUDIENCE, ALICE, "tasks/list")), "not_authentic"),
    "a cursor of tasks, for this method": (
        lambda: sealed(aad=cursor_binding(idp.AUDIENCE, ALICE, "tools/call")),
        "not_authentic",
    ),
    "a field at rest": (lambda: sealed(aad=field_binding(idp.AUDIENCE, "alice", "task", "journal")), "not_authentic"),
    "nothing bound": (lambda: sealed(aad=b"\0"), "not_authentic"),
    "a catalogue cursor": (lambda: CursorMaker(KeyRing.parse(KEY)).make("tools", "greet"), "malformed"),
    "a catalogue cursor under our label": (
        lambda: LABEL + CursorMaker(KeyRing.parse(KEY)).make("tools", "greet" * 9)[3:],
        "not_authentic",
    ),
    "a bearer token": (token, "malformed"),
}


def test_a_state_sealed_here_is_as_good_as_a_replica_s(fleet: Fleet) -> None:
    assert [Retry(sealed(key=key)).send(fleet["r1"]).text for key in (KEY, SECOND_KEY)] == ["Hi Ada"] * 2


@pytest.mark.parametrize(("make", "reason"), SEALED.values(), ids=SEALED)
def test_a_token_that_we_sealed_for_something_else_is_no_state(
    fleet: Fleet, make: Callable[[], Any], reason: str
) -> None:
    check_refused(fleet, Retry(make()), reason)


CONTENTS: dict[str, tuple[bytes, str]] = {
    "a newer schema": (pack({"v": REQUEST_STATE.reads + 1}), "newer_schema"),
    "no journal": (pack({"v": REQUEST_STATE.writes, "exp": 1e12}), "malformed"),
    "an empty journal": (pack({"v": REQUEST_STATE.writes, "exp": 1e12, "j": {}}), "malformed"),
    "no expiry": (pack({"v": REQUEST_STATE.writes, "j": {}}), "malformed"),
    "an expiry that never comes": (pack({"v": REQUEST_STATE.writes, "exp": float("nan"), "j": {}}), "expired"),
    "no map": (pack([]), "malformed"),
    "no MessagePack": (b"\xc1", "malformed"),
    "lists without end": (b"\x91" * 2000, "malformed"),
    "a list that claims to be huge": (b"\xdd\xff\xff\xff\xff", "malformed"),
}


@pytest.mark.parametrize(("contents", "reason"), CONTENTS.values(), ids=CONTENTS)
def test_an_authentic_state_with_wrong_contents_is_refused(fleet: Fleet, contents: bytes, reason: str) -> None:
    binding = request_state_binding(idp.AUDIENCE, ALICE, "tools/call", "greet", arguments_digest(ARGUMENTS))
    check_refused(fleet, Retry(Sealer(KeyRing.parse(KEY), urandom).seal(contents, binding)), reason)


PLACE = ListPlace("", "echo", 0, 0).text
CURSORS: dict[str, Callable[[str], Any]] = {
    "a state": lambda state: state,
    "a state under the cursor's label": lambda state: "c1." + state[3:],
    "a cursor of another list": lambda _: CursorMaker(KeyRing.parse(KEY)).make("prompts", PLACE),
    "a cursor of a removed key": lambda _: CursorMaker(KeyRing.parse(REMOVED_KEY)).make("tools", PLACE),
    "a cursor for a text that is no place": lambda _: CursorMaker(KeyRing.parse(KEY)).make("tools", "echo"),
    "a cursor, altered": lambda _: CursorMaker(KeyRing.parse(KEY)).make("tools", PLACE)[:-1] + "w",
    "a cursor, cut": lambda _: CursorMaker(KeyRing.parse(KEY)).make("tools", PLACE)[:20],
    "empty": lambda _: "",
    "a name": lambda _: "echo",
    "a number": lambda _: 7,
}


@pytest.mark.parametrize("make", CURSORS.values(), ids=CURSORS)
def test_nothing_but_our_cursor_of_this_list_pages_through_it(
    fleet: Fleet, state: str, make: Callable[[str], Any]
) -> None:
    message = request("tools/list", {"cursor": make(state)})
    answer = attack(fleet, "public", lambda replica: send(replica, message, token()))
    assert answer.error == (400, INVALID_PARAMS)


def test_the_cursor_that_the_rows_are_made_from_is_good(fleet: Fleet) -> None:
    message = request("tools/list", {"cursor": CursorMaker(KeyRing.parse(KEY)).make("tools", PLACE)})
    names = [tool["name"] for tool in send(fleet["r1"], message, token()).result["tools"]]
    assert names[:2] == ["greet", "greet_too"]
    assert "echo" not in names


# ---------------------------------------------------------------------------------------------------------------------
# HTTP and JSON: what is asked
# ---------------------------------------------------------------------------------------------------------------------

HOSTS = (
    *("evil.test", "localhost.evil.test", "localhost@evil.test", "evil.test:80", "127.0.0.1.evil.test", "127.0.0.1@x"),
    *(
        "localhost:80:80",
        "localhost:",
        "localhost:x",
        "localhost:-1",
        "localhost:999999",
        "[::1",
        "::1]",
        "localhost/x",
    ),
    *("localhost,evil.test", "evil.test localhost", "0.0.0.0", "0177.0.0.1", "2130706433", "127.1", "localhost..", ""),
    *("[::1%25evil.test]", "[::ffff:10.0.0.1]", "169.254.169.254", "loc\xe4lhost"),
)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_not_ours_is_not_served(fleet: Fleet, host: str) -> None:
    answer = attack(fleet, "public", lambda replica: raw(replica, [("Host", host), authorized()], drop=("host",)))
    assert answer.error == (403, INVALID_REQUEST)


ORIGINS = (
    *("https://evil.test", "null", "", "http://localhost.evil.test", "http://localhost@evil.test", "file://"),
    *("http://localhost:80@evil.test", "http://127.0.0.1.evil.test", "http://localhost\\@evil.test", "//localhost"),
    *("javascript://localhost", "http://localhost/", "http://localhost#", "http://localhost http://evil.test", "*"),
)


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_page_from_elsewhere_is_not_served(fleet: Fleet, origin: str) -> None:
    answer = attack(fleet, "public", lambda replica: raw(replica, [("Origin", origin), authorized()]))
    assert answer.error == (403, INVALID_REQUEST)
    assert not any(name.startswith("access-control") for name in answer.headers)


TWICE: dict[str, list[tuple[str, str]]] = {
    "Host": [("Host", "localhost")],
    "another Host": [("Host", "evil.test")],
    "Mcp-Method": [("Mcp-Method", "tools/list")],
    "Mcp-Name": [("Mcp-Name", "greet")],
    "MCP-Protocol-Version": [("MCP-Protocol-Version", "2025-11-25")],
    "Mcp-Param": [("Mcp-Param-A", "1"), ("mcp-param-a", "2")],
}


@pytest.mark.parametrize("more", TWICE.values(), ids=TWICE)
def test_a_header_that_decides_may_come_only_once(fleet: Fleet, more: list[tuple[str, str]]) -> None:
    answer = attack(fleet, "public", lambda replica: raw(replica, [authorized(), *more]))
    assert answer.error == (400, INVALID_REQUEST)


MISMATCHES: dict[str, dict[str, str | None]] = {
    "another name": {"mcp-name": "greet"},
    "no name": {"mcp-name": None},
    "an underscore in the header's name": {"mcp-name": None, "mcp_name": "echo"},
    "a name with a dot at its end": {"mcp-name": "echo."},
    "a name in capitals": {"mcp-name": "ECHO"},
    "a name in another Base64": {"mcp-name": "=?base64?ZWNobw?="},
    "a name with unused bits": {"mcp-name": "=?base64?ZWNobx==?="},
    "a name with a line break": {"mcp-name": "=?base64?ZWNobwo=?="},
    "a name with NUL": {"mcp-name": "=?base64?ZWNobwA=?="},
    "another method": {"mcp-method": "tools/list"},
    "a method in Base64": {"mcp-method": "=?base64?dG9vbHMvY2FsbA==?="},
    "no method": {"mcp-method": None},
    "another version": {"mcp-protocol-version": "2025-11-25"},
    "no version": {"mcp-protocol-version": None},
}


@pytest.mark.parametrize("changes", MISMATCHES.values(), ids=MISMATCHES)
def test_what_a_proxy_reads_is_what_the_body_says(fleet: Fleet, changes: dict[str, str | None]) -> None:
    headers = {name: value for name, value in {**headers_with(ECHO, token()), **changes}.items() if value is not None}
    answer = attack(fleet, "public", lambda replica: post_bytes(replica, ECHO_BODY, headers))
    assert answer.error == (400, HEADER_MISMATCH)


def changed(old: bytes, new: bytes) -> bytes:
    assert ECHO_BODY.count(old) == 1
    return ECHO_BODY.replace(old, new)


def argument(text: bytes) -> bytes:
    return changed(b'"hello"', text)


AMBIGUOUS: dict[str, bytes] = {
    "method twice": changed(b'"method"', b'"method":"tools/list","method"'),
    "method twice, once escaped": changed(b'"method"', rb'"\u006dethod":"tools/list","method"'),
    "name twice": changed(b'"name"', b'"name":"greet","name"'),
    "name twice, escaped in capitals": changed(b'"name"', rb'"nam\u0065":"greet","name"'),
    "id twice": changed(b'"id":1', b'"id":1,"id":2'),
    "params twice": changed(b'"params"', b'"params":{},"params"'),
    "_meta twice": changed(b'"_meta"', b'"_meta":{},"_meta"'),
    "argument twice": changed(b'"text"', b'"text":"a","text"'),
    "argument twice, with colons about": changed(b'"text"', rb'"text":":\u003a","text"'),
    "state twice": changed(b'"name"', b'"requestState":"s1.a","requestState":"s1.b","name"'),
    "two messages": ECHO_BODY + ECHO_BODY,
    "a byte order mark": b"\xef\xbb\xbf" + ECHO_BODY,
    "UTF-16": ECHO_BODY.decode().encode("utf-16"),
    "overlong UTF-8": argument(b'"\xc0\xaf"'),
    "half a character": argument(rb'"\ud800"'),
    "half a character, raw": argument(b'"\xed\xa0\x80"'),
    "NUL": argument(b'"\x00"'),
    "a comment": argument(b'"a"/* "b" */'),
    "NaN": argument(b"NaN"),
    "a number beyond all": argument(b"1e999"),
}
BOMBS: dict[str, bytes] = {
    "101 levels": argument(b"[" * 98 + b"]" * 98),
    "100,000 arrays": argument(b"[" * 100_000 + b"]" * 100_000),
    "100,000 objects": argument(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "arrays and objects": argument(b'[{"a":' * 60_000 + b"1" + b"}]" * 60_000),
    "a megabyte of opening brackets": b"[" * MAX_BODY_BYTES,
    "a megabyte of closing brackets": b"]" * MAX_BODY_BYTES,
    "a megabyte of braces": b"{" * MAX_BODY_BYTES,
    "a megabyte of quotes": b'"' * MAX_BODY_BYTES,
    "a megabyte of backslashes": argument(b'"' + b"\\" * 1_000_001 + b'"'),
    "309 digits": argument(b"1" * 309),
    "a million digits": argument(b"1" * 1_000_000),
    "a million digits behind the point": argument(b"0." + b"1" * 1_000_000),
    "a million digits in the id": changed(b'"id":1', b'"id":' + b"1" * 1_000_000),
    "500,000 numbers": argument(b"[" + b"1," * 500_000 + b"1]"),
    "200,000 arrays": argument(b"[" + b"[]," * 200_000 + b"1]"),
    "300,000 texts": argument(b"[" + b'"",' * 300_000 + b'""]'),
}


@pytest.mark.parametrize("body", [*AMBIGUOUS.values(), *BOMBS.values()], ids=[*AMBIGUOUS, *BOMBS])
def test_a_body_that_two_readers_read_differently_or_that_explodes_is_not_read(fleet: Fleet, body: bytes) -> None:
    answer = attack(fleet, "public", lambda replica: post_bytes(replica, body, headers_with(ECHO, token())))
    assert answer.status == 400
    assert answer.error in {(400, PARSE_ERROR), (400, INVALID_REQUEST)}
    assert len(answer.body) < 1000


MANY: dict[str, bytes] = {
    "100,000 names": argument(b'"x",' + b",".join(b'"n%d":1' % number for number in range(90_000))),
    "100,000 names that ask to collide": argument(b'"x",' + b",".join(b'"%s%d":1' % (b"A", n) for n in range(90_000))),
    "100,000 numbers": argument(b"[" + b"1," * 100_000 + b"1]"),
    "a long text": argument(b'"x",' + b'"' + b"y" * 1_000_000 + b'":1'),
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY)
def test_a_body_of_very_many_parts_gets_a_short_answer(fleet: Fleet, body: bytes) -> None:
    answer = attack(fleet, "public", lambda replica: post_bytes(replica, body, headers_with(ECHO, token())))
    assert answer.result["isError"] is True
    assert len(answer.body) < 10_000


ENCODINGS = ("gzip", "deflate", "br", "zstd", "x-gzip", "identity, gzip", "gzip, identity", "GZIP", "*", "compress")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_body_that_would_expand_is_not_expanded(fleet: Fleet, encoding: str) -> None:
    answer = attack(fleet, "public", lambda replica: raw(replica, [authorized(), ("Content-Encoding", encoding)]))
    assert answer.error == (415, INVALID_REQUEST)


def announced(replica: Replica, *framing: tuple[str, str], chunk: bytes = b"") -> Answer:
    """Announce a body, send only `chunk` of it, and read the answer that arrives nevertheless."""
    with RawConnection(replica) as connection:
        connection.head([*head_of(ECHO), authorized(), *framing])
        with contextlib.suppress(ConnectionError):  # it may answer before it has everything
            connection.socket.sendall(chunk)
        return connection.answer()


@pytest.mark.parametrize("length", [MAX_BODY_BYTES + 1, 2**40, 2**63 - 1])
def test_a_body_that_is_too_large_is_refused_before_it_comes(fleet: Fleet, length: int) -> None:
    answer = attack(fleet, "public", lambda replica: announced(replica, ("Content-Length", str(length))))
    assert answer.error == (413, INVALID_REQUEST)


def test_a_body_that_grows_too_large_in_pieces_is_refused(fleet: Fleet) -> None:
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    answer = attack(
        fleet, "public", lambda replica: announced(replica, ("Transfer-Encoding", "chunked"), chunk=piece * 17)
    )
    assert answer.error == (413, INVALID_REQUEST)


SMUGGLED_BODY = msgspec.json.encode(tool_call("echo", {"text": "smuggled"}))


def lines(*more: str, first: str = "POST /mcp HTTP/1.1") -> bytes:
    """Write a head; its end is part of it."""
    given = [f"{name}: {value}" for name, value in [*head_of(ECHO), authorized()]]
    return "\r\n".join([first, *given, *more, "", ""]).encode("latin-1")


def hidden() -> bytes:
    """Return a whole good request, to hide in bytes that another reader takes for a body."""
    return lines(f"Content-Length: {len(SMUGGLED_BODY)}") + SMUGGLED_BODY


def last() -> bytes:
    """The same, but with a request to close the connection after it."""
    return lines(f"Content-Length: {len(SMUGGLED_BODY)}", "Connection: close") + SMUGGLED_BODY


CHUNKED_BODY = b"%x\r\n%b\r\n0\r\n\r\n" % (len(ECHO_BODY), ECHO_BODY)
LENGTH = f"Content-Length: {len(ECHO_BODY)}"
SMUGGLES: dict[str, Callable[[], bytes]] = {
    "length and chunks": lambda: lines("Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "chunks and length": lambda: lines("Transfer-Encoding: chunked", LENGTH) + CHUNKED_BODY,
    "two lengths": lambda: lines(LENGTH, "Content-Length: 0") + ECHO_BODY,
    "two equal lengths": lambda: lines(LENGTH, LENGTH) + ECHO_BODY,
    "a list of lengths": lambda: lines(f"{LENGTH}, {len(ECHO_BODY)}") + ECHO_BODY,
    "a signed length": lambda: lines("Content-Length: +5") + ECHO_BODY,
    "a negative length": lambda: lines("Content-Length: -5") + ECHO_BODY,
    "a hexadecimal length": lambda: lines("Content-Length: 0x5") + ECHO_BODY,
    "a length with an underscore": lambda: lines("Content-Length: 1_0") + ECHO_BODY,
    "a length with a blank": lambda: lines("Content-Length: 1 0") + ECHO_BODY,
    "a length beyond all": lambda: lines("Content-Length: " + "9" * 100) + ECHO_BODY,
    "an empty length": lambda: lines("Content-Length: ") + ECHO_BODY,
    "chunks, misspelt": lambda: lines("Transfer-Encoding: xchunked") + CHUNKED_BODY,
    "chunks, then something": lambda: lines("Transfer-Encoding: chunked, identity") + CHUNKED_BODY,
    "chunks, in quotes": lambda: lines('Transfer-Encoding: "chunked"') + CHUNKED_BODY,
    "chunks, behind a vertical tab": lambda: lines("Transfer-Encoding: \x0bchunked") + CHUNKED_BODY,
    "chunks, a blank before the colon": lambda: lines("Transfer-Encoding : chunked") + CHUNKED_BODY,
    "chunks, on the next line": lambda: lines("Transfer-Encoding:", " chunked") + CHUNKED_BODY,
    "a length, a blank before the colon": lambda: lines("Content-Length : 5") + ECHO_BODY,
    "a folded header": lambda: lines("X: a", " Content-Length: 5") + ECHO_BODY,
    "a header without a colon": lambda: lines("Content-Length 5") + ECHO_BODY,
    "a header without a name": lambda: lines(": 5") + ECHO_BODY,
    "a header with a NUL": lambda: lines("X: a\0b", LENGTH) + ECHO_BODY,
    "a name with a NUL": lambda: lines("X\0: b", LENGTH) + ECHO_BODY,
    "a lone carriage return": lambda: lines("X: a\rContent-Length: 0", LENGTH) + ECHO_BODY,
    "a chunk with a sign": lambda: lines("Transfer-Encoding: chunked") + b"+5\r\nhello\r\n0\r\n\r\n",
    "a hexadecimal chunk": lambda: lines("Transfer-Encoding: chunked") + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk beyond all": lambda: lines("Transfer-Encoding: chunked") + b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": lambda: lines("Transfer-Encoding: chunked") + b"2\r\nhello\r\n0\r\n\r\n",
    "a chunk that ends in a line feed": lambda: lines("Transfer-Encoding: chunked") + b"5\nhello\n0\n\n",
    "HTTP/1.0 with chunks": lambda: lines("Transfer-Encoding: chunked", first="POST /mcp HTTP/1.0") + CHUNKED_BODY,
    "HTTP/0.9": lambda: b"POST /mcp\r\n\r\n",
    "HTTP/2": lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": lambda: lines(LENGTH, first="POST /mcp HTTP/1.2") + ECHO_BODY,
    "no blank in the first line": lambda: lines(LENGTH, first="POST/mcpHTTP/1.1") + ECHO_BODY,
    "a tab in the first line": lambda: lines(LENGTH, first="POST\t/mcp\tHTTP/1.1") + ECHO_BODY,
    "a method in small letters": lambda: lines(LENGTH, first="post /mcp HTTP/1.1") + ECHO_BODY,
    "a tunnel": lambda: lines(first="CONNECT evil.test:443 HTTP/1.1"),
    "another address than the host": lambda: lines(LENGTH, first="POST http://evil.test/mcp HTTP/1.1") + ECHO_BODY,
    "a broken address": lambda: lines(LENGTH, first="POST http://[/mcp HTTP/1.1") + ECHO_BODY,
    "TLS": lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
}


def everything(replica: Replica, data: bytes) -> bytes:
    """Send bytes, and read until the replica closes the connection."""
    received = b""
    with RawConnection(replica) as connection, contextlib.suppress(ConnectionError):
        connection.socket.sendall(data)
        while piece := connection.socket.recv(65536):
            received += piece
    return received


@pytest.mark.parametrize("make", SMUGGLES.values(), ids=SMUGGLES)
def test_no_request_is_smuggled_in_another(fleet: Fleet, make: Callable[[], bytes]) -> None:
    """Ambiguously framed bytes get one refusal, and the rest of the connection is not read."""
    for name in GROUPS["public"]:
        received = everything(fleet[name], make() + hidden())
        statuses = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
        assert len(statuses) == 1, received
        assert 400 <= statuses[0] < 600, received
        assert statuses[0] != 500
        assert b"smuggled" not in received
        assert b"hello" not in received
        check_nothing_internal(received.decode("latin-1"))
        check_serving(fleet[name], "public")


def test_what_is_hidden_would_be_served_if_it_were_read(fleet: Fleet) -> None:
    received = everything(fleet["r1"], lines(LENGTH) + ECHO_BODY + last())
    assert received.count(b"HTTP/1.1 200") == 2
    assert b"smuggled" in received


def test_an_upgrade_does_not_hide_a_request(fleet: Fleet) -> None:
    """The request is answered as if it had not asked for another protocol, and the next one as itself."""
    for protocol in ("h2c", "websocket", "TLS/1.0"):
        head = lines(LENGTH, "Connection: Upgrade", f"Upgrade: {protocol}")
        for name in GROUPS["public"]:
            received = everything(fleet[name], head + ECHO_BODY + last())
            assert received.count(b"HTTP/1.1 ") == received.count(b"HTTP/1.1 200") == 2
            assert received.count(b'"hello"') == received.count(b'"smuggled"') == 1
            check_serving(fleet[name], "public")


def test_what_proxies_say_of_a_request_is_not_believed(fleet: Fleet) -> None:
    """Without a trusted proxy, forwarding headers change neither the caller nor the host."""
    more = [
        *(
            ("X-Forwarded-Host", "localhost"),
            ("Forwarded", "host=localhost;for=127.0.0.1"),
            ("X-Forwarded-For", "1.2.3.4"),
        ),
        *(("X-Original-URL", "/metrics"), ("X-Rewrite-URL", "/metrics"), ("X-HTTP-Method-Override", "GET")),
    ]
    refused = attack(
        fleet,
        "public",
        lambda replica: raw(replica, [("Host", "evil.test"), authorized(), *more], drop=("host",)),
    )
    assert refused.error == (403, INVALID_REQUEST)
    served = attack(fleet, "public", lambda replica: raw(replica, [authorized(), *more]))
    assert served.text == "hello"


# ---------------------------------------------------------------------------------------------------------------------
# Connections: how much
# ---------------------------------------------------------------------------------------------------------------------

HALF_OPEN = 1000
HALVES: tuple[Callable[[], bytes], ...] = (
    lambda: b"",
    lambda: b"POST /mcp HT",
    lambda: lines(LENGTH)[:-2],
    lambda: lines(LENGTH) + ECHO_BODY[:20],
    lambda: lines("Transfer-Encoding: chunked") + b"10\r\nhello",
    lambda: lines("Content-Length: 1000000") + b" " * 1000,
)


def test_a_thousand_half_open_connections_keep_nobody_out(fleet: Fleet) -> None:
    """Some send nothing, some stop in the head, some in the body; all others are served during and after that."""
    chance = random.Random(4)
    replicas = [fleet[name] for name in GROUPS["public"]]
    with contextlib.ExitStack() as stack:
        for number in range(HALF_OPEN):
            replica = replicas[number % len(replicas)]
            connection = stack.enter_context(socket.create_connection(replica.address, timeout=SECONDS))
            connection.sendall(chance.choice(HALVES)())
        for _ in range(20):
            for replica in replicas:
                check_serving(replica, "public")
    for replica in replicas:
        check_serving(replica, "public")
