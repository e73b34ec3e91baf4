"""Sessions: everything agreed on comes back, and the token stays short enough for a header."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing.binding import session_binding
from gateway.sealing.client_flags import FLAGS
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.formats import SESSION
from gateway.sealing.keyring import KeyRing
from gateway.sealing.packing import pack
from gateway.sealing.session import MAX_VERSION_CHARS, Session, open_session, seal_session

NOW = 1_800_000_000
AAD = session_binding("gateway", None)
NONCE = bytes(range(16))
SEALER = Sealer(KeyRing.parse("00" * 31 + "0a"), os.urandom)

versions = st.text(st.characters(codec="ascii"), max_size=MAX_VERSION_CHARS)
sessions = st.builds(
    Session,
    versions,
    st.frozensets(st.sampled_from(FLAGS)),
    st.binary(min_size=16, max_size=16),
    st.integers(NOW + 1, 2**40) | st.floats(NOW + 1, 1e12),
)


def opened(token: object) -> Session:
    return open_session(SEALER, token, aad=AAD, now=NOW).session


@given(sessions)
def test_every_session_comes_back_as_it_was(session: Session) -> None:
    assert opened(seal_session(SEALER, session, aad=AAD)) == session


def test_every_set_of_flags_with_the_longest_version_takes_at_most_512_characters() -> None:
    subsets = itertools.chain.from_iterable(itertools.combinations(FLAGS, size) for size in range(len(FLAGS) + 1))
    for flags in subsets:
        session = Session("v" * MAX_VERSION_CHARS, frozenset(flags), NONCE, 1e18 + 0.1)
        token = seal_session(SEALER, session, aad=AAD)
        assert len(token) <= 512
        assert opened(token) == session


def test_a_session_remembers_known_flags_alone() -> None:
    declared = frozenset({"sampling", "tomorrow", "extensions.com.example/x", "x" * 10_000})
    token = seal_session(SEALER, Session("v", declared, NONCE, NOW + 1), aad=AAD)
    assert opened(token).flags == {"sampling"}


def test_flags_of_a_newer_release_are_left_out() -> None:
    payload = {"v": SESSION.writes, "exp": NOW + 1, "ver": "v", "caps": 2**60 + 1, "nonce": NONCE}
    assert opened(SEALER.seal(pack(payload), AAD)).flags == {FLAGS[0]}


def test_the_bit_of_a_flag_never_changes() -> None:
    """Sessions live for weeks: a flag that moves would be read as another one."""
    assert FLAGS[:10] == (
        "elicitation.form",
        "elicitation.url",
        "sampling",
        "sampling.tools",
        "sampling.context",
        "roots",
        "roots.listChanged",
        "tasks.responses.modes.task",
        "tasks.responses.modes.immediate",
        "tasks.responses.modes.streaming",
    )


@pytest.mark.parametrize("bits", [-1, -(2**63)])
def test_negative_bits_are_malformed(bits: int) -> None:
    token = SEALER.seal(pack({"v": SESSION.writes, "exp": NOW + 1, "ver": "v", "caps": bits, "nonce": NONCE}), AAD)
    with pytest.raises(Rejected) as caught:
        opened(token)
    assert caught.value.reason is RejectReason.MALFORMED


@pytest.mark.parametrize("version", ["v" * (MAX_VERSION_CHARS + 1), "é", "\ud800"])
def test_a_version_that_might_not_fit_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="at most 32 ASCII characters"):
        seal_session(SEALER, Session(version, frozenset(), NONCE, NOW + 1), aad=AAD)


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_nonce_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        seal_session(SEALER, Session("v", frozenset(), bytes(size), NOW + 1), aad=AAD)
