"""`--upstreams FILE`: every command that serves or lists tools accepts a file, and reports its mistakes in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.check import UPSTREAMS, examine
from gateway.cli.dev import fill_environment
from gateway.cli.main import main
from tests.cli.test_main import WORKING, assert_one_clear_line, gateway, serving

NEITHER = {**WORKING, "GATEWAY_TOOLS": ""}
URL = "https://bugs.example.com/mcp"


def write(folder: Path, entry: dict[str, Any]) -> str:
    path = folder / "up.json"
    path.write_text(json.dumps({"mcpServers": {"bugs": entry}}))
    return str(path)


@pytest.mark.setting("upstreams")
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("dev", "--port", "0"), ("worker",), ("tools",)])
def test_a_mistake_in_the_file_is_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    write(tmp_path, {"url": URL, "gateway": {"pinn": "off"}})
    result = gateway(*command, "--upstreams", "up.json", settings=NEITHER, cwd=tmp_path)
    assert_one_clear_line(result, "up.json: bugs: gateway.pinn: not an option; did you mean 'pin'?")


def test_a_file_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    result = gateway("tools", settings={"GATEWAY_UPSTREAMS": "up.json"}, cwd=tmp_path)
    assert_one_clear_line(result, "GATEWAY_UPSTREAMS: 'up.json' cannot be read: No such file or directory")


def test_upstreams_alone_are_enough_to_serve(tmp_path: Path) -> None:
    path = write(tmp_path, {"url": "http://127.0.0.1:9/mcp"})
    with serving("--port", "0", "--upstreams", path, GATEWAY_TOOLS="") as replica:
        assert replica.url.startswith("http://")


def test_dev_serves_no_demo_tools_beside_upstreams() -> None:
    filled, made = fill_environment({"GATEWAY_UPSTREAMS": "up.json"})
    assert "GATEWAY_TOOLS" not in filled
    assert not any("GATEWAY_TOOLS" in words for words in made)
    assert fill_environment({"GATEWAY_UPSTREAMS": "up.json", "GATEWAY_TOOLS": "a"})[0]["GATEWAY_TOOLS"] == "a"
    assert fill_environment({})[0]["GATEWAY_TOOLS"] == "gateway.demo"


def test_the_list_names_upstreams_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GATEWAY_TOOLS", raising=False)
    entries = {"bugs": {"url": f"{URL}?key=hunter2"}, "time": {"command": "uvx", "args": ["hunter2"]}}
    (tmp_path / "up.json").write_text(json.dumps({"mcpServers": entries}))
    assert main(["tools", "--upstreams", str(tmp_path / "up.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["UPSTREAM  SERVED", f"bugs      bugs__* from {URL}"]
    assert lines[2] == "time      time__* from uvx"
    assert main(["tools", "--json", "--upstreams", str(tmp_path / "up.json")]) == 0
    bugs, time = json.loads(capsys.readouterr().out)
    assert bugs == {"kind": "upstream", "name": "bugs", "prefix": "bugs", "url": URL}
    assert time == {"kind": "upstream", "name": "time", "prefix": "time", "command": "uvx"}


@pytest.mark.setting("upstreams", "auth")
def test_a_check_reports_mistakes_and_warns_of_one_credential_for_all(tmp_path: Path) -> None:
    environ = {"GATEWAY_SEAL_KEYS": "1f" * 32, "GATEWAY_AUDIENCE": "here", "GATEWAY_JWT_SECRET": "s" * 32}
    path = write(tmp_path, {"url": URL, "headers": {"X-Token": "${TOKEN}"}})
    report = examine(None, {**environ, "TOKEN": "hunter2"}, upstreams=path)
    assert report.exit_code == 0
    shared, silent = [line for line in report.as_text().splitlines() if "warning" in line]
    assert shared.split(maxsplit=2)[:2] == silent.split(maxsplit=2)[:2] == ["upstreams", "warning"]
    assert "bugs: one credential for all callers, and no scopes" in shared
    assert "bugs: unreachable" in silent
    assert "hunter2" not in report.as_text() + report.as_json()
    report = examine(None, {**environ, "GATEWAY_UPSTREAMS": path})
    [finding] = [finding for finding in report.findings if finding.subject == UPSTREAMS]
    assert (report.exit_code, finding.state) == (2, "wrong")
    assert finding.wrong == [
        f"{path}: bugs: headers.X-Token: the variable TOKEN is not set; set it, or give it a default"
    ]
