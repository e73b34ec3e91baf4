"""Pure: a digest of a call's arguments that is equal for requests with the same meaning.

A retry may write the arguments differently: other key order, other escapes, `3.0` for `3`. The digest covers a
canonical text, so such a retry still opens its state, and any real change does not.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_EXACT_INTEGERS_BELOW = 2.0**53
"""At or above this magnitude a double may stand for several integers, so it equals none of them."""

_INT64_MIN = -(2**63)
_UINT64_MAX = 2**64 - 1

_PLAIN_FLOATS_FROM, _PLAIN_FLOATS_BELOW = 1e-4, 1e16
"""Between these magnitudes, the encoder writes a float as `repr` does. Others have exponents, which it writes
differently."""

_NONE = b"{}"
_DIGEST_OF_NONE = hashlib.sha256(_NONE).digest()
_ENCODER = msgspec.json.Encoder(order="deterministic")


def arguments_digest(arguments: Mapping[str, Any] | None) -> bytes:
    """Digest the arguments of a call as parsed, before any coercion.

    Key order never counts. Integers count exactly. A float with an integral value below 2^53 in magnitude equals that
    integer, and negative zero equals zero. Strings count as they are, without normalisation. Missing arguments, null
    and `{}` are the same. The digest is the SHA-256 of `canonical_text`, 32 bytes. A `TypeError` or `ValueError` of
    that passes through.
    """
    return hashlib.sha256(canonical_text(arguments)).digest() if arguments else _DIGEST_OF_NONE


def canonical_text(arguments: Mapping[str, Any] | None) -> bytes:
    """Write arguments as canonical JSON, in UTF-8.

    Keys are sorted by code point, there is no white space, and floats have their shortest form. In one case the text is
    not JSON: an integer beyond 64 bits is written in hexadecimal. That is exact, takes linear time, and does not depend
    on the interpreter's limit for decimal digits.

    Raises:
        TypeError: a value has no JSON type.
        ValueError: a lone surrogate, NaN, an infinity, or nesting beyond the interpreter's depth. A request with any of
            these is refused when it is parsed.
    """
    if not arguments:
        return _NONE
    plain = arguments if type(arguments) is dict else dict(arguments)
    try:
        return _ENCODER.encode(plain if _is_plain(plain.values()) else _rewritten(plain))
    except RecursionError:
        msg = "the arguments are nested too deeply"
        raise ValueError(msg) from None


def _is_plain(values: Iterable[Any]) -> bool:
    """Return whether the encoder's own text for all these values is canonical. It is for most arguments."""
    for value in values:
        kind = type(value)
        if kind is str or kind is bool or value is None:
            continue
        if kind is int:
            if not _INT64_MIN <= value <= _UINT64_MAX:
                return False
        elif kind is float:
            size = abs(value)
            if not _PLAIN_FLOATS_FROM <= size < _PLAIN_FLOATS_BELOW:
                return False
            if size < _EXACT_INTEGERS_BELOW and value.is_integer():
                return False
        elif kind is dict:
            if not _is_plain(value.values()):
                return False
        elif kind is not list or not _is_plain(value):
            return False
    return True


def _rewritten(value: Any) -> Any:
    """Copy a value, replacing numbers by ones whose text is canonical."""
    kind = type(value)
    if kind is float:
        return _rewritten_float(value)
    if kind is int:
        return value if _INT64_MIN <= value <= _UINT64_MAX else msgspec.Raw(hex(value).encode("ascii"))
    if kind is dict:
        return {name: _rewritten(member) for name, member in value.items()}
    if kind is list:
        # The comparison again, because a call for each of many numbers takes longer.
        return [_rewritten_float(part) if type(part) is float else _rewritten(part) for part in value]
    if kind is str or kind is bool or value is None:
        return value
    msg = f"not a JSON value: {kind.__name__}"
    raise TypeError(msg)


def _rewritten_float(value: float) -> int | msgspec.Raw:
    if value.is_integer() and -_EXACT_INTEGERS_BELOW < value < _EXACT_INTEGERS_BELOW:
        return int(value)
    if not math.isfinite(value):
        msg = "not a JSON number: NaN or an infinity"
        raise ValueError(msg)
    return msgspec.Raw(repr(value))
