"""`subscriptions/listen` of the released wire: the messages of a stream, from the acknowledgement to its end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gateway.calls.authority import Authorities, Needs
from gateway.calls.changes import ChangeHub, Subscription
from gateway.calls.task_access import TaskAccess, scopes_of
from gateway.calls.task_follower import pumping, timeless
from gateway.ensured import ensured
from gateway.errors import TaskStoreDown
from gateway.protocol.caller import Caller
from gateway.protocol.jsonrpc import RequestId, result_response
from gateway.protocol.released import notifications
from gateway.protocol.released.requests import ListenFilter, read_listen
from gateway.protocol.released.results import ResultWriter
from gateway.protocol.released.tasks import detailed_task, task_meta
from gateway.registry.registry import Registry
from gateway.tasks.model import TaskView
from gateway.wires.methods import Incoming, Methods
from gateway.wires.released.tasks import require_tasks
from gateway.wires.replies import Listening, Reply
from gateway.wires.watches import Watches


@dataclass(frozen=True, slots=True)
class _List:
    name: notifications.ListName


@dataclass(frozen=True, slots=True)
class _Uri:
    uri: str


@dataclass(frozen=True, slots=True)
class _Task:
    task_id: str


_Telling: TypeAlias = _List | _Uri | _Task


class Subscriptions:
    """Answers `subscriptions/listen`. Resources of upstreams are watched while somebody listens.

    `authorities` end the streams of callers whose authority ends.
    """

    def __init__(
        self,
        methods: Methods,
        results: ResultWriter,
        changes: ChangeHub,
        authorities: Authorities,
        tasks: TaskAccess | None = None,
        *,
        watches: Watches,
    ) -> None:
        self._methods = methods
        self._results = results
        self._changes = changes
        self._authorities = authorities
        self._watches = watches
        self._tasks = tasks

    async def listen(self, incoming: Incoming) -> Reply:
        """Answer one request.

        Raises:
            InvalidParams: the filter is malformed.
            MissingCapability: the filter names tasks, but the client did not declare the extension.
            TaskStoreDown: the filter names tasks, but the store does not answer.
        """
        request, caller, registry = incoming.request, incoming.caller, self._methods.registry
        wanted = read_listen(request.params)
        if wanted.task_ids:
            require_tasks(request)
        tasks: tuple[TaskView, ...] = ()
        if wanted.task_ids and self._tasks is not None:
            tasks = await self._tasks.own(wanted.task_ids, caller, registry)
        honoured = _honoured(wanted, caller, registry, tasks)
        messages = self._messages(request.id, honoured, caller, lambda now: _scopes_of(honoured, tasks, now))
        return Listening(messages, request.id)

    async def _messages(
        self, request_id: RequestId, honoured: ListenFilter, caller: Caller, needs: Needs
    ) -> AsyncIterator[bytes]:
        topics = _topics(honoured, self._methods.registry)
        subscription = self._changes.subscribe(topics)
        told: dict[str, Any] = {}
        try:
            yield notifications.acknowledged(request_id, honoured)
            async with self._watching(honoured, caller, needs, subscription):
                while (topic := await subscription.next()) is not None:
                    match topics[topic]:
                        case _List(name):
                            yield notifications.list_changed(name, request_id)
                        case _Uri(uri):
                            yield notifications.resource_updated(uri, request_id)
                        case _Task(task_id):
                            view = await self._news_of(task_id, caller, told)
                            if view is not None and self._authorities.hold(caller, needs):
                                yield notifications.task_changed(request_id, detailed_task(view), task_meta(view))
            yield result_response(request_id, self._results.listen_closed(request_id))
        finally:
            self._changes.unsubscribe(subscription)

    @contextlib.asynccontextmanager
    async def _watching(
        self, honoured: ListenFilter, caller: Caller, needs: Needs, subscription: Subscription
    ) -> AsyncIterator[None]:
        """Pass the store's hints to the subscription while the context is open. End it when the authority ends."""
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._authorities.watching(caller, needs, subscription.cut))
            own_uri = self._methods.registry.own_uri
            stack.enter_context(self._watches.listening([own_uri(uri) for uri in honoured.uris]))
            if honoured.task_ids and self._tasks is not None:
                await stack.enter_async_context(pumping(self._tasks, honoured.task_ids, caller, subscription, _Task))
            yield

    async def _news_of(self, task_id: str, caller: Caller, told: dict[str, Any]) -> TaskView | None:
        """Return a task if it has changed since the last report. Many hints are not about a visible change."""
        tasks = ensured(self._tasks, "nothing else brings the topic of a task")
        try:
            view = await tasks.read(task_id, caller)
        except TaskStoreDown:
            return None  # the task is read again in a few seconds
        if view is None:
            return None
        news = timeless({**detailed_task(view), "_meta": task_meta(view)})
        if told.get(task_id) == news:
            return None
        told[task_id] = news
        return view


def _honoured(wanted: ListenFilter, caller: Caller, registry: Registry, tasks: Sequence[TaskView]) -> ListenFilter:
    """Return the part of a filter that is served to this caller, who may access these tasks."""

    def is_announced(uri: str) -> bool:
        found = registry.find_resource(uri)
        return found is not None and found[0].announces_changes and caller.grants(found[0].scopes)

    return ListenFilter(
        tools=wanted.tools,
        prompts=wanted.prompts and registry.offers("prompts"),
        resources=wanted.resources and registry.offers("resources"),
        uris=tuple(uri for uri in wanted.uris if is_announced(uri)),
        task_ids=tuple(task.task_id for task in tasks),
    )


def _scopes_of(honoured: ListenFilter, tasks: Sequence[TaskView], registry: Registry) -> frozenset[str]:
    """Return the scopes that a stream requires with this registry."""
    found = (registry.find_resource(uri) for uri in honoured.uris)
    resources = (entry[0].scopes for entry in found if entry is not None)
    return frozenset().union(*resources, *(scopes_of(task, registry) for task in tasks))


def _topics(honoured: ListenFilter, registry: Registry) -> dict[Hashable, _Telling]:
    """Return what to report by topic. A topic is the name of a list, the URI of a resource, or a task.

    A client gets each URI as it wrote it, which for an upstream's may not be the way in which changes are announced.
    """
    topics: dict[Hashable, _Telling] = {registry.own_uri(uri): _Uri(uri) for uri in honoured.uris}
    names: tuple[notifications.ListName, ...] = ("tools", "prompts", "resources")
    wanted = {"tools": honoured.tools, "prompts": honoured.prompts, "resources": honoured.resources}
    topics.update({name: _List(name) for name in names if wanted[name]})
    topics.update({_Task(task_id): _Task(task_id) for task_id in honoured.task_ids})
    return topics
