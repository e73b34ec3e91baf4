"""The official clients in TypeScript read whatever an upstream answers, through two replicas."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.auth.tokens import mint
from tests.integration.clients.running import said_by
from tests.integration.frameworks.known import NODE
from tests.upstreams import deviations
from tests.upstreams.deviations import ANY, SCHEMAS, TEXTS, either, object_of
from tests.upstreams.servers.careless import Careless
from tests.upstreams.servers.hostile import MODES, Hostile
from tests.upstreams.site import Site, entry
from tests.wires.draft.deployment import AUDIENCE, SECRET

COMMAND = (NODE / "bin/node", Path(__file__).parent / "reading_typescript.mjs", NODE)
MAJORS = {"TypeScript 1": "1", "TypeScript 2": "2"}
EXAMPLES = 100
TIMEOUT_SECONDS = 1.0
MAX_RESULT_BYTES = 1 << 20

SHARED = {"title": TEXTS, "description": TEXTS, "_meta": ANY}
ICONS = st.lists(object_of(src=st.just("https://a.example/i.png"), mimeType=TEXTS, sizes=st.just(["any"]), theme=TEXTS))
TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02", "2026-01-02 03:04:05", "2026-01-02T03:04:05+0100", "a"])
NOTES = object_of(audience=st.just(["user"]), priority=st.just(1), lastModified=TIMES, title=TEXTS)
HINTS = object_of(title=TEXTS, readOnlyHint=st.booleans(), openWorldHint=st.booleans())
PARAMETERS = st.builds(
    lambda properties, others: {"type": "object", "properties": properties, **others},
    either(st.dictionaries(TEXTS, SCHEMAS, max_size=2)),
    st.dictionaries(st.sampled_from(["required", "$schema", "additionalProperties", "anyOf", "$defs"]), SCHEMAS),
)
MESSAGES = st.lists(object_of(role=st.just("user"), content=deviations.BLOCKS), min_size=1, max_size=2)
FORM = st.just({"type": "object", "properties": {"a": {"type": "string"}}})
"""A form that clients can show: they refuse others themselves."""
ASKED = object_of(
    mode=st.sampled_from(["form", "url"]), message=TEXTS, requestedSchema=FORM, url=st.just("https://a.example"),
    elicitationId=TEXTS, messages=MESSAGES, maxTokens=st.just(5), systemPrompt=TEXTS, temperature=st.just(0.5),
    modelPreferences=object_of(hints=st.just([{"name": "a"}]), costPriority=st.just(1)), tools=ANY, toolChoice=ANY,
    includeContext=TEXTS, stopSequences=st.just(["a"]), metadata=ANY, _meta=ANY,
)  # fmt: skip
QUESTIONS = st.builds(
    lambda method, params: {"method": method, "params": params},
    st.sampled_from(["elicitation/create", "sampling/createMessage", "roots/list"]),
    ASKED,
)
DRAWN: Mapping[str, st.SearchStrategy[Any]] = {
    "tools/call": st.builds(
        lambda items, others: {"content": items, **others},
        either(st.lists(either(deviations.BLOCKS), max_size=3)), deviations.OTHERS,
    ) | st.builds(lambda asked: {"resultType": "input_required", "inputRequests": {"q": asked}}, QUESTIONS),
    "prompts/get": st.builds(
        lambda items, others: {"messages": items, **others}, either(MESSAGES), deviations.OTHERS
    ),
    "resources/read": st.builds(
        lambda items, others: {"contents": items, **others},
        either(st.lists(either(deviations.CONTENTS), max_size=3)), deviations.OTHERS,
    ),
    "completion/complete": object_of(
        completion=object_of(values=st.lists(either(TEXTS), max_size=3), total=st.just(2), hasMore=st.booleans())
    ),
    "tools/list": object_of(
        inputSchema=PARAMETERS, outputSchema=PARAMETERS, annotations=HINTS, icons=ICONS, execution=ANY, **SHARED
    ),
    "prompts/list": object_of(
        arguments=st.lists(object_of(name=TEXTS, required=st.booleans(), **SHARED)), icons=ICONS, **SHARED
    ),
    "resources/list": object_of(name=TEXTS, mimeType=TEXTS, size=st.just(1), annotations=NOTES, icons=ICONS, **SHARED),
    "resources/templates/list": object_of(name=TEXTS, mimeType=TEXTS, annotations=NOTES, icons=ICONS, **SHARED),
}  # fmt: skip
"""Results, and entries of lists, with mistakes in all their members."""


def drawn(method: str) -> list[Any]:
    """Return examples of the answers to a method."""
    found: list[Any] = []

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(DRAWN[method])
    def draw(example: Any) -> None:
        found.append(example)

    draw()
    return found


def entries() -> dict[str, list[Any]]:
    """Return entries of lists with mistakes in all members but the one that names them."""
    named = {
        "tools/list": ("name", "listed"),
        "prompts/list": ("name", "listed"),
        "resources/list": ("uri", "file:///listed"),
        "resources/templates/list": ("uriTemplate", "file:///{id}/listed"),
    }
    return {
        method: [{**each, member: f"{name}{number}"} for number, each in enumerate(drawn(method))]
        for method, (member, name) in named.items()
    }


def careless() -> Careless:
    """Return an upstream with mistakes in all that it answers: those of the table, and drawn ones."""
    calls = [result for _, method, result, _ in deviations.RESULTS if method == "tools/call"] + drawn("tools/call")
    others = {
        method: {f"{name}{number}": result for number, result in enumerate(drawn(method))}
        for method, name in (
            ("prompts/get", "drawn"),
            ("resources/read", "file:///drawn"),
            ("completion/complete", "drawn"),
        )
    }
    return Careless({f"drawn{number}": result for number, result in enumerate(calls)}, others, entries())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    limits = {"timeout_seconds": TIMEOUT_SECONDS, "max_result_bytes": MAX_RESULT_BYTES}
    with contextlib.ExitStack() as stack:
        servers = {mode.replace("_", "-"): stack.enter_context(Hostile(mode)) for mode in MODES}
        upstreams = {name: entry(server.url, **limits) for name, server in servers.items()}
        upstreams["careless"] = entry(stack.enter_context(careless()).url)
        upstreams["hostile"] = entry(stack.enter_context(Hostile()).url, **limits)
        with Site(tmp_path_factory.mktemp("reading"), upstreams) as site:
            site.wait_listed("careless", "hostile")
            yield site


@pytest.mark.parametrize("client", MAJORS)
async def test_a_client_reads_whatever_an_upstream_answers(site: Site, client: str) -> None:
    token = mint(SECRET, "ada", AUDIENCE)
    output, _ = await said_by(*COMMAND, MAJORS[client], token, *site.urls)
    said = json.loads(output)
    assert said["failures"] == []
    assert min(said["counts"]) > EXAMPLES / 4
    assert said["ends"]["results"] > said["ends"]["errors"] > 0
