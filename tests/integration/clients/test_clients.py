"""Third-party clients finish everything against two replicas that answer in turn."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import REPOSITORY
from tests.integration.clients import sdk_client
from tests.integration.clients.running import said_by
from tests.integration.fleet import Fleet, front_of

HERE = Path(__file__).parent
PEERS = REPOSITORY / ".venvs"
NODE = PEERS / "node"

Drive = Callable[[str], Awaitable[dict[str, Any]]]

EXPECTED = {
    "protocol": "2026-07-28",
    "templates": ["test://template/{id}/data", "vault://{name}"],
    "text": "This is a simple text response for testing.",
    "structured": {"total": 42, "terms": 3},
    "header": "Region: Zürich ✓",
    "slow": "Tool with progress executed successfully",
    "asked_tool": "Hello Ada, you like green",
    "read": "This is the content of the static text resource.",
    "read_template": {"id": "123", "templateTest": True, "data": "Data for ID: 123"},
    "asked_resource": "treasury opened with sesame",
    "prompt": "Prompt with arguments: arg1='one', arg2='two'",
    "asked_prompt": "Use this context: sailing",
    "completion": ["test", "testbed", "testimony"],
    "progress": [[0, 100], [50, 100], [100, 100]],
    "questions": [
        "Step 1: What is your name?",
        "Step 2: What is your favorite color?",
        "Which key opens treasury?",
        "What context should the prompt use?",
    ],
}

LEGS = {
    "test_simple_text": 1,
    "test_input_required_result_multi_round": 3,
    "vault://treasury": 2,
    "test_input_required_result_prompt": 2,
}
"""Target → how many requests it takes to finish it."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    environ = {
        "GATEWAY_TOOLS": "tests.conformance.fixtures,tests.integration.clients.served",
        "GATEWAY_CONNECTION_CLOSE": "on",
    }
    with Fleet(tmp_path_factory.mktemp("fleet"), environ) as fleet:
        yield fleet


@pytest.fixture
async def url(fleet: Fleet) -> AsyncIterator[str]:
    async with front_of(fleet) as url:
        yield url


def drives(*command: Path, after: Sequence[Path] = ()) -> Drive:
    async def drive(url: str) -> dict[str, Any]:
        output, _ = await said_by(*command, url, *after)
        saw: dict[str, Any] = json.loads(output)
        return saw

    return drive


@pytest.mark.parametrize(
    "drive",
    [
        pytest.param(sdk_client.drive, id="mcp"),
        pytest.param(drives(PEERS / "fastmcp/bin/python", HERE / "fastmcp_client.py"), id="fastmcp"),
        pytest.param(drives(NODE / "bin/node", HERE / "typescript_client.mjs", after=[NODE]), id="typescript"),
    ],
)
async def test_a_client_lists_calls_is_asked_reads_gets_and_completes_across_replicas(drive: Drive, url: str) -> None:
    saw = await drive(url)
    assert {name: saw[name] for name in EXPECTED} == EXPECTED
    assert saw["tools"][0] == "test_simple_text"
    assert saw["tools"][-1] == "add"
    assert saw["prompts"][:2] == ["test_simple_prompt", "test_prompt_with_arguments"]
    assert saw["resources"] == ["test://static-text", "test://static-binary", "test://watched-resource"]
    for target, count in LEGS.items():
        legs = saw["legs"][target]
        assert len(legs) == count, (target, legs)
        assert all(one != other for one, other in pairwise(legs)), (target, legs)
