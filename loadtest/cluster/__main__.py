"""Run a cluster in the foreground: `python -m loadtest.cluster --replicas 2 --workers 1 --redis`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from loadtest.cluster.cluster import Cluster
from loadtest.cluster.common import ClusterError

SECONDS_BETWEEN_LOOKS = 0.2


def main() -> int:
    """Run the cluster until Ctrl-C or SIGTERM; exit code 2 if it does not start."""
    arguments = _parser().parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="cluster-"))
    environ = dict(setting.split("=", 1) for setting in arguments.set)
    for ending in (signal.SIGINT, signal.SIGTERM):  # a background job of a shell starts with SIGINT ignored
        signal.signal(ending, signal.default_int_handler)
    try:
        with Cluster(
            directory,
            replicas=arguments.replicas,
            workers=arguments.workers,
            redis=arguments.redis or arguments.workers > 0,
            balancer=not arguments.no_balancer,
            environ=environ,
        ) as cluster:
            _describe(cluster)
            while True:  # `signal.pause` would miss a signal that comes just before it
                time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        return 0
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.cluster", description="Run a balancer, replicas, workers and Redis until Ctrl-C."
    )
    parser.add_argument(
        "--replicas", type=int, default=2, metavar="N", help="number of replicas (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="number of workers (default: none)")
    parser.add_argument("--redis", action="store_true", help="start a Redis for tasks; implied by --workers")
    parser.add_argument(
        "--no-balancer", action="store_true", help="do not start HAProxy; print the URL of the first replica"
    )
    parser.add_argument("--directory", type=Path, help="where logs and data go (default: a temporary one)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for all processes")
    return parser


def _describe(cluster: Cluster) -> None:
    print(f"MCP endpoint  {cluster.url}")
    if cluster.balancer is not None:
        print(f"haproxy       metrics {cluster.balancer.metrics_url}  log {cluster.balancer.log_path}")
    for process in (*cluster.replicas, *cluster.workers):
        print(f"{process.name:<13} metrics {process.metrics_url}  log {process.log_path}")
    if cluster.redis is not None:
        print(f"redis         {cluster.redis.url}  log {cluster.redis.log_path}")
    print("Press Ctrl-C to stop it.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
