"""The URL parser of Node.js, by which servers in TypeScript look resources up, reads URIs as the gateway's rules do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings

from gateway.protocol.uris.canonical import NotCanonical, canonical, canonical_listed
from tests.integration.clients.test_recipes import NODE
from tests.protocol.uris.hostile import hostile_uris

Parse: TypeAlias = Callable[[str], str | None]

pytestmark = pytest.mark.timeout(300)

EXAMPLES = 1000


@pytest.fixture(scope="module")
def parse() -> Iterator[Parse]:
    """Return what `new URL(text).href` is; None if Node.js refuses the text."""
    program = Path(__file__).with_name("urls.mjs")
    with subprocess.Popen(
        [NODE / "bin/node", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sending, receiving = process.stdin, process.stdout

        def parse(text: str) -> str | None:
            sending.write(f"{json.dumps(text)}\n")
            sending.flush()
            href = json.loads(receiving.readline())
            assert href is None or isinstance(href, str)
            return href

        yield parse
        sending.close()


def test_nodes_parser_reads_the_evasive_spellings_as_the_usual_one(parse: Parse) -> None:
    assert parse("file:secret/payroll") == parse("file:///sec\tret/payroll") == "file:///secret/payroll"
    assert parse("https:intra:443/secret") == "https://intra/secret"
    assert parse("no scheme") is None


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile_uris())
@example("notes:/x")
@example("http://h/?'")
def test_node_changes_no_canonical_form_and_reads_no_other_one_in_a_text(parse: Parse, text: str) -> None:
    try:
        form = canonical(text)
    except NotCanonical:
        return
    assert parse(form) in (None, form)
    parsed = parse(text)
    assert parsed is None or canonical(parsed) == form


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile_uris())
def test_a_listed_text_is_judged_by_the_form_that_node_reads_in_it(parse: Parse, text: str) -> None:
    form, parsed = canonical_listed(text), parse(text)
    if form is not None and parsed is not None:
        assert canonical_listed(parsed) == form
