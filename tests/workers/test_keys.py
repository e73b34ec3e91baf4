"""Seal keys that are replaced while replicas and workers run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Worker, new_key, wait_until
from tests.workers.site import Site

pytestmark = pytest.mark.slow


def key_id(entry: str) -> str:
    return KeyRing.parse(entry).sealing_key.key_id.hex()


def replace(file: Path, site: Site, worker: Worker, *entries: str) -> None:
    """Write the keys, and wait until both processes use them."""
    file.write_text(",".join(entries))
    key_ids = ", ".join(map(key_id, entries))

    def taken() -> bool:
        told = [*site.fleet["r1"].logged("seal keys replaced"), *worker.logged("seal keys replaced")]
        return [record["key_ids"] for record in told].count(key_ids) == 2

    wait_until(taken, "both processes to take over the keys")


def test_a_worker_follows_the_file_of_seal_keys_while_it_works(start_site: Callable[..., Site], tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    file = tmp_path / "seal-keys"
    file.write_text(old)
    site = start_site(GATEWAY_SEAL_KEYS="", GATEWAY_SEAL_KEYS_FILE=str(file))
    worker = site.worker("w1")
    before, running = site.create("ask"), site.create("wait")
    site.wait_for(before, "input_required")
    site.wait_for_line("started")

    replace(file, site, worker, old, new)
    replace(file, site, worker, new, old)
    during = site.create("ask")
    site.wait_for(during, "input_required")
    site.answer(before, "name", name="Ada")
    assert site.text(before) == "Ada: asked by w1, answered by w1"
    site.open()
    assert site.text(running) == "done by w1", "what runs meanwhile is stored all the same"

    replace(file, site, worker, new)
    site.answer(during, "name", name="Bob")
    assert site.text(during) == "Bob: asked by w1, answered by w1"
    assert site.text(site.create("say", text="later")) == "later"
    assert worker.metric("gateway_seal_keys", key_id=key_id(new), role="seals") == 1
    assert worker.metric("gateway_seal_keys", key_id=key_id(old), role="opens") == 0
    assert new not in worker.log_text()
