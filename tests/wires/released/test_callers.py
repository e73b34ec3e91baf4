"""A tool sees the scopes and claims of the request's own token. A task keeps those of its call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gateway.auth.tokens import mint
from gateway.storage.records import Records
from gateway.tasks.ports import Claim
from tests.integration.raw import Answer
from tests.storage.servers import Server
from tests.wires.released.conftest import SECRET, World

QUESTION = {"who": {"action": "accept", "content": {"name": "Ada"}}}


@pytest.fixture
async def world(server: Server) -> AsyncIterator[World]:
    server.ask("FLUSHALL")
    made = World(server.url, jwt_claims="email,groups,phone")
    yield made
    await made.close()


def told(answer: Answer | dict[str, Any]) -> dict[str, Any]:
    result = answer if isinstance(answer, dict) else answer.result
    (block,) = result["content"]
    return dict(msgspec.json.decode(block["text"]))


async def call(world: World, tool: str, scopes: str, params: dict[str, Any] | None = None, **claims: Any) -> Answer:
    """Call a tool with a token that grants these scopes and has these claims."""
    token = mint(SECRET, "ada", "tests", scopes=scopes.split(), claims=claims)
    headers = {"authorization": f"Bearer {token}"}
    return await world.request("tools/call", {"name": tool, "arguments": {}, **(params or {})}, headers=headers)


async def test_a_tool_sees_the_scopes_and_the_selected_claims_of_the_token(world: World) -> None:
    answer = await call(world, "who_calls", "read write", email="ada@example.com", groups=["a", {"b": 1}], salary=1)
    assert told(answer) == {
        "scopes": ["read", "write"],
        "claims": {"email": "ada@example.com", "groups": ["a", {"b": 1}]},
    }


async def test_each_leg_sees_its_own_token_and_a_renewed_one_continues_the_call(world: World) -> None:
    asked = await call(world, "ask_who_calls", "read", email="old@example.com")
    params = {"requestState": asked.state, "inputResponses": QUESTION}
    answer = await call(world, "ask_who_calls", "read more", params, email="new@example.com")
    assert told(answer) == {"scopes": ["more", "read"], "claims": {"email": "new@example.com"}}


async def test_a_task_keeps_what_its_call_saw_for_all_its_legs(world: World) -> None:
    created = await call(world, "who_calls_as_task", "read", email="ada@example.com")
    await world.work()
    await world.update(created.result["taskId"], QUESTION)
    await world.work()
    view = await world.get(created.result["taskId"])
    assert told(view["result"]) == {"scopes": ["read"], "claims": {"email": "ada@example.com"}}


async def test_the_store_holds_claims_only_sealed(world: World, server: Server) -> None:
    await call(world, "who_calls_as_task", "some:scope", email="ada@example.com")
    names = server.ask("KEYS", "*")
    assert isinstance(names, list)
    tasks = [name for name in names if server.ask("TYPE", name) == b"hash"]
    records: Any = [server.ask("HGETALL", name) for name in tasks]
    stored = b"".join(value for record in records for value in record.values())
    assert b"who_calls_as_task" in stored
    assert not [secret for secret in (b"ada@", b"some:scope") if secret in stored]


async def test_a_task_of_an_older_release_opens_without_scopes_and_claims(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal: Any = Records.seal

    def seal_as_before(records: Records, owner: str, task_id: str, *sealed: Any) -> Any:
        if sealed[0] == "call":
            sealed = (sealed[0], {name: sealed[1][name] for name in ("arguments", "principal", "context")}, *sealed[2:])
        return seal(records, owner, task_id, *sealed)

    with monkeypatch.context() as patched:
        patched.setattr(Records, "seal", seal_as_before)
        await call(world, "who_calls_as_task", "read", email="ada@example.com")
    claims: list[Claim] = list(await world.queue.claim(0, 1, wait_ms=1))
    principal = claims[0].principal
    assert principal is not None
    assert (principal.subject, principal.scopes, dict(principal.claims)) == ("ada", frozenset(), {})


async def test_a_token_with_too_large_claims_is_refused_and_the_log_says_why(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    answer = await call(world, "who_calls", "", email="x" * 4100)
    assert answer.status == 401
    reasons = [vars(record).get("reason") for record in caplog.records]
    assert "the claims of GATEWAY_JWT_CLAIMS take more than 4096 bytes" in reasons
