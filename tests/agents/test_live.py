"""Real agents, each with a fake model, use a tool that asks twice, on two replicas that serve their requests in turn.

`make agents` installs and runs them, and writes what they sent into `recordings`. `test_recorded.py` replays that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.tokens import mint
from loadtest.cluster import Cluster, wait_until
from tests.agents.exchanges import recording_of
from tests.agents.model import IDLE, SAID, Model, ModelServer
from tests.agents.programs import AGENTS, INSTALLED, PROMPT, STATELESS, Agent, Place, Step
from tests.agents.task_tools import RESEARCHED, TASK_TOOL
from tests.agents.tee import Tee
from tests.agents.terminal import Terminal
from tests.agents.tools import (
    ANSWERED,
    ASKING,
    AUDIENCE,
    CLOSED,
    COUNTING,
    NUMBER_TOOL,
    PLAIN,
    QUESTIONS,
    SECRET,
    SETTINGS,
    TOOL,
)
from tests.integration.fleet import Fleet

pytestmark = pytest.mark.timeout(600)

TURN_SECONDS = 120
FORMS = [name for name, agent in AGENTS.items() if agent.shows_forms]


class AgentFailedError(Exception):
    """An agent ended with an error; the message is what it printed."""


@dataclass(frozen=True)
class Run:
    """One agent, with all that it talks to."""

    agent: Agent
    place: Place
    model: Model
    tee: Tee
    environ: Mapping[str, str]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet"), {**SETTINGS, "GATEWAY_CONNECTION_CLOSE": "on"}) as fleet:
        yield fleet


@contextlib.contextmanager
def started(name: str, fleet: Cluster, home: Path, token: str, model: Model | None = None) -> Iterator[Run]:
    """Prepare an agent, which sees no variable of this process."""
    agent = AGENTS[name]
    model = model or Model(TOOL, [PLAIN, ASKING])
    with ModelServer(model) as server, Tee([replica.address for replica in fleet.replicas]) as tee:
        place = Place(home, tee.origin, server.url)
        place.project.mkdir(parents=True)
        environ = {
            "HOME": str(home),
            "PATH": os.pathsep.join([str(INSTALLED / "bin"), os.defpath]),
            "LANG": "C.UTF-8",
            "MCP_TOKEN": token,
            **agent.prepare(place),
        }
        yield Run(agent, place, model, tee, environ)


def printed_by(run: Run) -> str:
    """Let an agent do one turn without a terminal, and return what it prints."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            run.agent.located(run.agent.printing),
            cwd=run.place.project,
            env=dict(run.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=TURN_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        errors.seek(0)
        if process.returncode != 0:
            raise AgentFailedError(printed + errors.read())
    return printed


@contextlib.contextmanager
def terminal_of(run: Run) -> Iterator[Terminal]:
    """Start an agent in a terminal, and wait until it has the tools."""
    command = run.agent.located(run.agent.typed)
    with (
        tempfile.TemporaryDirectory(prefix="agent-") as directory,
        Terminal(command, run.place.project, run.environ, Path(directory) / "tmux") as terminal,
    ):
        wait_until(lambda: has_listed(run.tee), "the agent to list the tools", TURN_SECONDS)
        yield terminal


def ask(terminal: Terminal) -> None:
    """Type the prompt and send it."""
    terminal.type(PROMPT)
    terminal.wait_for(PROMPT)
    terminal.press("Enter")


def fill_in(terminal: Terminal, question: str, steps: Sequence[Step]) -> None:
    """Fill in a form and send it."""
    terminal.wait_for(question)
    for shown, keys in steps:
        terminal.wait_for(shown)
        terminal.press(*keys)
    terminal.press_until_gone("Enter", question)


def record(name: str, run: Run) -> None:
    """Write what an agent sent."""
    recording_of(run.agent.version, run.tee.carried, run.environ["MCP_TOKEN"]).save(name)


def has_listed(tee: Tee) -> bool:
    """Return whether an agent has got the list of tools."""
    return any(b'"tools/list"' in each.request and each.ended is not None for each in tee.carried)


def legs_of(fleet: Fleet, subject: str) -> list[dict[str, Any]]:
    """Return the audit lines of the legs that a caller's calls had, oldest first."""
    legs = [leg for replica in fleet.replicas for leg in replica.logged(audit="leg", subject=subject)]
    return sorted(legs, key=lambda leg: str(leg["time"]))


def answers_forwarded(fleet: Fleet) -> float:
    """Return how many answers replicas have forwarded to the one where the call waits."""
    return sum(replica.metric("gateway_hop_messages_sent_total", result="answered") for replica in fleet.replicas)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_without_a_terminal_lists_calls_and_reads_why_nobody_answered(
    name: str, fleet: Fleet, tmp_path: Path
) -> None:
    subject = f"{name} without a terminal"
    with started(name, fleet, tmp_path, mint(SECRET, subject, AUDIENCE)) as run:
        printed = printed_by(run)
    assert any(offered.endswith(TOOL) for offered in run.model.offered)
    plain, asked = run.model.results
    assert CLOSED in plain
    assert run.agent.refused in asked
    assert SAID in printed
    assert run.agent.refused in printed
    done, *_, refused = [leg["outcome"] for leg in legs_of(fleet, subject)]
    assert (done, refused) == ("completed", "failed")
    if not run.agent.shows_forms:
        record(name, run)


@pytest.mark.parametrize("name", FORMS)
def test_an_agent_in_a_terminal_shows_both_forms_and_reads_the_result(name: str, fleet: Fleet, tmp_path: Path) -> None:
    subject, before = f"{name} in a terminal", answers_forwarded(fleet)
    with started(name, fleet, tmp_path, mint(SECRET, subject, AUDIENCE)) as run, terminal_of(run) as terminal:
        ask(terminal)
        for question, steps in zip(QUESTIONS, run.agent.answers, strict=True):
            fill_in(terminal, question, steps)
        terminal.wait_for(SAID)
    plain, asked = run.model.results
    assert CLOSED in plain
    assert ANSWERED in asked
    legs = legs_of(fleet, subject)
    assert [leg["outcome"] for leg in legs] == ["completed", "input_required", "input_required", "completed"]
    alternated = len({leg["replica"] for leg in legs[1:]}) > 1
    assert alternated if run.agent.protocol == STATELESS else answers_forwarded(fleet) > before
    record(name, run)


def test_claude_code_runs_a_task_in_the_background_and_shows_its_form(tmp_path: Path) -> None:
    model = Model(TASK_TOOL, [ASKING])
    with (
        Cluster(
            tmp_path / "cluster",
            workers=1,
            redis=True,
            balancer=False,
            environ={**SETTINGS, "GATEWAY_TOOLS": "tests.agents.task_tools", "GATEWAY_CONNECTION_CLOSE": "on"},
        ) as cluster,
        started("claude-code", cluster, tmp_path / "home", mint(SECRET, "task", AUDIENCE), model) as run,
        terminal_of(run) as terminal,
    ):
        ask(terminal)
        fill_in(terminal, QUESTIONS[0], run.agent.answers[0])
        wait_until(lambda: any(RESEARCHED in text for text in model.read), "the model to read it", TURN_SECONDS)


def test_codex_cannot_show_a_field_for_a_number(fleet: Fleet, tmp_path: Path) -> None:
    """It asks for approval instead, and sends an empty form, so the question comes again until the user declines."""
    token = mint(SECRET, "codex and numbers", AUDIENCE)
    model = Model(NUMBER_TOOL, [ASKING])
    with started("codex", fleet, tmp_path, token, model) as run, terminal_of(run) as terminal:
        ask(terminal)
        terminal.wait_for(COUNTING)
        terminal.wait_for("Yes, provide the requested info")
        terminal.press("y")
        terminal.wait_for("The last answer was not accepted. days: Field required")
        terminal.press("Escape")
        terminal.wait_for(SAID)
    assert "The user d" in run.model.results[-1]


@pytest.mark.parametrize("name", [name for name in AGENTS if name != "continue"])
def test_an_agent_with_a_token_that_is_not_valid_has_no_tools(name: str, fleet: Fleet, tmp_path: Path) -> None:
    with started(name, fleet, tmp_path, "nobody's") as run:
        assert IDLE in printed_by(run)
    assert run.model.results == []


def test_continue_with_a_token_that_is_not_valid_ends_with_the_reason(fleet: Fleet, tmp_path: Path) -> None:
    with (
        started("continue", fleet, tmp_path, "nobody's") as run,
        pytest.raises(AgentFailedError, match="The access token is not valid"),
    ):
        printed_by(run)
