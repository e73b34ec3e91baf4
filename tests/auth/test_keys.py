"""Key sets: which keys count, for which algorithms, and that nothing hostile in a set has any effect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth.keys import MAX_KEYS, KeySet, SharedSecret, UnknownKey
from gateway.errors import ConfigurationError
from gateway.settings.model import ASYMMETRIC_ALGORITHMS, SYMMETRIC_ALGORITHMS
from tests.identity import SigningKey, key_set, rsa_key

EC = SigningKey("ec", "ES256")
ED = SigningKey("ed", "EdDSA")


def parse(content: bytes, *algorithms: str) -> KeySet:
    return KeySet.parse(content, algorithms or ASYMMETRIC_ALGORITHMS, source="THE_SOURCE")


def refusal(content: bytes, *algorithms: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(content, *algorithms)
    message = str(caught.value)
    assert message.startswith("THE_SOURCE: ")
    assert message.isprintable()
    return message


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "ES384", "ES512", "EdDSA", "Ed448"])
def test_a_key_of_each_kind_is_found_by_its_algorithm_and_id(algorithm: str) -> None:
    key = SigningKey("k", algorithm)
    found = parse(key_set(key)).find(key.algorithm, "k")
    assert found == key.private_key.public_key()


def test_a_key_without_an_algorithm_of_its_own_verifies_what_fits_its_type() -> None:
    keys = parse(key_set(rsa_key().jwk(alg=None), EC.jwk(alg=None)))
    for algorithm in ("RS256", "RS512", "PS384"):
        assert keys.find(algorithm, "rsa") == rsa_key().private_key.public_key()
    assert keys.find("ES256", "ec") == EC.private_key.public_key()
    for algorithm, key_id in [("ES256", "rsa"), ("RS256", "ec"), ("ES384", "ec"), ("EdDSA", "ec"), ("HS256", "rsa")]:
        with pytest.raises(UnknownKey):
            keys.find(algorithm, key_id)


def test_a_key_with_an_algorithm_of_its_own_verifies_no_other() -> None:
    keys = parse(key_set(rsa_key()))
    keys.find("RS256", "rsa")
    for algorithm in ("RS512", "PS256", "HS256", "none", ""):
        with pytest.raises(UnknownKey):
            keys.find(algorithm, "rsa")


def test_a_key_verifies_only_what_the_deployment_accepts() -> None:
    keys = parse(key_set(rsa_key().jwk(alg=None), EC), "RS256")
    keys.find("RS256", "rsa")
    with pytest.raises(UnknownKey):
        keys.find("PS256", "rsa")
    assert not keys.has("ec")


def test_without_a_key_id_the_key_must_be_the_only_one_that_fits() -> None:
    keys = parse(key_set(EC, ED, rsa_key()))
    assert keys.find("EdDSA", None) == ED.private_key.public_key()
    several = parse(key_set(EC, SigningKey("ec2", "ES256"), ED))
    with pytest.raises(UnknownKey):
        several.find("ES256", None)
    several.find("EdDSA", None)


def test_two_keys_may_share_an_id_if_the_algorithm_tells_them_apart() -> None:
    keys = parse(key_set(EC.jwk(kid="one"), ED.jwk(kid="one")))
    assert keys.find("ES256", "one") == EC.private_key.public_key()
    assert keys.find("EdDSA", "one") == ED.private_key.public_key()
    with pytest.raises(UnknownKey):
        parse(key_set(EC, SigningKey("ec", "ES256"))).find("ES256", "ec")


def test_a_key_without_an_id_is_not_found_by_one() -> None:
    keys = parse(key_set(EC.jwk(kid=None)))
    keys.find("ES256", None)
    with pytest.raises(UnknownKey):
        keys.find("ES256", "None")
    assert not keys.has("")
    assert keys.key_ids == []


WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)

USELESS: dict[str, Any] = {
    "a secret": {"kty": "oct", "k": "c2VjcmV0" * 8, "kid": "k", "alg": "HS256"},
    "a secret for a public algorithm": {"kty": "oct", "k": "c2VjcmV0" * 8, "kid": "k", "alg": "RS256"},
    "for encryption": EC.jwk(use="enc"),
    "for key agreement": EC.jwk(use=None, key_ops=["deriveKey"]),
    "operations that are no list": EC.jwk(key_ops="verify"),
    "an algorithm that does not fit the type": EC.jwk(alg="RS256"),
    "an algorithm that does not fit the curve": EC.jwk(alg="ES384"),
    "a symmetric algorithm on a public key": rsa_key().jwk(alg="HS256"),
    "no algorithm": EC.jwk(alg="none"),
    "an algorithm that is no string": EC.jwk(alg=["ES256"]),
    "a curve that is not served": EC.jwk(crv="secp256k1", alg=None),
    "a type that is not known": EC.jwk(kty="ML-DSA"),
    "no type": EC.jwk(kty=None),
    "a type that is no string": EC.jwk(kty=["EC"]),
    "an id that is no string": EC.jwk(kid=7),
    "an id that is too long": EC.jwk(kid="k" * 257),
    "a point that is not on the curve": EC.jwk(x=EC.jwk()["y"]),
    "a coordinate that is missing": EC.jwk(y=None),
    "a coordinate that is no string": EC.jwk(y=5),
    "a coordinate that is no base64": EC.jwk(y="é"),
    "an Edwards key that is too short": ED.jwk(x="AAAA"),
    "an RSA key that is too weak": SigningKey("weak", "RS256", WEAK).jwk(),
    "an RSA key that takes too long": rsa_key().jwk(n=rsa_key().jwk()["n"] * 5),
    "an even RSA exponent": rsa_key().jwk(e="Ag"),
    "text": "key",
    "nothing": None,
    "a list": [],
}


@pytest.mark.parametrize("entry", USELESS.values(), ids=USELESS)
def test_a_key_of_no_use_is_left_out_and_the_others_stay(entry: Any) -> None:
    keys = parse(json.dumps({"keys": [entry, SigningKey("good", "ES256").jwk()]}).encode())
    assert keys.key_ids == ["good"]
    assert len(keys.keys) == 1
    assert "no key that verifies" in refusal(json.dumps({"keys": [entry]}).encode())


def test_of_a_private_key_only_the_public_part_is_read() -> None:
    for key in (EC, ED, rsa_key()):
        keys = parse(key_set(key.private_jwk()))
        assert keys.find(key.algorithm, key.key_id) == key.private_key.public_key()
        assert key.private_jwk()["d"] not in repr(keys)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff", b'"keys"', b"{}", b'{"keys":{}}', b'{"keys":null}', b"[" * 100_000]
)
def test_anything_but_a_key_set_is_refused(content: bytes) -> None:
    assert "not a JWK Set" in refusal(content)


def test_an_empty_set_is_refused() -> None:
    assert "no key that verifies ES256" in refusal(b'{"keys":[]}', "ES256")


def test_the_number_of_keys_is_bounded() -> None:
    parse(key_set(EC, *[{"kty": "oct"}] * (MAX_KEYS - 1)))
    assert f"{MAX_KEYS + 1} keys" in refusal(key_set(EC, *[{"kty": "oct"}] * MAX_KEYS))


def test_two_sets_are_equal_if_they_verify_the_same() -> None:
    assert parse(key_set(EC, ED)) == parse(key_set(ED.jwk(x5t="unknown member"), EC))
    assert parse(key_set(EC)) != parse(key_set(EC.jwk(kid="renamed")))
    assert parse(key_set(EC)) != parse(key_set(SigningKey("ec", "ES256")))
    assert parse(key_set(rsa_key())) != parse(key_set(rsa_key().jwk(alg=None)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
MEMBERS = st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "kid", "alg", "use", "key_ops"]), JSON)


@given(st.sampled_from([EC, ED, rsa_key()]), MEMBERS)
def test_no_entry_whatever_breaks_the_reader_or_gets_an_algorithm_for_secrets(
    key: SigningKey, changes: dict[str, Any]
) -> None:
    content = json.dumps({"keys": [{**key.jwk(), **changes}]}).encode()
    try:
        keys = KeySet.parse(content, [*SYMMETRIC_ALGORITHMS, *ASYMMETRIC_ALGORITHMS], source="THE_SOURCE")
    except ConfigurationError:
        return
    (read,) = keys.keys
    assert read.public_key == key.private_key.public_key() or changes.keys() & {"x", "y", "n", "e"}
    assert not read.algorithms & set(SYMMETRIC_ALGORITHMS)


def test_a_shared_secret_verifies_one_algorithm_and_needs_no_id() -> None:
    secret = SharedSecret("s" * 32)
    assert asyncio.run(secret.find("HS256", None)) == asyncio.run(secret.find("HS256", "any")) == "s" * 32
    for algorithm in (*ASYMMETRIC_ALGORITHMS, "none", "HS512"):
        with pytest.raises(UnknownKey):
            asyncio.run(secret.find(algorithm, None))
    assert "s" * 32 not in repr(secret)
