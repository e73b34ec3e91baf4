"""The example of fastmcp that asks its user, unchanged from its source distribution, behind a replica.

The other one, `task_elicitation.py`, needs a package for tasks and asks in no session.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from loadtest.cluster import free_port, wait_until
from tests.integration.clients.asking import REPLICAS, has_tools
from tests.integration.frameworks.known import PEERS
from tests.locked_lists import entries
from tests.upstreams.site import Site
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import accept, call_params
from tests.wires.legacy.speaking import text_of

UPSTREAMS: Final = ("http", "stdio")
RUN: Final = (str(PEERS / "fastmcp/bin/fastmcp"), "run", "--no-banner")
DOWNLOAD_SECONDS: Final = 100

pytestmark = pytest.mark.timeout(DOWNLOAD_SECONDS + 100)
every_wire = pytest.mark.parametrize("wire", WIRES)
every_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)


def example(folder: Path) -> Path:
    """Return the example, from the source distribution whose hash is locked."""
    (folder / "wanted.txt").write_text(entries(Path("tests/peers/fastmcp/locked.txt"))["fastmcp"])
    options = ("--quiet", "--no-deps", "--no-binary", "fastmcp", "--require-hashes")
    command = [sys.executable, "-m", "pip", "download", *options, "--requirement", "wanted.txt"]
    subprocess.run(command, cwd=folder, check=True, timeout=DOWNLOAD_SECONDS)
    (archive,) = folder.glob("fastmcp-*.tar.gz")
    with tarfile.open(archive) as files:
        (name,) = [each for each in files.getnames() if each.endswith("/examples/elicitation.py")]
        files.extract(name, folder, filter="data")
    return folder / name


@contextlib.contextmanager
def over_http(file: Path, port: int) -> Iterator[None]:
    command = [*RUN, str(file), "--transport", "http", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port), "the example over HTTP")
        yield
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/mcp", timeout=20).status_code >= 400
    return False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    file, port = example(tmp_path_factory.mktemp("example")), free_port()
    command, *arguments = RUN
    upstreams = {
        "http": {"url": f"http://127.0.0.1:{port}/mcp", "gateway": {"era": "session"}},
        "stdio": {"command": command, "args": [*arguments, str(file)], "gateway": {"scope": "caller"}},
    }
    with over_http(file, port), Site(tmp_path_factory.mktemp("site"), upstreams, names=REPLICAS) as site:
        wait_until(lambda: has_tools(site, "ada", [f"{name}__greet" for name in UPSTREAMS]), "the tools that ask")
        yield site


async def said(site: Site, wire: str, tool: str, answer: dict[str, Any]) -> str:
    async with speaking(wire, site, "ada") as call:
        return text_of(await call("tools/call", call_params(tool), {"elicitation/create": answer}))


@every_wire
@every_upstream
async def test_it_greets_the_user_by_name(site: Site, wire: str, upstream: str) -> None:
    assert await said(site, wire, f"{upstream}__greet", accept(value="Ada ü")) == "Hello, Ada ü!"
    assert await said(site, wire, f"{upstream}__greet", {"action": "decline"}) == "Maybe next time!"


@every_wire
@every_upstream
async def test_its_survey_gets_the_answers(site: Site, wire: str, upstream: str) -> None:
    told = await said(site, wire, f"{upstream}__survey", accept(favorite_color="red", lucky_number=7))
    assert told == "Got it — you like red and your lucky number is 7."
    assert await said(site, wire, f"{upstream}__survey", {"action": "cancel"}) == "Survey skipped."
