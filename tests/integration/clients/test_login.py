"""Third-party clients log in at the first attempt, from a 401 to the answer of a call.

The authorization server is a real one, and issues tokens for the resource that clients ask for and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.round_robin import Front
from gateway.web.listener import listen
from loadtest.cluster import REPOSITORY
from tests.integration.fleet import Fleet

HERE = Path(__file__).parent
PEERS = REPOSITORY / ".venvs"
NODE = PEERS / "node"
CLIENT_SECONDS = 60
START_SECONDS = 30

READ, WRITE = "notes:read", "notes:write"

CLIENTS: Mapping[str, Sequence[Path | str]] = {
    "fastmcp": (PEERS / "fastmcp" / "bin" / "python", HERE / "fastmcp_login.py"),
    "mcp 1.x": (PEERS / "mcp1" / "bin" / "python", HERE / "python1_login.py"),
    "mcp-remote": (sys.executable, HERE / "remote_login.py", NODE),
}
"""The command of a client, without the URL and the tools to call."""


class Deployment:
    """Two replicas behind one address, and the authorization server that they send clients to."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.requests: list[dict[str, str]] = []
        self._directory = directory

    async def log_in(self, client: str, *tools: str) -> dict[str, Any]:
        """Run a client that logs in and calls tools, and return what it saw."""
        browser = self._directory / "browser"
        browser.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "browser.py"}" "$1"\n')
        browser.chmod(0o755)
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self._directory),
            "PYTHONPATH": str(REPOSITORY),
            "BROWSER": str(browser),
            "MCP_REMOTE_CONFIG_DIR": str(self._directory / "mcp-remote"),
        }
        said = self._directory / "client.log"
        saw: dict[str, Any] = json.loads(
            await output_of(*CLIENTS[client], self.url, *tools, environ=environ, said=said)
        )
        return saw

    @property
    def scopes(self) -> list[set[str]]:
        """The scopes of each login, without the one for a refresh token."""
        return [set(request.get("scope", "").split()) - {"offline_access"} for request in self.requests]


async def output_of(*command: Path | str, environ: Mapping[str, str], said: Path) -> bytes:
    with said.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=REPOSITORY,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            output = b""
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, said.read_text(errors="replace")  # noqa: ASYNC240 - nothing else runs now
    return output


@contextlib.asynccontextmanager
async def authorization_server(
    resource: str, allowed: Sequence[str], requests: list[dict[str, str]]
) -> AsyncIterator[str]:
    """Run one, and yield its issuer."""
    settings = {"resource": resource, "scopes": [READ, WRITE], "allowed": allowed}
    process = await asyncio.create_subprocess_exec(
        NODE / "bin" / "node",
        HERE / "authorization_server.mjs",
        NODE,
        json.dumps(settings),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    lines = process.stdout

    async def note() -> None:
        async for line in lines:
            requests.append(json.loads(line))  # noqa: PERF401 - others read the list at the same time

    try:
        issuer = (await asyncio.wait_for(lines.readline(), START_SECONDS)).decode().strip()
        assert issuer.startswith("http://127.0.0.1:")
        async with asyncio.TaskGroup() as group:
            group.create_task(note())
            yield issuer
            process.kill()  # its output so far is still read
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def deployed(
    directory: Path, allowed: Sequence[str] = (READ, WRITE), **environ: str
) -> AsyncIterator[Deployment]:
    """Start an authorization server, and two replicas that know only it."""
    listener = listen("127.0.0.1", 0)
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    deployment = Deployment(f"{origin}/mcp", directory)
    async with authorization_server(deployment.url, allowed, deployment.requests) as issuer:
        settings = {
            "GATEWAY_TOOLS": "tests.integration.clients.guarded",
            "GATEWAY_CONNECTION_CLOSE": "on",
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWKS_URL": f"{issuer}/jwks",
            "GATEWAY_JWT_ISSUER": issuer,
            "GATEWAY_PUBLIC_URL": origin,
            **environ,
        }
        with Fleet(directory / "fleet", settings) as fleet:
            front = Front([replica.address for replica in fleet.replicas], listener)
            await front.start()
            try:
                yield deployment
            finally:
                await front.close()


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_logs_in_calls_and_answers_with_the_settings_of_a_first_start(
    client: str, tmp_path: Path
) -> None:
    async with deployed(tmp_path) as deployment:
        saw = await deployment.log_in(client, "read_note", "write_note")
    assert saw == {
        "listed": ["read_note", "write_note"],
        "results": ["sailing of ada", "written"],
        "questions": ["Which note?"],
    }
    for request in deployment.requests:
        assert request["resource"] == deployment.url
        assert request["code_challenge_method"] == "S256"
    assert deployment.scopes
    assert all(scopes == {READ, WRITE} for scopes in deployment.scopes)


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_user_who_may_not_have_every_scope_gets_in_with_the_others(client: str, tmp_path: Path) -> None:
    async with deployed(tmp_path, allowed=[READ]) as deployment:
        saw = await deployment.log_in(client, "read_note")
    assert (saw["listed"], saw["results"]) == (["read_note"], ["sailing of ada"])


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_that_lacks_a_scope_gets_it_by_logging_in_again_and_keeps_the_others(
    client: str, tmp_path: Path
) -> None:
    async with deployed(tmp_path, GATEWAY_LOGIN_SCOPES=READ) as deployment:
        saw = await deployment.log_in(client, "read_note", "write_note", "read_note")
    assert saw["listed"] == ["read_note"]
    assert saw["results"] == ["sailing of ada", "written", "sailing of ada"]
    assert deployment.scopes[0] == {READ}
    assert deployment.scopes[-1] == {READ, WRITE}
