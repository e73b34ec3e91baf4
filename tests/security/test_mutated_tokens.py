"""None of a million forged tokens opens."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pybase64
import pytest

from gateway.errors import RejectReason
from gateway.sealing.binding import request_state_binding
from gateway.sealing.digest import arguments_digest
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.principal import Principal
from gateway.sealing.state import open_state, seal_state
from tests.security.mutations import MUTATIONS, Material, mutated

pytestmark = pytest.mark.slow

TOKENS = 1_000_000
SHARDS = 40
"""The number of parts, each with its own seed, so they can run in parallel."""
MAX_CHARS = 512
NOW = 1_700_000_000.0
RING = KeyRing.parse(f"{'5c' * 32},{'a7' * 32}")
BINDING = request_state_binding(
    "tests", Principal("https://issuer.test", "alice", "app"), "tools/call", "greet", arguments_digest({"n": 1})
)
EXPECTED = frozenset(
    {RejectReason.MALFORMED, RejectReason.TOO_LARGE, RejectReason.UNKNOWN_KEY, RejectReason.NOT_AUTHENTIC}
)


def sealed_by(ring: KeyRing, chance: random.Random) -> list[str]:
    """Seal states of several lengths, so that each remainder of Base64 occurs."""
    sealer = Sealer(ring, chance.randbytes)
    return [
        seal_state(sealer, {"answers": "x" * size}, aad=BINDING, now=NOW, expires_at=NOW + 60, max_bytes=MAX_CHARS)
        for size in range(40, 56)
    ]


def material_for(seed: int) -> Material:
    chance = random.Random(seed)
    swapped = KeyRing(RING.keys[::-1])
    tokens = [*sealed_by(RING, chance), *sealed_by(swapped, chance)]
    return Material(tokens, [key.key_id for key in RING.keys], seed, longest=MAX_CHARS)


@pytest.mark.parametrize("shard", [0, *(pytest.param(shard, marks=pytest.mark.repeats) for shard in range(1, SHARDS))])
def test_of_a_million_mutated_tokens_none_opens(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is rejected with the same type of error, after work bounded by its size, and leaves nothing behind."""
    material = material_for(shard)
    opener = Sealer(RING, material.random.randbytes)
    decoded: Counter[bool] = Counter()
    decode = pybase64.b64decode

    def watched(text: str, *arguments: Any, **options: Any) -> bytes:
        decoded[len(text) <= MAX_CHARS] += 1
        return decode(text, *arguments, **options)

    reasons: Counter[RejectReason] = Counter()
    # The material is made before the opener is watched; from here on only the opener decodes.
    hostile = itertools.islice(mutated(material), TOKENS // SHARDS)
    monkeypatch.setattr(pybase64, "b64decode", watched)
    for token in hostile:
        try:
            open_state(opener, token, aad=BINDING, now=NOW, max_bytes=MAX_CHARS)
        except Rejected as rejected:
            reasons[rejected.reason] += 1
        else:
            pytest.fail(f"opened: {token!r}")
    assert reasons.total() == TOKENS // SHARDS
    assert reasons.keys() == EXPECTED
    assert decoded[True] > 0
    assert decoded[False] == 0, "a token longer than the cap was decoded"
    assert [len(cipher._opening) for cipher in opener._ciphers.values()] == [0, 0], "a forged token was remembered"


def test_what_the_mutations_are_made_from_opens() -> None:
    material = material_for(0)
    opener = Sealer(RING, random.Random(1).randbytes)
    for token in material.tokens:
        assert open_state(opener, token, aad=BINDING, now=NOW, max_bytes=MAX_CHARS).journal["answers"]


def test_the_same_seed_gives_the_same_mutations() -> None:
    one, other = (list(itertools.islice(mutated(material_for(7)), 1000)) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_each_kind_of_mutation_gives_many_different_values(mutate: object) -> None:
    material = material_for(3)
    assert callable(mutate)
    assert len({repr(mutate(material)) for _ in range(300)}) > 50
