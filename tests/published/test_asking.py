"""The reference server `server-everything` asks its user behind a replica, over HTTP and as a program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from loadtest.cluster import free_port, wait_until
from tests.integration.clients.asking import REPLICAS, has_tools
from tests.published.published import EVERYTHING, everything_over_http
from tests.upstreams.site import Site
from tests.upstreams.wires import WIRES, speaking
from tests.wires.draft.messages import call_params

UPSTREAMS: Final = ("http", "stdio")
every_wire = pytest.mark.parametrize("wire", WIRES)
every_upstream = pytest.mark.parametrize("upstream", UPSTREAMS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    port, folder = free_port(), tmp_path_factory.mktemp("everything")
    command, script = EVERYTHING
    upstreams = {
        "http": {"url": f"http://127.0.0.1:{port}/mcp", "gateway": {}},
        "stdio": {"command": command, "args": [script, "stdio"], "gateway": {"scope": "caller"}},
    }
    tools = [f"{name}__trigger-{kind}" for name in UPSTREAMS for kind in ("elicitation-request", "sampling-request")]
    with everything_over_http(folder, port), Site(tmp_path_factory.mktemp("site"), upstreams, names=REPLICAS) as site:
        wait_until(lambda: has_tools(site, "ada", tools), "the tools that ask")
        yield site


async def texts(site: Site, wire: str, tool: str, answers: Any, **arguments: Any) -> list[str]:
    async with speaking(wire, site, "ada") as call:
        result = await call("tools/call", call_params(tool, arguments), answers)
    return [block["text"] for block in result["content"]]


@every_wire
@every_upstream
async def test_its_form_gets_the_answer(site: Site, wire: str, upstream: str) -> None:
    content = {"name": "Ada ü", "check": True, "integer": 7}
    answers = {"elicitation/create": {"action": "accept", "content": content}}
    said, _, raw = await texts(site, wire, f"{upstream}__trigger-elicitation-request", answers)
    assert "User provided the requested information" in said
    answer = json.loads(raw.partition("Raw result: ")[2])
    assert answer["action"] == "accept"
    assert answer["content"].items() >= content.items()


@every_wire
@every_upstream
@pytest.mark.parametrize(("action", "words"), [("decline", "User declined"), ("cancel", "User cancelled")])
async def test_its_form_is_refused(site: Site, wire: str, upstream: str, action: str, words: str) -> None:
    answers = {"elicitation/create": {"action": action}}
    said, *_ = await texts(site, wire, f"{upstream}__trigger-elicitation-request", answers)
    assert words in said


@every_wire
@every_upstream
async def test_its_question_reaches_the_model(site: Site, wire: str, upstream: str) -> None:
    def answer(question: Any) -> dict[str, Any]:
        said = question["params"]["messages"][0]["content"]["text"]
        return {"role": "assistant", "content": {"type": "text", "text": f"I read: {said}"}, "model": "m"}

    answers = {"sampling/createMessage": answer}
    (said,) = await texts(site, wire, f"{upstream}__trigger-sampling-request", answers, prompt="a title", maxTokens=9)
    assert "I read: Resource trigger-sampling-request context: a title" in said


@every_wire
@every_upstream
async def test_it_sends_the_user_to_an_address(site: Site, wire: str, upstream: str) -> None:
    seen = []

    def answer(question: Any) -> dict[str, Any]:
        seen.append(question["params"])
        return {"action": "accept"}

    arguments = {"url": "https://example.com/login", "message": "Log in, please"}
    said = await texts(site, wire, f"{upstream}__trigger-url-elicitation", {"elicitation/create": answer}, **arguments)
    (asked,) = seen
    assert asked.items() >= {**arguments, "mode": "url"}.items()
    assert "accept" in str(said)
