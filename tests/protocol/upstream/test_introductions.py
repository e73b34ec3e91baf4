"""A session keeps the answer to `initialize` in a form that takes little memory."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest

from gateway.protocol.strict_json import decode
from gateway.protocol.upstream.introductions import MAX_INTRODUCTION_BYTES, SessionIntroduction


def test_it_is_kept_like_the_answer_to_discovery() -> None:
    said = {"protocolVersion": "2025-11-25", "capabilities": {"tools": []}, "instructions": "Ask.", "serverInfo": {}}
    assert SessionIntroduction(said).as_discovered() == {"capabilities": {"tools": []}, "instructions": "Ask."}


@pytest.mark.parametrize(
    ("capabilities", "offers"),
    [
        ({"tasks": {"requests": {"tools": {"call": {}}}}}, True),
        ({"tasks": {"requests": {"tools": {}}}}, False),
        ({"tasks": {"requests": []}}, False),
        ({"tasks": True}, False),
        ([], False),
        (None, False),
    ],
)
def test_it_knows_whether_tools_may_run_as_tasks(capabilities: Any, offers: bool) -> None:
    assert SessionIntroduction({"capabilities": capabilities}).offers_tasks is offers


@pytest.mark.parametrize("where", ["capabilities", "instructions", "serverInfo"])
@pytest.mark.parametrize("value", ['{"a":0}', "[]", '"😀"', "0"])
def test_it_takes_little_more_memory_than_its_json(where: str, value: str) -> None:
    count = (MAX_INTRODUCTION_BYTES - 100) // (len(value.encode()) + 1)
    body = f'{{"{where}":{{"x":[{",".join([value] * count)}]}}}}'.encode()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = SessionIntroduction(decode(body, sys.maxsize, sys.maxsize))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 1.5 * len(body) + 2000
    assert len(json.dumps(kept.as_discovered())) > 0


def test_a_server_that_introduces_itself_with_many_values_can_be_discovered() -> None:
    said = {"capabilities": {"x": [{"a": 0}] * 32_000}}
    assert SessionIntroduction(said).as_discovered()["capabilities"] == said["capabilities"]
