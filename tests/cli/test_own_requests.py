"""`gateway upstreams --haproxy` lists everything of a deployment's own, and nothing that an upstream may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.own_requests import show
from gateway.errors import ConfigurationError
from tests.cli.test_main import gateway

TOOLS = "tests.proxies.own_tools"
OWN = ["tools/call pay", "prompts/get greet", "resources/read own://page?a=1,b"]


def upstreams(directory: Path, **entries: dict[str, Any]) -> str:
    path = directory / "up.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return str(path)


def lines(tools: str | None, file: str | None) -> list[str]:
    heading, *found = show(tools, file).splitlines()
    assert heading.startswith("# ")
    return found


@pytest.mark.setting("tools")
def test_without_a_file_of_upstreams_everything_is_our_own() -> None:
    assert lines(TOOLS, None) == ["*"]


@pytest.mark.setting("tools", "upstreams")
def test_with_upstreams_it_names_what_is_our_own_and_asks_none_of_them(tmp_path: Path) -> None:
    file = upstreams(tmp_path, up={"url": "http://127.0.0.1:9/mcp"})
    assert lines(TOOLS, file) == [*OWN, "resources/read under own://items/"]


def test_beside_an_upstream_without_a_prefix_no_beginning_of_a_uri_is_certain(tmp_path: Path) -> None:
    file = upstreams(tmp_path, up={"url": "http://127.0.0.1:9/mcp", "gateway": {"prefix": ""}})
    assert lines(TOOLS, file) == OWN


def test_a_file_that_may_get_upstreams_while_replicas_run_has_names_too(tmp_path: Path) -> None:
    assert lines(TOOLS, upstreams(tmp_path, time={"command": "uvx"}))[:3] == OWN


def test_upstreams_alone_leave_nothing_of_our_own(tmp_path: Path) -> None:
    assert lines("", upstreams(tmp_path, up={"url": "http://127.0.0.1:9/mcp"})) == []


def test_a_mistake_is_an_error_instead_of_a_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no_such_tools"):
        show("no_such_tools", None)
    with pytest.raises(ConfigurationError, match="url"):
        show(TOOLS, upstreams(tmp_path, up={"url": 7}))


def test_the_command_prints_the_list(tmp_path: Path) -> None:
    file = upstreams(tmp_path, up={"url": "http://127.0.0.1:9/mcp"})
    result = gateway("upstreams", "--haproxy", "--tools", TOOLS, "--upstreams", file, settings={})
    assert (result.returncode, result.stdout.splitlines()[1:4]) == (0, OWN)
