"""A cluster of real processes on this machine: a balancer, replicas, workers, Redis.

For load tests, benchmarks and tests: in plain scripts, in pytest, or in a thread next to Locust. All of it is plain
synchronous Python. It starts and watches the gateway only as an operator would: by its command, its logs and HTTP.
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
