"""The dashboard and the alerts with a real Prometheus, a cluster under load, and visitors that must be refused."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.sealing.keyring import KeyRing
from loadtest.cluster import REPOSITORY, Cluster, clean_environment, new_key, wait_until
from loadtest.scenario import Scenario
from loadtest.users_process import Users
from tests.deploy.visitors import Visitors
from tests.deploy.watching import AUTOMATIC, Prometheus, Query, Sample, queries, rules
from tests.integration.raw import post, tool_call
from tests.upstreams.servers.recording import Recording
from tests.upstreams.servers.session import InSessions

REPORT = REPOSITORY / "reports" / "dashboard.txt"
BUSY = "r1"
ENVIRON = {
    "GATEWAY_AUTH": "",
    "GATEWAY_TOOLS": "gateway.demo,tests.deploy.watched_tools",
    "GATEWAY_JWT_SECRET": "s" * 32,
    "GATEWAY_SEAL_KEYS": "",
    "GATEWAY_MAX_INFLIGHT": "8",
}
WINDOW = "10s"
SEVERAL = 3
PROGRAM = REPOSITORY / "tests" / "upstreams" / "servers" / "stdio.py"
REJECTED = "Rejected states, sessions and responses"
BY_KEY = ("States by key", "Sessions by key", "Task fields by key")


@dataclass
class Desk:
    """An operator's tools: a dashboard, and Prometheus behind it."""

    prometheus: Prometheus
    seen: dict[Query, list[Sample]] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """The variables of the dashboard as it opens, except that time passes quickly here."""
        instances = self.prometheus.get("label/instance/values", **{"match[]": "gateway_build_info"})
        return {
            "instance": "|".join(instances),
            "used_within": WINDOW,
            "__rate_interval": WINDOW,
            "__range": "1m",
        }

    def panel(self, title: str) -> dict[str, dict[str, float]]:
        """Return the values of a panel by legend, or in tables by the letter of the query, and by label values."""
        shown: dict[str, dict[str, float]] = defaultdict(dict)
        found = [query for query in queries() if query.panel == title]
        assert found, title
        for query in found:
            for sample in self.prometheus.ask(query.filled(self.values)):
                shown[query.named(sample)][" ".join(sample.labels.values())] = sample.value
        return shown

    def shows(self, title: str, *legends: str) -> bool:
        """Return whether a panel has a value above 0 for each of these legends."""
        panel = self.panel(title)
        return all(any(value > 0 for value in panel[legend].values()) for legend in legends)

    def look_at_all(self) -> bool:
        """Run all queries that had no data yet, and return whether each has had some."""
        values = self.values
        for query in queries():
            if query not in self.seen and (samples := self.prometheus.ask(query.filled(values))):
                self.seen[query] = samples
        return len(self.seen) == len(queries())


def told(desk: Desk) -> str:
    """Return a table of the values that each panel has shown."""
    lines = []
    for query, samples in desk.seen.items():
        in_table = query.legend == AUTOMATIC
        names = [" ".join(sample.labels.values()) if in_table else query.named(sample) for sample in samples]
        some = [f"{name} {sample.value:.4g}" for name, sample in zip(names, samples, strict=True)]
        more = [f"and {len(some) - SEVERAL} more"] if len(some) > SEVERAL else []
        lines.append(f"{query.panel:<40} {', '.join([*some[:SEVERAL], *more])}\n")
    return "".join(lines)


class SealKeys:
    """A file of seal keys, and an old and a new one, of which the old one seals at first."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._old, self._new = new_key(), new_key()
        self.old, self.new = (KeyRing.parse(key).sealing_key.key_id.hex() for key in (self._old, self._new))
        self.file.write_text(f"{self._old}\n{self._new}")

    def let_the_new_one_seal(self) -> None:
        self.file.write_text(f"{self._new}\n{self._old}")

    def remove_the_old_one(self) -> None:
        self.file.write_text(self._new)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> SealKeys:
    return SealKeys(tmp_path_factory.mktemp("keys") / "seal-keys")


@pytest.fixture(scope="module")
def upstreams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with upstreams that answer, ask or are down, and programs that live for a second or do not start."""
    file = tmp_path_factory.mktemp("upstreams") / "upstreams.json"
    with Recording() as answering, InSessions() as asking:
        entries = {
            "up": {"url": answering.url},
            "down": {"url": "http://127.0.0.1:1/"},
            "dies": {"command": sys.executable, "args": ["-S", str(PROGRAM), "mortal"]},
            "fails": {"command": sys.executable, "args": ["-S", str(PROGRAM), "fails"]},
            "asks": {"url": asking.url, "gateway": {"scope": "caller", "held_seconds": 1}},
        }
        file.write_text(json.dumps({"mcpServers": entries}))
        yield file


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, keys: SealKeys, upstreams: Path) -> Iterator[Cluster]:
    environ = {**ENVIRON, "GATEWAY_SEAL_KEYS_FILE": str(keys.file), "GATEWAY_UPSTREAMS": str(upstreams)}
    with Cluster(tmp_path_factory.mktemp("cluster"), replicas=3, workers=2, redis=True, environ=environ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def token(cluster: Cluster) -> str:
    command = [sys.executable, "-m", "gateway", "token", "--sub", "me"]
    return subprocess.run(
        command, env=clean_environment(cluster.environ), capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Iterator[Prometheus]:
    prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), cluster)
    try:
        prometheus.start()
        prometheus.wait_ready()
        yield prometheus
    finally:
        prometheus.stop()


@contextlib.contextmanager
def users(directory: Path, cluster: Cluster, token: str) -> Iterator[None]:
    """Let users of load tests call in the background."""
    environ = {"LOADTEST_TOKEN": token, "LOADTEST_THINK_SECONDS": "0.2", "LOADTEST_PAUSE_SECONDS": "0.2"}
    mix = Scenario("watched", "", users={"ephemeral": 4, "task": 2, "hostile": 1}, user_environ=environ)
    users = Users(mix, directory, cluster.url, 0)
    try:
        users.start()
        users.wait_ready()
        yield
    finally:
        users.stop()


@pytest.mark.timeout(300)
def test_an_operator_can_answer_all_questions_from_the_dashboard_alone(
    cluster: Cluster, prometheus: Prometheus, token: str, keys: SealKeys, tmp_path: Path
) -> None:
    desk = Desk(prometheus)
    with users(tmp_path, cluster, token), Visitors(cluster, token, BUSY) as visitors:
        see_which_key_seals(desk, keys.old)
        state = post(cluster, tool_call("link_accounts"), token=token).state
        keys.let_the_new_one_seal()
        see_that_the_new_key_seals_and_the_old_one_is_in_use(desk, keys)
        see_that_every_query_has_data(desk)
        see_that_all_is_well(desk)
        see_who_is_refused_and_why(desk, cluster[BUSY].metrics_url)
        see_which_upstream_does_not_answer(desk)
        see_which_calls_wait_for_their_users(desk)
        see_that_one_replica_has_too_much_to_do(desk)

        visitors.disperse()
        see_that_no_replica_has_too_much_to_do(desk)

        visitors.end_first_session()
        see_that_the_old_key_may_go(desk, keys)
        keys.remove_the_old_one()
        see_that_the_old_key_is_gone(desk, keys.new)
    wait_until(lambda: not desk.shows(REJECTED, "state: unknown_key"), "those who try to be gone")
    assert post(cluster, tool_call("link_accounts", requestState=state), token=token).status == 400
    wait_until(lambda: desk.shows(REJECTED, "state: unknown_key"), "the state of the old key to be shown as rejected")


def see_which_key_seals(desk: Desk, old: str) -> None:
    """In the first phase of a rotation the old key seals everything, everywhere."""
    wait_until(lambda: desk.panel("Seal keys")["A"] == {old: 5}, "the old key to seal at all processes")
    wait_until(
        lambda: all(desk.shows(panel, f"{old} seals", f"{old} opens") for panel in BY_KEY), "the old key in all panels"
    )


def see_that_the_new_key_seals_and_the_old_one_is_in_use(desk: Desk, keys: SealKeys) -> None:
    def has_arrived() -> bool:
        shown = desk.panel("Seal keys")
        return shown["A"] == {keys.new: 5} and shown["B"] == {keys.old: 5}

    wait_until(has_arrived, "the new key to seal at all processes, and the old one to open")
    wait_until(lambda: desk.shows("Sessions by key", f"{keys.old} opens"), "the session of the old key")
    wait_until(
        lambda: "GatewayOldSealKeyInUse" in desk.prometheus.alerts()["firing"], "the alert that the old key is in use"
    )


def see_that_every_query_has_data(desk: Desk) -> None:
    """The values stay in a file for inspection."""
    try:
        wait_until(desk.look_at_all, "data for all queries")
    finally:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(told(desk))
        assert [query for query in queries() if query not in desk.seen] == []


def see_that_all_is_well(desk: Desk) -> None:
    assert desk.panel("Processes") == {
        "serving": {"": 3},
        "draining": {"": 0},
        "seen by the balancer": {"": 3},
        "workers": {"": 2},
    }
    loaded = {rule["name"]: rule for rule in desk.prometheus.rules()}
    assert set(loaded) == {rule["alert"] for rule in rules()}
    assert {name: rule.get("lastError") for name, rule in loaded.items() if rule["health"] != "ok"} == {}
    assert {target["health"] for target in desk.prometheus.get("targets")["activeTargets"]} == {"up"}
    severe = {rule["alert"] for rule in rules() if rule["labels"]["severity"] == "critical"}
    assert desk.prometheus.alerts()["firing"] & severe == set()
    assert not desk.shows("Redis errors", "connection")


def see_who_is_refused_and_why(desk: Desk, busy: str) -> None:
    wanted = ("unauthenticated", "invalid_params", "invalid_state", "overloaded")
    wait_until(lambda: desk.shows("Refused requests by reason", *wanted), "the reasons of refused requests")
    rejected = ("state: not_authentic", "session: malformed", "response: malformed")
    wait_until(lambda: desk.shows(REJECTED, *rejected), "the reasons of rejected tokens")
    where = busy.removeprefix("http://").removesuffix("/metrics")
    assert f"{where} overloaded" in desk.panel("Refused requests by replica")["A"]
    wait_until(lambda: desk.shows("Failures by tool", "fail", "fail_later as a task: failed"), "the tools that fail")
    assert "GatewayRefusesForLoad" in desk.prometheus.alerts()["pending"]


def see_which_upstream_does_not_answer(desk: Desk) -> None:
    wait_until(lambda: desk.shows("Requests to upstreams", "up: completed"), "the calls of the upstream that answers")
    wait_until(lambda: desk.shows("Failures of upstreams", "down: unreachable"), "the failures of the other one")
    assert not any(legend.startswith("up:") for legend in desk.panel("Failures of upstreams"))
    panel = "Sessions and programs that fail"
    wait_until(lambda: desk.shows(panel, "dies: lost", "fails: ended, code_nonzero"), "the programs that end")


def see_which_calls_wait_for_their_users(desk: Desk) -> None:
    wait_until(lambda: desk.shows("Ends of held calls", "asks: completed", "asks: expired"), "ends of both kinds")
    wait_until(lambda: sum(desk.panel("Held calls lost or refused")["lost"].values()) == 0, "no lost call")


def over_target(desk: Desk) -> list[str]:
    panel = desk.panel("Wait for a leg and target")
    target = panel.pop("target")[""]
    return [instance for instance, shown in panel.items() if max(shown.values()) > target]


def see_that_one_replica_has_too_much_to_do(desk: Desk) -> None:
    wait_until(lambda: bool(over_target(desk)), "requests to wait longer than they should")
    wait_until(lambda: desk.shows("Refused for load and shed", "refused", "shed"), "too much to do")


def see_that_no_replica_has_too_much_to_do(desk: Desk) -> None:
    wait_until(lambda: not over_target(desk), "no request to wait longer than it should")
    wait_until(lambda: desk.panel("Refused for load and shed")["refused"] == {"": 0}, "nothing to be refused for load")


def see_that_the_old_key_may_go(desk: Desk, keys: SealKeys) -> None:
    """Nothing was opened with it for a while, and the new one does all the work."""

    def only_new_is_used() -> bool:
        shown = desk.panel("Seal keys")
        return all(shown[kind][keys.old] == 0 and shown[kind][keys.new] > 0 for kind in "CDE")

    wait_until(only_new_is_used, "the old key to be in use no more")
    for panel in BY_KEY:
        assert not desk.shows(panel, f"{keys.old} seals")
        assert not desk.shows(panel, f"{keys.old} opens")


def see_that_the_old_key_is_gone(desk: Desk, new: str) -> None:
    def is_gone() -> bool:
        shown = desk.panel("Seal keys")
        return shown["A"] == {new: 5} and not shown["B"]

    wait_until(is_gone, "the old key to be gone from all processes")
