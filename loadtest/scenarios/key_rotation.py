"""The seal keys are replaced in a file, in three phases, while clients hold states that the old key sealed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from loadtest.cluster import Cluster, new_key
from loadtest.scenario import NO_STATE_REJECTED, SOUND, Scenario, UnderWay
from loadtest.verdict import Bound

LONGEST_CALL_SECONDS = 3.0
"""How long a client may hold a state. The key that sealed it must stay for that long."""

_FILE = "GATEWAY_SEAL_KEYS_FILE"


def prepare(directory: Path) -> Mapping[str, str]:
    """Put the first key into a file."""
    keys = directory.resolve() / "seal-keys"
    keys.write_text(new_key(), encoding="ascii")
    return {"GATEWAY_SEAL_KEYS": "", _FILE: str(keys)}


def play(run: UnderWay) -> None:
    """Replace the key; each phase begins when every process has loaded the previous one."""
    keys = Path(run.cluster.environ[_FILE])
    old, new = keys.read_text(encoding="ascii"), new_key()
    run.wait(0.2 * run.seconds)
    for number, (what, entries) in enumerate(
        (("all know the new key", [old, new]), ("the new key seals", [new, old]), ("the old key is gone", [new])), 1
    ):
        keys.write_text("\n".join(entries), encoding="ascii")
        run.wait_until(partial(_reached_all, run.cluster, number), f"phase {number} to reach all processes")
        run.mark(what)
        run.wait(max(LONGEST_CALL_SECONDS, 0.25 * run.seconds))


def _reached_all(cluster: Cluster, phase: int) -> bool:
    members = (*cluster.replicas, *cluster.workers)
    return all(len(process.logged("seal keys replaced")) >= phase for process in members)


SCENARIO = Scenario(
    name="key-rotation",
    summary="The key that seals states is replaced, and no state that a client holds is lost.",
    users={"ephemeral": 10, "compute": 1, "task": 2},
    cluster_bounds=(
        NO_STATE_REJECTED,
        Bound("Keys that sealed states", "keys_that_sealed", at_least=2, at_most=2),
    ),
    bounds=SOUND,
    play=play,
    needs_cluster=True,
    workers=1,
    prepare=prepare,
)
