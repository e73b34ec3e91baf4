"""Every block of code in the documents runs, or has an entry here with the test that runs it, or why none can.

- Python blocks of one section (a heading of level two) run in order in one module. A block that begins with `# wrong`
  shows a mistake: it must show the consequence in an assertion, and a block that begins with `# right` follows.
- Commands run unchanged, those of a block in one shell, where `gateway` is the one under test. A server runs on any
  free port, with one replica and no worker, until it logs that it serves; then it is stopped.
- `ELSEWHERE` names the tests of all others, and `NOT_HERE` has the reason if there is none. Their syntax is checked.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
import yaml

from loadtest.cluster import clean_environment
from tests.docs.markdown import PAGES, TOP, Block, blocks_of, prose_of
from tests.docs.sources import names_in
from tests.storage.servers import Server

pytestmark = pytest.mark.slow

BLOCKS: Final = [block for document in PAGES for block in blocks_of(document)]
PYTHON: Final = [block for block in BLOCKS if block.language == "python"]
CONSOLE: Final = [block for block in BLOCKS if block.language == "console"]

RECIPES: Final = "tests/docs/test_connect.py::test_every_recipe_is_run_here_or_with_the_other_clients"

TUTORIAL: Final = "tests/docs/test_tutorial.py::test_every_block_does_what_the_page_shows"

PLAYED: Final[Mapping[tuple[str, str], str]] = {
    ("docs/build/protocol.md", "http"): "tests/docs/test_protocol.py::test_each_request_is_answered_as_the_page_says",
    ("docs/run/sizing.md", "console"): "tests/docs/test_installing.py::test_a_deployment_is_sized_without_a_checkout",
    ("docs/build/embedding.md", "console"): "tests/docs/test_embedding.py::test_the_hook_ends_a_stream_that_is_held",
    ("docs/build/embedding.md", "python"): "tests/docs/test_embedding.py::test_the_test_passes",
    (
        "docs/run/upstreams.md",
        "console",
    ): "tests/docs/test_upstreams.py::test_the_commands_print_what_is_shown",
    ("docs/run/upstreams.md", "json"): "tests/docs/test_upstreams.py::test_each_file_of_the_page_can_be_read",
    ("docs/run/upgrading.md", "console"): "tests/docs/test_upgrading.py::test_the_commands_print_what_is_shown",
    ("docs/run/logs.md", "text"): "tests/docs/test_logs.py::test_the_examples_have_the_form_of_what_is_written",
    ("docs/run/logs.md", "json"): "tests/docs/test_logs.py::test_the_examples_have_the_form_of_what_is_written",
    (
        "docs/run/operating.md",
        "console",
    ): "tests/workers/test_operators.py::test_the_commands_print_columns_and_lines_as_the_page_shows",
    (
        "docs/run/operating.md",
        "text",
    ): "tests/docs/test_operating.py::test_the_example_of_a_check_has_the_form_of_its_report",
    ("docs/start/clients.md", "json"): (
        "tests/integration/clients/test_login.py::test_a_client_logs_in_calls_and_answers_with_the_settings_of_a_first_start"
    ),
    ("docs/start/clients.md", "yaml"): "tests/docs/test_code_blocks.py::test_what_is_set_on_kubernetes_can_be_read",
    ("docs/start/connect.md", "bash"): RECIPES,
    (
        "docs/start/connect.md",
        "javascript",
    ): "tests/integration/clients/test_recipes.py::test_the_ai_sdk_prints_what_is_shown",
    (
        "docs/start/connect.md",
        "json",
    ): RECIPES,
    ("docs/start/connect.md", "toml"): RECIPES,
    ("docs/start/connect.md", "yaml"): RECIPES,
    ("docs/start/connect.md", "python"): "tests/docs/test_connect.py::test_a_program_prints_what_is_shown",
    ("docs/start/connect.md", "text"): "tests/docs/test_connect.py::test_a_program_prints_what_is_shown",
    **{
        ("docs/build/tutorial.md", language): TUTORIAL
        for language in ("bash", "console", "diff", "dockerfile", "json", "python", "text")
    },
}
"""Blocks of one language on one page → the test that runs all of them."""

SECTIONS: Final = {
    (block.document, block.section): f"{block.document}, {block.section}"
    for block in PYTHON
    if (block.document, block.language) not in PLAYED
}

ELSEWHERE: Final[Mapping[str, str]] = {
    "make run": "tests/deploy/test_make_run.py::test_it_serves_the_demo_tools_on_two_replicas_until_it_is_stopped",
    "make test": "tests/docs/test_code_blocks.py::test_what_make_runs_is_what_runs_here",
    "make loadtest": "tests/docs/test_code_blocks.py::test_what_make_runs_is_what_runs_here",
    "make loadtest SCENARIO=rolling-upgrade": "tests/docs/test_code_blocks.py::test_what_make_runs_is_what_runs_here",
    'make loadtest SCENARIO=load-shedding LOADTEST="--seconds 120 --users 32"': (
        "tests/docs/test_code_blocks.py::test_what_make_runs_is_what_runs_here"
    ),
    "make compiled": "tests/repository/test_compiled.py::"
    "test_the_copy_has_every_file_with_its_time_and_shares_the_environments",
    "make -C build/compiled": "tests/docs/test_code_blocks.py::test_what_make_runs_is_what_runs_here",
    "pip wheel --no-deps --wheel-dir wheels": "tests/docs/test_installing.py::test_the_readme_installs_the_package",
    "pip install wheels/sealed_gateway": "tests/docs/test_installing.py::test_the_readme_installs_the_package",
    "make demo": "tests/integration/test_demo_script.py::test_it_prints_what_the_readme_shows",
    "docker compose -f deploy/compose.yaml up --detach": "tests/deploy/test_topology.py::test_all_of_it_serves",
}
"""The beginnings of commands → the test that runs them, or the processes that they would start."""

NOT_HERE: Final[Mapping[str, str]] = {
    "docker compose -f deploy/compose.yaml exec": "no Docker where tests run; `gateway token` has its own",
    'export LOADTEST_TOKEN_COMMAND="my-idp token': "it is the reader's own identity provider",
    ".venv/bin/python -m loadtest baseline --target": "it is the reader's own deployment",
    ".venv/bin/locust -f loadtest/locustfile.py --host https://": "it is the reader's own deployment",
    "gateway worker --concurrency 32 --metrics-port 9465": "the Redis and the file of keys are the reader's own",
    "export GATEWAY_REDIS_URL=rediss://": "the Redis is the reader's own",
    "export GATEWAY_TOOLS=bugs GATEWAY_AUDIENCE=bugs.example.com": "the keys that it names are the reader's own",
    "pip install --require-hashes --no-deps": "it installs into the reader's environment",
    "SEALED_GATEWAY_COMPILE=1 pip wheel": "it takes minutes; `make compiled` compiles the same modules",
    "sh scripts/venv.sh .venvs/libraries": "it installs other people's libraries, to measure them once",
    ".venvs/libraries/bin/python scripts/measure_libraries.py": "it takes minutes, and the libraries above",
}
"""The beginnings of commands → why no test runs them."""

SUPPOSED: Final[Mapping[str, Mapping[str, str]]] = {
    "docs/build/authoring.md": {
        "GATEWAY_SEAL_KEYS": "0" * 64,
        "GATEWAY_AUDIENCE": "docs",
        "GATEWAY_JWT_SECRET": "s" * 32,
    }
}
"""Variables that a page leaves to another page to set."""

SERVING: Final = re.compile(r"(?:\w+=\S+ )*(?:\.venv/bin/)?gateway (?:dev|serve|worker)\b")
SECONDS: Final = 40
WRAPPER: Final = """\
import re, sys
arguments = sys.argv[1:]
for position, word in enumerate(arguments[:-1]):
    if word in ("--port", "--metrics-port"):
        arguments[position + 1] = "0"
if arguments[:1] == ["dev"]:
    arguments += ["--port", "0", "--replicas", "1", "--workers", "0"]
from gateway.cli.main import main
sys.exit(main(arguments))
"""


def commands_of(block: Block) -> list[str]:
    """Return the commands of a block, each on one line, without remarks."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    shown = [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s{2,}#.*$", "", command) for command in shown]


def excuse_of(command: str) -> str | None:
    """Return the entry for a command that does not run here."""
    named = [said for start, said in [*ELSEWHERE.items(), *NOT_HERE.items()] if command.startswith(start)]
    return named[-1] if named else None


@pytest.mark.parametrize("place", SECTIONS, ids=SECTIONS.get)
def test_the_blocks_of_a_section_run(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(f"section_{re.sub(r'[^a-z]+', '_', place[1].lower())}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where a decorated function looks up its annotations
    for block in PYTHON:
        if (block.document, block.section) == place:
            # The empty lines before it make a traceback name the line of the document.
            code = compile("\n" * block.line + block.text, str(TOP / block.document), "exec")
            exec(code, vars(module))


RUN_HERE: Final = [
    block
    for block in CONSOLE
    if ("console" not in {language for page, language in PLAYED if page == block.document})
    and any(excuse_of(command) is None for command in commands_of(block))
]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory with the environment that the documents assume, and the modules that they ask to save."""
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    wrapper = tmp_path / ".venv/wrapper.py"
    wrapper.write_text(WRAPPER)
    for name, words in {
        "gateway": f"{shlex.quote(sys.executable)} {shlex.quote(str(wrapper))}",
        "python": sys.executable,
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    for name, beginning in {"bugs": "def resolve_bug(", "greetings": "def greet("}.items():
        (source,) = [block.text for block in PYTHON if beginning in block.text]
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


@pytest.fixture(scope="module")
def redis_socket() -> Iterator[Path]:
    """The socket of a Redis."""
    with tempfile.TemporaryDirectory(prefix="gw-") as short:
        server = Server("redis", Path(short))
        server.start()
        yield server.socket
        server.end()


@pytest.mark.parametrize("block", RUN_HERE, ids=lambda block: block.place)
def test_the_commands_of_a_block_run(block: Block, desk: Path, redis_socket: Path) -> None:
    setting = {
        "PATH": f"{desk}/.venv/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(TOP),
        "GATEWAY_METRICS_PORT": "0",
        "GATEWAY_DRAIN_NOTICE_SECONDS": "0",
        "REDIS": str(redis_socket),
        **SUPPOSED.get(block.document, {}),
    }
    done = ['redis-cli() { command redis-cli -s "$REDIS" "$@"; }']
    for command in commands_of(block):
        if excuse_of(command):
            continue
        if SERVING.match(command):
            serve("\n".join([*done, f"exec env {command}"]), desk, setting)
        else:
            done.append(command)
    shell = ["bash", "-euc", "\n".join(done)]
    result = subprocess.run(
        shell, cwd=desk, env=clean_environment(setting), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "ERR" not in result.stdout


def serve(script: str, cwd: Path, setting: Mapping[str, str]) -> None:
    """Run commands of which the last one serves; once it serves, it must stop when asked to."""
    with subprocess.Popen(
        ["bash", "-euc", script],
        cwd=cwd,
        env=clean_environment(setting),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said: list[str] = []
        try:
            for line in process.stdout:
                said.append(line)
                if re.search(r"ready on http|\bserving url=|\bworking worker=", line):
                    break
            else:
                pytest.fail("".join(said))
            process.send_signal(signal.SIGTERM)
            said += process.stdout
            assert process.wait(SECONDS) == 0, "".join(said)
        finally:
            process.kill()


def test_every_block_is_run_here_or_says_who_does() -> None:
    left = [
        block.place
        for block in BLOCKS
        if block.language not in {"python", "console"} and (block.document, block.language) not in PLAYED
    ]
    assert left == []


@pytest.mark.parametrize("name", sorted({*PLAYED.values(), *ELSEWHERE.values()}))
def test_a_test_that_is_named_exists(name: str) -> None:
    file, _, test = name.partition("::")
    assert test in names_in(file)


def test_nothing_is_excused_that_no_page_has() -> None:
    commands = [command for block in CONSOLE for command in commands_of(block)]
    assert [start for start in [*ELSEWHERE, *NOT_HERE] if not any(text.startswith(start) for text in commands)] == []
    pages = {(block.document, block.language) for block in BLOCKS}
    assert set(PLAYED) - pages == set()


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.place)
def test_a_block_of_commands_can_be_read_by_a_shell(block: Block) -> None:
    assert commands_of(block)
    subprocess.run(["bash", "-n"], input="\n".join(commands_of(block)), text=True, check=True, timeout=SECONDS)


def test_what_make_runs_is_what_runs_here() -> None:
    """A dry run of `make` must know the target, and reach the command of the documents."""
    for target, started in {
        "test": "-m pytest -n",
        "loadtest": "-m pytest -n",
        "loadtest SCENARIO=rolling-upgrade": "-m loadtest",
        "compiled": "-m scripts.compiled",
        "chaos": "-m tests.chaos.run",
        "proxies": "-m pytest -n 2 tests/proxies",
        "run": "-m gateway dev",
    }.items():
        told = subprocess.run(
            ["make", "--dry-run", *target.split()], cwd=TOP, capture_output=True, text=True, check=True, timeout=SECONDS
        ).stdout
        assert started in told


def test_what_is_set_on_kubernetes_can_be_read() -> None:
    (block,) = [block for block in BLOCKS if block.language == "yaml" and block.document == "docs/start/clients.md"]
    told = {entry["name"]: entry for entry in yaml.safe_load(block.text)["env"]}
    manifests = "".join(path.read_text() for path in (TOP / "deploy/kubernetes/base").glob("*.yaml"))
    assert told["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] in manifests
    assert told["GATEWAY_REPLICA_URL"]["value"] in manifests


@pytest.mark.parametrize("document", PAGES)
def test_no_code_hides_in_indentation_where_it_would_not_run(document: str) -> None:
    inner_lists = r"^(?:- |  \S).*\n(?: {4}- .+\n)+"
    text = re.sub(inner_lists, "", prose_of(document), flags=re.MULTILINE)
    assert re.findall(r"^(?: {4,}|\t).*", text, re.MULTILINE) == []


@pytest.mark.parametrize("block", [block for block in PYTHON if block.mark == "wrong"], ids=lambda block: block.place)
def test_a_wrong_example_shows_what_goes_wrong_and_a_right_one_follows(block: Block) -> None:
    following = PYTHON[PYTHON.index(block) + 1]
    assert (following.section, following.mark) == (block.section, "right")
    for example in (block, following):
        assert re.search(r"^(?:assert|with pytest\.raises)\b", example.text, re.MULTILINE)


@pytest.mark.parametrize("block", [block for block in PYTHON if block.mark == "right"], ids=lambda block: block.place)
def test_a_right_example_has_a_wrong_one_before_it(block: Block) -> None:
    assert PYTHON[PYTHON.index(block) - 1].mark == "wrong"
