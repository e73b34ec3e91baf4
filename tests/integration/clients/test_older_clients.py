"""SDKs of before June 2025 connect, and finish everything that their version has, against two replicas in turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.cluster import REPOSITORY
from tests.integration.clients.running import said_by
from tests.integration.fleet import Fleet, front_of

HERE = Path(__file__).parent
PEERS = REPOSITORY / ".venvs"
NODE = PEERS / "node"

EXPECTED: dict[str, Any] = {
    "protocol": "2025-03-26",
    "add": ["description", "inputSchema", "name"],
    "sum": [False, ['{"total":3}']],
    "found": [False, ["Here", "guide: docs://guide"]],
    "asked": [True, ["This needs a client that supports elicitation.form, which this one does not declare."]],
    "thought": [False, ["an idea"]],
    "prompt": "guide: docs://guide",
    "resource": "Read me.",
    "unknown": -32602,
}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param((PEERS / "mcp1-2025-03/bin/python", HERE / "older_python.py"), id="mcp-1.9"),
        pytest.param((NODE / "bin/node", HERE / "older_typescript.mjs", NODE), id="typescript-1.12"),
    ],
)
async def test_a_client_of_2025_03_26_gets_everything_that_its_version_has(
    command: tuple[Path | str, ...], tmp_path: Path
) -> None:
    settings = {"GATEWAY_TOOLS": "tests.integration.clients.older_tools", "GATEWAY_CONNECTION_CLOSE": "on"}
    with Fleet(tmp_path, settings) as fleet:
        async with front_of(fleet) as url:
            output, _ = await said_by(*command, url)
    assert json.loads(output) == EXPECTED
