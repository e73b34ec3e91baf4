"""All kinds of users, with the real Locust: against a real cluster, a peer's servers, and wrong ones."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtest.cluster import REPOSITORY, Cluster
from loadtest.peers import peer_cluster
from loadtest.rawdata import RUN, RawRun, read
from tests.certificates import make_certificate
from tests.loadtest.stubs import Exchange, StubReplica

RUN_SECONDS = 100
KINDS = ("ephemeral", "compute", "task", "streaming", "hostile")
ROW = re.compile(r"^([a-z]+| )  +(\S.+?)  +(\d+) +\d+\(.+%\) \|", re.MULTILINE)
IN_A_HURRY = {"LOADTEST_THINK_SECONDS": "0.05", "LOADTEST_PAUSE_SECONDS": "0.05"}


@dataclass(frozen=True)
class LocustRun:
    """The result of a Locust run.

    `requests` are Locust's own counts, by type and name; those of all requests have no type.
    """

    code: int
    log: str
    raw: RawRun
    requests: dict[tuple[str, str], int]

    def finished(self) -> Counter[str]:
        return Counter(call.user for call in self.raw.calls if call.outcome == "finished")


def locust(url: str, directory: Path, *options: str, seconds: int = 4, **environ: str) -> LocustRun:
    """Let users call for a few seconds, and finish their calls."""
    raw = directory / "raw"
    raw.mkdir()
    (raw / RUN).write_text("{}")
    command = [sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--headless", "--host", url]
    limits = [
        "--run-time",
        f"{seconds}s",
        "--stop-timeout",
        "30",
        "--only-summary",
    ]
    done = subprocess.run(
        [*command, *limits, *options],
        cwd=REPOSITORY,
        env={**os.environ, **IN_A_HURRY, "LOADTEST_RECORD": str(raw), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    log = done.stdout + done.stderr
    requests = {(kind.strip(), name.strip()): int(number) for kind, name, number in ROW.findall(log)}
    return LocustRun(done.returncode, log, read(raw), requests)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # The adaptive limit would refuse some calls when other tests need the machine.
    environ = {"GATEWAY_MAX_INFLIGHT": "200"}
    with Cluster(tmp_path_factory.mktemp("cluster"), replicas=2, workers=1, redis=True, environ=environ) as cluster:
        yield cluster


def test_users_of_all_kinds_finish_what_they_begin(cluster: Cluster, tmp_path: Path) -> None:
    run = locust(cluster.url, tmp_path, "-u", "14", "-r", "14")
    assert run.code == 0, run.log
    assert {call.outcome for call in run.raw.calls} <= {"finished", "unfinished"}, run.log
    assert run.finished().keys() == set(KINDS)
    assert all(most <= 1 for call in run.raw.calls for most in call.asked.values())

    legs = Counter(leg.call for leg in run.raw.legs)
    assert all(legs[call.call] == call.legs for call in run.raw.calls)
    assert sum(call.hops for call in run.raw.calls) > 0
    assert {leg.replica for leg in run.raw.legs} == {"r1", "r2"}
    assert {leg.outcome for leg in run.raw.legs} <= {"completed", "input_required", "shed", "task_created"}

    refused = [leg for leg in run.raw.legs if leg.status == 400]
    assert {leg.user for leg in refused} == {"hostile"}
    assert {leg.reason for leg in refused} == {"-32602"}
    assert all(leg.state_bytes > 100 for leg in run.raw.legs if leg.method == "tools/call" and leg.outcome == "shed")
    assert ("task", "tasks/update") in {(leg.user, leg.method) for leg in run.raw.legs}


def test_locust_has_a_row_for_each_kind_of_leg_each_tool_and_each_replica(cluster: Cluster, tmp_path: Path) -> None:
    run = locust(cluster.url, tmp_path, "-u", "4", "EphemeralUser", seconds=3)
    assert run.code == 0, run.log
    sums: Counter[str] = Counter()
    for (kind, _), number in run.requests.items():
        sums[kind] += number
    legs = len(run.raw.legs)
    assert sums == {"leg": legs, "replica": legs, "": legs, "call": run.finished()["ephemeral"]}
    assert {name for kind, name in run.requests if kind == "replica"} == {"r1", "r2"}
    assert {name for kind, name in run.requests if kind == "leg"} <= {
        f"{tool} {place}"
        for tool in ("get_weather", "update_work_item", "link_accounts")
        for place in ("first", "retry", "shed")
    }


def test_tags_and_several_processes_of_locust_work_as_ever(cluster: Cluster, tmp_path: Path) -> None:
    run = locust(
        cluster.url, tmp_path, "-u", "4", "-r", "4", "--processes", "2", "--tags", "listen", "--", "StreamingUser"
    )
    assert run.code == 0, run.log
    assert {call.tool for call in run.raw.calls} == {"report"}
    assert run.finished()["streaming"] > 0
    assert "subscriptions/listen" in {leg.method for leg in run.raw.legs}
    assert len({call.call for call in run.raw.calls}) == len(run.raw.calls)
    assert len({call.call.partition("-")[0] for call in run.raw.calls}) == 2


def test_streaming_users_break_their_connections_and_have_every_segment_in_the_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    options = ("-u", "4", "-r", "4", "--tags", "segments", "--", "StreamingUser")
    run = locust(cluster.url, tmp_path, *options, seconds=3, LOADTEST_BREAK_PROBABILITY="1")
    assert run.code == 0, run.log
    finished = [call for call in run.raw.calls if call.outcome == "finished"]
    assert finished
    assert {(call.segments, call.breaks, call.retries) for call in finished} == {(3, 1, 0)}
    assert all(call.resumes > 0 for call in finished)
    assert all(call.first_segment is not None and call.first_segment < call.seconds for call in finished)
    assert sum(call.hops for call in finished) > 0


def test_ephemeral_users_finish_their_calls_with_the_sdks_server_too(tmp_path: Path) -> None:
    with peer_cluster("sdk", tmp_path / "peer") as url:
        run = locust(url, tmp_path, "-u", "6", "-r", "6", "EphemeralUser", "HostileUser", seconds=3)
    calls = [call for call in run.raw.calls if call.user == "ephemeral"]
    assert {call.outcome for call in calls} <= {"finished", "unfinished"}, run.log
    assert run.finished()["ephemeral"] > 0
    assert {leg.replica for leg in run.raw.legs} == {"sdk1", "sdk2"}
    assert sum(call.hops for call in calls) > 0


def answers_of_somebody_else(exchange: Exchange) -> None:
    request = json.loads(exchange.content)
    content = [{"type": "text", "text": "Current weather in Atlantis: wet"}]
    message = {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", "content": content}}
    exchange.reply(200, json.dumps(message).encode(), content_type="application/json", x_gateway_replica="r1")


def test_wrong_answers_to_any_user_turn_a_run_red(tmp_path: Path) -> None:
    with StubReplica("r1") as replica:
        replica.behave = answers_of_somebody_else
        host, port = replica.address
        run = locust(f"http://{host}:{port}", tmp_path, "-u", "14", "-r", "14", seconds=2)
    assert run.code == 1
    assert {leg.outcome for leg in run.raw.legs} == {"wrong"}
    assert {call.user for call in run.raw.calls if call.outcome == "failed"} == set(KINDS)
    assert run.finished() == {}
    assert "wrong: got" in run.log


def test_a_server_that_forgets_who_called_is_noticed(tmp_path: Path) -> None:
    """Everything looks right, except that the name in the answer is that of the previous call."""
    names = ["nobody"]

    def behave(exchange: Exchange) -> None:
        request = json.loads(exchange.content)
        params = request["params"]
        result: dict[str, object]
        if "inputResponses" in params:
            names.append(params["inputResponses"]["github_login"]["content"]["name"])
            text = (
                f"Current weather in {params['arguments']['location']}:\nTemperature: 72°F\n"
                f"Conditions: Partly cloudy\n(looked up for {names[-2]})"
            )
            result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        else:
            questions = {"github_login": {"method": "elicitation/create", "params": {}}}
            result = {"resultType": "input_required", "inputRequests": questions, "requestState": "s1.x"}
        message = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        exchange.reply(200, json.dumps(message).encode(), content_type="application/json")

    with StubReplica("r1") as replica:
        replica.behave = behave
        host, port = replica.address
        run = locust(
            f"http://{host}:{port}", tmp_path, "-u", "1", "--tags", "weather", "--", "EphemeralUser", seconds=2
        )
    assert run.code == 1
    assert {leg.outcome for leg in run.raw.legs} == {"input_required", "wrong"}
    assert run.finished() == {}


def test_two_tokens_stop_a_run_before_it_begins(tmp_path: Path) -> None:
    environ = {**os.environ, "LOADTEST_TOKEN": "secret", "LOADTEST_TOKEN_FILE": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        "loadtest/locustfile.py",
        "--headless",
        "--host",
        "http://127.0.0.1:1",
    ]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, check=False, timeout=RUN_SECONDS
    )
    assert done.returncode != 0
    assert "LOADTEST_TOKEN and LOADTEST_TOKEN_FILE are set: set only one of them" in done.stderr
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("trusted", [False, True], ids=["unknown", "known"])
def test_certificates_are_verified(tmp_path: Path, trusted: bool) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    environ = {"SSL_CERT_FILE": str(certificate)} if trusted else {}
    with StubReplica("r1") as replica:
        replica.behave = answers_of_somebody_else
        replica.encrypt(context)
        host, port = replica.address
        run = locust(f"https://{host}:{port}", tmp_path, "-u", "1", "EphemeralUser", seconds=2, **environ)
    assert {leg.outcome for leg in run.raw.legs} == {"wrong" if trusted else "failed"}
    assert bool(replica.received) == trusted
