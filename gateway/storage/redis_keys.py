"""The name of every key and channel, each with one constructor.

All keys of an owner carry the hash tag `{partition}`. So they share a slot of Redis Cluster, and one script can reach
them. Every key except the queues has a lifetime. Deployments that share a server use different prefixes.

Some keys contain a task's id, which a client may have chosen. It comes last, after the hash tag.
"""

from __future__ import annotations

import hashlib

import msgspec

from gateway.tasks.model import Phase

OWNER_CHARS = 64
PHASES = (Phase.QUEUED, Phase.RUNNING, Phase.WAITING, Phase.DONE, Phase.CANCELLED)
"""The order of a partition's phase indexes, which scripts rely on."""

_PREFIX_CHARS = 12
_PARTITION_DIGITS = 12
_HEX = frozenset("0123456789abcdef")


class TaskPlace(msgspec.Struct, frozen=True):
    """Where a task is stored.

    Attributes:
        member: what identifies it in indexes and in the queue.
        keys: all keys that a script may touch, in the order that `gateway.storage.lua.task_scripts` expects.
        channel: where its owner's listeners receive hints about changes.
    """

    partition: int
    member: str
    keys: tuple[str, ...]
    channel: str

    @property
    def task(self) -> str:
        """The hash with the task itself."""
        return self.keys[0]

    @property
    def segments(self) -> str:
        """The stream of the blocks it emitted."""
        return self.keys[2]


class RedisKeys:
    """Names the keys of one deployment: every key and channel starts with `prefix`.

    The audience is the name of the deployment. Its owners are spread over the partitions.
    """

    def __init__(self, audience: str, partitions: int) -> None:
        deployment = hashlib.sha256(b"sealed-gateway/keys\x00" + audience.encode()).hexdigest()[:_PREFIX_CHARS]
        self.partitions = partitions
        self.prefix = f"gateway:{deployment}"
        self._of_partition = [f"{self.prefix}:{{{number}}}" for number in range(partitions)]
        self._phases = [tuple(self.phase_index(number, phase) for phase in PHASES) for number in range(partitions)]

    def partition_of(self, owner: str) -> int:
        """Return the partition of an owner, whose name is a hash in hex."""
        return int(owner[:_PARTITION_DIGITS], 16) % self.partitions

    def place(self, owner: str, task_id: str) -> TaskPlace:
        """Name all keys of a task."""
        partition = self.partition_of(owner)
        base = self._of_partition[partition]
        keys = (
            f"{self.task_prefix(partition)}{owner}:{task_id}",
            self.queue(partition),
            f"{base}:segments:{owner}:{task_id}",
            self.owner_index(owner),
            *self.phase_indexes(partition),
            self.requests(owner),
            self.deleted(owner),
            self.sizes(owner),
        )
        return TaskPlace(partition, owner + task_id, keys, self.changes(owner))

    def task_prefix(self, partition: int) -> str:
        """Return the start of the names of a partition's tasks, before `<owner>:<task id>`."""
        return f"{self._of_partition[partition]}:task:"

    def queue(self, partition: int) -> str:
        """Name the stream of a partition's queued and running tasks."""
        return f"{self._of_partition[partition]}:queue"

    def owner_index(self, owner: str) -> str:
        """Name the sorted set of an owner's task ids by expiry."""
        return f"{self._of_partition[self.partition_of(owner)]}:owner:{owner}"

    def requests(self, owner: str) -> str:
        """Name the hash that maps requests to the ids of the tasks they created."""
        return f"{self._of_partition[self.partition_of(owner)]}:requests:{owner}"

    def deleted(self, owner: str) -> str:
        """Name the sorted set of ids that an owner chose and deleted, by the time until which they stay taken."""
        return f"{self._of_partition[self.partition_of(owner)]}:deleted:{owner}"

    def sizes(self, owner: str) -> str:
        """Name the hash of the bytes an owner's tasks use: for each task, for all of them, and the limit."""
        return f"{self._of_partition[self.partition_of(owner)]}:sizes:{owner}"

    def phase_index(self, partition: int, phase: Phase) -> str:
        """Name the sorted set of a partition's tasks in one phase, by expiry."""
        return f"{self._of_partition[partition]}:phase:{phase}"

    def phase_indexes(self, partition: int) -> tuple[str, ...]:
        """Name a partition's phase indexes, in the order of `PHASES`."""
        return self._phases[partition]

    def spent(self, owner: str, flow_id: str, leg: int) -> str:
        """Name the mark of a leg that has been used."""
        return f"{self._of_partition[self.partition_of(owner)]}:spent:{owner}:{flow_id}:{leg}"

    def spent_answer(self, owner: str, flow_id: str, leg: int) -> str:
        """Name the answer to the first use of a leg."""
        return f"{self._of_partition[self.partition_of(owner)]}:answer:{owner}:{flow_id}:{leg}"

    def spent_sizes(self, owner: str) -> str:
        """Name the bytes of an owner's answers."""
        return f"{self._of_partition[self.partition_of(owner)]}:answers:{owner}"

    def order(self, owner: str, order: str) -> str:
        """Name the id of the task that an order created."""
        return f"{self._of_partition[self.partition_of(owner)]}:order:{owner}:{order}"

    def agreed_partitions(self) -> str:
        """Name the number of partitions that all processes agree on. It is in partition 0, which always exists."""
        return f"{self._of_partition[0]}:partitions"

    def owner_secret(self) -> str:
        """Name the sealed secret that names owners. One script reaches it together with the number of partitions."""
        return f"{self._of_partition[0]}:owners"

    def agreed_format(self) -> str:
        """Name the format number of the store. It is next to what else all processes agree on."""
        return f"{self._of_partition[0]}:format"

    def changes(self, owner: str) -> str:
        """Name the channel of hints for an owner's listeners: `<generation> <task id>`."""
        return f"{self.prefix}:changes:{owner}"

    def cancellations(self) -> str:
        """Name the channel of running tasks that were cancelled or deleted: `<owner><task id>`."""
        return f"{self.prefix}:cancelled"

    def replicas(self) -> str:
        """Name the channel of sealed messages for all replicas."""
        return f"{self.prefix}:replicas"


def split_member(member: str) -> tuple[str, str]:
    """Return the owner and task id of a task's member in indexes, queues and channels."""
    return member[:OWNER_CHARS], member[OWNER_CHARS:]


def is_owner(name: str) -> bool:
    """Return whether a text can be the name of an owner: a hash in hex."""
    return len(name) == OWNER_CHARS and _HEX.issuperset(name)
