"""Tools that an upstream runs only as tasks of its own (2025-11-25, "Tasks"). A call waits for the task's result.

Such a task belongs to its session, so it lives as long as the call. A task of the gateway outlives its call instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, Final, Unpack

from gateway.upstreams.failures import Reason, UpstreamError, UpstreamFailure
from gateway.upstreams.ports import RequestOptions, Requests

LIST_SECONDS: Final = 10.0
MAX_PAGES: Final = 64
"""How long a call waits for a list that nobody has read before, as in a worker, and how many pages of it are read."""

MAX_LISTS: Final = 100
MAX_TASK_TOOLS: Final = 200
MAX_NAME_CHARS: Final = 128
"""Of how many lists such tools are known, how many of each, and how long their names may be."""

CANCEL_SECONDS: Final = 2.0
"""How long a call that ends early waits until its task is cancelled."""

SPARE_SECONDS: Final = 60.0
"""How much longer than the call an upstream is to keep its task."""

_MAX_ID_CHARS: Final = 1024
_MAX_ANSWER_BYTES: Final = 64 * 1024


class _TaskToolsOfList:
    """The tools that run only as tasks, as one list of tools has them. It `is_known` once it was read to its end."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.is_known = False

    def learn(self, page: Mapping[str, Any]) -> None:
        """Learn from a page of the list."""
        tools = page.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str) or len(name) > MAX_NAME_CHARS:
                continue
            execution = tool.get("execution")
            if not isinstance(execution, dict) or execution.get("taskSupport") != "required":
                self.names.discard(name)
            elif len(self.names) < MAX_TASK_TOOLS:
                self.names.add(name)
        self.is_known = self.is_known or "nextCursor" not in page


class TaskTools:
    """Knows which tools of an upstream run only as tasks, and calls them.

    `requests` send to one session. Callers with other keys may have other lists.
    """

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._lists: OrderedDict[Hashable, _TaskToolsOfList] = OrderedDict()
        self._tokens = itertools.count(-1, -1)  # unlike all ids of requests, which are tokens too

    async def request(
        self,
        key: Hashable,
        requests: Requests,
        method: str,
        params: Mapping[str, Any],
        **options: Unpack[RequestOptions],
    ) -> dict[str, Any]:
        """Send a request and return its result: that of the task if it becomes one. Lists say which tools do."""
        ends_at = asyncio.get_running_loop().time() + options["seconds"]
        known = self._list_of(key)
        if method == "tools/call":
            if not known.is_known:
                await self._read(known, requests, options)
                options["seconds"] = ends_at - asyncio.get_running_loop().time()
            if params["name"] in known.names:
                return await self._run(requests, params, options)
        result = await requests.request(method, params, **options)
        if method == "tools/list":
            known.learn(result)
        return result

    def _list_of(self, key: Hashable) -> _TaskToolsOfList:
        known = self._lists.pop(key) if key in self._lists else _TaskToolsOfList()
        self._lists[key] = known  # those that were used last come last
        if len(self._lists) > MAX_LISTS:
            self._lists.popitem(last=False)
        return known

    async def _read(self, known: _TaskToolsOfList, requests: Requests, options: RequestOptions) -> None:
        """Read the list of tools. If there is no answer, the call shows what is wrong, and the next one tries again."""
        own: RequestOptions = {**_plain(options), "seconds": min(LIST_SECONDS, options["seconds"])}
        cursor: dict[str, Any] = {}
        with contextlib.suppress(UpstreamFailure, TimeoutError):
            async with asyncio.timeout(own["seconds"]):
                with contextlib.suppress(UpstreamError):
                    for _ in range(MAX_PAGES):
                        page = await requests.request("tools/list", cursor, **own)
                        known.learn(page)
                        if known.is_known:
                            return
                        cursor = {"cursor": page["nextCursor"]}
                known.is_known = True

    async def _run(self, requests: Requests, params: Mapping[str, Any], options: RequestOptions) -> dict[str, Any]:
        """Have a task created, and return its result. If that does not come, the task is cancelled."""
        ends_at = asyncio.get_running_loop().time() + options["seconds"]
        options = {**options, "progress_token": next(self._tokens)}
        ttl_ms = round((options["seconds"] + SPARE_SECONDS) * 1000)
        creating = asyncio.create_task(requests.request("tools/call", {**params, "task": {"ttl": ttl_ms}}, **options))
        try:
            created = await asyncio.shield(creating)
        except asyncio.CancelledError:
            await self._abandon(requests, creating, options)
            raise
        if "task" not in created:
            return created
        task_id = self._id_of(created)
        options["seconds"] = ends_at - asyncio.get_running_loop().time()
        try:
            return await requests.request("tasks/result", {"taskId": task_id}, **options)
        except UpstreamFailure as failure:
            await self._cancel(requests, task_id, options)
            # Whatever happened to this request, the task has begun.
            raise UpstreamFailure(self._upstream, failure.reason, sent=True, detail=failure.detail) from None
        except asyncio.CancelledError:
            await self._cancel(requests, task_id, options)
            raise

    def _id_of(self, created: Mapping[str, Any]) -> str:
        task = created["task"]
        task_id = task.get("taskId") if isinstance(task, dict) else None
        if not isinstance(task_id, str) or len(task_id) > _MAX_ID_CHARS:
            raise UpstreamFailure(self._upstream, Reason.MALFORMED, sent=True, detail="its task has no valid id")
        return task_id

    async def _abandon(
        self, requests: Requests, creating: asyncio.Task[dict[str, Any]], options: RequestOptions
    ) -> None:
        """Cancel a task that is being created: it has no id before."""
        with contextlib.suppress(UpstreamError, UpstreamFailure, TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                created = await creating
            if "task" in created:
                await self._cancel(requests, self._id_of(created), options)

    async def _cancel(self, requests: Requests, task_id: str, options: RequestOptions) -> None:
        own: RequestOptions = {**_plain(options), "seconds": CANCEL_SECONDS, "max_bytes": _MAX_ANSWER_BYTES}
        with contextlib.suppress(UpstreamError, UpstreamFailure):
            await requests.request("tasks/cancel", {"taskId": task_id}, **own)


def _plain(options: RequestOptions) -> RequestOptions:
    """Return the options of another request for the same caller, of which nobody wants notices."""
    return {"requester": options["requester"], "seconds": options["seconds"], "max_bytes": options["max_bytes"]}
