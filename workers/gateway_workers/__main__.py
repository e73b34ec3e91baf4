"""The command `gateway worker`, also `python -m gateway_workers`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gateway.errors import ConfigurationError
from gateway.observability.logs import configure_logging
from gateway.process.preflight import find_problems, find_tool_problems, find_upstream_problems, warn_of_unknown
from gateway.runtime.undumpable import hide_from_others
from gateway.settings.model import Settings
from gateway.settings.problems import Problems
from gateway_workers import process

EXIT_CONFIGURATION = 2
OPTIONS = {"--worker-concurrency": "--concurrency", "--replica-id": "--worker-id"}
"""Options whose names differ from those of their settings."""


def main(argv: Sequence[str] | None = None, *, prog: str = "python -m gateway_workers") -> int:
    """Run a worker until it is asked to stop.

    Return 0 if it stopped cleanly, 1 if tasks had to be cut off, 2 if it is configured wrongly.
    """
    hide_from_others()
    arguments = make_parser(prog).parse_args(argv)
    try:
        problems = Problems()
        settings = Settings.load(
            problems=problems,
            tools=None if arguments.tools is None else ",".join(arguments.tools),
            upstreams=arguments.upstreams,
            worker_concurrency=arguments.concurrency,
            replica_id=arguments.worker_id,
            metrics_host=arguments.metrics_host,
            metrics_port=arguments.metrics_port,
        )
        configure_logging(settings.log_level, settings.log_format, settings.replica_id)
        warn_of_unknown(settings)
        find_problems(settings, problems, works=True)
        find_tool_problems(settings, problems, serves=False)
        find_upstream_problems(settings, problems, works=True)
        problems.raise_any()
        return process.run(settings, reload=arguments.reload)
    except ConfigurationError as error:
        for problem in error.problems:
            option, colon, rest = problem.partition(":")
            sys.stderr.write(f"gateway: {OPTIONS.get(option, option)}{colon}{rest}\n")
        return EXIT_CONFIGURATION


def make_parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of a worker's options, for a command called `prog`."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run tasks in the background: claim them from the task store, run them, and store the results.",
        epilog="Set GATEWAY_TOOLS, GATEWAY_SEAL_KEYS, GATEWAY_AUDIENCE and GATEWAY_REDIS_URL to the same values as on "
        "the replicas. All settings come from the environment (GATEWAY_…, or GATEWAY_…_FILE for secrets); see "
        "docs/run/settings.md.",
    )
    parser.add_argument(
        "--concurrency", metavar="N", help="how many tasks to run at once (default: GATEWAY_WORKER_CONCURRENCY, or 32)"
    )
    parser.add_argument(
        "--tools",
        nargs="+",
        metavar="MODULE|FILE",
        help="the Python modules or files that define the tools, the same as on the replicas (default: GATEWAY_TOOLS)",
    )
    parser.add_argument(
        "--upstreams",
        metavar="FILE",
        help="the file that names other MCP servers, the same as on the replicas (default: GATEWAY_UPSTREAMS)",
    )
    parser.add_argument("--reload", action="store_true", help="reload the tool modules when their files change")
    parser.add_argument("--worker-id", metavar="NAME", help="this worker's name in logs and in the task store")
    parser.add_argument(
        "--metrics-port", metavar="PORT", help="the port of GET /metrics; 0 picks a free one (default: no metrics)"
    )
    parser.add_argument(
        "--metrics-host", metavar="ADDRESS", help="the address to serve metrics on (default: 127.0.0.1)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
