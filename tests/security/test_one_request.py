"""A request that is expensive on purpose delays no other request and no signal."""

from __future__ import annotations

import http.client
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.fleet import Fleet
from tests.security.asked_forms import InCall, Updated, asking_replica
from tests.security.costs import Measured, Sent, Stuck, call
from tests.security.form_cases import FORMS
from tests.security.hostile_schemas import PRODUCTS
from tests.security.schema_cases import CASES

pytestmark = pytest.mark.slow

OBEYED_SECONDS = 15.0
"""An idle replica ends at once; this allows for a busy machine."""

TOOL_NAMES = {case.name: case.tool for case in (*CASES, *PRODUCTS)}
FORM_NAMES = {form.name: form for form in FORMS}


def listed(item: str, count: int) -> str:
    return f"[{','.join([item] * count)}]"


def numbered(before: str, after: str, count: int) -> str:
    return f"[{','.join(f'{before}{number}{after}' for number in range(10_000, 10_000 + count))}]"


ARGUMENTS = {
    "4,000 different objects": ("uniqueItems objects", numbered('{"a":', "}", 4_000)),
    "20,000 different objects": ("uniqueItems objects", numbered('{"a":', "}", 20_000)),
    "4,000 different big integers": ("uniqueItems big integers", numbered("", "9223372036854775808", 4_000)),
    "20,000 different big integers": ("uniqueItems big integers", numbered("", "9223372036854775808", 20_000)),
    "4,000 different big integers in objects": (
        "uniqueItems big integers inside",
        numbered('{"a":', "9223372036854775808}", 4_000),
    ),
    "150,000 lists for integers": ("items", listed("[]", 150_000)),
    "27 characters for a pattern": ("pattern mail", f'["{"a" * 27}"]'),
    "40,000 texts for a pattern": ("pattern mail", listed(f'"{"a" * 20}"', 40_000)),
    "50,000 objects for 1,000 choices": ("enum of 1000 objects", listed('{"a":-1}', 50_000)),
    "50,000 objects for the last of 1,000 choices": ("enum of 1000 objects", listed('{"a":999}', 50_000)),
    "50,000 objects for 1,000 constants": ("const in 1000 choices", listed('{"a":999}', 50_000)),
    "40 levels for choices that contain one another": ("$ref in anyOf", "[" + '{"a":' * 40 + "null" + "}" * 40 + "]"),
}
"""Cases and the arguments for their tools."""

ANSWERS = {
    "60,000 objects for a set of choices": (Updated, "different objects", "model", numbered('{"a":', "}", 60_000)),
    "200,000 numbers for choices": (Updated, "choices", "model", listed("1", 200_000)),
    "200,000 numbers for choices of a schema": (InCall, "choices", "raw", listed("1", 200_000)),
}
"""The form's kind of request, the forms, and their answers."""


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with asking_replica(tmp_path_factory.mktemp("costs")) as replica:
        yield replica


def assert_cheap(replica: Measured, make: Callable[[], Sent], size: int, unchecked: Sent) -> None:
    try:
        excess = replica.judge(make, size, unchecked).excess
    except Stuck:
        replica.revive()
        pytest.fail("the replica got stuck")
    assert excess is None


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_hold_up_nobody(replica: Measured, name: str) -> None:
    case, value = ARGUMENTS[name]
    arguments = f'{{"v":{{"value":{value}}}}}'
    checked = partial(call, TOOL_NAMES[case], arguments)
    assert_cheap(replica, checked, len(arguments), call("unchecked", arguments))


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_hold_up_nobody(replica: Measured, name: str) -> None:
    how, form, kind, value = ANSWERS[name]
    asked = how(replica, FORM_NAMES[form], kind)
    content = f'{{"v":{value}}}'
    assert_cheap(replica, partial(asked.sent, content), len(content), call("unchecked", content))


def test_a_replica_ends_when_asked_to_while_it_checks(tmp_path: Path) -> None:
    value = numbered('{"a":', "}", 20_000)
    sent = call(TOOL_NAMES["uniqueItems objects"], f'{{"v":{{"value":{value}}}}}')
    with Fleet(tmp_path, {"GATEWAY_TOOLS": "tests.security.cost_tools"}, names=["r1"]) as fleet:
        replica = fleet["r1"]
        connection = http.client.HTTPConnection(*replica.address)
        try:
            connection.request("POST", "/mcp", sent.body, sent.headers)
            replica.signal(signal.SIGTERM)
            assert replica.wait(OBEYED_SECONDS) == 0
        finally:
            connection.close()
            replica.end()
