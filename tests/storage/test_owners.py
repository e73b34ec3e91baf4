"""The names of owners in the store reveal no caller, and all processes of a deployment use the same names."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
from collections.abc import AsyncIterator

import pytest

from gateway.errors import ConfigurationError, TaskStoreDown
from gateway.sealing.binding import Purpose, associated_data
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.storage import RedisTaskStore
from gateway.storage import deployment as start_up
from tests.storage.deployments import ALICE, BOB, Deployment
from tests.storage.servers import Server
from tests.storage.test_faults import files

OLD, NEW = (generate_entry(os.urandom) for _ in range(2))
DAY_MS = 86_400_000


@pytest.fixture
async def there(own_server: Server) -> AsyncIterator[Deployment]:
    """A deployment on a server that the test may stop, fill or restart."""
    deployment = Deployment(own_server.url)
    yield deployment
    await deployment.aclose()


def process(here: Deployment, *entries: str) -> RedisTaskStore:
    """Another process of a deployment, with real randomness, and with its own ring if entries are given."""
    ring = KeyRing.parse(",".join(entries)) if entries else None
    return here.store(ring, random_bytes=os.urandom)


async def names(*processes: RedisTaskStore) -> set[str]:
    return {await process.owner(ALICE) for process in processes}


async def looked(*processes: RedisTaskStore) -> None:
    """Make processes look at the store again, as they do after a while."""
    for each in processes:
        each._deployment.look_soon()
        await each.owner(ALICE)


async def test_processes_that_start_together_agree_on_one_secret(here: Deployment) -> None:
    processes = [process(here) for _ in range(8)]
    assert len(set(await asyncio.gather(*(each.owner(ALICE) for each in processes)))) == 1
    assert len({await processes[0].owner(caller) for caller in (ALICE, BOB, None)}) == 3


async def test_the_store_holds_neither_the_secret_nor_a_hash_that_a_guess_gives(
    there: Deployment, own_server: Server
) -> None:
    made: list[bytes] = []

    def noted(size: int) -> bytes:
        made.append(os.urandom(size))
        return made[-1]

    store = there.store(random_bytes=noted)
    mine = await store.owner(ALICE)
    await store.create(there.new(owner=mine), 10)
    await store.spend(mine, "flow", 1, b"digest", 60_000, leg_ms=1000)
    own_server.ask("SAVE")
    written = b"".join(path.read_bytes() for path in files(own_server.directory))
    guess = hashlib.sha256(associated_data(Purpose.OWNER, there.audience, ALICE))
    assert mine.encode() in written
    assert len(made) == 1
    for told in (made[0], made[0].hex().encode(), guess.digest(), guess.hexdigest().encode()):
        assert told not in written


async def test_keys_rotate_and_every_process_keeps_naming_owners_alike(here: Deployment) -> None:
    """`old`, `old,new`, `new,old`, `new`: each fully rolled out, with processes of two steps running together."""
    steps = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]
    fleet: list[RedisTaskStore] = [process(here, OLD)]
    mine = await fleet[0].owner(ALICE)
    for before, step in itertools.pairwise(steps):
        fleet += [process(here, *before), process(here, *step)]
        await looked(*fleet)
        await asyncio.gather(*(looked(*fleet[i:], *fleet[:i]) for i in range(len(fleet))))
        assert await names(*fleet) == {mine}
        fleet = [process(here, *step)]
        await looked(*fleet)
        assert await names(process(here, *step)) == {mine}


async def test_an_idle_process_that_gets_other_keys_seals_the_secret_again(here: Deployment) -> None:
    store = process(here, OLD)
    mine = await store.owner(ALICE)
    for entries in ((OLD, NEW), (NEW, OLD), (NEW,)):
        store._owners._holder.replace(KeyRing.parse(",".join(entries)))
    store._deployment.look_soon()
    await store.totals()  # every process counts tasks regularly
    assert await names(process(here, NEW)) == {mine}


async def test_a_process_with_other_keys_is_refused_at_the_start_and_learns_what_to_do(here: Deployment) -> None:
    await process(here, OLD).check()
    with pytest.raises(
        ConfigurationError, match=r"GATEWAY_SEAL_KEYS: none of these keys opens .* use the keys"
    ) as told:
        await process(here, NEW).check()
    assert here.keys.owner_secret() in str(told.value)
    assert OLD not in str(told.value)
    assert NEW not in str(told.value)


async def test_a_secret_that_opens_no_more_stops_tasks_until_it_does(
    here: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    store = process(here, OLD)
    mine = await store.owner(ALICE)
    key = here.keys.owner_secret()
    sealed = await store._client.command("GET", key)
    for spoiled in (b"\xff", b"s1.AAAA", sealed[:-1] + bytes([sealed[-1] ^ 1])):
        await store._client.command("SET", key, spoiled, "KEEPTTL")
        store._deployment.look_soon()
        for _ in range(3):
            with pytest.raises(TaskStoreDown):
                await store.owner(ALICE)
        await store._client.command("SET", key, sealed, "KEEPTTL")
        assert await store.owner(ALICE) == mine
    told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(told) == 3


async def test_a_store_that_was_down_at_the_start_names_owners_when_it_is_back(
    there: Deployment, own_server: Server
) -> None:
    mine = await process(there).owner(ALICE)
    own_server.kill()
    store = process(there)
    with pytest.raises(TaskStoreDown):
        await store.owner(ALICE)
    own_server.start()
    assert await store.owner(ALICE) == mine


async def test_a_store_that_lost_everything_gets_back_the_secret_that_is_in_use(
    there: Deployment, own_server: Server
) -> None:
    running, worker = process(there), there.queue(random_bytes=os.urandom)
    mine = await running.owner(ALICE)
    assert await worker.claim(0, 1, 0) == []
    own_server.ask("FLUSHALL")
    assert await worker.claim(0, 1, 0) == []  # it finds its queue gone
    assert await worker.claim(0, 1, 0) == []
    assert await names(running, process(there)) == {mine}


async def test_a_process_takes_the_secret_that_another_one_made_meanwhile(
    there: Deployment, own_server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(start_up, "LOOK_SECONDS", 0)
    running = process(there)
    mine = await running.owner(ALICE)
    own_server.ask("FLUSHALL")
    fresh = process(there)
    assert await fresh.owner(ALICE) != mine
    assert len(await names(running, fresh)) == 1
    assert "lost its data" in caplog.text


async def test_a_process_asks_for_the_secret_no_more_than_once_in_a_while(
    here: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_up, "LOOK_SECONDS", 3600)
    store = process(here)
    mine = await store.owner(ALICE)
    await store._client.command("DEL", here.keys.owner_secret())
    assert await names(*[store] * 10) == {mine}
    assert await store._client.command("EXISTS", here.keys.owner_secret()) == 0


async def test_the_secret_outlives_what_it_names_and_not_for_ever(here: Deployment) -> None:
    for max_ttl_ms, at_least in ((60_000, 365 * DAY_MS), (365 * DAY_MS, 4 * 365 * DAY_MS)):
        store = here.store(max_ttl_ms=max_ttl_ms)
        await store.check()
        await store._client.command("PEXPIRE", here.keys.owner_secret(), 5000)
        await store.check()
        lifetime = await store._client.command("PTTL", here.keys.owner_secret())
        assert at_least - 60_000 < lifetime <= at_least + 2 * DAY_MS
