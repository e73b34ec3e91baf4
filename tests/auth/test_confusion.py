"""Tokens that try to be verified with the wrong key or in the wrong way (RFC 8725 sections 2 and 3)."""

from __future__ import annotations

import base64
import functools
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.auth import SharedSecret, TokenVerifier
from gateway.auth.keys import KeySet
from gateway.auth.providers import CurrentKeys
from gateway.errors import HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.sealing.principal import Principal
from gateway.settings.model import ASYMMETRIC_ALGORITHMS
from tests.identity import AUDIENCE, ISSUER, SigningKey, claims_of, key_set, rsa_key, token_of

EC = SigningKey("ec", "ES256")
ED = SigningKey("ed", "EdDSA")
SECRET = "0123456789abcdef0123456789abcdef"


class Published(CurrentKeys):
    """A key set that exists from the start."""

    def __init__(self, *keys: Any) -> None:
        super().__init__(Telemetry())
        self.take(KeySet.parse(key_set(*keys), ASYMMETRIC_ALGORITHMS, source="these tests"))

    async def find(self, algorithm: str, key_id: str | None) -> Any:
        assert self._keys is not None
        return self._keys.find(algorithm, key_id)

    def running(self) -> Any:
        raise NotImplementedError


def verifier_of(*keys: Any, algorithms: tuple[str, ...] = ASYMMETRIC_ALGORITHMS) -> TokenVerifier:
    return TokenVerifier(Published(*keys), (AUDIENCE,), issuer=ISSUER, algorithms=algorithms)


@functools.cache
def verifier(*more: str) -> TokenVerifier:
    """Return one for all three keys, which may allow more algorithms than they are for."""
    return verifier_of(rsa_key(), EC, ED, algorithms=(*ASYMMETRIC_ALGORITHMS, *more))


async def refused(token: str, verify: TokenVerifier | None = None) -> None:
    with pytest.raises(HttpRefusal) as caught:
        await (verify or verifier()).authenticate(f"Bearer {token}")
    assert caught.value.status == 401


def mac(secret: bytes, name: str = "sha256") -> Callable[[bytes], bytes]:
    return lambda signed: hmac.digest(secret, signed, name)


@pytest.mark.parametrize("key", [rsa_key(), EC, ED], ids=lambda key: key.algorithm)
async def test_a_good_token_of_each_kind_is_accepted(key: SigningKey) -> None:
    caller = await verifier().authenticate(f"Bearer {key.token(client_id='cli')}")
    assert caller.principal == Principal(ISSUER, "ada", "cli")


@pytest.mark.parametrize("key_id", ["rsa", "ec", "ed", None])
@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", "HS256", None, 7, ["ES256"]])
async def test_an_unsigned_token_is_refused_however_it_is_written(algorithm: Any, key_id: str | None) -> None:
    header = {"alg": algorithm, "typ": "JWT", "kid": key_id}
    for sign in (lambda _signed: b"", lambda _signed: b"\0" * 64, mac(b"")):
        await refused(token_of({n: v for n, v in header.items() if v is not None}, claims_of(), sign))


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
async def test_a_public_key_is_nobodys_secret(key: SigningKey, algorithm: str) -> None:
    for text in texts_of(key):
        for key_id in (key.key_id, None):
            header = {"alg": algorithm, "typ": "JWT", **({} if key_id is None else {"kid": key_id})}
            token = token_of(header, claims_of(), mac(text, algorithm.replace("HS", "sha")))
            await refused(token)
            # Even if the algorithm is allowed, the key does not verify it.
            await refused(token, verifier(algorithm))


async def test_a_mac_under_a_public_algorithms_name_is_refused() -> None:
    for key in (rsa_key(), EC, ED):
        for text in texts_of(key):
            await refused(token_of({"alg": key.algorithm, "kid": key.key_id}, claims_of(), mac(text)))


async def test_a_token_that_an_other_key_signed_is_refused_whatever_it_says() -> None:
    for key in (SigningKey("ec", "ES256"), SigningKey("ed", "EdDSA")):
        await refused(key.token())
        await refused(key.token(header={"kid": None}))
    await refused(EC.token(header={"kid": "ed"}))
    await refused(EC.token(header={"kid": "rsa"}))


async def test_a_key_verifies_no_algorithm_but_its_own() -> None:
    private = rsa_key().private_key
    for algorithm in ("RS384", "RS512", "PS256", "PS512"):
        token = SigningKey("rsa", algorithm, private).token()
        await refused(token)
        accepted = verifier_of(rsa_key().jwk(alg=None))
        await accepted.authenticate(f"Bearer {token}")
    await refused(
        SigningKey("rsa", "PS256", private).token(), verifier_of(rsa_key().jwk(alg=None), algorithms=("RS256",))
    )


async def test_a_key_that_the_token_brings_along_does_not_count() -> None:
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
        await refused(mine.token(header={"kid": "ec", **header}))
        await refused(mine.token(header=header))


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": "b64", "b64": False},
        {"b64": False},
        {"crit": ["b64"], "b64": True},  # changes nothing, but we do not know this extension
    ],
)
async def test_extensions_that_change_what_is_signed_are_refused(header: dict[str, Any]) -> None:
    def sign(signed: bytes) -> bytes:
        return bytes(ED.private_key.sign(signed))

    await verifier().authenticate(f"Bearer {token_of({'alg': 'EdDSA', 'kid': 'ed'}, claims_of(), sign)}")
    await refused(token_of({"alg": "EdDSA", "kid": "ed", **header}, claims_of(), sign))


WRONG_CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example.com"},
    "an issuer that starts like ours": {"iss": ISSUER + "/"},
    "an issuer in other letters": {"iss": ISSUER.upper()},
    "several issuers": {"iss": [ISSUER]},
    "no issuer": {"iss": None},
    "another audience": {"aud": "there"},
    "no audience": {"aud": None},
    "an empty list of audiences": {"aud": []},
    "no expiry": {"exp": None},
    "expired": {"exp": 1},
    "not valid yet": {"nbf": 2**33},
    "neither subject nor client": {"sub": None},
    "an empty subject and an empty client": {"sub": "", "client_id": "", "azp": ""},
}


@pytest.mark.parametrize("claims", WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
async def test_a_good_signature_does_not_make_claims_good(claims: dict[str, Any]) -> None:
    def sign(signed: bytes) -> bytes:
        return bytes(ED.private_key.sign(signed))

    await refused(token_of({"alg": "EdDSA", "kid": "ed"}, claims_of(**claims), sign))


@pytest.mark.parametrize("key", [rsa_key(), EC, ED], ids=lambda key: key.algorithm)
async def test_a_shared_secret_accepts_no_other_kind_of_signature(key: SigningKey) -> None:
    verify = TokenVerifier(SharedSecret(SECRET), (AUDIENCE,), issuer=ISSUER)
    await refused(key.token(), verify)
    good = token_of({"alg": "HS256", "kid": "any"}, claims_of(), mac(SECRET.encode()))
    assert (await verify.authenticate(f"Bearer {good}")).principal is not None
    await refused(token_of({"alg": "HS256"}, claims_of(), mac(SECRET.encode() + b"\n")), verify)


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
    seen = [(await verifier().authenticate(f"Bearer {EC.token(**claims)}")).principal for claims, _ in PRINCIPALS]
    assert seen == [principal for _, principal in PRINCIPALS]
    assert seen[1] == seen[2]
    assert len(set(seen)) == len(seen) - 1
