"""Everything that one release leaves for another has a format number, and one table names them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gateway
from gateway.sealing import envelope, formats, list_cursor
from gateway.sealing.binding import Purpose
from gateway.sealing.formats import FIRST, FORMATS, Format, split_number

SOURCES = Path(gateway.__file__).parent

OF_PURPOSE: dict[Purpose, Format | None] = {
    Purpose.REQUEST_STATE: formats.REQUEST_STATE,
    Purpose.SESSION: formats.SESSION,
    Purpose.RETURN_ADDRESS: formats.REQUEST_ID,
    Purpose.CURSOR: formats.TASK_CURSOR,
    Purpose.FIELD_AT_REST: formats.STORED_VALUE,
    Purpose.HOP: formats.HOP,
    Purpose.OWNER_SECRET: formats.OWNER_SECRET,
    Purpose.OWNER: None,  # a name, which nobody opens
}

SEALED_IN = {
    "sealing/state.py": "REQUEST_STATE",
    "sealing/session.py": "SESSION",
    "sealing/request_id.py": "REQUEST_ID",
    "sealing/task_list_cursor.py": "TASK_CURSOR",
    "sealing/hop.py": "HOP",
    "sealing/hop_frames.py": "HOP_FRAME",
    "storage/records.py": "STORED_VALUE",
    "storage/owners.py": "OWNER_SECRET",
}
"""Module that seals something → the name of its format."""


def test_the_table_has_every_format_once() -> None:
    defined = [value for value in vars(formats).values() if isinstance(value, Format)]
    assert list(FORMATS) == defined
    assert len({form.kind for form in FORMATS}) == len(FORMATS)


def test_every_purpose_of_a_sealed_value_has_a_format() -> None:
    assert set(OF_PURPOSE) == set(Purpose)
    named = [form for form in OF_PURPOSE.values() if form is not None]
    assert len(set(named)) == len(named)
    assert set(named) <= set(FORMATS)


def test_every_module_that_seals_something_writes_or_reads_its_number() -> None:
    """A new sealed kind fails this test until it has a row in the table."""
    sealing = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if re.search(r"(sealer|current|_sealer)\.seal(_bytes)?\(", path.read_text())
    }
    assert sealing == set(SEALED_IN)
    for module, name in SEALED_IN.items():
        source = (SOURCES / module).read_text()
        assert f"{name}.reads" in source, module
        if module.startswith("sealing/"):
            assert f"{name}.writes" in source, module


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.kind)
def test_a_release_writes_what_it_reads_and_reads_the_first_format(form: Format) -> None:
    assert FIRST <= form.writes <= form.reads


def test_labels_are_the_numbers_of_what_has_no_other() -> None:
    assert f"s{formats.TOKEN.writes}." == envelope.LABEL
    assert f"c{formats.LIST_CURSOR.writes}." == list_cursor.LABEL


def test_this_release_writes_only_what_release_0_2_0_reads() -> None:
    assert {form.kind: form.writes for form in FORMATS if form.writes != FIRST} == {}


@given(st.binary(), st.integers(0, 10**9 - 1))
def test_a_number_before_a_token_is_split_off(token: bytes, number: int) -> None:
    assert split_number(b"%d:" % number + token) == (number, token)


@given(st.binary().filter(lambda stored: not re.match(rb"[0-9]{1,9}:", stored)))
@example(b"1234567890:token")
@example(b":token")
def test_anything_else_is_in_the_first_format(stored: bytes) -> None:
    assert split_number(stored) == (FIRST, stored)
