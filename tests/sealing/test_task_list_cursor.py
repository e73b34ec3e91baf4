"""Cursors of `tasks/list`: the place comes back, for the list it was made for."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing.binding import cursor_binding
from gateway.sealing.envelope import Rejected, Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.task_list_cursor import open_task_cursor, seal_task_cursor

AAD = cursor_binding("gateway", None, "tasks/list")
SEALER = Sealer(KeyRing.parse("00" * 31 + "0a"), os.urandom)


@given(st.integers(0, 2**60), st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=128))
def test_every_place_comes_back_as_it_was(expires_ms: int, task_id: str) -> None:
    token = seal_task_cursor(SEALER, (expires_ms, task_id), aad=AAD)
    assert open_task_cursor(SEALER, token, aad=AAD) == (expires_ms, task_id)
    assert len(token) <= 512


def test_two_cursors_of_the_same_place_look_different() -> None:
    first, second = (seal_task_cursor(SEALER, (1, "task"), aad=AAD) for _ in range(2))
    assert first != second


@pytest.mark.parametrize("method", ["tools/list", "tasks/lis", "tasks/get", ""])
def test_a_cursor_of_another_method_does_not_open(method: str) -> None:
    token = seal_task_cursor(SEALER, (1, "task"), aad=cursor_binding("gateway", None, method))
    with pytest.raises(Rejected) as caught:
        open_task_cursor(SEALER, token, aad=AAD)
    assert caught.value.reason is RejectReason.NOT_AUTHENTIC


def test_an_id_that_no_task_has_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 512 characters"):
        seal_task_cursor(SEALER, (1, "x" * 400), aad=AAD)
    with pytest.raises(ValueError, match="surrogates"):
        seal_task_cursor(SEALER, (1, "\ud800"), aad=AAD)
