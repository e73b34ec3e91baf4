"""The files of `deploy/`, read as the programs that use them read them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from gateway.settings.model import known_variables
from loadtest.cluster import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
DOCKERFILE = DEPLOY / "Dockerfile"
HAPROXY = DEPLOY / "haproxy.cfg"
KUBERNETES = DEPLOY / "kubernetes"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"sealed-gateway:{VERSION}"
USER = 10001
WORKER_LAST_WRITES_SECONDS = 6
MARGIN_SECONDS = 3
"""How much longer than its longest shutdown a process must get before it is killed."""

SETTINGS = frozenset(known_variables())
SECRETS = frozenset({"GATEWAY_SEAL_KEYS", "GATEWAY_JWT_SECRET", "GATEWAY_REDIS_URL"})
PINNED = re.compile(r"[a-z0-9.-]+(?:/[a-z0-9._-]+)*:v?\d+(?:\.\d+)+(?:-[a-z0-9.]+)*(?:@sha256:[0-9a-f]{64})?")
"""An image with a tag that names a version, not merely `latest` or a major one; `deploy/pin` adds its digest."""

_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


def tool(name: str) -> str:
    """Return the path of a program from a package of this environment."""
    return str(Path(sys.executable).with_name(name))


def slow_tool(name: str) -> str:
    """Return the path of a program of the environment that `make slow` makes for the files of `deploy/`."""
    return str(REPOSITORY / ".venvs/deploy/bin" / name)


def checked(*command: str, cwd: Path = REPOSITORY) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def compose(file: Path = COMPOSE) -> dict[str, Any]:
    """Return a compose file, with every variable at its default."""
    text = _VARIABLE.sub(lambda found: found[2], file.read_text())
    assert "${" not in text
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def service(name: str) -> dict[str, Any]:
    found = compose()["services"][name]
    assert isinstance(found, dict)
    return found


def manifests(text: str) -> list[dict[str, Any]]:
    """Return the objects of a stream of manifests."""
    return [document for document in yaml.safe_load_all(text) if document]


def seconds(text: str) -> float:
    """Return a duration such as `35s` as compose has it."""
    found = re.fullmatch(r"(\d+)s", text)
    assert found, text
    return float(found[1])


def environment(container: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the variables of a container; references to the pod's fields become `$field`."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= config_maps[source["configMapRef"]["name"]]
    for entry in container.get("env", []):
        field = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[entry["name"]] = entry["value"] if field is None else f"${field}"
    return found


def drain_seconds(environ: Mapping[str, str], *, worker: bool) -> float:
    """Return how long a process with these settings may take to stop."""
    drain = float(environ["GATEWAY_DRAIN_SECONDS"])
    return drain + (WORKER_LAST_WRITES_SECONDS if worker else float(environ["GATEWAY_DRAIN_NOTICE_SECONDS"]))


def dockerfile(text: str = DOCKERFILE.read_text()) -> Iterator[tuple[str, str]]:
    """Yield each instruction of a Dockerfile and its arguments, without comments and with joined lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            instruction, _, arguments = line.partition(" ")
            yield instruction, arguments.strip()


def health_command() -> list[str]:
    """Return the command of the image's health check."""
    (arguments,) = (arguments for instruction, arguments in dockerfile() if instruction == "HEALTHCHECK")
    command = json.loads(arguments[arguments.index("[") :])
    assert isinstance(command, list)
    return command
