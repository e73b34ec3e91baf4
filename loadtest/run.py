"""One run of a scenario: users in a separate process, a deployment, and the changes made to it.

Locust runs in a child process, so this one stays free of gevent's patches. This one plays the scenario, and reads the
metrics of every process once a second. Both write to the run's directory, which has everything known about the run.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from loadtest import about
from loadtest.cluster import Cluster, ClusterError, wait_until
from loadtest.peers import peer_cluster
from loadtest.rawdata import EVENTS, METRICS, RUN, read
from loadtest.recorder import run_clock
from loadtest.scenario import END, Scenario
from loadtest.scraper import Scraper, Source
from loadtest.users_process import Users
from loadtest.verdict import Verdict, judge

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Options:
    """How to run a scenario, where that differs from the scenario's own values.

    Attributes:
        directory: where the raw data goes.
        seconds: how long it takes.
        users: how many there are in total; their kinds keep their shares.
        replicas: how many to start with.
        target: the MCP endpoint of a running deployment; None starts a cluster on this machine.
        metrics: process name → URL of its metrics, for that deployment.
        environ: settings for all processes of the cluster.
        module: the module that `python -m` starts replicas and workers from.
        peer: a server to run instead of the gateway, one of `PEERS`; only ephemeral users call it.
        tell: called with each line of progress.
    """

    directory: Path
    seconds: float | None = None
    users: int | None = None
    replicas: int | None = None
    target: str | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    module: str = "gateway"
    peer: str | None = None
    tell: Callable[[str], None] = print


def perform(scenario: Scenario, options: Options) -> Verdict:
    """Run a scenario, and write the raw data and the verdict to its directory.

    Raises:
        ClusterError: a process did not start, or ended, or something else made the run worthless.
    """
    scenario = _adjusted(scenario, options)
    options.directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if options.peer is not None:
            peer = peer_cluster(options.peer, options.directory / "cluster", replicas=scenario.replicas)
            options = replace(options, target=stack.enter_context(peer))
        cluster = None if options.target else stack.enter_context(_cluster(scenario, options))
        run = stack.enter_context(Run(scenario, options, cluster))
        if cluster is None and scenario.needs_cluster:
            options.tell(f"Carry out the {scenario.name} yourself now: the users call for {run.seconds:g} seconds.")
            run.wait(run.seconds)
        else:
            scenario.play(run)
        run.mark(END)
    return run.finish()


def _adjusted(scenario: Scenario, options: Options) -> Scenario:
    users = dict(scenario.users)
    if options.peer is not None:
        users = {"ephemeral": sum(users.values())}
    if options.users is not None:
        share = options.users / sum(users.values())
        users = {kind: max(1, round(count * share)) for kind, count in users.items()}
    return replace(
        scenario,
        users=users,
        seconds=options.seconds or scenario.seconds,
        replicas=options.replicas or scenario.replicas,
    )


def _cluster(scenario: Scenario, options: Options) -> Cluster:
    return Cluster(
        options.directory / "cluster",
        replicas=scenario.replicas,
        workers=scenario.workers,
        redis=scenario.redis or scenario.workers > 0,
        environ={**scenario.environ, **scenario.prepare(options.directory), **options.environ},
        module=options.module,
    )


class Run:
    """A run in progress, which scenarios act on. A context manager; users call while it is entered.

    Args:
        scenario: the scenario, with the values for this run.
        cluster: the cluster that users call, if the run started one.

    Attributes:
        seconds: how long the run is meant to take.
        now: returns how long ago the run began, in seconds.
        exit_codes: name → exit code of the processes that were asked to stop; the scenario fills it in.
    """

    def __init__(self, scenario: Scenario, options: Options, cluster: Cluster | None) -> None:
        self.seconds = scenario.seconds
        self.exit_codes: dict[str, int] = {}
        self._scenario = scenario
        self._options = options
        self._cluster = cluster
        self._started = datetime.now(UTC)
        began = time.time()
        self.now = run_clock(began)
        self._program, self._machine = about.program(), about.machine()
        self._metrics_urls: dict[int, str] = {}
        self._events = (options.directory / EVENTS).open("w", encoding="utf-8")
        url = options.target or (cluster.url if cluster else "")
        self._users = Users(scenario, options.directory, url, began)
        self._scraper = Scraper(options.directory / METRICS, self._sources, self.now)

    def __enter__(self) -> Self:
        """Start the users, and wait until they get answers."""
        self._write(self._about())
        self._scraper.start()
        try:
            self._users.start()
            self._users.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let the users finish their calls, and read the metrics one last time."""
        self._users.stop()
        self._scraper.stop()
        self._events.close()
        self._ended = self.now()

    @property
    def cluster(self) -> Cluster:
        """The cluster that users call.

        Raises:
            ClusterError: the run did not start one.
        """
        if self._cluster is None:
            raise ClusterError(f"{self._scenario.name} changes a cluster, but this run calls a target")
        return self._cluster

    def mark(self, what: str, detail: str = "") -> None:
        """Record an event, or the start of a part of the run."""
        self._options.tell(f"{self.now():6.1f} s  {what}{f': {detail}' if detail else ''}")
        self._events.write(json.dumps({"t": round(self.now(), 3), "what": what, "detail": detail}) + "\n")
        self._events.flush()

    def wait(self, seconds: float) -> None:
        """Let the users call for a while.

        Raises:
            ClusterError: they have stopped calling.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._users.check()
            time.sleep(min(_LOOK_SECONDS, left))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let the users call until a condition holds.

        Raises:
            ClusterError: it takes too long, or the users have stopped calling.
        """

        def holds() -> bool:
            self._users.check()
            return condition()

        wait_until(holds, what)

    def users(self, times: float) -> None:
        """Set the number of users to this multiple of the initial number."""
        self._users.multiply(times)

    def finish(self) -> Verdict:
        """Judge the run by its bounds, and write the verdict."""
        directory = self._options.directory
        facts = {**self._about(), "seconds": round(self._ended, 3)}
        self._write(facts)
        verdict = judge(read(directory))
        self._write({**facts, "verdict": verdict.as_json()})
        return verdict

    def _about(self) -> dict[str, Any]:
        scenario, options = self._scenario, self._options
        bounds = scenario.bounds + (scenario.cluster_bounds if self._cluster else ())
        return {
            "scenario": scenario.name,
            "summary": scenario.summary,
            "program": self._program,
            "machine": self._machine,
            "started": self._started.isoformat(timespec="seconds"),
            "seconds": self.seconds,
            "users": dict(scenario.users),
            "replicas": scenario.replicas,
            "workers": scenario.workers,
            "settings": {**scenario.environ, **options.environ},
            "bounds": [bound.as_json() for bound in bounds],
            "peer": options.peer,
            "target": options.target,
            "exit_codes": self.exit_codes,
        }

    def _write(self, facts: Mapping[str, Any]) -> None:
        (self._options.directory / RUN).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")

    def _sources(self) -> Iterator[Source]:
        """Yield the processes whose metrics can be read now."""
        for process, url in self._options.metrics.items():
            yield Source(process, url)
        if self._cluster is None:
            return
        for member in (*self._cluster.replicas, *self._cluster.workers):
            if not member.alive:
                continue
            if member.pid not in self._metrics_urls:
                # A process that has just started has not logged its metrics URL yet.
                with contextlib.suppress(ClusterError):
                    self._metrics_urls[member.pid] = member.metrics_url
            if member.pid in self._metrics_urls:
                yield Source(member.name, self._metrics_urls[member.pid], member.pid)
