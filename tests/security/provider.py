"""An identity provider with real keys, and everything that an attacker might sign a token with instead."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.sealing import base64url

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "tests"
SIGNERS: Final = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}
"""Key id → the algorithm that it signs with."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Sign = Callable[[bytes], bytes]


def new_keys() -> dict[str, Any]:
    """Make a private key of each kind, by key id."""
    return {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


KEYS: Final = new_keys()
FOREIGN_KEYS: Final = new_keys()
"""Keys that nobody trusts."""


def public_jwk(key: PrivateKey, **members: Any) -> dict[str, Any]:
    """Return the public part of a key as a JWK."""
    algorithm = jwt.get_algorithm_by_name(_kind(key))
    jwk: dict[str, Any] = json.loads(algorithm.to_jwk(key.public_key()))
    jwk.pop("key_ops", None)
    return {**jwk, **members}


def _kind(key: PrivateKey) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    return "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "EdDSA"


KEY_SET: Final = {"keys": [public_jwk(KEYS[key_id], kid=key_id, use="sig") for key_id in KEYS]}


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of Alice's good token; `...` leaves one out."""
    now = int(time.time())
    good = {"iss": ISSUER, "sub": "alice", "client_id": "app", "aud": AUDIENCE, "iat": now, "exp": now + 600}
    return {name: value for name, value in {**good, **changes}.items() if value is not ...}


def written(header: Any, payload: Any, sign: Sign | bytes = b"") -> str:
    """Write a token by hand: dictionaries are encoded, bytes are taken as they are."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    signed = ".".join(map(base64url.encode, parts))
    signature = sign if isinstance(sign, bytes) else sign(signed.encode())
    return f"{signed}.{base64url.encode(signature)}"


def with_secret(secret: bytes, digest: str = "sha256") -> Sign:
    """Sign with HS256, with any secret."""
    return lambda data: hmac.digest(secret, data, getattr(hashlib, digest))


def with_key(key: PrivateKey, algorithm: str) -> Sign:
    """Sign with a key."""
    signer = jwt.get_algorithm_by_name(algorithm)
    return lambda data: signer.sign(data, key)


def token(key_id: str = "ec", header: Mapping[str, Any] | None = None, /, **changes: Any) -> str:
    """Return a token that the provider signs, with changed claims or more in its header."""
    algorithm = SIGNERS[key_id]
    told = {"alg": algorithm, "typ": "JWT", "kid": key_id, **(header or {})}
    return written(told, claims(**changes), with_key(KEYS[key_id], algorithm))


def public_forms(key_id: str) -> dict[str, bytes]:
    """Return a public key in each form that a careless verifier might use as a secret."""
    public = KEYS[key_id].public_key()
    forms = {
        "PEM": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "PEM without its last line break": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).strip(),
        "DER": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "JWK": json.dumps(public_jwk(KEYS[key_id])).encode(),
        "JWK as published": json.dumps(public_jwk(KEYS[key_id], kid=key_id, use="sig")).encode(),
        "JWK without blanks": json.dumps(public_jwk(KEYS[key_id]), separators=(",", ":")).encode(),
        "key set": json.dumps(KEY_SET).encode(),
    }
    if key_id == "rsa":
        forms["PKCS1"] = public.public_bytes(Encoding.PEM, PublicFormat.PKCS1)
        forms["modulus"] = public_jwk(KEYS["rsa"])["n"].encode()
    return forms


class Provider:
    """Serves the key set, and counts requests."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                body = json.dumps(KEY_SET).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/jwk-set+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """The URL of the key set."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/keys"


@contextlib.contextmanager
def serving() -> Iterator[Provider]:
    """Run a provider."""
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield provider
    finally:
        provider.server.shutdown()
        provider.server.server_close()
        thread.join()
