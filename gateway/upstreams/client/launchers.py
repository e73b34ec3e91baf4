"""Programs that `npx` and `uvx` start. They are asked once what they would run, which is then run without them.

Both look for the package at each start, and stay in memory beside the program. They decide by themselves what runs:
`npx` runs the probe instead of its shell, and `uvx` instead of the program. An answer that is not clear does not count.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, Final, TypeAlias

from gateway.children.children import Children, Program

ASK_SECONDS: Final = 60.0
"""How long a launcher may take: it may have to load the package."""
MAX_BYTES: Final = 1 << 20

Hear: TypeAlias = Callable[[asyncio.StreamReader], Coroutine[Any, Any, None]]
"""Reads a stream to its end."""

_LAUNCHERS: Final = frozenset({"npx", "uvx"})
_PROBE: Final = Path(__file__).with_name("probe.sh")
_SHELL: Final = "npm_config_script_shell"

_UVX_FLAGS: Final = frozenset(
    {"-U", "-q", "-v", "--isolated", "--managed-python", "--native-tls", "--no-config", "--no-env-file"}
    | {"--no-index", "--no-managed-python", "--no-progress", "--no-python-downloads", "--offline"}
    | {"--quiet", "--refresh", "--reinstall", "--system-certs", "--upgrade", "--verbose"}
)
_UVX_VALUES: Final = frozenset(
    {"-c", "-f", "-i", "-p", "-w", "--cache-dir", "--config-file", "--constraints", "--default-index", "--directory"}
    | {"--env-file", "--exclude-newer", "--extra-index-url", "--find-links", "--from", "--index", "--index-strategy"}
    | {"--index-url", "--link-mode", "--overrides", "--prerelease", "--python", "--python-preference"}
    | {"--refresh-package", "--resolution", "--with", "--with-editable", "--with-requirements"}
)
_PACKAGE: Final = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w.,-]*\])?([@=<>!~][\w.,@=<>!~*+-]*)?", re.ASCII)
_COMMAND: Final = re.compile(r"(?!python|pypy)[A-Za-z0-9][\w.-]*", re.ASCII)
"""`uvx python` is not about a package."""


class UnclearAnswer(Exception):
    """It is not known what a launcher would run. The text says why."""


def probe_of(program: Program) -> Program | None:
    """Return the program that asks a launcher; None if this is another program.

    Raises:
        UnclearAnswer: it has options that are not known here, so it cannot be asked.
    """
    launcher = _launcher(program)
    if launcher == "npx" and not any(name.lower().replace("-", "_") == _SHELL for name in program.env):
        return replace(program, env={**program.env, _SHELL: str(_PROBE)})
    split = _split(program.argv[1:]) if launcher == "uvx" else None
    if split is not None:
        return replace(program, argv=(program.argv[0], *split[0], str(_PROBE)))
    if launcher in _LAUNCHERS:
        raise UnclearAnswer("it has options that are not known here")
    return None


def launched(program: Program, told: bytes) -> Program:
    """Return what a launcher would run, from what the probe wrote.

    Raises:
        UnclearAnswer: that is not clear.
    """
    try:
        cwd, command, *variables = os.fsdecode(told).split("\0")[1:-1]
        env = dict(_variable(each) for each in variables)
        split = _split(program.argv[1:]) if _launcher(program) == "uvx" else None
        argv = shlex.split(command) if split is None else split[1]
        paths = env["PATH"] if split is None else _added(env["PATH"], program.env["PATH"])
    except (KeyError, ValueError):
        raise UnclearAnswer("it does not say what it would run") from None
    env.pop(_SHELL, None)
    if not argv or list(argv[1:]) != list(program.argv[len(program.argv) - len(argv) + 1 :]):
        raise UnclearAnswer("it would run more than a program")
    path = shutil.which(argv[0], path=paths)
    if path is None or not PurePath(path).is_absolute():
        raise UnclearAnswer("the program that it names was not found")
    return Program((path, *argv[1:]), env, cwd)


async def ask(probe: Program, children: Children, hear: Hear) -> bytes:
    """Run a probe, and return what it wrote. `hear` reads the standard error.

    Raises:
        UnclearAnswer: the launcher failed, or took too long.
        ChildFailure: it cannot be run, or there is no room.
    """
    child, told = await children.start(probe), b""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            child.stdin.close()
            told, _ = await asyncio.gather(_read(child.stdout), hear(child.stderr))
            await child.exited.wait()
    except TimeoutError:
        raise UnclearAnswer(f"it took more than {ASK_SECONDS:.0f} seconds") from None
    finally:
        await child.stop()
    if child.exit_code != 0:
        raise UnclearAnswer(f"its exit code is {child.exit_code}")
    return told


async def _read(stream: asyncio.StreamReader) -> bytes:
    """Read all that a probe writes, and return what there is room for."""
    told = bytearray()
    while piece := await stream.read(MAX_BYTES):
        told += piece[: MAX_BYTES - len(told)]
    return bytes(told)


def _launcher(program: Program) -> str:
    return PurePath(program.argv[0]).name


def _variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(name)
    return name, value


def _added(paths: str, earlier: str) -> str:
    """Return the folders that uvx has put before the others."""
    if not paths.endswith(os.pathsep + earlier):
        raise ValueError(paths)
    return paths.removesuffix(os.pathsep + earlier)


def _split(args: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the arguments of uvx that choose a package, and the command with its own arguments.

    It is None if there is an option that is not known, or no command that has the name of a program.
    """
    count = _options(args)
    if count is None or count >= len(args):
        return None
    options, (name, *rest) = list(args[:count]), args[count:]
    if not any(option.partition("=")[0] == "--from" for option in options):
        found = _PACKAGE.fullmatch(name)
        if found is None:
            return None
        options += ["--from", name]
        name = found[1]
    return (options, [name, *rest]) if _COMMAND.fullmatch(name) else None


def _options(args: Sequence[str]) -> int | None:
    """Return how many arguments of uvx are options, with their values. It is None if one is not known."""
    count = 0
    while count < len(args) and args[count].startswith("-"):
        name, has_value, _ = args[count].partition("=")
        if name not in (_UVX_VALUES if has_value else _UVX_FLAGS | _UVX_VALUES):
            return None
        count += 1 if has_value or name in _UVX_FLAGS else 2
    return count
