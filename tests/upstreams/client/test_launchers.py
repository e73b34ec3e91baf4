"""Programs that npx and uvx start: what they would run is found once, exactly or not at all."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from gateway.children.children import Children, Program
from gateway.observability.upstream_metrics import UpstreamMetrics
from gateway.upstreams.client import launchers, programs
from gateway.upstreams.client.launchers import UnclearAnswer, launched, probe_of
from gateway.upstreams.client.programs import UpstreamProgram
from gateway.upstreams.failures import UpstreamFailure

PATH = "/usr/bin:/bin"
PROBE = str(Path(launchers.__file__).with_name("probe.sh"))
SERVER = "#!/bin/sh\necho server $0 $# $OF_LAUNCHER; cat\n"


def uvx(*args: str) -> Program:
    return Program(("uvx", *args), {"PATH": PATH})


def npx(*args: str, **env: str) -> Program:
    return Program(("/opt/bin/npx", *args), {"PATH": PATH, **env})


def told(command: str, *variables: str) -> bytes:
    """Return what the probe writes, after other output."""
    return "\0".join(["noise\n", "/work", command, *variables, ""]).encode()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the programs of a package."""
    for name in ("mcp-server-x", "y"):
        file = tmp_path / "package/bin" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SERVER)
        file.chmod(0o755)
    return file.parent


@pytest.mark.parametrize(
    ("args", "asked", "runs"),
    [
        ("mcp-server-x", "--from mcp-server-x", "mcp-server-x"),
        ("mcp-server-x --from y -p 1", "--from mcp-server-x", "mcp-server-x --from y -p 1"),
        ("mcp-server-x@latest a", "--from mcp-server-x@latest", "mcp-server-x a"),
        ("mcp-server-x==1.2", "--from mcp-server-x==1.2", "mcp-server-x"),
        ("mcp-server-x[pdf,all]>=1.2,<2", "--from mcp-server-x[pdf,all]>=1.2,<2", "mcp-server-x"),
        ("--from x y z", "--from x", "y z"),
        ("--from=git+https://h/x.git y", "--from=git+https://h/x.git", "y"),
        ("--python 3.12 -q mcp-server-x", "--python 3.12 -q --from mcp-server-x", "mcp-server-x"),
        ("-p 3.12 --with y --with=z mcp-server-x", "-p 3.12 --with y --with=z --from mcp-server-x", "mcp-server-x"),
        ("--offline --directory /d mcp-server-x", "--offline --directory /d --from mcp-server-x", "mcp-server-x"),
    ],
)
def test_uvx_is_asked_with_its_options_and_runs_the_command(package: Path, args: str, asked: str, runs: str) -> None:
    program = uvx(*args.split())
    probe = probe_of(program)
    assert probe is not None
    assert probe.argv == ("uvx", *asked.split(), PROBE)
    found = launched(program, told("", f"PATH={package}:{PATH}", "UV=/opt/bin/uv"))
    name, *rest = runs.split()
    assert found.argv == (str(package / name), *rest)
    assert found.env == {"PATH": f"{package}:{PATH}", "UV": "/opt/bin/uv"}
    assert found.cwd == "/work"


@pytest.mark.parametrize(
    "args",
    [
        *("", "--from x", "--from", "--version", "--unknown mcp-server-x", "--unknown=1 mcp-server-x", "--quiet=1 x"),
        *("-p3.12 mcp-server-x", "-- mcp-server-x", "--no-cache mcp-server-x", "python", "python3.12 -m x"),
        *(
            "--from x python",
            "git+https://h/x.git",
            "https://h/x.whl",
            "./x",
            "--from x ../y",
            "--from x y@1",
            "x==$(y)",
        ),
    ],
)
def test_an_uvx_that_cannot_be_asked_exactly_is_not_asked(args: str) -> None:
    with pytest.raises(UnclearAnswer):
        probe_of(uvx(*args.split()))


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["-y", "@scope/mcp-server-x"], "mcp-server-x"),
        (
            ["-y", "@scope/mcp-server-x@latest", "a b", "it's", "--call", ""],
            "'mcp-server-x' 'a b' 'it'\\''s' --call ''",
        ),
        (["--yes", "--package=@scope/x", "y", "-p"], "y -p"),
        (["-p", "x", "-p", "z", "y"], "'y'"),
        (["--call", "y"], "y"),
    ],
)
def test_npx_says_what_it_would_run(package: Path, args: list[str], command: str) -> None:
    program = npx(*args)
    probe = probe_of(program)
    assert probe is not None
    assert (probe.argv, probe.env) == (program.argv, {"PATH": PATH, "npm_config_script_shell": PROBE})
    shell = f"npm_config_script_shell={PROBE}"
    found = launched(program, told(command, f"PATH={package}:{PATH}", shell, "npm_config_yes=true", "TEXT=a\nb=c"))
    name, *rest = shlex.split(command)
    assert found.argv == (str(package / name), *rest)
    assert found.env == {"PATH": f"{package}:{PATH}", "npm_config_yes": "true", "TEXT": "a\nb=c"}
    assert found.cwd == "/work"


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["--call", "y && mcp-server-x"], "y && mcp-server-x"),
        (["--call", "y;y"], "y;y"),
        (["--call", "y>file"], "y>file"),
        (["--call", "Y=1 y"], "Y=1 y"),
        (["--call", "$Y"], "$Y"),
        (["--call", "'y"], "'y"),
        (["-y", "absent"], "absent"),
        (["-y", "x", "a"], "y b"),
        ([], ""),
    ],
)
def test_a_command_that_is_more_than_a_program_is_left_to_npx(package: Path, args: list[str], command: str) -> None:
    with pytest.raises(UnclearAnswer):
        launched(npx(*args), told(command, f"PATH={package}:{PATH}"))


def test_a_shell_of_the_operators_own_is_left_to_npx() -> None:
    with pytest.raises(UnclearAnswer):
        probe_of(npx("-y", "x", NPM_CONFIG_SCRIPT_SHELL="/bin/zsh"))


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"\0",
        b"an MCP server\n",
        b"\0/work\0",
        told(""),
        told("", "PATH=/other"),
        told("", f"PATH={PATH}", "twice"),
    ],
)
def test_other_output_names_no_program(output: bytes) -> None:
    for program in (uvx("sh"), npx("sh")):
        with pytest.raises(UnclearAnswer):
            launched(program, output)


def test_a_program_of_the_system_is_not_taken_for_that_of_a_package(package: Path) -> None:
    with pytest.raises(UnclearAnswer):
        launched(uvx("sh"), told("", f"PATH={package}:{PATH}"))


def test_other_programs_are_not_asked() -> None:
    for command in ("/usr/bin/python3", "npx-like", "bunx", "uv"):
        assert probe_of(Program((command, "-y", "x"), {})) is None


NPX, UVX = ("npx", "-y", "y"), ("uvx", "y")
DOES: Mapping[str, str] = {
    "npx": """shift 2; exec "${npm_config_script_shell:-/bin/sh}" -c "'y' $*" """,
    "uvx": """test "$1" = --from && shift 2; exec "$@" """,
}
"""The end of each launcher, as a shell script."""
both = pytest.mark.parametrize("written", [NPX, UVX], ids=["npx", "uvx"])


class Launching:
    """Makes launchers that run the program of a package, and count how often they run."""

    def __init__(self, folder: Path, package: Path, children: Children) -> None:
        self.folder, self.package, self.children = folder, package, children

    def program(self, written: Sequence[str], first: str = "") -> UpstreamProgram:
        """Return a program that a launcher starts. Its script does something else first."""
        name, *args = written
        script = self.folder / name
        paths = f"export PATH={self.package}:$PATH OF_LAUNCHER=1"
        script.write_text(f"#!/bin/sh\necho run >>{self.folder}/runs\n{first}\n{paths}\n{DOES[name]}\n")
        script.chmod(0o755)
        return self.running(str(script), *args)

    def running(self, *argv: str) -> UpstreamProgram:
        return UpstreamProgram(
            "stub", Program(argv, {"PATH": PATH}), self.children, UpstreamMetrics(CollectorRegistry())
        )

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text().splitlines())

    async def started(self, program: UpstreamProgram) -> bool:
        """Start a program. Return whether that was without its launcher."""
        before = self.runs if (self.folder / "runs").exists() else 0
        child = await program.start()
        words = (await child.stdout.readline()).decode().split()
        await child.stop()
        assert words == ["server", str(self.package / "y"), "0", "1"]
        return self.runs == before


@pytest.fixture
async def launching(tmp_path: Path, package: Path) -> AsyncIterator[Launching]:
    children = Children(8)
    yield Launching(tmp_path, package, children)
    await children.aclose()


@both
async def test_a_launcher_is_asked_once_and_then_its_program_is_started_without_it(
    launching: Launching, written: Sequence[str]
) -> None:
    program = launching.program(written, first="echo warning >&2")
    assert program.path == ""
    assert not await launching.started(program)
    assert program.path == str(launching.package / "y")
    assert not program.last_lines, "the warnings of a launcher are not those of the program"
    assert await launching.started(program)
    assert await launching.started(program)
    assert launching.runs == 1


@both
async def test_children_that_start_together_ask_once(launching: Launching, written: Sequence[str]) -> None:
    program = launching.program(written)
    for child in await asyncio.gather(*(program.start() for _ in range(3))):
        await child.stop()
    assert launching.runs == 1


@both
async def test_a_program_that_is_gone_is_looked_for_again(
    launching: Launching, package: Path, written: Sequence[str]
) -> None:
    program = launching.program(written, first=f"test -e {package}/y || ln -s {package}/mcp-server-x {package}/y")
    await launching.started(program)
    (package / "y").unlink()
    assert not await launching.started(program)
    assert await launching.started(program)


async def test_a_program_that_ends_soon_is_looked_for_again(launching: Launching) -> None:
    program = launching.program(NPX)
    await launching.started(program)
    program.has_ended(1.0, "a module is missing")
    assert not await launching.started(program)
    program.has_ended(programs.LONGEST_PAUSE_SECONDS, "it ran for long")
    assert await launching.started(program)


@both
@pytest.mark.parametrize(
    "unanswered",
    [
        ('case "$npm_config_script_shell$3" in *probe.sh) exit 3;; esac', "its exit code is 3"),
        ('case "$npm_config_script_shell$3" in *probe.sh) sleep 60;; esac', "it took more than 1 seconds"),
        ('case "$npm_config_script_shell$3" in *probe.sh) echo hello; exit;; esac', "it does not say"),
        ('case "$npm_config_script_shell$3" in *probe.sh) yes; esac', "it took more than 1 seconds"),
    ],
    ids=["fails", "hangs", "says something else", "says too much"],
)
async def test_a_launcher_that_does_not_answer_is_started_as_it_is_written(
    launching: Launching,
    written: Sequence[str],
    unanswered: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(launchers, "ASK_SECONDS", 1.0)
    first, reason = unanswered
    program = launching.program(written, first=first)
    assert not await launching.started(program)
    assert not await launching.started(program)
    assert launching.runs == 3, "it is asked once"
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert reason in vars(line)["reason"]
    assert program.path == ""


async def test_an_unknown_option_starts_the_launcher_as_it_is_written(
    launching: Launching, caplog: pytest.LogCaptureFixture
) -> None:
    program = launching.program(("uvx", "--unknown", "y"), first="shift")
    assert not await launching.started(program)
    assert launching.runs == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_launcher_that_cannot_be_run_says_why(launching: Launching) -> None:
    program = launching.running("/absent/npx", "-y", "x")
    with pytest.raises(UpstreamFailure, match="No such file"):
        await program.start()
