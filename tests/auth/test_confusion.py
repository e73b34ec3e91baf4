"""Tokens that try to be verified with the wrong key or in the wrong way (RFC 8725 sections 2 and 3).

Each attack is tried on a token of every form that providers issue, with the settings of that provider.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.auth import SharedSecret, TokenVerifier
from gateway.errors import HttpRefusal
from gateway.sealing.principal import Principal
from gateway.settings.model import ASYMMETRIC_ALGORITHMS
from tests.auth.forms import PLAIN, Form, forms
from tests.identity import AUDIENCE, ISSUER, SigningKey, key_set, mac_of, rsa_key, signed, token_of

EC = SigningKey("ec", "ES256")
ED = SigningKey("ed", "EdDSA")
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(params=[PLAIN, *forms()], ids=str)
def form(request: pytest.FixtureRequest) -> Form:
    """Return each form in turn."""
    assert isinstance(request.param, Form)
    return request.param


@functools.cache
def verifier(form: Form, *more: str) -> TokenVerifier:
    """Return one for all three keys, which may allow more algorithms than they are for."""
    return form.verifier(rsa_key(), EC, ED, algorithms=(*ASYMMETRIC_ALGORITHMS, *more))


def token(form: Form, key: SigningKey, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
    """Return a token of a form that a key signed, with changes."""
    return signed(key, {**form.header, **(header or {})}, form.claims(**claims))


def forged(form: Form, header: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """Return a token of a form with another signature; a member with the value None is left out."""
    members = {**form.header, **header}
    return token_of({name: value for name, value in members.items() if value is not None}, form.claims(), sign)


async def refused(token: str, verify: TokenVerifier) -> None:
    with pytest.raises(HttpRefusal) as caught:
        await verify.authenticate(f"Bearer {token}")
    assert caught.value.status == 401


@pytest.mark.parametrize("key", [rsa_key(), EC, ED], ids=lambda key: key.algorithm)
async def test_a_good_token_of_each_kind_is_accepted(form: Form, key: SigningKey) -> None:
    caller = await verifier(form).authenticate(f"Bearer {token(form, key)}")
    client = form.given.get("client_id") or form.given.get("azp", "")
    assert caller.principal == Principal(form.given["iss"], "ada", client)
    assert caller.scopes == form.scopes


@pytest.mark.parametrize("key_id", ["rsa", "ec", "ed", None])
@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", None, 7, ["ES256"]])
async def test_an_unsigned_token_is_refused_however_it_is_written(
    form: Form, algorithm: Any, key_id: str | None
) -> None:
    for sign in (lambda _signed: b"", lambda _signed: b"\0" * 64, mac_of(b"")):
        await refused(forged(form, {"alg": algorithm, "kid": key_id}, sign), verifier(form))


def texts_of(key: SigningKey) -> list[bytes]:
    """Return every text of a public key that could be mistaken for a secret."""
    public = key.private_key.public_key()
    jwk = key.jwk()
    return [
        key.pem,
        key.pem.strip(),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(jwk).encode(),
        json.dumps(jwk, separators=(",", ":")).encode(),
        key_set(key),
        *(str(value).encode() for value in jwk.values()),
        *(base64.urlsafe_b64decode(jwk[name] + "==") for name in ("n", "x", "y") if name in jwk),
    ]


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("key", [rsa_key(), EC, ED], ids=lambda key: key.algorithm)
async def test_a_public_key_is_nobodys_secret(form: Form, key: SigningKey, algorithm: str) -> None:
    for text in texts_of(key):
        for key_id in (key.key_id, None):
            sign = mac_of(text, algorithm.replace("HS", "sha"))
            fake = forged(form, {"alg": algorithm, "kid": key_id}, sign)
            await refused(fake, verifier(form))
            # Even if the algorithm is allowed, the key does not verify it.
            await refused(fake, verifier(form, algorithm))


async def test_a_mac_under_a_public_algorithms_name_is_refused(form: Form) -> None:
    for key in (rsa_key(), EC, ED):
        for text in texts_of(key):
            await refused(forged(form, {"alg": key.algorithm, "kid": key.key_id}, mac_of(text)), verifier(form))


async def test_a_token_that_an_other_key_signed_is_refused_whatever_it_says(form: Form) -> None:
    for key in (SigningKey("ec", "ES256"), SigningKey("ed", "EdDSA")):
        await refused(token(form, key), verifier(form))
        await refused(token(form, key, {"kid": None}), verifier(form))
    await refused(token(form, EC, {"kid": "ed"}), verifier(form))
    await refused(token(form, EC, {"kid": "rsa"}), verifier(form))


async def test_a_key_verifies_no_algorithm_but_its_own(form: Form) -> None:
    private = rsa_key().private_key
    any_of_rsa = rsa_key().jwk(alg=None)
    for algorithm in ("RS384", "RS512", "PS256", "PS512"):
        other = token(form, SigningKey("rsa", algorithm, private))
        await refused(other, verifier(form))
        await form.verifier(any_of_rsa).authenticate(f"Bearer {other}")
    await refused(token(form, SigningKey("rsa", "PS256", private)), form.verifier(any_of_rsa, algorithms=("RS256",)))


async def test_a_key_that_the_token_brings_along_does_not_count(form: Form) -> None:
    mine = SigningKey("mine", "ES256")
    for header in (
        {"jwk": mine.jwk()},
        {"jku": "https://attacker.example/keys"},
        {"x5u": "https://attacker.example/certificate"},
        {"x5c": [base64.b64encode(mine.pem).decode()]},
        {"kid": "../../etc/passwd"},
        {"kid": "ec' OR '1'='1"},
        {"kid": "EC"},
        {"kid": "ec "},
        {"kid": ""},
    ):
        await refused(token(form, mine, {"kid": "ec", **header}), verifier(form))
        await refused(token(form, mine, header), verifier(form))


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": "b64", "b64": False},
        {"b64": False},
        {"crit": ["b64"], "b64": True},  # changes nothing, but we do not know this extension
        {"typ": "logout+jwt"},
        {"typ": "logout+jwt;x"},
        {"typ": "application/LOGOUT+JWT ; v=1"},
        {"typ": "application/dpop+jwt"},
        {"typ": ["at+jwt"]},
    ],
)
async def test_a_header_that_changes_what_a_token_means_is_refused(form: Form, header: dict[str, Any]) -> None:
    await verifier(form).authenticate(f"Bearer {token(form, ED)}")
    await refused(token(form, ED, header), verifier(form))


def wrong_claims(form: Form) -> dict[str, dict[str, Any]]:
    """Return changes that each make a good token of a form a bad one."""
    issuer = form.given["iss"]
    other_types: list[Any] = [7, True, {"read": "write"}, ["read", 7], [["read"]]]
    scopes = form.settings.get("GATEWAY_JWT_SCOPE_CLAIM") or ("scope" if "scope" in form.given else "scp")
    return {
        "another issuer": {"iss": "https://evil.example.com"},
        "an issuer that starts like ours": {"iss": issuer + "/"},
        "an issuer that ours starts like": {"iss": issuer[:-1]},
        "an issuer in other letters": {"iss": issuer.upper()},
        "several issuers": {"iss": [issuer]},
        "no issuer": {"iss": None},
        "another audience": {"aud": "there"},
        "the client as the audience": {"aud": form.given.get("client_id") or form.given.get("azp") or "cli"},
        "no audience and another client": {"aud": None, "client_id": "other"},
        "no audience and not for access": {"aud": None, "token_use": "id"},
        "an empty list of audiences": {"aud": []},
        "an empty audience": {"aud": ""},
        "no expiry": {"exp": None},
        "expired": {"exp": 1},
        "not valid yet": {"nbf": 2**33},
        "neither subject nor client": {"sub": None, "client_id": None, "azp": None},
        "an empty subject and an empty client": {"sub": "", "client_id": "", "azp": ""},
        **{f"an audience {value!r}": {"aud": value} for value in other_types},
        **{f"scopes {value!r}": {scopes: value} for value in other_types},
    }


@pytest.mark.parametrize("wrong", wrong_claims(PLAIN))
async def test_a_good_signature_does_not_make_claims_good(form: Form, wrong: str) -> None:
    await refused(token(form, ED, **wrong_claims(form)[wrong]), verifier(form))


async def test_no_other_claim_adds_to_the_scopes(form: Form) -> None:
    claim = form.settings.get("GATEWAY_JWT_SCOPE_CLAIM") or ("scope" if "scope" in form.given else "scp")
    others = {"scope", "scp", "scopes", "roles", "permissions", "groups", "scope "} - {claim}
    if claim == "scp":
        others -= {"scope"}  # which is read instead
    caller = await verifier(form).authenticate(
        f"Bearer {token(form, ED, None, **{each: ['admin'] for each in others})}"
    )
    assert caller.scopes == form.scopes
    for text in ("", "admin\n", ["admin user"], ["admin\0"], [], "\u00e4dmin"):
        caller = await verifier(form).authenticate(f"Bearer {token(form, ED, None, **{claim: text})}")
        assert not caller.scopes


@pytest.mark.parametrize("key", [rsa_key(), EC, ED], ids=lambda key: key.algorithm)
async def test_a_shared_secret_accepts_no_other_kind_of_signature(key: SigningKey) -> None:
    verify = TokenVerifier(SharedSecret(SECRET), (AUDIENCE,), issuer=ISSUER)
    await refused(token(PLAIN, key), verify)
    good = forged(PLAIN, {"alg": "HS256", "kid": "any"}, mac_of(SECRET.encode()))
    assert (await verify.authenticate(f"Bearer {good}")).principal is not None
    await refused(forged(PLAIN, {"alg": "HS256"}, mac_of(SECRET.encode() + b"\n")), verify)


PRINCIPALS: list[tuple[dict[str, Any], Principal]] = [
    ({}, Principal(ISSUER, "ada", "")),
    ({"client_id": "a"}, Principal(ISSUER, "ada", "a")),
    ({"azp": "a"}, Principal(ISSUER, "ada", "a")),
    ({"sub": None, "azp": "a"}, Principal(ISSUER, "", "a")),
    ({"sub": "Ada"}, Principal(ISSUER, "Ada", "")),
    ({"sub": "ada "}, Principal(ISSUER, "ada ", "")),
    ({"sub": "a\u0301"}, Principal(ISSUER, "a\u0301", "")),
    ({"sub": "\u00e1"}, Principal(ISSUER, "\u00e1", "")),
]


async def test_principals_are_told_apart_exactly() -> None:
    seen = [
        (await verifier(PLAIN).authenticate(f"Bearer {token(PLAIN, EC, **claims)}")).principal
        for claims, _ in PRINCIPALS
    ]
    assert seen == [principal for _, principal in PRINCIPALS]
    assert seen[1] == seen[2]
    assert len(set(seen)) == len(seen) - 1
