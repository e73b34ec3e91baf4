"""The frameworks that people connect with, as tests drive them and as docs/start/clients.md lists them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.cluster import REPOSITORY
from tests.locked_lists import TOP, pins

HERE = Path(__file__).parent
PEERS = REPOSITORY / ".venvs"
NODE = PEERS / "node"

STATELESS, SESSION = "2026-07-28", "2025-11-25"


@dataclass(frozen=True)
class Framework:
    """A framework, with the settings of its users.

    Attributes:
        protocol: the version that it negotiates.
        environment: what it is installed in, below `.venvs` and `tests/peers`.
        refused: what its user reads where the token is not valid.
        asks: whether it can ask the user.
        warnings: what it warns of, up to the colon; wrongly.
    """

    package: str
    protocol: str
    driver: str
    environment: str
    refused: str = "The access token is not valid"
    asks: bool = True
    warnings: Sequence[str] = ()

    @property
    def command(self) -> Sequence[Path | str]:
        """The command of its driver, without the script."""
        if self.environment == "node":
            return NODE / "bin" / "node", HERE / self.driver
        return PEERS / self.environment / "bin" / "python", "-m", f"tests.integration.frameworks.{self.driver}"

    @property
    def version(self) -> str:
        """The version that is locked."""
        return self.version_of(self.package)

    def version_of(self, package: str) -> str:
        """Return the version of a package that this framework gets."""
        folder = Path("tests/peers") / self.environment
        if self.environment != "node":
            return pins(folder / "locked.txt")[package]
        locked = json.loads((TOP / folder / "package-lock.json").read_text())["packages"]
        own = f"node_modules/{self.package}/node_modules/{package}"
        return str(locked.get(own, locked[f"node_modules/{package}"])["version"])


FRAMEWORKS = {
    "pydantic-ai": Framework(
        "pydantic-ai-slim",
        STATELESS,
        "pydantic_ai_client",
        "pydantic-ai",
        warnings=("`elicitation_handler` will never be called",),
    ),
    "langchain-mcp-adapters": Framework(
        "langchain-mcp-adapters", SESSION, "langchain_client", "langchain", refused="401 Unauthorized"
    ),
    "@ai-sdk/mcp": Framework("@ai-sdk/mcp", STATELESS, "ai_sdk_client.mjs", "node"),
    "google-adk": Framework("google-adk", SESSION, "google_adk_client", "google-adk"),
    "openai-agents": Framework("openai-agents", STATELESS, "openai_agents_client", "openai-agents", asks=False),
}

INSPECTOR = Framework("@modelcontextprotocol/inspector", SESSION, "inspector_page.mjs", "node")
