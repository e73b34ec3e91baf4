"""`subscriptions/listen` of the released wire: the messages of a stream, from the acknowledgement to its end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias

from gateway.calls.authority import Authorities
from gateway.calls.changes import ChangeHub, Subscription
from gateway.calls.task_access import TaskAccess
from gateway.calls.task_follower import pumping, timeless
from gateway.ensured import ensured
from gateway.errors import TaskStoreDown
from gateway.protocol.caller import Caller
from gateway.protocol.jsonrpc import RequestId, result_response
from gateway.protocol.released import notifications
from gateway.protocol.released.requests import ListenFilter, read_listen
from gateway.protocol.released.results import ResultWriter
from gateway.protocol.released.tasks import detailed_task, task_meta
from gateway.protocol.strict_json import encode
from gateway.protocol.versions import Wire
from gateway.registry.registry import Registry
from gateway.runtime.turns import Turns
from gateway.tasks.model import TaskView
from gateway.wires.methods import Incoming, Methods
from gateway.wires.released.stream_authority import URIS_AT_ONCE, StreamAuthority, WatchedResource
from gateway.wires.released.tasks import require_tasks
from gateway.wires.replies import Listening, Reply
from gateway.wires.watches import Watches

CHANGES_AT_ONCE: Final = 8
"""How many changes a stream sends in one turn."""


@dataclass(frozen=True, slots=True)
class _ChangedList:
    name: notifications.ListName


@dataclass(frozen=True, slots=True)
class _Uri:
    uri: str


@dataclass(frozen=True, slots=True)
class _Task:
    task_id: str


_Telling: TypeAlias = _ChangedList | _Uri | _Task


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Answers `subscriptions/listen`. Resources of upstreams are watched while somebody listens.

    `authorities` end the streams of callers whose authority ends.
    """

    methods: Methods
    results: ResultWriter
    changes: ChangeHub
    authorities: Authorities
    tasks: TaskAccess | None = None
    _: KW_ONLY
    watches: Watches
    _turns: Turns = field(default_factory=Turns, init=False)

    async def listen(self, incoming: Incoming) -> Reply:
        """Answer one request.

        Raises:
            InvalidParams: the filter is malformed.
            MissingCapability: the filter names tasks, but the client did not declare the extension.
            TaskStoreDown: the filter names tasks, but the store does not answer.
        """
        request, caller, registry = incoming.request, incoming.caller, self.methods.registry
        wanted = read_listen(request.params)
        if wanted.task_ids:
            require_tasks(request)
        tasks: tuple[TaskView, ...] = ()
        if wanted.task_ids and self.tasks is not None:
            tasks = await self.tasks.own(wanted.task_ids, caller, registry)
        resources = await self._announced(wanted.uris, caller, registry)
        honoured = _honoured(wanted, registry, resources, tasks)
        authority = StreamAuthority(
            caller, resources, tasks, registry, turn=self._turn_of(caller), watches=self.watches
        )
        topics = _topics(honoured, resources)
        return Listening(self._messages(request.id, honoured, topics, authority), request.id, Wire.RELEASED)

    def _turn_of(self, caller: Caller) -> Callable[[], Awaitable[None]]:
        return partial(self._turns.begin, None, caller.principal)

    async def _announced(self, uris: Sequence[str], caller: Caller, registry: Registry) -> dict[str, WatchedResource]:
        """Return the resources whose changes a caller may learn of, by the client's URI.

        Of many streams that open, one has its turn at a time, and other work is done in between.
        """
        announced: dict[str, WatchedResource] = {}
        for number, uri in enumerate(uris):
            if number % URIS_AT_ONCE == 0 and len(uris) > URIS_AT_ONCE:
                await self._turns.begin(None, caller.principal)
            found = registry.find_resource(uri)
            resource = None if found is None else found[0]
            if resource is not None and resource.announces_changes and caller.grants(resource.scopes):
                own = uri if resource.template is not None else resource.uri
                announced[uri] = WatchedResource(own, resource.upstream, resource.scopes)
        return announced

    async def _messages(
        self,
        request_id: RequestId,
        honoured: ListenFilter,
        topics: Mapping[Hashable, _Telling],
        authority: StreamAuthority,
    ) -> AsyncIterator[bytes]:
        subscription = self.changes.subscribe(topics)
        reported = _Reported(request_id)
        try:
            yield notifications.acknowledged(request_id, honoured)
            async with self._watching(honoured.task_ids, authority, subscription):
                async for topic in self._changes_of(subscription, authority):
                    match topics[topic]:
                        case _ChangedList(name):
                            yield notifications.list_changed(name, request_id)
                        case _Uri(uri) if authority.serves(uri):
                            yield notifications.resource_updated(uri, request_id)
                        case _Task(task_id):
                            message = await self._news_of(task_id, authority.caller, reported)
                            await authority.judged()
                            if message is not None and self.authorities.hold(authority.caller, authority.needs):
                                yield message
            yield result_response(request_id, self.results.listen_closed(request_id))
        finally:
            self.changes.unsubscribe(subscription)

    async def _changes_of(self, subscription: Subscription, authority: StreamAuthority) -> AsyncIterator[Hashable]:
        """Yield the changes of a stream, a few in each turn: a thousand streams may learn of many at once."""
        turn = self._turn_of(authority.caller)
        while await subscription.changed():
            await turn()
            for _ in range(CHANGES_AT_ONCE):
                await authority.judged()
                if (topic := subscription.take()) is None:
                    break
                yield topic

    @contextlib.asynccontextmanager
    async def _watching(
        self, task_ids: Sequence[str], authority: StreamAuthority, subscription: Subscription
    ) -> AsyncIterator[None]:
        """Pass the store's hints to the subscription while the context is open. End it when the authority ends."""
        with authority.watching(self.authorities, subscription.cut):
            if not task_ids or self.tasks is None:
                yield
                return
            async with pumping(self.tasks, task_ids, authority.caller, subscription, _Task):
                yield

    async def _news_of(self, task_id: str, caller: Caller, reported: _Reported) -> bytes | None:
        """Return a message if a task has changed since the last one. Many hints are not about a visible change."""
        if reported.is_final(task_id):
            return None
        tasks = ensured(self.tasks, "nothing else brings the topic of a task")
        try:
            view = await tasks.read(task_id, caller)
        except TaskStoreDown:
            return None  # the task is read again in a few seconds
        return None if view is None else reported.news(view)


class _Reported:
    """Knows the last messages of a stream about tasks by their digests: results are large, and streams are many."""

    def __init__(self, request_id: RequestId) -> None:
        self._request_id = request_id
        self._digests: dict[str, bytes] = {}
        self._final: set[str] = set()

    def is_final(self, task_id: str) -> bool:
        """Return whether the task had ended when it was reported, so that it cannot change any more."""
        return task_id in self._final

    def news(self, view: TaskView) -> bytes | None:
        """Return the message about a task, None if the last one said the same."""
        task, meta = detailed_task(view), task_meta(view)
        digest = sha256(encode(timeless({**task, "_meta": meta}))).digest()
        if self._digests.get(view.task_id) == digest:
            return None
        self._digests[view.task_id] = digest
        if view.opened and view.phase.ended:
            self._final.add(view.task_id)
        return notifications.task_changed(self._request_id, task, meta)


def _honoured(
    wanted: ListenFilter, registry: Registry, resources: Mapping[str, WatchedResource], tasks: Sequence[TaskView]
) -> ListenFilter:
    """Return the part of a filter that is served to a caller who may access these resources and tasks."""
    return ListenFilter(
        tools=wanted.tools,
        prompts=wanted.prompts and registry.offers("prompts"),
        resources=wanted.resources and registry.offers("resources"),
        uris=tuple(resources),
        task_ids=tuple(task.task_id for task in tasks),
    )


def _topics(honoured: ListenFilter, resources: Mapping[str, WatchedResource]) -> dict[Hashable, _Telling]:
    """Return what to report by topic. A topic is the name of a list, the URI of a resource, or a task.

    A client gets each URI as it wrote it, which for an upstream's may not be the way in which changes are announced.
    """
    topics: dict[Hashable, _Telling] = {each.uri: _Uri(uri) for uri, each in resources.items()}
    names: tuple[notifications.ListName, ...] = ("tools", "prompts", "resources")
    wanted = {"tools": honoured.tools, "prompts": honoured.prompts, "resources": honoured.resources}
    topics.update({name: _ChangedList(name) for name in names if wanted[name]})
    topics.update({_Task(task_id): _Task(task_id) for task_id in honoured.task_ids})
    return topics
