"""The keys that verify tokens: a shared secret, or a set of public keys (JWKS, RFC 7517).

A key verifies only algorithms that fit its type, its curve and its own `alg`. So no public key can ever stand in for a
shared secret (RFC 8725 section 3.1).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from typing_extensions import override

from gateway.errors import ConfigurationError, GatewayError
from gateway.settings.model import SYMMETRIC_ALGORITHMS

MAX_KEYS: Final = 64
MAX_KEY_ID_CHARACTERS: Final = 256
MIN_RSA_BITS: Final = 2048
"""RFC 7518 section 3.3."""
MAX_RSA_BITS: Final = 8192
"""Verifying with a larger key takes noticeably long."""

_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS: Final[Mapping[tuple[str, str], str]] = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "EdDSA",
    ("OKP", "Ed448"): "EdDSA",
}
_PUBLIC_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("n", "e"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}


class UnknownKey(GatewayError):
    """No key verifies tokens with this algorithm and key id."""


class KeysUnavailable(GatewayError):
    """No keys could be read yet, so no token can be verified."""


class Keys:
    """The keys that verify tokens. Unless a method says otherwise, they never change."""

    async def find(self, algorithm: str, key_id: str | None) -> Any:
        """Return the key for a token with this header, as PyJWT takes it.

        Once the key is known, this returns without yielding to other tasks, so the key is current.

        Raises:
            UnknownKey: there is none, or more than one.
            KeysUnavailable: there are no keys at all yet.
        """
        raise NotImplementedError

    def name_of(self, _key: Any) -> bytes:
        """Return the name for `has_left` of a key that `find` has just returned, b"" for a key that never changes."""
        return b""

    def has_left(self, _name: bytes) -> bool:
        """Return whether a key with this name was in the set and no longer is."""
        return False

    def on_change(self, forget: Callable[[], None]) -> None:
        """Call `forget` each time the keys change, before anyone gets a new one."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the keys fresh while the context is open."""
        return contextlib.nullcontext()


class SharedSecret(Keys):
    """One secret, shared with the issuer of the tokens. It verifies HS256 and nothing else."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    @override
    async def find(self, algorithm: str, key_id: str | None) -> str:
        del key_id  # there is only one key
        if algorithm not in SYMMETRIC_ALGORITHMS:
            raise UnknownKey
        return self._secret


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One public key of a set. Its public members, in a fixed order, identify it."""

    key_id: str | None
    algorithms: frozenset[str]
    members: tuple[str, ...]
    public_key: Any = field(compare=False, repr=False)

    @property
    def name(self) -> bytes:
        """The name of the key, whatever its id."""
        return sha256("\n".join(self.members).encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class KeySet:
    """The public keys of an identity provider that can verify what this deployment accepts."""

    keys: frozenset[TokenKey]

    @classmethod
    def parse(cls, content: bytes, algorithms: Iterable[str], *, source: str) -> KeySet:
        """Read a JWK Set.

        Keys that cannot be used here are ignored, as RFC 7517 section 5 says. These are secrets, keys for encryption,
        unknown types and curves, RSA keys of a bad size, and keys for other algorithms. Only the public part of a
        private key is read. `source` is the setting it comes from, for the error.

        Raises:
            ConfigurationError: it is not a JWK Set, has more than `MAX_KEYS` keys, or has no usable key. The message
                contains nothing of a key.
        """
        accepted = frozenset(algorithms)
        try:
            document = msgspec.json.decode(content)
        except (ValueError, RecursionError):  # msgspec's errors derive from ValueError
            document = None
        entries = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            raise ConfigurationError(f"{source}: not a JWK Set; it must be a JSON object with a list of keys")
        if len(entries) > MAX_KEYS:
            raise ConfigurationError(f"{source}: it has {len(entries)} keys; give at most {MAX_KEYS}")
        keys = frozenset(key for entry in entries if (key := _read_key(entry, accepted)) is not None)
        if not keys:
            raise ConfigurationError(
                f"{source}: it has no key that verifies {', '.join(sorted(accepted))}; check GATEWAY_JWT_ALGORITHMS"
            )
        return cls(keys)

    def has(self, key_id: str) -> bool:
        """Return whether a key with this id is in the set."""
        return any(key.key_id == key_id for key in self.keys)

    def find(self, algorithm: str, key_id: str | None) -> Any:
        """Return the one key for an algorithm and a key id; without an id, the one key for the algorithm.

        If there is none, or more than one, this raises `UnknownKey`.
        """
        fitting = [key.public_key for key in self.keys if algorithm in key.algorithms and key_id in (None, key.key_id)]
        if len(fitting) != 1:
            raise UnknownKey
        return fitting[0]

    def name_of(self, public_key: Any) -> bytes:
        """Return the name of a key that `find` returned."""
        return next(key.name for key in self.keys if key.public_key is public_key)

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys that have one, for the log."""
        return sorted(key.key_id for key in self.keys if key.key_id is not None)


def _read_key(entry: Any, accepted: frozenset[str]) -> TokenKey | None:
    if not isinstance(entry, dict) or not _is_for_signatures(entry):
        return None
    key_id = entry.get("kid")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= MAX_KEY_ID_CHARACTERS):
        return None
    algorithms = _algorithms_of(entry) & accepted
    if not algorithms:
        return None
    kind = _text(entry, "kty")
    members = tuple(_text(entry, name) for name in _PUBLIC_MEMBERS[kind])
    public_key = _load(kind, members, min(algorithms))
    return None if public_key is None else TokenKey(key_id, algorithms, (kind, *members), public_key)


def _is_for_signatures(entry: Mapping[str, Any]) -> bool:
    operations = entry.get("key_ops", ["verify"])
    return entry.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations


def _algorithms_of(entry: Mapping[str, Any]) -> frozenset[str]:
    """Return what a key can verify by its type and curve, narrowed to its own `alg` if it has one."""
    if entry.get("kty") == "RSA":
        fitting = frozenset(_RSA_ALGORITHMS)
    else:
        curve = _CURVE_ALGORITHMS.get((_text(entry, "kty"), _text(entry, "crv")))
        fitting = frozenset() if curve is None else frozenset({curve})
    return fitting & {_text(entry, "alg")} if "alg" in entry else fitting


def _load(kind: str, members: tuple[str, ...], algorithm: str) -> Any:
    """Return the public key, or None if its members are invalid or it has the wrong size."""
    public = {"kty": kind, **dict(zip(_PUBLIC_MEMBERS[kind], members, strict=True))}
    try:
        key = jwt.PyJWK(public, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if isinstance(key, RSAPublicKey) and not MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
        return None
    return key


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
