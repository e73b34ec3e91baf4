"""`gateway upstreams`: what it lists, what it pins, and calls whose questions are answered in the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.check import examine
from gateway.cli.upstream_call import call
from gateway.cli.upstreams import pin, show
from gateway.errors import ConfigurationError
from gateway.settings.model import Settings
from tests.cli.test_main import gateway
from tests.upstreams.client.serving import Shop
from tests.upstreams.servers.earlier import Earlier
from tests.upstreams.servers.plain_http import Exchange
from tests.upstreams.servers.recording import Recording
from tests.upstreams.servers.session import InSessions

STDIO_SERVER = Path(__file__).parents[1] / "upstreams" / "servers" / "stdio.py"


@pytest.fixture
def upstream() -> Iterator[Recording]:
    with Recording() as upstream:
        yield upstream


class Terminal:
    """Settings with a file of upstreams, what was printed, and what the user types."""

    def __init__(self, folder: Path, **entries: dict[str, Any]) -> None:
        self.file = folder / "up.json"
        self.said: list[str] = []
        self.write(**entries)

    def write(self, **entries: dict[str, Any]) -> None:
        self.file.write_text(json.dumps({"mcpServers": entries}))

    @property
    def settings(self) -> Settings:
        return Settings.load({}, upstreams=str(self.file))

    def call(self, name: str, tool: str | None = None, *given: str, types: tuple[str, ...] = ()) -> int:
        typed = iter(types)

        def read(prompt: str) -> str:
            self.said.append(prompt)
            try:
                return next(typed)
            except StopIteration:
                raise EOFError from None

        return call(self.settings, name, tool, given, say=self.said.append, read=read)


@pytest.fixture
def terminal(tmp_path: Path, upstream: Recording) -> Terminal:
    return Terminal(tmp_path, bugs={"url": upstream.url})


def test_the_list_names_the_era_and_what_is_not_served(tmp_path: Path) -> None:
    with Earlier() as few, InSessions() as held, Shop(answers=[redirect]) as moved:
        servers = {"few": few, "held": held, "moved": moved}
        terminal = Terminal(tmp_path, **{name: {"url": server.url} for name, server in servers.items()})
        text, code = show(terminal.settings, as_json=False)
        report = examine(environ={}, upstreams=str(terminal.file))
    assert code == 1
    lines = {line.split()[0]: line for line in text.splitlines()[1:4]}
    assert "(http, sessionless); questions and changes of lists are not served" in lines["few"]
    assert "(http, session); questions are refused" in lines["held"]
    assert not held.open, "its sessions are ended"
    assert " redirects " in lines["moved"]
    assert "/mcp/" in lines["moved"]
    finding = next(finding for finding in report.findings if finding.subject == "upstreams")
    assert finding.state == "ok", "a replica can start"
    assert any("few: ok" in note and "sessionless" in note for note in finding.notes)
    assert sorted(line.partition(": it")[0].partition(": redirect: ")[0] for line in finding.warnings) == [
        "moved: redirects",
    ]


def test_a_tool_that_asks_without_a_session_names_the_option(tmp_path: Path) -> None:
    with Earlier() as few:
        terminal = Terminal(tmp_path, few={"url": few.url})
        assert terminal.call("few", "ask") == 1
    assert 'needs a session; the option "era"' in terminal.said[-1]


async def redirect(exchange: Exchange, _message: Any) -> None:
    exchange.reply(307, headers=[("location", "http://127.0.0.1:1/mcp/")])


@pytest.mark.setting("upstreams")
def test_the_list_names_what_is_served_and_why_something_is_not(tmp_path: Path, upstream: Recording) -> None:
    only = {"tools": {"allow": ["echo"]}, "prompts": {"allow": []}, "resources": {"allow": []}}
    bugs = {"url": upstream.url, "gateway": only}
    down = {"url": "http://127.0.0.1:9/mcp"}
    terminal = Terminal(tmp_path, bugs=bugs, down=down, time={"python": "time:time"})
    text, code = show(terminal.settings, as_json=False)
    lines = text.splitlines()
    assert code == 1
    assert lines[1] == f"bugs      ok            1 tool from {upstream.url} (http, stateless)"
    assert lines[2].startswith("down      unreachable   unreachable: ")
    assert lines[3].startswith(
        "time      does not run  unreachable: an object of type builtin_function_or_method is not"
    )
    assert lines[5:] == ["TOOL        DESCRIPTION", "bugs__echo  The upstream's echo"]
    as_json, _ = show(terminal.settings, as_json=True)
    assert [(each["name"], each["state"]) for each in json.loads(as_json)] == [
        ("bugs", "ok"),
        ("down", "unreachable"),
        ("time", "does not run"),
    ]
    assert json.loads(as_json)[0]["tools"] == ["bugs__echo"]
    assert {recorded.method for recorded in upstream.calls}.isdisjoint({"tools/call"})


@pytest.mark.setting("upstreams")
def test_the_list_needs_a_file() -> None:
    with pytest.raises(ConfigurationError, match="GATEWAY_UPSTREAMS: not set"):
        show(Settings.load({}), as_json=False)


@pytest.mark.setting("upstreams")
def test_pinned_tools_are_served_until_they_change(tmp_path: Path, upstream: Recording) -> None:
    refusing = {"url": upstream.url, "gateway": {"pin": "refuse", "tools": {"allow": ["echo", "act"]}}}
    upstream.prompts = {"greet": {}}
    terminal = Terminal(tmp_path, bugs=refusing)
    with pytest.raises(ConfigurationError, match="run `gateway upstreams pin`"):
        show(terminal.settings, as_json=True)
    assert pin(terminal.settings) == (
        f"pinned in {terminal.file}.lock.json: 2 tools, 1 prompt, 1 text of instructions of bugs",
        0,
    )
    assert json.loads(show(terminal.settings, as_json=True)[0])[0]["tools"] == ["bugs__echo", "bugs__act"]
    lock = Path(f"{terminal.file}.lock.json")
    lock.write_text(lock.read_text().replace('"echo": "sha256:', '"echo": "sha256:0'))
    assert json.loads(show(terminal.settings, as_json=True)[0])[0]["tools"] == ["bugs__act"]
    upstream.prompts = {"greet": {"title": "Now different"}}
    assert json.loads(show(terminal.settings, as_json=True)[0])[0]["prompts"] == []


def test_nothing_is_pinned_while_an_upstream_does_not_answer(tmp_path: Path, upstream: Recording) -> None:
    terminal = Terminal(tmp_path, bugs={"url": upstream.url}, down={"url": "http://127.0.0.1:9/mcp"})
    text, code = pin(terminal.settings)
    assert code == 1
    assert text.startswith("down: unreachable: ")
    assert text.endswith("nothing is pinned; try again when all upstreams answer")
    assert [path.name for path in tmp_path.iterdir()] == ["up.json"]


def test_lists_of_callers_cannot_be_read_without_one(tmp_path: Path, upstream: Recording) -> None:
    exchange = {"credentials": {"kind": "token_exchange", "audience": "bugs"}}
    terminal = Terminal(tmp_path, bugs={"url": upstream.url, "gateway": exchange})
    assert terminal.call("bugs") == 1
    assert terminal.said == ["bugs: its lists depend on the caller, and this command has no token of one"]


@pytest.mark.setting("upstreams")
def test_a_test_without_a_tool_lists_them(terminal: Terminal) -> None:
    assert terminal.call("bugs") == 0
    assert terminal.said[:2] == ["bugs answers; its tools:", "  echo text=…"]


@pytest.mark.parametrize("tool", ["echo", "bugs__echo"])
def test_arguments_have_the_type_that_the_tool_wants(tool: str, terminal: Terminal, upstream: Recording) -> None:
    assert terminal.call("bugs", tool, "text=5") == 0
    assert terminal.said == ["5"]
    assert terminal.call("bugs", "structured", "numbers=[1, 2]") == 0
    arguments = [recorded.arguments for recorded in upstream.calls if recorded.method == "tools/call"]
    assert arguments == [{"text": "5"}, {"numbers": [1, 2]}]


def test_questions_are_asked_until_the_answer_fits(terminal: Terminal, upstream: Recording) -> None:
    assert terminal.call("bugs", "two_rounds", types=("Ada", "green", "red")) == 0
    assert [line for line in terminal.said if line.endswith(("?", ": ")) or "fit" in line] == [
        "What is your name?",
        "name: ",
        "A colour, Ada?",
        "colour (one of red, blue): ",
        "the answer does not fit: colour: 'green' is not one of ['red', 'blue']",
        "colour (one of red, blue): ",
    ]
    answers = [recorded.answers for recorded in upstream.calls if recorded.method == "tools/call"]
    assert answers[1:] == [
        {"answer": {"action": "accept", "content": {"name": "Ada"}}},
        {"answer": {"action": "accept", "content": {"colour": "red"}}},
    ]


@pytest.mark.parametrize(("types", "action"), [(("/decline",), "decline"), (("/cancel",), "cancel"), ((), "cancel")])
def test_a_user_may_refuse_to_answer(
    types: tuple[str, ...], action: str, terminal: Terminal, upstream: Recording
) -> None:
    terminal.call("bugs", "ask_name", types=types)
    [*_, last] = [recorded.answers for recorded in upstream.calls if recorded.method == "tools/call"]
    assert [answer["action"] for answer in last.values()] == [action]


def test_an_address_is_shown_and_waited_for(terminal: Terminal) -> None:
    assert terminal.call("bugs", "consent", types=("",)) == 0
    assert any(line.startswith("open http") for line in terminal.said)


def test_a_state_without_a_question_is_sent_back(terminal: Terminal) -> None:
    assert terminal.call("bugs", "only_state", "times=2") == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bugs", "nope"), "bugs serves no tool 'nope'; it serves: echo, "),
        (("bugs", "fail"), "the tool reports an error"),
        (("bugs", "rpc_error"), "bugs: it answers with error "),
        (("bugs", "sample"), "bugs: it answers with error -32021"),
        (("bugs", "forbidden_question"), "bugs needs an answer, but it asks its client something that servers may not"),
    ],
)
def test_a_call_that_fails_says_why(arguments: tuple[str, str], words: str, terminal: Terminal) -> None:
    assert terminal.call(*arguments) == 1
    assert terminal.said[-1].startswith(words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nope",), "no upstream is named 'nope'; use one of: bugs"),
        (("bugs", "echo", "hello"), "'hello' is not key=value"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(arguments: tuple[str, ...], words: str, terminal: Terminal) -> None:
    with pytest.raises(ConfigurationError, match=words):
        terminal.call(*arguments)


def test_a_server_object_is_listed_and_called(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, sdk={"python": "tests.upstreams.servers.sdk2:server"})
    report = examine(environ={}, upstreams=str(terminal.file))
    notes = [note for finding in report.findings for note in finding.notes if note.startswith("sdk: ok: ")]
    served = " from tests.upstreams.servers.sdk2:server (python, stateless)"
    assert notes[0].endswith(served)
    text, code = show(terminal.settings, as_json=False)
    assert code == 0
    assert text.splitlines()[1].endswith(served)
    (shown,) = json.loads(show(terminal.settings, as_json=True)[0])
    assert (shown["transport"], shown["python"]) == ("python", "tests.upstreams.servers.sdk2:server")
    assert terminal.call("sdk", "resolved", types=("Ada",)) == 0
    assert terminal.said[-1] == "Hello, Ada!"


@pytest.mark.setting("upstreams")
def test_a_check_names_a_server_object_that_is_not_there(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, bugs={"python": "no_such_module:mcp"})
    report = examine(environ={}, upstreams=str(terminal.file))
    (wrong,) = [line for finding in report.findings if finding.subject == "upstreams" for line in finding.wrong]
    assert wrong.startswith(f"{terminal.file}: bugs: python: 'no_such_module:mcp' cannot be imported by the gateway: ")


@pytest.mark.parametrize("before", [True, False])
def test_the_file_may_be_named_before_or_after_the_command(before: bool, terminal: Terminal) -> None:
    option, command = ["--upstreams", str(terminal.file)], ["test", "bugs", "echo", "text=hello"]
    result = gateway("upstreams", *(option + command if before else command + option), settings={})
    assert (result.stdout, result.returncode) == ("hello\n", 0), result.stderr


def program(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", str(STDIO_SERVER), *options]}


def test_programs_are_listed_with_how_they_ended_and_their_last_words(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, good=program(), bad=program("fails"), none={"command": "no-such-program"})
    text, code = show(terminal.settings, as_json=False)
    assert code == 1
    lines = {line.split()[0]: line for line in text.splitlines()[1:4]}
    assert f"tools from {sys.executable} (stdio, session)" in lines["good"]
    assert " does not run  " in lines["bad"]
    assert "ended with exit code 2; it wrote: usage: stdio.py TOKEN / no token given" in lines["bad"]
    assert "cannot be run: No such file or directory" in lines["none"]
    good, bad, _ = json.loads(show(terminal.settings, as_json=True)[0])
    assert (good["transport"], good["command"], good["era"]) == ("stdio", sys.executable, "session")
    assert "url" not in good
    assert "exit code 2" in bad["reason"]


def test_the_program_that_a_launcher_would_run_is_named(tmp_path: Path) -> None:
    scripts = {
        "npx": f'export PATH={tmp_path}:$PATH; exec "${{npm_config_script_shell:-/bin/sh}}" -c server',
        "server": f"exec {sys.executable} -S {STDIO_SERVER}",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    entry = {"command": str(tmp_path / "npx"), "args": ["-y", "server"]}
    settings = Terminal(tmp_path, launched=entry, plain=program()).settings
    lines = {line.split()[0]: line for line in show(settings, as_json=False)[0].splitlines()[1:3]}
    assert f"it runs {tmp_path}/server" in lines["launched"]
    assert "it runs" not in lines["plain"]
    launched, plain = json.loads(show(settings, as_json=True)[0])
    assert (launched["command"], launched["program"]) == (entry["command"], f"{tmp_path}/server")
    assert "program" not in plain


def test_a_program_that_does_not_run_is_a_warning_of_the_check(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, good=program(), bad=program("fails"))
    finding = next(
        each for each in examine(environ={}, upstreams=str(terminal.file)).findings if each.subject == "upstreams"
    )
    assert any(note.startswith("good: ok: 1") and "(stdio, session)" in note for note in finding.notes)
    [warning] = [each for each in finding.warnings if each.startswith("bad: does not run: ")]
    assert "exit code 2" in warning


def test_a_tool_of_a_program_is_called_in_the_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, good=program())
    assert terminal.call("good", "echo", "text=hello") == 0
    assert json.loads(terminal.said[-1]) == {"text": "hello"}


def test_a_program_that_asks_in_the_middle_of_a_call_is_answered_in_the_terminal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, good=program())
    assert terminal.call("good", "delete", types=("three", "many")) == 0
    assert [line for line in terminal.said if line.startswith("Delete")] == ["Delete 3 files?", "Delete 300 files?"]
    answers = [{"action": "accept", "content": {"sure": text}} for text in ("three", "many")]
    assert json.loads(terminal.said[-1]) == [[3, answers[0]], [300, answers[1]]]
