"""Pure: the keys that seal and open, parsed from one setting.

All replicas of a deployment share the ring. Its first entry seals, and every entry opens, so keys rotate without an
outage: `old,new`, then `new,old`, then `new`, each fully rolled out before the next.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.errors import ConfigurationError
from gateway.sealing import base64url

ENTRY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
SETTING: Final = "GATEWAY_SEAL_KEYS"

_HKDF_INFO = b"sealed-gateway/v1"
_KEY_ID_LABEL = b"sealed-gateway/kid"
_FOLDER_LABEL = b"sealed-gateway/folder/v1"
_FOLDER_BYTES = 8
_SEPARATORS = re.compile(r"[,\n]")
_HEX_ENTRY = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64URL_ENTRY = re.compile(r"[0-9A-Za-z_-]{43}")
_MAKE_ONE = "make one with `gateway keys new`"


@dataclass(frozen=True, slots=True)
class SealKey:
    """One key of the ring.

    Attributes:
        key_id: 4 bytes that name the key in a token. They are public and reveal nothing about the key.
        secret: 32 bytes for the cipher, derived from the operator's entry. Never shown.
    """

    key_id: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def from_entry(cls, entry: bytes) -> SealKey:
        """Derive the key and its id from the 32 bytes of an operator's entry (HKDF-SHA256, RFC 5869)."""
        secret = HKDF(algorithm=SHA256(), length=ENTRY_BYTES, salt=None, info=_HKDF_INFO).derive(entry)
        return cls(hashlib.sha256(_KEY_ID_LABEL + secret).digest()[:KEY_ID_BYTES], secret)

    def folder_name(self, audience: str) -> str:
        """Return a name that only the deployment knows, for a folder that its processes on one host share.

        A stranger on the same host cannot create a folder with this name first. The name reveals nothing about the key.
        """
        info = _FOLDER_LABEL + audience.encode()
        return HKDF(algorithm=SHA256(), length=_FOLDER_BYTES, salt=None, info=info).derive(self.secret).hex()


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of a deployment in the operator's order: the first seals, all open.

    There is at least one key, and all have different ids.
    """

    keys: tuple[SealKey, ...]

    @property
    def sealing_key(self) -> SealKey:
        """The key that seals new tokens."""
        return self.keys[0]

    @classmethod
    def parse(cls, text: str | None, *, setting: str = SETTING) -> KeyRing:
        """Read a ring from the text of a setting.

        Entries are separated by commas or newlines; surrounding blanks and empty entries are ignored. An entry is 64
        hex digits or 43 unpadded base64url characters: exactly 32 bytes.

        Raises:
            ConfigurationError: there is no key, a bad one, or two alike. The message names positions, never a key.
        """
        entries = [entry for entry in (part.strip() for part in _SEPARATORS.split(text or "")) if entry]
        if not entries:
            msg = f"{setting}: no key; {_MAKE_ONE} and give the same value to every replica"
            raise ConfigurationError(msg)
        keys: list[SealKey] = []
        positions: dict[bytes, int] = {}
        for position, entry in enumerate(entries, start=1):
            key = SealKey.from_entry(_entry_bytes(entry, f"{setting}: key {position} of {len(entries)}"))
            earlier = positions.setdefault(key.key_id, position)
            if earlier != position:
                msg = f"{setting}: {_clash(keys[earlier - 1], key, earlier, position)}"
                raise ConfigurationError(msg)
            keys.append(key)
        return cls(tuple(keys))


def generate_entry(random_bytes: Callable[[int], bytes]) -> str:
    """Make a new entry for the ring from a cryptographically secure source: 43 base64url characters."""
    return base64url.encode(random_bytes(ENTRY_BYTES))


def _entry_bytes(entry: str, where: str) -> bytes:
    if _HEX_ENTRY.fullmatch(entry):
        return bytes.fromhex(entry)
    if _BASE64URL_ENTRY.fullmatch(entry):
        try:
            return base64url.decode(entry)
        except ValueError:
            # The last character has two bits beyond the 32 bytes: a typing error, not a key.
            msg = f"{where} is not the base64url form of 32 bytes; copy it again or {_MAKE_ONE}"
            raise ConfigurationError(msg) from None
    msg = f"{where} is neither 64 hex digits nor 43 unpadded base64url characters; {_MAKE_ONE}"
    raise ConfigurationError(msg)


def _clash(first: SealKey, second: SealKey, earlier: int, later: int) -> str:
    if first.secret == second.secret:
        return f"keys {earlier} and {later} are the same; remove one"
    return f"keys {earlier} and {later} happen to share a key id; replace one of them and {_MAKE_ONE}"
