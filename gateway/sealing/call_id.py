"""Pure: the id and the seed of a call whose first request may be repeated by a trusted proxy.

Both are one HMAC-SHA256 of the id that the proxy gave the request and of the request's binding, under a key of the
ring. So each attempt of the request begins the same call, on every replica, and no step of it gets another id. Nobody
without the key can predict them, not even from the id of the request.

Which key of the ring? While keys rotate (`old`, then `old,new`, then `new,old`, then `new`), a repetition may reach a
replica that is one phase ahead. The choice depends on the ring alone, and the first and the last ring have no key in
common, so it has to change once. Taking the first key would change it in phase 2, in each rotation. The key with the
smallest id does not depend on the order, so both sides of phase 2 agree. It changes in phase 1 if the new key's id is
the smaller one, otherwise in phase 3. Nothing else depends on the choice: a changed id only makes the repetition a call
of its own, as if the proxy had given it no id.
"""

from __future__ import annotations

import hmac
import struct
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.sealing.keyring import KeyRing

_HKDF_INFO: Final = b"sealed-gateway/call-id/v1"
_KEY_BYTES: Final = 32
_length: Final = struct.Struct(">I").pack


class CallIds:
    """Derives what makes a call the same in each attempt of its first request.

    One key of the ring gives a derived key here, once.
    """

    __slots__ = ("_key",)

    def __init__(self, ring: KeyRing) -> None:
        chosen = min(ring.keys, key=lambda key: key.key_id)
        self._key = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_HKDF_INFO).derive(chosen.secret)

    def entropy(self, forwarded_id: str, binding: bytes, size: int) -> bytes:
        """Return bytes that only an equal request gets.

        A trusted proxy gives all attempts of a request one `forwarded_id`. The `binding` is its
        `request_state_binding`: its deployment, caller, method, target and arguments. `size` is at most 32 bytes.
        """
        name = forwarded_id.encode()
        return hmac.digest(self._key, _length(len(name)) + name + binding, "sha256")[:size]
