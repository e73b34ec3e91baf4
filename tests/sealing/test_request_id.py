"""Return addresses: an answer finds the call or the task that asked."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing.binding import request_id_binding
from gateway.sealing.envelope import Rejected, Sealer, token_chars
from gateway.sealing.formats import REQUEST_ID
from gateway.sealing.keyring import KeyRing
from gateway.sealing.packing import pack
from gateway.sealing.request_id import (
    MAX_REQUEST_ID_CHARS,
    Address,
    CallAddress,
    TaskAddress,
    open_request_id,
    seal_request_id,
)

NOW = 1_800_000_000
AAD = request_id_binding("gateway", None)
BOOT, CALL = bytes(range(16)), bytes(range(16, 32))
SEALER = Sealer(KeyRing.parse("00" * 31 + "0a"), os.urandom)

texts = st.text(max_size=40)
names = st.binary(min_size=16, max_size=16)
expiries = st.integers(NOW + 1, 2**40) | st.floats(NOW + 1, 1e12)
addresses = st.builds(CallAddress, texts, names, names, texts, expiries) | st.builds(
    TaskAddress, texts, texts, expiries
)


def sealed(address: Address) -> str:
    return seal_request_id(SEALER, address, aad=AAD)


def opened(token: object) -> Address:
    return open_request_id(SEALER, token, aad=AAD, now=NOW)


@given(addresses)
def test_every_address_comes_back_as_it_was(address: Address) -> None:
    token = sealed(address)
    assert opened(token) == address
    assert len(token) <= MAX_REQUEST_ID_CHARS


@pytest.mark.parametrize(
    "address",
    [
        CallAddress("https://" + "h" * 120 + ":65535", BOOT, CALL, "\U0001f642" * 200 + "~99", NOW + 0.5),
        TaskAddress("~" * 128, "\U0001f642" * 200 + "~99", NOW + 0.5, b"s" * 16),
    ],
    ids=["call", "task"],
)
def test_the_longest_key_fits_beside_a_long_url_or_the_longest_task_id(address: Address) -> None:
    assert len(sealed(address)) <= 1_500


def test_an_address_is_as_long_as_clients_take_an_id_and_no_longer() -> None:
    def address(size: int) -> TaskAddress:
        return TaskAddress("t" * size, "key", NOW + 1)

    fixed = len(pack({"v": REQUEST_ID.writes, "exp": NOW + 1, "key": "key", "kind": "task", "task": "t" * 999})) - 999
    longest = max(size for size in range(256, 2000) if token_chars(fixed + size) <= 1_500)
    assert len(sealed(address(longest))) <= 1_500
    assert opened(sealed(address(longest))) == address(longest)
    with pytest.raises(ValueError, match="at most 1500 characters"):
        sealed(address(longest + 1))
    with pytest.raises(ValueError, match="at most 1500 characters"):
        sealed(CallAddress("h" * 2000, BOOT, CALL, "key", NOW + 1))


@pytest.mark.parametrize(("boot", "call"), [(b"", CALL), (BOOT, b""), (BOOT + b"\x00", CALL), (BOOT, CALL[1:])])
def test_a_name_of_another_size_is_refused(boot: bytes, call: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        sealed(CallAddress("", boot, call, "key", NOW + 1))


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        sealed(TaskAddress("task", "\ud800", NOW + 1))


@pytest.mark.parametrize("kind", ["", "flow", 1, None])
def test_an_address_of_an_unknown_kind_is_malformed(kind: object) -> None:
    both = {"url": "", "boot": BOOT, "call": CALL, "task": "t", "key": "k"}
    token = SEALER.seal(pack({"v": REQUEST_ID.writes, "exp": NOW + 1, "kind": kind, **both}), AAD)
    with pytest.raises(Rejected) as caught:
        opened(token)
    assert caught.value.reason is RejectReason.MALFORMED


def test_the_kind_decides_which_fields_count() -> None:
    both = {"v": REQUEST_ID.writes, "exp": NOW + 1, "url": "", "boot": BOOT, "call": CALL, "task": "t", "key": "k"}
    assert opened(SEALER.seal(pack({**both, "kind": "call"}), AAD)) == CallAddress("", BOOT, CALL, "k", NOW + 1)
    assert opened(SEALER.seal(pack({**both, "kind": "task"}), AAD)) == TaskAddress("t", "k", NOW + 1)
