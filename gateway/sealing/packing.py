"""Pure: JSON values and `bytes` as MessagePack, the content of every kind of token."""

from __future__ import annotations

from typing import Any

import msgspec

_BIG_INTEGER = 1
"""MessagePack extension type: an integer beyond 64 bits, two's complement, big-endian."""
_INT64_MIN = -(2**63)
_UINT64_MAX = 2**64 - 1


def pack(value: Any) -> bytes:
    """Encode a JSON value, or one with `bytes` in it, as MessagePack. Integers of any size are exact.

    The caller must pass only such values. A date, for example, would decode as something else.

    Raises:
        TypeError: an object that MessagePack cannot encode.
        ValueError: a lone surrogate, or nesting beyond the interpreter's depth.
    """
    try:
        try:
            return _ENCODER.encode(value)
        except OverflowError:
            return _ENCODER.encode(_with_big_integers(value))
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


def unpack(data: bytes) -> Any:
    """Decode data from `pack`; text is `str`, binary is `bytes`. Raise `ValueError` for any other data."""
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = "not a packed value"
        raise ValueError(msg) from error


def _with_big_integers(value: Any) -> Any:
    """Copy a value with each integer beyond 64 bits as an extension."""
    if isinstance(value, int):
        if _INT64_MIN <= value <= _UINT64_MAX:
            return value
        size = value.bit_length() // 8 + 1
        return msgspec.msgpack.Ext(_BIG_INTEGER, value.to_bytes(size, "big", signed=True))
    if isinstance(value, dict):
        return {_with_big_integers(name): _with_big_integers(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_with_big_integers(element) for element in value]
    return value


def _extension(code: int, data: memoryview) -> int:
    if code != _BIG_INTEGER:
        msg = f"unknown extension {code}"
        raise ValueError(msg)
    return int.from_bytes(data, "big", signed=True)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ext_hook=_extension)
