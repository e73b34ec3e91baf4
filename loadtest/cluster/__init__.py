"""A cluster on this machine, of real processes: a balancer, replicas, workers, Redis.

For load tests, benchmarks and tests, from plain scripts, pytest, or a thread beside Locust. All of it is plain
synchronous Python. The gateway is started and watched only as an operator would: by its command, its logs, HTTP.
"""

from loadtest.cluster.balancer import Balancer
from loadtest.cluster.cluster import Cluster
from loadtest.cluster.common import (
    REPOSITORY,
    START_SECONDS,
    ClusterError,
    clean_environment,
    free_port,
    new_key,
    wait_until,
)
from loadtest.cluster.processes import Replica, Worker
from loadtest.cluster.redis_server import RedisServer

__all__ = [
    "REPOSITORY",
    "START_SECONDS",
    "Balancer",
    "Cluster",
    "ClusterError",
    "RedisServer",
    "Replica",
    "Worker",
    "clean_environment",
    "free_port",
    "new_key",
    "wait_until",
]
