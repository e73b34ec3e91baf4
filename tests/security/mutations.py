"""Tokens that were never sealed, mutated from sealed ones; the same seed gives the same tokens."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import pybase64

from gateway.sealing import base64url
from gateway.sealing.envelope import LABEL

HEADER_BYTES = 28
"""Key id and nonce."""

Mutation: TypeAlias = Callable[["Material"], Any]

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LOOK_ALIKES = {
    **{chr(point): chr(point + 0xFEE0) for point in range(0x21, 0x7F)},  # full width
    "a": "а", "c": "с", "e": "е", "i": "і", "o": "о", "p": "р", "s": "ѕ", "x": "х", "y": "у",  # noqa: RUF001 - Cyrillic
    "A": "Α", "B": "Β", "E": "Ε", "H": "Η", "K": "\u212a", "M": "Μ", "N": "Ν", "S": "\u017f", "T": "Τ",  # noqa: RUF001 - Greek and signs
    "-": "\u2010", "_": "\u203f", ".": "\u2024", "1": "\u00b9", "0": "\u0660",
}  # fmt: skip
_INVISIBLE = ("\u200b", "\u00ad", "\ufeff", "\u202e", "\u0301", "\x00", "\x7f", "\u2028")
_BLANKS = (" ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u3000", "\x0b")


class Material:
    """The sources of mutations.

    Args:
        tokens: sealed ones, at least two, none of which a mutation may give back.
        key_ids: of the keys that are in the ring.
        seed: of the one source of chance.
        longest: how long a token may become that is made longer.
    """

    def __init__(self, tokens: Sequence[str], key_ids: Sequence[bytes], seed: int, *, longest: int) -> None:
        self.tokens = list(tokens)
        self.raws = [base64url.decode(token.removeprefix(LABEL)) for token in tokens]
        self.key_ids = list(key_ids)
        self.random = random.Random(seed)
        self.longest = longest

    def raw(self) -> bytearray:
        """Return the bytes of one token."""
        return bytearray(self.random.choice(self.raws))

    def token(self) -> str:
        """Return one token."""
        return self.random.choice(self.tokens)


def _text(raw: bytes | bytearray) -> str:
    return LABEL + base64url.encode(bytes(raw))


def flip_one_bit(material: Material) -> str:
    """Change one bit anywhere: key id, nonce, ciphertext or tag."""
    raw, bit = material.raw(), material.random.getrandbits(31)
    raw[(bit >> 3) % len(raw)] ^= 1 << (bit & 7)
    return _text(raw)


def change_bytes(material: Material) -> str:
    """Overwrite a few bytes in a row."""
    raw, chance = material.raw(), material.random
    start, size = chance.randrange(len(raw)), chance.randrange(1, 9)
    raw[start : start + size] = chance.randbytes(len(raw[start : start + size]))
    return _text(raw)


def shorten(material: Material) -> str:
    """Remove bytes at the end, at the start or inside."""
    raw, chance = material.raw(), material.random
    start = chance.choice((0, HEADER_BYTES, chance.randrange(len(raw))))
    del raw[start : start + chance.randrange(1, len(raw))]
    return _text(raw)


def lengthen(material: Material) -> str:
    """Insert bytes at any place."""
    raw, chance = material.raw(), material.random
    place = chance.choice((0, HEADER_BYTES, len(raw), chance.randrange(len(raw))))
    raw[place:place] = chance.randbytes(chance.randrange(1, 40))
    return _text(raw)


def splice(material: Material) -> str:
    """Join the head of one token with the tail of another."""
    one, other = material.random.sample(material.raws, 2)
    place = material.random.randrange(1, min(len(one), len(other)))
    return _text(one[:place] + other[place:])


def exchange_the_key_id(material: Material) -> str:
    """Name another key of the ring, or one that is not in it."""
    raw = material.raw()
    others = [key_id for key_id in material.key_ids if key_id != bytes(raw[:4])]
    raw[:4] = material.random.choice([*others, material.random.randbytes(4)])
    return _text(raw)


def keep_only_the_key_id(material: Material) -> str:
    """Invent everything else."""
    chance = material.random
    return _text(chance.choice(material.key_ids) + chance.randbytes(chance.randrange(200)))


def change_one_character(material: Material) -> str:
    """Write another last character of the alphabet, which often changes only the unused bits."""
    token, chance = material.token(), material.random
    place = chance.choice((len(token) - 1, chance.randrange(len(LABEL), len(token))))
    return token[:place] + chance.choice(_ALPHABET) + token[place + 1 :]


def write_otherwise(material: Material) -> str:
    """Write the same bytes in another form of Base64, or with another label."""
    chance = material.random
    raw = bytes(chance.choice(material.raws))
    body = base64url.encode(raw)
    place = chance.randrange(len(body) + 1)
    return chance.choice(
        (
            LABEL + body + "=" * chance.randrange(1, 4),
            LABEL + pybase64.b64encode(b"\xfb\xff" + raw).decode(),
            LABEL + body[:place] + chance.choice(_BLANKS) + body[place:],
            LABEL + body[:-1] + f"%{ord(body[-1]):02x}",
            LABEL + body.swapcase(),
            LABEL + raw.hex(),
            chance.choice(_BLANKS) + LABEL + body,
            chance.choice(("s2.", "S1.", "s1", "c1.", "", "s1..", "s1.s1.", ".s1.")) + body,
        )
    )


def use_look_alikes(material: Material) -> str:
    """Write a character that looks like the right one, or add an invisible one."""
    token, chance = material.token(), material.random
    place = chance.choice((0, 1, 2, chance.randrange(len(token))))
    if chance.random() < 0.3:
        return token[:place] + chance.choice(_INVISIBLE) + token[place:]
    return token[:place] + _LOOK_ALIKES[token[place]] + token[place + 1 :]


def be_no_string(material: Material) -> object:
    """Return a JSON value that is not a string."""
    token, chance = material.token(), material.random
    return chance.choice(
        (
            [token],
            {"requestState": token},
            {token: token},
            chance.getrandbits(200),
            -chance.getrandbits(60),
            chance.random(),
            True,
            False,
            [],
            {},
            [[token]],
        )
    )


def grow_too_long(material: Material) -> str:
    """Be longer than any token may be."""
    size = material.longest + material.random.randrange(1, 64)
    return (material.token() + "A" * size)[: material.longest + 1 + size % 64]


MUTATIONS: tuple[Mutation, ...] = (
    flip_one_bit,
    change_bytes,
    shorten,
    lengthen,
    splice,
    exchange_the_key_id,
    keep_only_the_key_id,
    change_one_character,
    write_otherwise,
    use_look_alikes,
    be_no_string,
    grow_too_long,
)


def mutated(material: Material) -> Iterator[Any]:
    """Yield mutations endlessly, each kind in turn, but never a sealed token itself."""
    sealed = frozenset(material.tokens)
    for mutate in itertools.cycle(MUTATIONS):
        candidate = mutate(material)
        if not isinstance(candidate, str) or candidate not in sealed:
            yield candidate
