"""Every stored value can be read again. We or the server refuse larger values before anything is written."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import TaskStoreDown, ValueTooLarge
from gateway.sealing.packing import pack
from gateway.storage import RedisTaskStore, RedisWorkQueue, records
from gateway.tasks.model import Phase, Progress
from gateway.tasks.ports import Claim, Heartbeat, Kept, TaskQuestion
from tests.storage.deployments import Deployment, eventually, everything, numbers
from tests.storage.servers import Server

pytestmark = pytest.mark.slow

LIMIT = 2048
SMALLEST_LIMIT_OF_A_SERVER = 2**20


class Case:
    """A task claimed by a worker, and the ways to store something in it."""

    KINDS = ("result", "error", "step", "checkpoint", "message", "segment", "question", "answer")

    def __init__(self, here: Deployment, store: RedisTaskStore, queue: RedisWorkQueue, claim: Claim) -> None:
        self.here, self.store, self.queue, self.claim = here, store, queue, claim

    async def write(self, kind: str, text: str) -> Any:
        """Store a text, and return the value that contains it."""
        queue, claim = self.queue, self.claim
        value: dict[str, Any] = {"text": text}
        if kind == "error":
            value = {"code": -32603, "message": text}
        if kind in ("result", "error"):
            await queue.finish(claim, **{kind: value})
        elif kind == "step":
            await queue.keep(claim, Kept(steps={"one": value}))
        elif kind == "checkpoint":
            await queue.keep(claim, Kept(checkpoint=value))
        elif kind == "message":
            await queue.keep(claim, Kept(progress=Progress(1, 2, text)))
            return text
        elif kind == "segment":
            await queue.emit(claim, 1, value)
        elif kind == "question":
            await queue.wait(claim, {"k": TaskQuestion(b"digest", "elicitation/create", value)}, claim.journal)
            return {"k": ["k", b"digest", "elicitation/create", value]}
        else:
            await queue.wait(claim, {"k": TaskQuestion(b"digest", "elicitation/create", {})}, claim.journal)
            await self.store.answer(claim.owner, claim.task_id, {"k": value})
        return value

    async def read(self, kind: str) -> Any:
        """Read what `write` has stored, as its reader does."""
        owner, task_id = self.claim.owner, self.claim.task_id
        view = await self.store.get(owner, task_id)
        assert view is not None
        assert view.opened
        if kind in ("result", "error"):
            return getattr(view, kind)
        if kind == "message":
            return view.progress and view.progress.message
        if kind == "segment":
            return (await self.store.segments(owner, task_id))[0]
        if kind == "question":
            return {"k": list(_parts(view.questions["k"]))}
        if kind == "answer":
            return (await self.next_claim()).journal["answers"]["k"][0][1]
        journal = (await self.next_claim()).journal
        return journal["checkpoint"] if kind == "checkpoint" else journal["steps"]["one"]

    async def next_claim(self) -> Claim:
        """Claim the task as another worker would."""
        return await self.here.claim_one(self.here.queue("w2", lease_ms=0, max_value_bytes=LIMIT))

    async def phase(self) -> Phase:
        view = await self.store.get(self.claim.owner, self.claim.task_id)
        assert view is not None
        return view.phase


def _parts(question: Any) -> tuple[Any, ...]:
    return question.key, question.digest, question.method, question.params


async def make_case(here: Deployment, **options: Any) -> Case:
    store, queue, new = here.store(**options), here.queue(**options), here.new()
    await store.create(new, 10)
    return Case(here, store, queue, await here.claim_one(queue))


@settings(max_examples=30)
@given(kind=st.sampled_from(Case.KINDS), size=st.integers(LIMIT - 60, LIMIT + 20))
def test_stored_values_read_back_and_values_that_do_not_fit_change_nothing(
    server: Server, kind: str, size: int
) -> None:
    async def run() -> None:
        here = Deployment(server.url)
        try:
            case, text = await make_case(here, max_value_bytes=LIMIT), "x" * size
            before = await everything(here)
            refused = None
            try:
                written = await case.write(kind, text)
            except ValueTooLarge as error:
                refused = error
            if refused is None:
                assert len(pack(written)) <= LIMIT
                assert await case.read(kind) == written
                return
            assert f"the limit is {LIMIT}" in str(refused)
            assert not (await case.phase()).ended
            if kind != "answer":  # the question is stored first
                assert await everything(here) == before
        finally:
            await here.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("kind", Case.KINDS)
async def test_the_limit_is_the_size_of_the_value(here: Deployment, kind: str) -> None:
    fits = (await make_case(here, max_value_bytes=2**20)).write(kind, "")
    overhead = len(pack(await fits)) + 2  # the length prefix of such a text takes two bytes more
    overhead += records.SEGMENT_BYTES if kind == "segment" else 0
    await (await make_case(here, max_value_bytes=LIMIT)).write(kind, "x" * (LIMIT - overhead))
    with pytest.raises(ValueTooLarge, match=f"{LIMIT + 1} bytes; the limit is {LIMIT}"):
        await (await make_case(here, max_value_bytes=LIMIT)).write(kind, "x" * (LIMIT - overhead + 1))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("result", "The result is too large"),
        ("error", "The error is too large"),
        ("step", "The result of step 'one' is too large"),
        ("checkpoint", "The checkpoint is too large"),
        ("segment", "The output of the task is too large"),
        ("question", "The list of the task's questions is too large"),
        ("answer", "The answer to 'k' is too large"),
    ],
)
async def test_the_error_names_what_is_too_large(here: Deployment, kind: str, words: str) -> None:
    with pytest.raises(ValueTooLarge, match=words):
        await (await make_case(here, max_value_bytes=LIMIT)).write(kind, "x" * LIMIT)


async def test_segments_count_together_also_those_of_earlier_workers(here: Deployment) -> None:
    case, half = await make_case(here, max_value_bytes=LIMIT), {"text": "x" * (LIMIT // 2 - 20 - records.SEGMENT_BYTES)}
    await case.queue.emit(case.claim, 1, half)
    claim = await case.next_claim()
    await case.queue.emit(claim, 2, half)
    for number in (3, 4):
        with pytest.raises(ValueTooLarge, match="The output of the task"):
            await case.queue.emit(claim, number, half)
    assert await case.store.segments(claim.owner, claim.task_id) == [half, half]


async def test_all_that_a_task_keeps_is_bounded_however_small_its_parts(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_STORED_BYTES", 4 * LIMIT)
    case = await make_case(here, max_value_bytes=LIMIT)
    for number in range(7):
        await case.queue.keep(case.claim, Kept(steps={f"step-{number}": "x" * (LIMIT // 2)}))
    with pytest.raises(ValueTooLarge, match=f"The stored state of the task is too large: .* the limit is {4 * LIMIT}"):
        await case.queue.keep(case.claim, Kept(steps={"last": "x" * (LIMIT - 10)}))
    steps = {f"step-{number}": "x" * (LIMIT // 2) for number in range(9)}
    with pytest.raises(ValueTooLarge, match="The stored state of the task"):
        await case.store.create(here.new(journal={"flow": "f", "steps": steps}), 10)


async def test_a_lower_limit_leaves_what_is_there_readable(here: Deployment) -> None:
    case = await make_case(here, max_value_bytes=2 * LIMIT)
    written = await case.write("result", "x" * LIMIT)
    view = await here.store(max_value_bytes=LIMIT).get(case.claim.owner, case.claim.task_id)
    assert view is not None
    assert view.result == written


# A server that accepts less than we would send


@pytest.fixture(params=["unix", "tcp"])
async def narrow(request: pytest.FixtureRequest, short_directory: Path) -> AsyncIterator[Deployment]:
    """A deployment on a server that refuses values over one megabyte, as late as it can."""
    with narrow_server(short_directory, request.param) as url:
        deployment = Deployment(url)
        yield deployment
        await deployment.aclose()


@contextlib.contextmanager
def narrow_server(short_directory: Path, kind: str) -> Iterator[str]:
    directory = short_directory / f"narrow-{next(numbers)}"
    directory.mkdir()
    server = Server("redis", directory, "--proto-max-bulk-len", str(SMALLEST_LIMIT_OF_A_SERVER))
    server.start()
    try:
        yield f"redis://127.0.0.1:{server.port}" if kind == "tcp" else server.url
    finally:
        server.end()


@pytest.mark.parametrize("size", [SMALLEST_LIMIT_OF_A_SERVER, 20 * SMALLEST_LIMIT_OF_A_SERVER])
async def test_a_value_the_server_never_accepts_differs_from_an_unreachable_server(
    narrow: Deployment, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    case = await make_case(narrow)
    beats = [case.queue.heartbeat(case.claim) for _ in range(20)]
    write, *beaten = await asyncio.gather(case.write("result", "x" * size), *beats, return_exceptions=True)
    assert isinstance(write, ValueTooLarge)
    assert "more than the task store accepts" in str(write)
    assert beaten == [Heartbeat.OK] * len(beats)
    assert await case.phase() is Phase.RUNNING
    await case.queue.finish(case.claim, result={"content": []})
    told = [record.getMessage() for record in caplog.records if record.name == "gateway.storage"]
    assert len(told) == 1
    assert "proto-max-bulk-len" in told[0]


async def test_a_node_of_a_cluster_is_asked_too(cluster: str) -> None:
    here, node = Deployment(cluster), cluster.replace("+cluster", "")
    with redis.RedisCluster.from_url(node) as nodes:
        before = nodes.config_get("proto-max-bulk-len", target_nodes=nodes.get_primaries()[0])["proto-max-bulk-len"]
        nodes.config_set("proto-max-bulk-len", SMALLEST_LIMIT_OF_A_SERVER, target_nodes=redis.RedisCluster.PRIMARIES)
        try:
            case = await make_case(here)
            with pytest.raises(ValueTooLarge):
                await case.write("result", "x" * (2 * SMALLEST_LIMIT_OF_A_SERVER))
            await case.queue.finish(case.claim, result={})
        finally:
            nodes.config_set("proto-max-bulk-len", before, target_nodes=redis.RedisCluster.PRIMARIES)
            await here.aclose()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_large_value_reports_an_unreachable_server_as_unreachable(
    own_server: Server, number: signal.Signals
) -> None:
    here = Deployment(own_server.url)
    case = await make_case(here)
    own_server.signal(number)
    with pytest.raises(TaskStoreDown):
        await case.write("result", "x" * (2 * SMALLEST_LIMIT_OF_A_SERVER))
    own_server.kill()
    await here.aclose()
    await eventually(no_connection_is_closing)  # one closes when it knows that the rest will not be read


async def no_connection_is_closing() -> bool:
    transports = asyncio.get_running_loop()._transports  # type: ignore[attr-defined]
    return all(transport._sock is None for transport in transports.values() if transport.is_closing())
