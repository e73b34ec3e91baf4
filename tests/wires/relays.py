"""Relays of a scripted server: the arguments of a call contain the script."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from gateway.engine.journal import Journal
from gateway.engine.relaying import RelayFunction, RelayLeg
from gateway.errors import CannotContinue, Overloaded, RpcError
from gateway.protocol.caller import Requester
from gateway.protocol.strict_json import decode, encode
from gateway.registry.relayed import Relayed, RelayedPrompt, RelayedResource, RelayedTool, forwarded_question

SCRIPTS: dict[str, dict[str, Any]] = {}
"""The script for a prompt or a resource, by its name or URI."""

FORM: dict[str, Any] = {
    "message": "Delete 3?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "_meta": {"com.example/x": 1},
    "unknown": {"y": 2},
}
FORM_QUESTION: dict[str, Any] = {"method": "elicitation/create", "params": FORM}
URL_QUESTION: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Sign in", "url": "https://id.example/", "unknown": 1},
}
ROOTS_QUESTION: dict[str, Any] = {"method": "roots/list", "params": {}}
SAMPLING_QUESTION: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {"messages": [], "maxTokens": 9, "unknown": 1},
}
RESULT: dict[str, Any] = {
    "resultType": "complete",
    "content": [{"type": "hologram", "waves": [1]}, {"type": "text", "text": "x", "_meta": {"com.example/z": 1}}],
    "structuredContent": {"not": "what the schema says"},
    "unknown": {"x": None},
    "_meta": {"com.example/x": 1, "io.modelcontextprotocol/serverInfo": {"name": "theirs", "version": "1"}},
}
PASSED_ON = {name: part for name, part in RESULT.items() if name not in ("resultType", "_meta")}
"""The members of it that the client gets, besides `_meta`."""

HEARD: list[tuple[str, Requester]] = []
"""The legs of this process: the target, and who asked."""


class Play:
    """Runs the scripts.

    A script may have `rounds` (each maps keys to questions), and `logs` and `progress` in each leg. It may wait for a
    file (`waits_for`), and be shed in its first legs (`sheds`) with so much `ballast` in the slot. With `aside`, its
    arguments are kept as JSON while it works. It ends with `error`, `cannot` or `result`. Without these, the result has
    the answers of each round.
    """

    upstream = "bugs"

    def bind(
        self, served: Relayed, target: str, arguments: dict[str, Any], requester: Requester, journal: Journal
    ) -> RelayFunction:
        HEARD.append((target, requester))
        script = dict(arguments) if isinstance(served, RelayedTool) else SCRIPTS.get(target, {})

        async def run(leg: RelayLeg) -> dict[str, Any]:
            requester.step_aside()
            if "aside" in script:
                set_aside(leg, arguments)
            for number in range(script.get("logs", 0)):
                leg.relay_log("strange", {"n": number, "leg": leg.journal.legs})
            for done in script.get("progress", ()):
                leg.relay_progress(done, 10, "going")
            slot = leg.slot or {"round": 0}
            while "waits_for" in script and not Path(script["waits_for"]).exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.01)
            if leg.journal.legs <= script.get("sheds", 0):
                slot = {**slot, "ballast": os.urandom(script.get("ballast", 0))}
                await leg.keep_slot(slot)
                leg.shed_bare()
            return await finish(script, leg, slot)

        return run

    async def abandon(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        """See `Relay`."""

    async def prepare_task(self, served: Relayed, requester: Requester, journal: Journal) -> None:
        journal.slot = {"round": 0, **(journal.slot or {}), "prepared_for": served.name}


def set_aside(leg: RelayLeg, arguments: dict[str, Any]) -> None:
    """Keep the arguments only as JSON, as the relay of an upstream does."""
    encoded = encode(arguments)
    arguments.clear()
    leg.away.aside_bytes = len(encoded)
    leg.away.restore_arguments = lambda: arguments.update(decode(encoded))


async def finish(script: dict[str, Any], leg: RelayLeg, slot: dict[str, Any]) -> dict[str, Any]:
    """Ask what is left to ask, and end as the script says."""
    rounds = script.get("rounds", [])
    answered = slot.get("answered", [])
    while len(answered) < len(rounds):
        if slot["round"] != len(answered) + 1:
            slot = {**slot, "round": len(answered) + 1, "answered": answered}
            await leg.keep_slot(slot)
        asked = {key: forwarded_question(**question) for key, question in rounds[len(answered)].items()}
        answers = await leg.ask_forwarded(asked)
        leg.forget_round(slot["round"])
        answered = [*answered, answers]
    if "error" in script:
        raise RpcError(*script["error"])
    if "cannot" in script:
        raise Overloaded if script["cannot"] == "overloaded" else CannotContinue(script["cannot"])
    if "result" in script:
        return dict(script["result"])
    told = {"answered": answered, "slot": slot, "in_task": leg.in_task}
    return {"content": [{"type": "text", "text": json.dumps(told)}]}


def told_by(result: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a script without a result of its own."""
    (block,) = result["content"]
    told: dict[str, Any] = json.loads(block["text"])
    return told


ANY: dict[str, Any] = {"type": "object"}
NONSENSE: dict[str, Any] = {"type": "object", "$ref": "https://elsewhere.example/"}
play = RelayedTool(Play(), {"name": "bugs__play", "inputSchema": NONSENSE, "outputSchema": {"type": "object"}})
job = RelayedTool(Play(), {"name": "bugs__job", "inputSchema": ANY}, task="optional")
later = RelayedTool(Play(), {"name": "bugs__later", "inputSchema": ANY}, task="optional", after_seconds=20)
soon = RelayedTool(Play(), {"name": "bugs__soon", "inputSchema": ANY}, task="optional", after_seconds=0.01)
greet = RelayedPrompt(Play(), {"name": "bugs__greet", "arguments": [{"name": "who"}]})
page = RelayedResource(Play(), {"uri": "bugs+docs://page", "name": "page"})

SCRIPTS["bugs__greet"] = {
    "rounds": [{"k": FORM_QUESTION}],
    "result": {"messages": [{"role": "user", "content": {"type": "hologram"}}], "unknown": 1, "_meta": {"a": 1}},
}
SCRIPTS["bugs+docs://page"] = {
    "rounds": [{"k": FORM_QUESTION}],
    "result": {"contents": [{"uri": "x:1", "hologram": 1}], "ttlMs": 99, "cacheScope": "public", "_meta": {"a": 1}},
}
