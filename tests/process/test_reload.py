"""`gateway serve --reload`: an author edits, and clients are notified. A broken edit changes nothing."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import Replica, wait_until
from tests.integration.fleet import Fleet
from tests.integration.streams import Stream, asking, calling, notice, send

REFUSED = "reload failed; the previous tools stay in use"

EPOCH_NS = 1_700_000_000 * 10**9

TOOL = """
@tool
async def {name}() -> str:
    "{description}"
    return {result}
"""
PROMPT = """
@prompt
async def {}() -> str:
    return "?"
"""
WAITING = """
import asyncio

@tool
async def wait(ctx: Context, release: str) -> str:
    "Wait."
    ctx.progress(1)
    while not Path(release).exists():
        await asyncio.sleep(0.01)
    return VERSION
"""


class Author:
    """An author who edits the package `edited` and its module `edited.words`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "edited"
        self.folder.mkdir()
        self.edits = 0
        self.write("words.py", 'HELLO = "hello"')
        self.edit("say", result="words.HELLO")

    def write(self, file: str, text: str) -> None:
        """Save as editors do: all at once. All edits are within one second, each a nanosecond after the last."""
        draft = self.folder / "draft"
        draft.write_text(text)
        self.edits += 1
        os.utime(draft, ns=(EPOCH_NS + self.edits, EPOCH_NS + self.edits))
        draft.rename(self.folder / file)

    def edit(self, *tools: str, result: str = '"here"', description: str = "Say it.", more: str = "") -> None:
        """Have the package define these tools, followed by the code in `more`."""
        head = (
            "from pathlib import Path\nfrom gateway import Context, lifespan, prompt, tool\nfrom edited import words\n"
        )
        body = "".join(TOOL.format(name=name, description=description, result=result) for name in tools)
        self.write("__init__.py", head + body + more)


class Reloading(Replica):
    """A replica that watches its modules."""

    def wait_reloads(self, count: int, outcome: str = "reloaded") -> None:
        """Wait until it has logged that many times that it has reloaded, or `outcome` instead."""
        wait_until(lambda: len(self.logged(outcome)) >= count, outcome)

    def tools(self) -> list[str]:
        """The tools it lists."""
        return [tool["name"] for tool in send(self, asking("tools/list", {})).result["tools"]]

    def say(self, tool: str = "say") -> str:
        """Call a tool without arguments."""
        return send(self, calling(tool)).text


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path)


@pytest.fixture
def replica(tmp_path: Path, author: Author) -> Iterator[Reloading]:
    fleet = Fleet(tmp_path, {"GATEWAY_TOOLS": "edited", "TEST_FOLDER": str(tmp_path)}, names=())
    replica = Reloading("r1", fleet.environ, tmp_path / "r1.log", "--reload", module="tests.integration.edited")
    fleet.replicas = [replica]
    with fleet:
        yield replica


def test_an_edited_module_changes_the_list_and_whoever_listens_hears_of_it(replica: Reloading, author: Author) -> None:
    everything = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    author.edit("say", more=PROMPT.format("ask"))
    replica.wait_reloads(1)
    with Stream(replica, asking("subscriptions/listen", {"notifications": everything})) as stream:
        assert set(stream.next()["params"]["notifications"]) == {"toolsListChanged", "promptsListChanged"}
        author.edit("say", "shout", more=PROMPT.format("ask"))
        assert stream.next()["method"] == "notifications/tools/list_changed"
        assert replica.tools() == ["say", "shout"]
        assert replica.say("shout") == "here"
        assert replica.metric("gateway_legs_total", tool="shout") == 1
        author.edit("say", "shout", more=PROMPT.format("wonder"))
        assert stream.next()["method"] == "notifications/prompts/list_changed"
        author.edit("shout", more=PROMPT.format("wonder"))
        assert stream.next()["method"] == "notifications/tools/list_changed"
    assert send(replica, calling("say")).error == (400, -32602)
    assert send(replica, asking("prompts/list", {})).result["prompts"][0]["name"] == "wonder"


def test_an_edit_of_a_submodule_counts_though_nothing_in_the_list_differs(replica: Reloading, author: Author) -> None:
    assert replica.say() == "hello"
    author.write("words.py", 'HELLO = "good bye"')
    replica.wait_reloads(1)
    assert replica.say() == "good bye"


def test_no_edit_is_lost_however_alike_and_however_quickly_they_come(replica: Reloading, author: Author) -> None:
    """The size stays the same, and all edits fall in one second, so cached bytecode would look current."""
    for count, word in enumerate(("hallo", "salve", "howdy", "salut"), start=1):
        author.write("words.py", f'HELLO = "{word}"')
        replica.wait_reloads(count)
        assert replica.say() == word


def test_a_broken_edit_keeps_the_previous_tools_until_it_is_fixed(replica: Reloading, author: Author) -> None:
    broken = [
        ("__init__.py", "def (", "SyntaxError"),
        ("words.py", "raise LookupError('gone')", "LookupError"),
        ("__init__.py", "import no_such_module_anywhere", "no_such_module_anywhere"),
        ("__init__.py", "import sys; sys.exit(3)", "SystemExit"),
    ]
    for count, (file, text, reason) in enumerate(broken, start=1):
        whole = (author.folder / file).read_text()
        author.write(file, text)
        replica.wait_reloads(count, REFUSED)
        assert reason in replica.wait_for_log(REFUSED)[-1]["reason"]
        assert replica.say() == "hello"
        assert replica.tools() == ["say"]
        author.write(file, whole)
        replica.wait_reloads(count)
    author.edit("say", "shout")
    wait_until(lambda: replica.tools() == ["say", "shout"], "the new list")


def test_a_new_submodule_that_is_broken_is_watched_too(replica: Reloading, author: Author) -> None:
    author.write("extra.py", "def (")
    author.edit("say", "more", more="from edited import extra\n")
    replica.wait_reloads(1, REFUSED)
    author.write("extra.py", "")
    replica.wait_reloads(1)
    wait_until(lambda: replica.tools() == ["say", "more"], "the new list")


def test_a_lifespan_that_fails_keeps_what_was_served_and_one_that_opens_is_shared(
    replica: Reloading, author: Author, tmp_path: Path
) -> None:
    lifespan = f"""
@lifespan
async def shared():
    try:
        yield "{{}}"
    finally:
        Path({str(tmp_path)!r}, "closed {{}}").touch()
"""
    author.edit("say", more="\n@lifespan\nasync def shared():\n    raise OSError('no database')\n    yield 1\n")
    replica.wait_reloads(1, REFUSED)
    assert "no database" in replica.wait_for_log(REFUSED)[0]["reason"]
    assert replica.say() == "hello"
    for count, version in enumerate(("one", "two"), start=1):
        author.edit("say", result="shared.value", more=lifespan.format(version, version))
        replica.wait_reloads(count)
        assert replica.say() == version
    assert not list(tmp_path.glob("closed *"))
    assert replica.terminate() == 0
    assert {path.name for path in tmp_path.glob("closed *")} == {"closed one", "closed two"}
    assert not [line for line in replica.log_lines() if line.get("level") == "error" and line["message"] != REFUSED]


def test_legs_in_flight_finish_with_the_tools_that_they_started_with(
    replica: Reloading, author: Author, tmp_path: Path
) -> None:
    releases = (tmp_path / f"release{number}" for number in itertools.count())
    author.edit("say", more=WAITING.replace("VERSION", '"old"'))
    replica.wait_reloads(1)
    release = next(releases)
    with Stream(replica, calling("wait", {"release": str(release)}, token="t")) as stream:
        assert notice(stream.next()) == ("progress", 1)
        author.edit("say", more=WAITING.replace("VERSION", '"new"'))
        replica.wait_reloads(2)
        release.touch()
        (response,) = stream.rest()
    assert response["result"]["content"][0]["text"] == "old"
    assert send(replica, calling("wait", {"release": str(release)})).text == "new"
