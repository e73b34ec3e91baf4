"""Names of upstreams' tools and prompts: valid for every model, stable, and never the same for two without a word."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.protocol.upstream.names import exposed_name, upstream_name

EXPOSED = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
PREFIXES = st.one_of(st.just(""), st.from_regex(r"[a-z][a-z0-9-]{0,31}", fullmatch=True))
NAMES = st.text(min_size=1, max_size=100)
PLAIN = st.from_regex(r"[A-Za-z0-9_-]{1,30}", fullmatch=True)


@given(PREFIXES, NAMES)
@example("", "a" * 64)
@example("a" * 32, "b" * 5000)
@example("docs", "\ud800")
def test_every_name_becomes_one_that_all_models_accept(prefix: str, name: str) -> None:
    exposed = exposed_name(prefix, name)
    assert EXPOSED.fullmatch(exposed)
    assert exposed.startswith(f"{prefix}__" if prefix else "")


@given(PREFIXES, PLAIN)
def test_a_plain_name_is_kept_and_can_be_read_back(prefix: str, name: str) -> None:
    exposed = exposed_name(prefix, name)
    assert exposed == (f"{prefix}__{name}" if prefix else name)
    assert upstream_name(prefix, exposed) == name


@given(PREFIXES.filter(bool), PREFIXES.filter(bool), NAMES)
def test_a_name_of_another_prefix_is_not_read(prefix: str, other: str, name: str) -> None:
    if prefix != other:
        assert upstream_name(other, exposed_name(prefix, name)) is None


@given(PREFIXES, NAMES, NAMES)
@example("fs", "read file", "read.file")
@example("fs", "read file", "read_file")
@example("", "a" * 64, "a" * 65)
def test_names_that_look_alike_afterwards_still_differ(prefix: str, one: str, other: str) -> None:
    if one != other:
        assert exposed_name(prefix, one) != exposed_name(prefix, other)


def test_a_changed_name_is_the_same_in_every_release() -> None:
    assert exposed_name("fs", "read.file") == "fs__read_file_dd32cd"
    assert exposed_name("", "x" * 65) == "x" * 57 + "_" + "9537c5"
