"""The Dockerfile: linted, pinned, with few rights, and made of existing files. Building it takes a Docker daemon."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.settings.model import Settings
from loadtest.cluster import REPOSITORY
from tests.deploy.files import DOCKERFILE, IMAGE, PINNED, USER, VERSION, checked, dockerfile, health_command, slow_tool
from tests.locked_lists import pins, required

INSTRUCTIONS = list(dockerfile())
FINAL = INSTRUCTIONS[max(index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :]


def arguments_of(instruction: str, instructions: list[tuple[str, str]] = INSTRUCTIONS) -> list[str]:
    return [arguments for name, arguments in instructions if name == instruction]


@pytest.mark.slow
def test_the_linter_has_nothing_to_say() -> None:
    assert checked(slow_tool("hadolint"), "--no-color", "--failure-threshold", "style", str(DOCKERFILE)) == ""


def test_both_stages_begin_with_the_same_pinned_python_that_the_project_supports() -> None:
    (base,) = {arguments.split()[0] for arguments in arguments_of("FROM")}
    assert PINNED.fullmatch(base)
    assert base.startswith("python:3.")
    base = base.partition("@")[0]
    assert f'org.opencontainers.image.base.name="{base}"' in arguments_of("LABEL", FINAL)[0]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    minor = base.removeprefix("python:").partition("-")[0]
    assert f"Programming Language :: Python :: {minor}" in project["classifiers"]


def test_the_final_stage_takes_only_the_environment_that_was_built_and_installs_nothing() -> None:
    assert arguments_of("COPY", FINAL) == ["--from=build /opt/gateway /opt/gateway"]
    assert arguments_of("ADD") == []
    (run,) = arguments_of("RUN", FINAL)
    assert "apt" not in run
    assert "pip install" not in run


STEPS = [step for run in arguments_of("RUN") for step in run.split(" && ")]
INSTALLS = [step for step in STEPS if re.match(r"python -m pip .*\binstall\b", step)]


FOREIGN = "--require-hashes --no-deps --only-binary :all: --requirement "


def test_what_is_installed_comes_in_wheels_whose_hashes_are_known() -> None:
    tools, dependencies, ours = INSTALLS
    assert tools == f"python -m pip install {FOREIGN}build.txt"
    assert dependencies == f"python -m pip --python /opt/gateway/bin/python install {FOREIGN}image.txt"
    assert "--no-deps --no-index /wheels/" in ours
    assert arguments_of("COPY")[0] == "locked/build.txt locked/image.txt ./"


@pytest.mark.parametrize(("name", "extras"), [("image", ["opentelemetry"]), ("build", ["opentelemetry", "compile"])])
def test_the_lists_of_the_image_have_what_it_serves_and_traces_with(name: str, extras: list[str]) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    assert required(wanted) - pins(Path(f"locked/{name}.txt")).keys() == set()


def test_nothing_that_only_tests_or_builds_gets_into_the_image() -> None:
    assert pins(Path("locked/image.txt")).keys().isdisjoint({"pytest", "locust", "mypy", "setuptools", "pip", "httpx"})


def test_what_is_served_is_a_wheel_that_was_compiled_with_the_tools_of_the_build_stage() -> None:
    (built,) = [step for step in STEPS if "pip wheel" in step]
    assert built.startswith("SEALED_GATEWAY_COMPILE=1 ")
    assert "--no-build-isolation" in built
    (into_the_environment,) = [step for step in INSTALLS if "/wheels/sealed_gateway-*.whl" in step]
    assert "--python /opt/gateway/bin/python" in into_the_environment
    assert STEPS.index(built) < STEPS.index(into_the_environment)


def test_no_compiler_gets_into_the_environment() -> None:
    (compilers,) = [step for step in STEPS if step.startswith("apt-get install")]
    assert STEPS.index(compilers) < STEPS.index(INSTALLS[0])
    assert [step for step in INSTALLS if "build.txt" in step and "/opt/gateway" in step] == []


def test_it_runs_as_a_number_that_is_not_root() -> None:
    assert arguments_of("USER", FINAL) == [f"{USER}:{USER}"]
    after = FINAL[FINAL.index(("USER", f"{USER}:{USER}")) :]
    assert {name for name, _ in after}.isdisjoint({"RUN", "COPY", "ADD"})


def test_what_keeps_secrets_in_a_volume_belongs_to_whom_it_runs_as() -> None:
    (run,) = arguments_of("RUN", FINAL)
    (owner,) = re.findall(rf"useradd --uid {USER} --gid (\w+) ", run)
    (made,) = re.findall(r"install --directory (.*?) /secrets", run)
    assert made == f"--owner {owner} --group {owner} --mode 0700"
    assert f"install --directory --owner {owner} --group {owner} --mode 0755 /store-secrets" in run


def test_it_writes_no_byte_code_where_nothing_can_be_written() -> None:
    assert any("PYTHONDONTWRITEBYTECODE=1" in arguments for arguments in arguments_of("ENV", FINAL))


def test_it_serves_on_all_addresses_and_exposes_the_default_ports() -> None:
    assert arguments_of("ENTRYPOINT", FINAL) == ['["gateway"]']
    assert arguments_of("CMD", FINAL) == ['["serve", "--host", "0.0.0.0"]']
    ports = [Settings.model_fields[name].default for name in ("port", "metrics_port")]
    assert arguments_of("EXPOSE", FINAL) == [" ".join(map(str, ports))]


def test_its_version_is_that_of_the_project() -> None:
    assert f'org.opencontainers.image.version="{VERSION}"' in arguments_of("LABEL", FINAL)[0]
    assert f"--tag {IMAGE} " in DOCKERFILE.read_text()


def test_the_builder_is_sent_what_the_image_is_built_from_and_nothing_else() -> None:
    lines = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {
        word for arguments in arguments_of("COPY") if "--from" not in arguments for word in arguments.split()[:-1]
    }
    assert sent == copied
    assert all((REPOSITORY / name).exists() for name in sent)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    needed = {project["project"]["readme"], *project["project"]["license-files"], "pyproject.toml"}
    packages = {name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert needed | packages <= sent


class _Health(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def health() -> Iterator[tuple[type[_Health], int]]:
    handler = type("Handler", (_Health,), {})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield handler, server.server_port
        server.shutdown()
        thread.join()


def is_healthy(port: int) -> bool:
    done = subprocess.run(
        [sys.executable, *health_command()[1:]],
        env={"PATH": os.environ["PATH"], "GATEWAY_PORT": str(port)},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def test_the_health_check_tells_a_replica_that_serves_from_one_that_does_not(
    health: tuple[type[_Health], int],
) -> None:
    handler, port = health
    assert health_command()[0] == "python"
    assert is_healthy(port)
    handler.status = 503
    assert not is_healthy(port)
