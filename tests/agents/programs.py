"""The agents, each with the configuration that `docs/start/connect.md` prints for it, and with the fake model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.docs.recipes import ADDRESS, of_section
from tests.locked_lists import TOP

INSTALLED: Final = TOP / ".venvs/agents"
PACKAGES: Final = INSTALLED / "node_modules"
LOCK: Final = TOP / "tests/peers/agents/package-lock.json"
PROMPT: Final = "Do what is to be done."
STATELESS, SESSION_2025_06, SESSION = "2026-07-28", "2025-06-18", "2025-11-25"
KEY: Final = "fake"


@dataclass(frozen=True)
class Place:
    """Where an agent runs.

    Attributes:
        home: of its user. The project is below.
        origin: of the gateway.
        model: the address of the model.
    """

    home: Path
    origin: str
    model: str

    @property
    def project(self) -> Path:
        return self.home / "project"

    def write(self, path: str, text: str, *, below: Path | None = None) -> None:
        """Write a file below the home of the user, or below another folder."""
        file = (below or self.home) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def recipe(self, section: str, language: str) -> str:
        """Return the recipe with a token, for this gateway."""
        (found,) = [block.text for block in of_section(section, language) if is_for_agents(block.text)]
        return found.replace(ADDRESS, self.origin)


def is_for_agents(text: str) -> bool:
    """Return whether a recipe connects by URL, with a token."""
    return "MCP_TOKEN" in text and not text.startswith("claude ")


Step = tuple[str, Sequence[str]]
"""What a terminal shows, and the keys to press then."""

Prepare = Callable[[Place], Mapping[str, str]]
"""Writes the files of an agent, and returns its own variables."""


@dataclass(frozen=True)
class Agent:
    """An agent.

    Attributes:
        package: the npm package, in the lock list.
        section: of `docs/start/connect.md`.
        protocol: the version that it negotiates.
        prepare: writes its configuration.
        printing: its command to do one turn and print the result.
        typed: its command in a terminal, if it shows forms.
        answers: the steps that fill in each of the two forms, before Enter sends it.
        refused: what the model reads where it cannot, or may not, show a form.
    """

    package: str
    section: str
    protocol: str
    prepare: Prepare
    printing: Sequence[str]
    typed: Sequence[str] = ()
    answers: Sequence[Sequence[Step]] = ()
    refused: str = "This needs a client that supports elicitation.form, which this one does not declare."

    @property
    def version(self) -> str:
        """The version that is locked."""
        packages = json.loads(LOCK.read_text())["packages"]
        return str(packages[f"node_modules/{self.package}"]["version"])

    @property
    def shows_forms(self) -> bool:
        return bool(self.typed)

    @staticmethod
    def located(command: Sequence[str]) -> list[str]:
        """Return a command with the path of its program."""
        program, *arguments = command
        return [str(PACKAGES / program), *arguments]


def claude_code(place: Place) -> Mapping[str, str]:
    place.write(".mcp.json", place.recipe("Claude", "json"), below=place.project)
    projects = {str(place.project): {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["gateway"]}}
    keys = {"approved": [KEY], "rejected": []}
    known = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": keys, "projects": projects}
    place.write(".claude.json", json.dumps(known))
    return {
        "ANTHROPIC_BASE_URL": place.model,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "MCP_CONNECTION_NONBLOCKING": "0",
    }


def codex(place: Place) -> Mapping[str, str]:
    settings = f"""\
model = "fake"
model_provider = "fake"
check_for_update_on_startup = false
analytics.enabled = false
tui.animations = false
model_providers.fake = {{name = "fake", base_url = "{place.model}/v1", wire_api = "responses", env_key = "MODEL_KEY"}}
projects."{place.project}".trust_level = "trusted"
"""
    place.write(".codex/config.toml", settings + place.recipe("Codex", "toml"))
    return {"MODEL_KEY": KEY}


def gemini_cli(place: Place) -> Mapping[str, str]:
    place.write(".gemini/settings.json", place.recipe("Gemini CLI", "json"), below=place.project)
    own: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    place.write(".gemini/settings.json", json.dumps(own))
    place.write(".gemini/trustedFolders.json", json.dumps({str(place.project): "TRUST_FOLDER"}))
    return {"GOOGLE_GEMINI_BASE_URL": place.model, "GEMINI_API_KEY": KEY}


def opencode(place: Place) -> Mapping[str, str]:
    settings = json.loads(place.recipe("opencode", "json"))
    settings["mcp"]["gateway"]["timeout"] = 60_000  # by default it gives up a list after 5 s, and has no tools then
    place.write("opencode.json", json.dumps(settings), below=place.project)
    options = {"baseURL": f"{place.model}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"fake": {"tool_call": True}}}
    own = {"model": "fake/fake", "small_model": "fake/fake", "autoupdate": False, "share": "disabled"}
    place.write(".config/opencode/opencode.json", json.dumps({**own, "provider": {"fake": provider}}))
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


def continue_cli(place: Place) -> Mapping[str, str]:
    settings = f"""\
name: fake
version: 1.0.0
schema: v1
models:
  - {{name: fake, provider: openai, model: gpt-4o, apiBase: "{place.model}/v1", apiKey: {KEY}, roles: [chat]}}
"""
    place.write(".continue/config.yaml", settings + place.recipe("Continue", "yaml"))
    return {"CONTINUE_TELEMETRY_ENABLED": "0"}


CLAUDE: Final = "@anthropic-ai/claude-code-linux-x64"
OPENCODE: Final = "opencode-linux-x64-baseline"
CHOSEN: Final = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
SELECTED: Final = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_APPROVED: Final = ("-c", 'mcp_servers.gateway.default_tools_approval_mode="approve"')

AGENTS: Final = {
    "claude-code": Agent(
        CLAUDE,
        "Claude",
        STATELESS,
        claude_code,
        printing=(f"{CLAUDE}/claude", "-p", PROMPT, "--allowedTools", "mcp__gateway__*"),
        typed=(f"{CLAUDE}/claude", "--allowedTools", "mcp__gateway__*"),
        answers=(
            (
                ("not set", ("Right",)),
                (f"{CHOSEN} ◯ Fixed", ("Down", "Down")),
                (f"{CHOSEN} ◯ Duplicate", ("Space", "Down")),
                (f"{CHOSEN} Accept", ()),
            ),
            (("Type something", ("4", "2", "Down")), (f"{CHOSEN} Accept", ())),
        ),
        refused="The user dismissed the question 'resolution'.",
    ),
    "codex": Agent(
        "@openai/codex",
        "Codex",
        SESSION_2025_06,
        codex,
        printing=(".bin/codex", *_APPROVED, "exec", "--skip-git-repo-check", PROMPT),
        typed=(".bin/codex", *_APPROVED),
        answers=(
            (("3. Duplicate", ("Down", "Down")), (f"{SELECTED} 3. Dup", ())),
            (("Type your answer", ("4", "2")), (f"{SELECTED} 42", ())),
        ),
        refused="The user declined to answer 'resolution'.",
    ),
    "gemini-cli": Agent(
        "@google/gemini-cli",
        "Gemini CLI",
        SESSION_2025_06,
        gemini_cli,
        printing=(".bin/gemini", "--approval-mode", "yolo", "-m", "gemini-2.5-pro", "-p", PROMPT),
    ),
    "opencode": Agent(OPENCODE, "opencode", SESSION, opencode, printing=(f"{OPENCODE}/bin/opencode", "run", PROMPT)),
    "continue": Agent(
        "@continuedev/cli", "Continue", SESSION, continue_cli, printing=(".bin/cn", "-p", PROMPT, "--auto")
    ),
}
