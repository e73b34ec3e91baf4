"""The tutorial works: all its blocks run in order, from an empty folder and a wheel of this checkout.

- A block after "Save this as `name`:" is a file, and a diff after "in `name`:" changes one.
- In a console block, lines with `$` are commands, and those with `>` are typed. All others are output.
- A bash block is typed into the second terminal. The JSON after it is its output.
- Text that begins with `>` answers the program that waits for it. All other text appears in the first terminal.

Only the addresses differ, because the servers listen on any free port.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from loadtest.cluster import wait_until
from tests.checkout import copy_sources
from tests.deploy.files import IMAGE, checked, dockerfile, slow_tool
from tests.docs.markdown import Block, blocks_of, text_of
from tests.docs.recipes import ADDRESS, match
from tests.docs.terminal import PROMPT, SECONDS, Program, Terminal, pattern_of

pytestmark = pytest.mark.timeout(900)  # an environment comes first

PAGE: Final = "docs/build/tutorial.md"
BLOCKS: Final = tuple(blocks_of(PAGE))
NAMED: Final = re.compile(r"\b(?:as|in)\s+`([\w.]+)`:$")
SERVES: Final = "gateway dev "
INSTALLS: Final = "pip "
NOT_HERE: Final = "docker "
PROCESSES: Final = 3
KILLED: Final = "9. Kill a replica"
LEG: Final = re.compile(r"leg finished replica=(\w+) .*flow=(\w+) ")
OURS: Final = ("GATEWAY_", "OTEL_", "PYTHON", "PYTEST", "COV", "VIRTUAL_ENV")


def name_of(block: Block) -> str | None:
    """Return the name of the file that a block is or changes, from the paragraph before it."""
    before = "\n".join(text_of(PAGE).splitlines()[: block.line - 1]).rstrip()
    found = NAMED.search(before)
    return found and found[1]


FILES: Final = {name: block.text for block in BLOCKS if (name := name_of(block)) and block.language != "diff"}


def commands_of(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block, and the lines after it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, *lines = re.sub(r"\\\n\s*", "", part).rstrip("\n").split("\n")
        yield command, lines


def changed(text: str, diff: str) -> str:
    """Apply a diff without line numbers."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if not line.startswith("+"))
    after = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(before) == 1
    return text.replace(before, after)


@dataclass
class Dialogue:
    """A command that may ask, and what the page shows of it so far."""

    program: Program
    shown: list[str] = field(default_factory=list)

    def follow(self, lines: list[str]) -> bool:
        """Type what the page types. Return whether the page leaves the program at a prompt."""
        for index, line in enumerate(lines):
            if not line.startswith(PROMPT.rstrip()):
                self.shown.append(line)
            elif index + 1 < len(lines):
                self.program.type(line.removeprefix(PROMPT.rstrip()).lstrip())
                self.shown.append(PROMPT + self.program.typed[-1][1].rstrip())
            else:
                self.program.wait_for_prompt()
                return True
        return False

    def compare(self) -> None:
        """Compare all its output with what the page shows."""
        printed = self.program.output().rstrip("\n")
        assert re.fullmatch(pattern_of("\n".join(self.shown)), printed, re.DOTALL), printed


@dataclass
class Reader:
    """Follows the page as a person would.

    Attributes:
        server: what runs in the first terminal.
        seen: how much of its output there was before the last command.
        waiting: a command that waits for a line.
    """

    desk: Terminal
    server: Program | None = None
    served: frozenset[str] = frozenset()
    origin: str = ADDRESS
    seen: int = 0
    waiting: Dialogue | None = None
    output: str = ""

    def read(self, block: Block) -> None:
        """Do what a block says, or compare it with what is there."""
        if name := name_of(block):
            self.save(name, block)
        elif block.language == "console":
            for command, lines in commands_of(block):
                self.enter(command, lines)
        elif block.language == "bash":
            self.output = self.desk.run(self.filled(block.text))
        elif block.language == "json":
            match(json.loads(block.text), json.loads(self.output))
        elif block.text.startswith(PROMPT):
            assert self.waiting
            self.talk(self.waiting, block.text.splitlines())
        else:
            self.find_in_the_first_terminal(block.text)

    def filled(self, text: str) -> str:
        """Return a text for the server that runs."""
        return text.replace(ADDRESS, self.origin)

    def save(self, name: str, block: Block) -> None:
        """Write or change a file. If it is served, wait until it is reloaded, as people are slower than that."""
        file = self.desk.folder / name
        before = len(self.said())
        file.write_text(changed(file.read_text(), block.text) if block.language == "diff" else self.filled(block.text))
        if name in self.served:
            self.wait_for(lambda: self.said()[before:].count(" reloaded ") == PROCESSES, "the reloads")

    def enter(self, command: str, lines: list[str]) -> None:
        """Enter a command, and compare what it prints with the lines after it."""
        if command.startswith(NOT_HERE):
            return
        if command.startswith(SERVES):
            self.serve(command, "\n".join(lines))
            return
        self.seen = len(self.said())
        if command.startswith(INSTALLS):
            self.desk.run(command)
        else:
            self.talk(Dialogue(self.desk.start(command)), lines)

    def talk(self, dialogue: Dialogue, lines: list[str]) -> None:
        """Go through the lines of a command, up to its end or a prompt that the page leaves open."""
        if dialogue.follow(lines):
            self.waiting = dialogue
        else:
            self.desk.finish(dialogue.program)
            dialogue.compare()

    def serve(self, command: str, shown: str) -> None:
        """Start a server in the first terminal, and stop the one that runs there."""
        self.stop()
        before = self.origin
        self.server, self.seen = self.desk.start(f"exec {command} --port 0"), 0
        self.wait_for(lambda: "ready on " in self.said(), "the server")
        found = re.search(r"\A.*ready on (http://[\d.:]+)/mcp [^\n]*", self.said(), re.DOTALL)
        assert found, self.said()
        self.origin, self.served = found[1], frozenset(re.findall(r"\w+\.py", command))
        assert re.fullmatch(pattern_of(self.filled(shown)), found[0], re.DOTALL), found[0]
        for file in map(self.desk.folder.joinpath, FILES):
            if file.exists() and before in (text := file.read_text()):
                file.write_text(text.replace(before, self.origin))

    def said(self) -> str:
        """Return what the first terminal shows."""
        return self.server.output() if self.server else ""

    def find_in_the_first_terminal(self, shown: str) -> None:
        """Wait until the server has printed these lines, in this order, since the last command."""
        lines = "(?s:.*)".join(f"^{pattern_of(line)}$" for line in shown.splitlines())
        self.wait_for(lambda: re.search(lines, self.said()[self.seen :], re.MULTILINE) is not None, shown)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the server has done something."""
        assert self.server
        server = self.server
        wait_until(lambda: server.ended or condition(), what, SECONDS)
        assert not server.ended

    def stop(self) -> None:
        """Stop the server, which must end well."""
        if self.server:
            self.server.stop()
            assert self.server.process.returncode == 0


def environ_of_a_reader() -> Mapping[str, str]:
    """Return the environment of somebody who has not read any page.

    uv does not read the settings of pip, so it gets pip's registry and certificates, as in `scripts/pin.sh`.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=SECONDS).stdout.strip()
    if index := environ.get("PIP_INDEX_URL", configured):
        environ["UV_DEFAULT_INDEX"] = index
    if certificates := environ.get("PIP_CERT"):
        environ.setdefault("SSL_CERT_FILE", certificates)
    return {**environ, "GATEWAY_METRICS_PORT": "off"}


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader with a clone, and a terminal beside it."""
    clone = tmp_path / "sealed-gateway"
    clone.mkdir()
    copy_sources(clone, "constraints.txt", "locked")
    reader = Reader(Terminal(tmp_path, environ_of_a_reader()))
    yield reader
    for program in (reader.waiting and reader.waiting.program, reader.server):
        if program:
            program.stop()


def test_every_block_does_what_the_page_shows(reader: Reader) -> None:
    for block in BLOCKS:
        try:
            reader.read(block)
        except Exception as error:
            error.add_note(f"{block.place}\n{reader.said()}")
            raise
        if block.section == KILLED:
            assert_a_call_moved(reader.said())
    reader.stop()
    build_the_image(reader.desk)


def assert_a_call_moved(log: str) -> None:
    """A call that one replica began was continued by the other. Until a killed one is back, legs may not alternate."""
    replicas: dict[str, list[str]] = {}
    for replica, flow in LEG.findall(log):
        replicas.setdefault(flow, []).append(replica)
    assert any(len(set(legs)) > 1 for legs in replicas.values())


def build_the_image(desk: Terminal) -> None:
    """Run the command of the image's first stage on the environment of the reader, which plays that of the image."""
    (command,) = [arguments for name, arguments in dockerfile(FILES["Dockerfile"]) if name == "RUN"]
    here = command.replace("/opt/gateway/", ".venv/").replace(" /requirements.txt", " requirements.txt")
    listed = desk.folder / "requirements.txt"
    desk.run("pip uninstall --yes jinja2 markupsafe")
    complete = listed.read_text()
    listed.write_text(re.sub(r"^markupsafe(?s:.*)", "", complete, flags=re.MULTILINE))
    incomplete = desk.start(here)
    incomplete.fail()
    assert "hash" in incomplete.output()
    listed.write_text(complete)
    assert "No broken requirements found." in desk.run(here)
    assert "letter" in desk.run("gateway tools --tools letters.py")


def test_the_image_is_based_on_ours_and_its_packages_on_the_same_python() -> None:
    bases = [arguments.split()[0] for name, arguments in dockerfile(FILES["Dockerfile"]) if name == "FROM"]
    (python,) = {arguments.partition("@")[0].split()[0] for name, arguments in dockerfile() if name == "FROM"}
    assert bases == [python, IMAGE]


def test_the_linter_has_nothing_to_say_about_the_image(tmp_path: Path) -> None:
    file = tmp_path / "Dockerfile"
    file.write_text(FILES["Dockerfile"])
    assert checked(slow_tool("hadolint"), "--no-color", "--failure-threshold", "style", str(file)) == ""


def test_the_image_has_all_tools_of_the_page() -> None:
    (environ,) = [arguments for name, arguments in dockerfile(FILES["Dockerfile"]) if name == "ENV"]
    modules = environ.removeprefix("GATEWAY_TOOLS=").split(",")
    assert modules == [name.removesuffix(".py") for name, text in FILES.items() if "@tool" in text]
