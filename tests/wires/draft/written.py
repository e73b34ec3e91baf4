"""Messages that are sent as somebody has written them, with an id of their own and nothing added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.proposals.examples import Exchange, assert_contains, example, fill
from tests.wires.draft.client import DraftClient
from tests.wires.draft.messages import Answers, is_response
from tests.wires.draft.transport import Message


class Said(NamedTuple):
    """The answer to a message, and the messages before it."""

    url: str
    status: int
    headers: Mapping[str, str]
    response: Message
    before: Sequence[Message]


async def say(client: DraftClient, message: Message) -> Said:
    """Send a request, and return all that it is answered with. Nothing follows the response."""
    async with client.transport.post(message) as exchange:
        received = [one async for one in exchange.messages]
    *before, response = received
    assert is_response(response), received
    assert not any(is_response(one) for one in before), received
    return Said(exchange.url, exchange.status, exchange.headers, response, before)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a tool's call."""
    return {"name": name, "arguments": arguments}


def brought(answers: Answers, state: str | None = None) -> dict[str, Any]:
    """Return what a retry brings: some answers, and a state if there is one."""
    responses = {key: {"result": answer} for key, answer in answers.items()}
    return {"inputResponses": responses, **({} if state is None else {"requestState": state})}


def text_of(result: Mapping[str, Any]) -> str:
    """Return the text of a tool's result that has one block."""
    (block,) = result["content"]
    return str(block["text"])


class Example:
    """An example of the proposals: its requests are sent, and what is answered is compared.

    Args:
        live: texts of the example → what stands for them here; more can be added between two steps.
    """

    def __init__(self, name: str, live: Mapping[str, str] | None = None) -> None:
        self._example = example(name)
        self.live = dict(live or {})
        self._left = {step.name for step in self._example.exchanges if any(step.shown) or step.object is not None}

    def check_complete(self) -> None:
        """Check that all that the example shows was sent or compared."""
        assert not self._left

    async def send(self, client: DraftClient, step: str) -> Said:
        """Send the request of a step as it is written, and compare the answer with the step's if it has one."""
        request = self._show(step).request
        assert request is not None
        return await self._send(client, self._example[step], fill(request, self.live))

    async def send_call(self, client: DraftClient, step: str, tool: str, arguments: Mapping[str, object]) -> Said:
        """Send the request of a step whose method is left open, as the call of a tool."""
        request = self._show(step).request
        assert request is not None
        written = fill(request, self.live)
        written["method"] = "tools/call"
        written["params"] |= {"name": tool, "arguments": dict(arguments)}
        return await self._send(client, self._example[step], written)

    async def _send(self, client: DraftClient, step: Exchange, request: Message) -> Said:
        said = await say(client, request)
        assert said.status == 200
        assert said.response["id"] == request["id"]
        if step.answer is not None:
            self._compare(said.response, step.answer)
        return said

    def compare(self, step: str, actual: Message) -> None:
        """Compare with a message, or a part of one, that a step shows and that is not a request."""
        shown = self._show(step)
        self._compare(actual, shown.message or shown.object or {})

    def object(self, step: str) -> Message:
        """Return the part of a message that a step shows, to be sent."""
        part: Message = fill(self._show(step).object, self.live)
        return part

    def _show(self, step: str) -> Exchange:
        self._left.discard(step)
        return self._example[step]

    def _compare(self, actual: Message, written: Message) -> None:
        assert_contains(actual, written, live=self.live)
