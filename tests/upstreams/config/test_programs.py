"""An entry that names a program: how it is read, and which variables the program gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import ConfigurationError
from gateway.settings.model import Settings
from gateway.upstreams.config.checks import setting_problems
from gateway.upstreams.config.definition import Definition, UpstreamFile
from gateway.upstreams.config.env_files import EnvFileError, parse_env_file
from gateway.upstreams.config.reading import UpstreamReader

SECRET = "hunter2hunter2hunter2hunter2hunter2"


def reader_of(folder: Path, entry: dict[str, Any]) -> UpstreamReader:
    file = folder / "upstreams.json"
    file.write_text(json.dumps({"mcpServers": {"time": entry}}))
    return UpstreamReader(file, {"TOKEN": SECRET, "PROGRAM": "uvx"})


def define(folder: Path, **entry: Any) -> Definition:
    [definition] = reader_of(folder, {"command": "uvx", **entry}).read().definitions
    return definition


def mistake(folder: Path, **entry: Any) -> str:
    with pytest.raises(ConfigurationError) as failed:
        define(folder, **entry)
    [line] = failed.value.problems
    return line.partition(": time: ")[2]


def test_a_program_is_read_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    definition = define(
        tmp_path,
        type="stdio",
        command="${PROGRAM}",
        args=["mcp-server-time", "--token=${TOKEN}"],
        env={"TOKEN": "${TOKEN}"},
        cwd="data",
    )
    assert (definition.transport, definition.command, definition.place) == ("stdio", "uvx", "uvx")
    assert definition.args == ("mcp-server-time", f"--token={SECRET}")
    assert definition.variables == {"TOKEN": SECRET}
    assert definition.cwd == tmp_path / "data"
    assert SECRET not in repr(definition)


def test_a_program_without_options_is_shared_and_has_at_most_four_children(tmp_path: Path) -> None:
    definition = define(tmp_path)
    assert (definition.args, definition.variables, definition.cwd) == ((), {}, None)
    assert (definition.session_scope, definition.depends_on_caller, definition.max_connections) == ("shared", False, 4)
    own = define(tmp_path, gateway={"scope": "caller", "max_connections": 9})
    assert (own.session_scope, own.depends_on_caller, own.max_connections) == ("caller", True, 9)


def test_another_program_and_other_arguments_are_another_upstream(tmp_path: Path) -> None:
    identities = [
        define(tmp_path, **entry).identity
        for entry in (
            {},
            {"command": "npx"},
            {"args": ["a"]},
            {"args": ["a", "b"]},
            {"args": ["ab"]},
            {"args": ["", "a"]},
        )
    ]
    assert len(set(identities)) == len(identities)
    assert define(tmp_path, env={"A": "1"}).identity == identities[0]
    assert define(tmp_path, env={"A": "1"}) != define(tmp_path)


@pytest.mark.parametrize("era", ["stateless", "sessionless", {"a": "session", "b": "stateless"}])
def test_a_program_is_called_in_a_session(tmp_path: Path, era: object) -> None:
    assert mistake(tmp_path, gateway={"era": era}).startswith("gateway.era: a program is always called in a session")


@pytest.mark.parametrize("era", ["auto", "session"])
def test_that_may_be_written(tmp_path: Path, era: str) -> None:
    assert define(tmp_path, gateway={"era": era}).era.of("x") == era


def test_roots_are_folders_from_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "my data").mkdir()
    assert define(tmp_path, gateway={"roots": ["my data"]}).roots == (f"{tmp_path.resolve().as_uri()}/my%20data",)
    assert mistake(tmp_path, gateway={"roots": ["none"]}) == "gateway.roots.0: 'none' is not a folder; name one"
    with pytest.raises(ConfigurationError, match=r"gateway.roots: only upstreams with a command have this option"):
        reader_of(tmp_path, {"url": "http://127.0.0.1:9/mcp", "gateway": {"roots": ["my data"]}}).read()


def test_variables_of_a_file_are_read_and_those_of_the_entry_count(tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text("A=1\nB=2\n")
    reader = reader_of(tmp_path, {"command": "uvx", "envFile": "my.env", "env": {"B": "3"}})
    [definition] = reader.read().definitions
    assert definition.variables == {"A": "1", "B": "3"}
    assert tmp_path / "my.env" in reader.files  # so that a change of it counts


def test_a_file_of_variables_that_cannot_be_read_is_a_mistake_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "my.env").write_text(f"A=1\n{SECRET}\n")
    assert mistake(tmp_path, envFile="my.env").startswith("envFile: 'my.env': line 2 is not NAME=value")
    (tmp_path / "my.env").write_bytes(b"A=\xff\n")
    assert mistake(tmp_path, envFile="my.env") == "envFile: 'my.env' is not UTF-8 text; name a file that is"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=", ""), ("A=b", "b"), ("  A = b c  ", "b c"), ("export A=b", "b"), ("A=b # more", "b"), ("A=b#c", "b#c"),
        ("A='b # c'", "b # c"), ('A="b c"  # more', "b c"), ("A='b\"c'", 'b"c'), ("A=#", ""), ("A=it's", "it's"),
        ("A=x=y==", "x=y=="),
    ],
)  # fmt: skip
def test_a_line_of_a_file_of_variables_is_read_as_usual(line: str, value: str) -> None:
    assert parse_env_file(f"# first\n\n{line}\n") == {"A": value}


@pytest.mark.parametrize("line", ["A", "1A=b", "A-B=c", 'A="b', "A='b", 'A="b\\n"', "A='b'c", '="b"', "A=b\0"])
def test_a_line_that_readers_take_for_different_things_is_refused(line: str) -> None:
    with pytest.raises(EnvFileError, match="line 2"):
        parse_env_file(f"B=1\n{line}\n")


@pytest.mark.setting("jwt_secret", "seal_keys")
@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"GATEWAY_SEAL_KEYS": "x"}, "GATEWAY_SEAL_KEYS"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "x"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"MY_TOKEN": SECRET}, "MY_TOKEN"),
        ({"MY_KEY": "2e" * 32}, "MY_KEY"),
        ({"MY_TOKEN": "of its own"}, None),
    ],
)
def test_a_variable_that_no_program_may_have_is_a_mistake(env: dict[str, str], name: str | None) -> None:
    settings = Settings.load({"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_SEAL_KEYS": "1f" * 32 + "," + "2e" * 32})
    definition = Definition("time", "time", "stdio", command="uvx", env=tuple(env.items()))
    lines = list(setting_problems(UpstreamFile((definition,)), settings, "up.json"))
    assert [line.partition(" gets ")[2].partition(",")[0] for line in lines] == ([] if name is None else [name])
    assert SECRET not in str(lines)


@pytest.mark.setting("max_children")
def test_where_no_program_may_run_an_upstream_that_is_one_is_a_mistake() -> None:
    found = UpstreamFile(
        (Definition("time", "time", "stdio", command="uvx"), Definition("bugs", "bugs", "http", "http://x/"))
    )
    [line] = setting_problems(found, Settings.load({"GATEWAY_MAX_CHILDREN": "0"}), "up.json")
    assert line.startswith("up.json: time: runs a program, but GATEWAY_MAX_CHILDREN allows none")
    assert not list(setting_problems(found, Settings.load({}), "up.json"))
