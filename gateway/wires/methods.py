"""The methods that every wire has (lists, calls and completion), and the type of all handlers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Literal, TypeAlias, final

from gateway.authoring.prompts import Prompt
from gateway.authoring.resources import Resource
from gateway.authoring.served import Served
from gateway.authoring.tools import Tool
from gateway.authoring.uri_templates import is_template
from gateway.calls.runner import CallRunner, Conversation, LegRequest, Ran
from gateway.calls.task_creation import TaskOrder
from gateway.engine.host import Host
from gateway.errors import (
    CannotContinue,
    InsufficientScope,
    InternalError,
    InvalidParams,
    MethodNotFound,
    ResourceNotFound,
    RpcError,
)
from gateway.protocol.caller import Caller, Requester
from gateway.protocol.headers import Headers
from gateway.protocol.jsonrpc import result_response
from gateway.protocol.requests import (
    CompletionRequest,
    Continuation,
    McpRequest,
    ToolCall,
    read_completion,
    read_cursor,
    read_prompt_get,
    read_resource_read,
)
from gateway.protocol.result_format import Words
from gateway.protocol.strict_json import DECODED_TIMES
from gateway.protocol.uris.canonical import MAX_URI_CHARACTERS, problem_of
from gateway.registry.registry import Registry
from gateway.wires.catalogue import Catalogue
from gateway.wires.ports import Client
from gateway.wires.replies import Answered, Reply

log = logging.getLogger(__name__)


@final
class Incoming:
    """A request together with its headers, caller, connection and session.

    The conversation is what the call has learned, if that is kept in this process. The session is its nonce. By
    `cancel_name`, the client can cancel the request; both are empty if there is none.
    """

    conversation: Conversation | None = None
    session = b""
    cancel_name = ""

    def __init__(self, request: McpRequest, headers: Headers, caller: Caller, client: Client) -> None:
        self.request: Final = request
        self.headers: Final = headers
        self.caller: Final = caller
        self.client: Final = client

    def within(self, conversation: Conversation) -> Incoming:
        """Return the same request as part of a conversation."""
        return self._with(self.caller, conversation)

    def by(self, caller: Caller) -> Incoming:
        """Return the same request with the authority of another caller."""
        return self._with(caller, self.conversation)

    def _with(self, caller: Caller, conversation: Conversation | None) -> Incoming:
        changed = Incoming(self.request, self.headers, caller, self.client)
        changed.session, changed.cancel_name = self.session, self.cancel_name
        changed.conversation = conversation
        return changed

    def requester(self) -> Requester:
        """Return the part of the request that a relay may use."""
        request, caller = self.request, self.caller
        return Requester(
            principal=caller.principal,
            exchange=caller.exchange,
            headers=self.headers,
            capabilities=request.capabilities,
            meta=request.meta,
            log_level=request.log_level,
            wants_progress=request.progress_token is not None,
            grants=caller.grants,
            step_aside=self.client.leave,
        )

    def answered(self, result: Any) -> Answered:
        """Return a reply with this result, see `result_response`."""
        return Answered(result_response(self.request.id, result))


Handler: TypeAlias = Callable[[Incoming], Awaitable[Reply]]
"""Answers the requests of one method. All handlers of all wires have this type.

A handler raises `RpcError` if it refuses a request, and `InsufficientScope` if the token grants too little.
"""

RunLeg: TypeAlias = Callable[[Incoming], Awaitable[Ran]]
"""Runs one leg of a call."""


class Methods:
    """Answers requests with results. It keeps no state between requests; the catalogue can be replaced."""

    def __init__(self, catalogue: Catalogue, calls: CallRunner, host: Host, words: Words) -> None:
        self.catalogue = catalogue
        self.words = words
        self._calls = calls
        self._host = host

    @property
    def registry(self) -> Registry:
        """The registry that is served now."""
        return self.catalogue.registry

    @property
    def everywhere(self) -> Mapping[str, Handler]:
        """The handlers that are the same on every wire, by method."""
        return {
            "tools/list": self._listing("tools"),
            "prompts/list": self._listing("prompts"),
            "resources/list": self._listing("resources"),
            "resources/templates/list": self._listing("resourceTemplates"),
            "completion/complete": self.complete,
        }

    def _listing(self, name: str) -> Handler:
        """Return the handler for a list, given the name of the list in the result."""

        async def list_entries(incoming: Incoming) -> Reply:
            request = incoming.request
            cursor = read_cursor(request.params)
            if not self.catalogue.is_settled:
                return incoming.answered(await self._unsettled_page(incoming, name, cursor))
            return incoming.answered(self.catalogue.page(name, cursor, incoming.caller, request.capabilities))

        return list_entries

    async def _unsettled_page(self, incoming: Incoming, name: str, cursor: str | None) -> dict[str, Any]:
        """Return a page of a list that needs upstreams first: they were never listed, or it depends on the caller."""
        if self.catalogue.registry.pending:
            incoming.client.leave()
            await self.catalogue.first_listings()
        catalogue, caller, capabilities = self.catalogue, incoming.caller, incoming.request.capabilities
        if catalogue.registry.by_caller:
            return await catalogue.page_of(name, cursor, caller, capabilities, incoming.requester())
        return catalogue.page(name, cursor, caller, capabilities)

    def tool(self, wanted: ToolCall, caller: Caller) -> Tool | None:
        """Return the tool that a call names; None if `unlisted_tool` must find it.

        A token that does not grant its scopes raises `InsufficientScope`.
        """
        tool = self.catalogue.registry.tools.get(wanted.name)
        if tool is not None:
            check_scopes(tool, caller)
        return tool

    async def unlisted_tool(self, wanted: ToolCall, incoming: Incoming) -> Tool:
        """Return the tool that only its upstream knows, maybe only for this caller.

        An unknown tool raises `InvalidParams`; a token that does not grant its scopes, `InsufficientScope`.
        """
        tool = await self.registry.unlisted_tool(wanted.name, incoming.requester())
        if tool is None:
            raise InvalidParams(f"Unknown tool: {wanted.name}")
        check_scopes(tool, incoming.caller)
        return tool

    def call_tool(
        self, incoming: Incoming, tool: Tool, wanted: ToolCall, order: TaskOrder | None
    ) -> Coroutine[Any, Any, Ran]:
        """Run one leg of a `tools/call`; see `CallRunner.run`."""
        return self._call(incoming, tool, (wanted.name, wanted.arguments, wanted.continuation), order)

    async def get_prompt(self, incoming: Incoming) -> Ran:
        """Run one leg of a `prompts/get`; see `CallRunner.run`."""
        wanted = read_prompt_get(incoming.request.params)
        prompt = await self._prompt(wanted.name, incoming)
        if prompt is None:
            raise InvalidParams(f"Unknown prompt: {wanted.name}")
        check_scopes(prompt, incoming.caller)
        return await self._call(incoming, prompt, (wanted.name, dict(wanted.arguments), wanted.continuation))

    async def read_resource(self, incoming: Incoming) -> Ran:
        """Run one leg of a `resources/read`; see `CallRunner.run`."""
        wanted = read_resource_read(incoming.request.params)
        resource, variables = self.registry.listed_resource(wanted.uri) or (
            await self.registry.unlisted_resource("resources", wanted.uri, incoming.requester()),
            {},
        )
        if resource is None:
            raise _not_found(wanted.uri)
        check_scopes(resource, incoming.caller)
        return await self._call(incoming, resource, (wanted.uri, dict(variables), wanted.continuation))

    def _call(
        self,
        incoming: Incoming,
        served: Served,
        wanted: tuple[str, dict[str, Any], Continuation],
        order: TaskOrder | None = None,
    ) -> Coroutine[Any, Any, Ran]:
        target, arguments, continuation = wanted
        conversation = incoming.conversation
        if conversation is not None:
            conversation.served, conversation.target = served, target
        call = LegRequest(
            request=incoming.request,
            caller=incoming.caller,
            served=served,
            target=target,
            arguments=arguments,
            continuation=continuation if conversation is None else conversation.continuation,
            post=incoming.client.post,
            words=self.words,
            order=order,
            conversation=conversation,
            forwarded_id=incoming.client.forwarded_id,
            requester=incoming.requester,
        )
        memory = served.memory_of(arguments) if served.makes_objects else 0
        return self._run_large(call, incoming.client, memory) if memory else self._calls.run(call)

    async def _run_large(self, call: LegRequest, client: Client, memory: int) -> Ran:
        """Run a leg whose arguments become large objects, which count like the bytes of a body until it has ended.

        Raises:
            TooManyBodyBytes: the caller has its share. The function has not run.
        """
        with client.holding() as held:
            held.grow_to(memory // DECODED_TIMES)
            return await self._calls.run(call)

    async def complete(self, incoming: Incoming) -> Reply:
        """Answer `completion/complete`.

        Raises:
            MethodNotFound: nothing that is served has completions.
            InvalidParams: there is no such prompt or resource.
            InternalError: the author's function failed, or the upstream cannot be asked.
            RpcError: the upstream refuses.
        """
        if not self.registry.offers("completions"):
            raise MethodNotFound("This server has no completions")
        wanted = read_completion(incoming.request.params)
        target = await self._completed_target(wanted, incoming)
        check_scopes(target, incoming.caller)
        self._check_values(wanted, target, incoming.caller)
        try:
            completion = await self._suggestions(wanted, target, incoming)
        except RpcError:
            raise
        except CannotContinue as error:
            raise InternalError(str(error)) from None
        except Exception:
            log.exception("completion failed", extra={"target": wanted.target, "argument": wanted.argument})
            raise InternalError("The completion failed") from None
        if completion is None:
            completion = {"values": [], "total": 0, "hasMore": False}
        return incoming.answered(self.words.complete({"completion": completion}))

    async def _completed_target(self, wanted: CompletionRequest, incoming: Incoming) -> Prompt | Resource:
        """Return the prompt or resource that a request names, or raise `InvalidParams`."""
        name = wanted.target
        target: Prompt | Resource | None
        if wanted.kind == "prompt":
            target = await self._prompt(name, incoming)
        else:
            if len(name) > MAX_URI_CHARACTERS:
                raise InvalidParams(f"params.ref.uri has {len(name)} characters; the limit is {MAX_URI_CHARACTERS}")
            target = await self._template(name, incoming)
        if target is None:
            raise _unknown(wanted)
        return target

    async def _prompt(self, name: str, incoming: Incoming) -> Prompt | None:
        """Return the prompt with this name: one that is listed, or one that only its upstream knows."""
        registry = self.registry
        return registry.prompts.get(name) or await registry.unlisted_prompt(name, incoming.requester())

    async def _template(self, uri: str, incoming: Incoming) -> Resource | None:
        """Return the template or resource with this URI as its list has it, else the relay of an upstream for it."""
        registry = self.registry
        listed = registry.templates.get(uri) or registry.resources.get(uri)
        kind: Literal["resources", "templates"] = "templates" if is_template(uri) else "resources"
        return listed or await registry.unlisted_resource(kind, uri, incoming.requester())

    def _check_values(self, wanted: CompletionRequest, target: Prompt | Resource, caller: Caller) -> None:
        """Check what an upstream's template makes of the values of a request: that it is served, and for which scopes.

        A value that is not served raises `InvalidParams`; a token without the scopes, `InsufficientScope`.
        """
        if not isinstance(target, Resource) or not target.upstream:
            return
        part = self.registry.part_of(target)
        if part is None or part.completer is None:
            return
        values = {**wanted.context, wanted.argument: wanted.value}
        scopes = part.completer.scopes_of_values(target.uri, values)
        if scopes is None:
            raise _unknown(wanted)
        if scopes and not caller.grants(scopes):
            raise InsufficientScope(scopes)

    async def _suggestions(
        self, wanted: CompletionRequest, target: Prompt | Resource, incoming: Incoming
    ) -> Mapping[str, Any] | None:
        """Return the `completion` object of an author's function or an upstream, None if neither completes this."""
        registry = self.registry
        if target.upstream:
            part = registry.part_of(target)
            if part is None or part.completer is None:
                return None
            name = target.uri if isinstance(target, Resource) else wanted.target
            requester = incoming.requester()
            return await part.completer.complete(
                wanted.kind, name, wanted.argument, wanted.value, wanted.context, requester
            )
        completer = registry.completer(target, wanted.argument)
        if completer is None:
            return None
        return await completer.suggest(wanted.value, wanted.context, self._host, incoming.caller.principal)


def _unknown(wanted: CompletionRequest) -> InvalidParams:
    return InvalidParams(f"Unknown {wanted.kind}: {wanted.target}")


def _not_found(uri: str) -> InvalidParams:
    """Return the error for a URI that nothing serves. It says what is wrong with one that has no canonical form."""
    problem = problem_of(uri)
    return ResourceNotFound(uri) if problem is None else InvalidParams(f"params.uri {problem}")


def check_scopes(served: Served, caller: Caller) -> None:
    """Raise `InsufficientScope` unless the caller's token grants the required scopes."""
    scopes = served.scopes
    if scopes and not caller.grants(scopes):
        raise InsufficientScope(scopes)
