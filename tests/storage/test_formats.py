"""Processes agree on the format of the task store; one that cannot read it refuses, and says what to do."""

from __future__ import annotations

import logging

import pytest

from gateway.errors import ConfigurationError, TaskStoreAway
from gateway.sealing.formats import FIRST, OWNER_SECRET, TASK_STORE, Format
from gateway.storage import deployment
from gateway.storage import deployment as start_up
from tests.storage.deployments import ALICE, MAX_TTL_MS, Deployment, eventually

NEWER = TASK_STORE.reads + 1


async def stored(here: Deployment) -> tuple[bytes | None, int]:
    """Return the store's format number and its remaining lifetime (ms)."""
    client = here.store()._client
    key = here.keys.agreed_format()
    return await client.command("GET", key), await client.command("PTTL", key)


async def put(here: Deployment, value: object) -> None:
    await here.store()._client.command("SET", here.keys.agreed_format(), value, "PX", 60_000)


def release(patch: pytest.MonkeyPatch, reads: int, writes: int) -> None:
    """Let the processes be those of another release."""
    other = Format(TASK_STORE.kind, TASK_STORE.place, reads, writes)
    patch.setattr(deployment, "TASK_STORE", other)


async def test_a_store_has_a_format_number_that_lives_as_long_as_the_number_of_partitions(here: Deployment) -> None:
    await here.store().check()
    number, lifetime_ms = await stored(here)
    assert number == b"%d" % TASK_STORE.writes
    assert 3.9 * MAX_TTL_MS < lifetime_ms <= 4 * MAX_TTL_MS
    assert here.keys.agreed_format().partition("}")[0] == here.keys.agreed_partitions().partition("}")[0]


async def test_a_store_without_a_number_has_the_first_format(here: Deployment) -> None:
    """Release 0.2.0 wrote none."""
    await here.store().check()
    running, fresh = here.store(), here.store()
    await running.check()
    await running._client.command("DEL", here.keys.agreed_format())
    running._deployment.look_soon()
    assert await running.owner(ALICE) == await fresh.owner(ALICE)
    assert (await stored(here))[0] == b"%d" % FIRST


@pytest.mark.parametrize("number", [str(NEWER), str(NEWER + 98), "x", "-1", "1e0", " ", "9" * 40])
async def test_a_process_refuses_to_start_at_a_format_that_it_does_not_read(here: Deployment, number: str) -> None:
    await here.store().check()
    await put(here, number)
    for refuse in (here.store().check, here.queue().check, here.store().inspect):
        with pytest.raises(ConfigurationError) as refused:
            await refuse()
        (line,) = refused.value.problems
        assert line.startswith("GATEWAY_REDIS_URL: ")
        if number.isdigit():
            assert f"the task store has format {number}, and this release reads up to format {TASK_STORE.reads}" in line
            assert "start the newer release" in line
        else:
            assert f"delete the key {here.keys.agreed_format()}" in line
    assert (await stored(here))[0] == number.encode()


async def test_a_process_that_refuses_a_format_leaves_nothing_in_the_store(here: Deployment) -> None:
    await put(here, NEWER)
    for refuse in (here.store().check, here.queue().check, here.store().inspect):
        with pytest.raises(ConfigurationError):
            await refuse()
    agreed = await here.store()._client.command("MGET", here.keys.agreed_partitions(), here.keys.owner_secret())
    assert agreed == [None, None]


async def test_a_newer_format_says_more_than_another_number_of_partitions(here: Deployment) -> None:
    await here.store().check()
    await put(here, NEWER)
    with pytest.raises(ConfigurationError) as refused:
        await here.store(partitions=7).check()
    assert "newer release" in str(refused.value)
    with pytest.raises(ConfigurationError) as found:
        await here.store(partitions=7).inspect()
    assert len(found.value.problems) == 2


async def test_a_process_that_runs_notices_a_newer_format_and_says_so_once(
    here: Deployment, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_up, "LOOK_SECONDS", 0)
    store, queue = here.store(), here.queue()
    mine = await store.owner(ALICE)
    await here.claim(queue)
    await put(here, NEWER)
    for _ in range(3):
        with pytest.raises(TaskStoreAway):
            await store.owner(ALICE)
        with pytest.raises(TaskStoreAway):
            await here.claim(queue)
    told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert [record.message for record in told] == ["task store cannot be used"] * 2  # one line from each process
    await put(here, TASK_STORE.writes)
    assert await store.owner(ALICE) == mine
    await put(here, NEWER)
    with pytest.raises(TaskStoreAway):
        await store.owner(ALICE)
    assert [record.message for record in caplog.records].count("task store cannot be used") == 3, "it happened again"


async def test_the_next_release_raises_the_number_only_when_it_writes_the_new_format(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N reads 2 and writes 1, N+1 writes 2. So each runs beside the one before and the one after."""
    monkeypatch.setattr(start_up, "LOOK_SECONDS", 0)
    await here.store().check()
    with monkeypatch.context() as patch:
        release(patch, reads=2, writes=1)
        running = here.store()
        await running.check()
        assert (await stored(here))[0] == b"1"
        with monkeypatch.context() as later:
            release(later, reads=3, writes=2)
            await here.store().check()
            assert (await stored(here))[0] == b"2"
        mine = await running.owner(ALICE)
        await here.store().check()
        assert (await stored(here))[0] == b"2", "rolled back, it reads what was written"
        assert await here.store().owner(ALICE) == mine
    with pytest.raises(ConfigurationError, match="start the newer release"):
        await here.store().check()


async def test_a_number_lives_only_as_long_as_processes_that_write_its_format(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(monkeypatch, reads=2, writes=1)
    await here.store().check()
    await put(here, 2)
    await here.store().check()
    assert (await stored(here))[1] <= 60_000
    await here.store()._client.command("PEXPIRE", here.keys.agreed_format(), 1)

    async def gone() -> bool:
        return (await stored(here))[0] is None

    await eventually(gone)
    await here.store().check()
    assert (await stored(here))[0] == b"1"


async def test_a_process_that_writes_a_newer_format_than_the_store_has_raises_the_number_while_it_runs(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_up, "LOOK_SECONDS", 0)
    release(monkeypatch, reads=2, writes=2)
    store = here.store()
    await store.owner(ALICE)
    await put(here, 1)
    await store.owner(ALICE)
    assert (await stored(here))[0] == b"2"


async def test_a_secret_in_a_newer_format_is_not_taken_for_one_with_another_key(here: Deployment) -> None:
    store = here.store()
    await store.check()
    key = here.keys.owner_secret()
    sealed = await store._client.command("GET", key)
    await store._client.command("SET", key, b"%d:" % OWNER_SECRET.reads + sealed, "KEEPTTL")
    assert await here.store().owner(ALICE) == here.owner()
    await store._client.command("SET", key, b"%d:" % (OWNER_SECRET.reads + 1) + sealed, "KEEPTTL")
    with pytest.raises(ConfigurationError, match="a newer release stored the secret"):
        await here.store().check()
