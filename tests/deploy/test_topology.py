"""The deployment of the compose file as processes: its numbers, settings and files, with other ports and addresses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from loadtest.cluster import Cluster, clean_environment, wait_until
from tests.deploy.files import DEPLOY, checked, service
from tests.integration.raw import META, META_CAPABILITIES, Answer, post, request, tool_call

TASKS: dict[str, Any] = {META_CAPABILITIES: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}}
PLACES = {"GATEWAY_REPLICA_URL", "GATEWAY_PEERS", "GATEWAY_TRUSTED_PROXIES"}
"""Addresses: here the cluster's own."""

LOOPBACK = "127.0.0.1"


def settings(name: str, secrets: Path) -> dict[str, str]:
    """Return the settings of a service, with secrets from another place and without addresses."""
    environ: dict[str, str] = service(name)["environment"]
    return {
        variable: value.replace("/secrets/", f"{secrets}/")
        for variable, value in environ.items()
        if variable not in PLACES
    }


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("secrets")
    checked(sys.executable, str(DEPLOY / "make_secrets.py"), str(directory), str(directory))
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, secrets: Path) -> Iterator[Cluster]:
    cluster = Cluster(
        tmp_path_factory.mktemp("cluster"),
        replicas=service("gateway")["deploy"]["replicas"],
        workers=service("worker")["deploy"]["replicas"],
        redis=True,
        # Without the defaults that a cluster has for tests.
        environ={"GATEWAY_SEAL_KEYS": "", "GATEWAY_AUTH": "", "GATEWAY_REDIS_URL": "", **settings("gateway", secrets)},
        worker_environ={"GATEWAY_JWT_SECRET_FILE": "", **settings("worker", secrets)},
    )
    assert cluster.redis is not None
    cluster.redis.options = tuple(
        part.replace("/store-secrets/", f"{secrets}/") for part in service("redis")["command"][1:]
    )
    url = secrets / "redis_url"
    cluster.redis.password = urlsplit(url.read_text().strip()).password or ""
    url.write_text(cluster.redis.url)
    assert cluster.balancer is not None
    assert cluster.balancer.config == DEPLOY / "haproxy.cfg"
    assert service("haproxy")["environment"].keys() <= cluster.balancer.environ.keys()
    with cluster:
        yield cluster


@pytest.fixture(scope="module")
def token(secrets: Path) -> str:
    """Return a token, made as the compose file describes."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "token", "--sub", "me"],
        env=clean_environment(settings("gateway", secrets)),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def accepted(**answers: dict[str, Any]) -> dict[str, Any]:
    return {key: {"action": "accept", "content": content} for key, content in answers.items()}


def task(cluster: Cluster, token: str, method: str, task_id: str, **params: Any) -> dict[str, Any]:
    message = request(method, {"_meta": {**META, **TASKS}, "taskId": task_id, **params})
    return post(cluster, message, token=token).result


def served_by(*answers: Answer) -> set[str]:
    return {answer.headers["x-gateway-replica"] for answer in answers}


def test_all_of_it_serves(cluster: Cluster) -> None:
    assert cluster.balancer is not None
    assert cluster.balancer.up() == {"r1", "r2", "r3"}
    assert [worker.name for worker in cluster.workers if worker.alive] == ["w1", "w2"]


def test_nobody_calls_without_a_token(cluster: Cluster) -> None:
    assert post(cluster, tool_call("crunch", {"units": 1})).status == 401


def test_a_call_that_asks_goes_from_replica_to_replica(cluster: Cluster, token: str) -> None:
    asked = post(cluster, tool_call("link_accounts"), token=token)
    assert set(asked.result["inputRequests"]) == {"github_login", "google_login"}
    answers = accepted(github_login={"name": "octocat"}, google_login={"name": "me"})
    done = post(cluster, tool_call("link_accounts", requestState=asked.state, inputResponses=answers), token=token)
    assert done.text == "Linked GitHub account octocat and Google account me."
    assert len(served_by(asked, done)) == 2


def test_a_task_asks_and_comes_to_its_end(cluster: Cluster, token: str) -> None:
    created = post(cluster, tool_call("echo", _meta={**META, **TASKS}), token=token).result
    assert created["resultType"] == "task"
    task_id = created["taskId"]
    seen: dict[str, Any] = {}

    def has(status: str) -> bool:
        seen.update(task(cluster, token, "tasks/get", task_id))
        return bool(seen["status"] == status)

    wait_until(lambda: has("input_required"), "the task's question")
    (key,) = seen["inputRequests"]
    task(cluster, token, "tasks/update", task_id, inputResponses=accepted(**{key: {"input": "Hello World!"}}))
    wait_until(lambda: has("completed"), "the end of the task")
    assert seen["result"]["content"] == [{"type": "text", "text": "Echo: Hello World!"}]


def test_nobody_uses_redis_without_its_password(cluster: Cluster) -> None:
    assert cluster.redis is not None
    with redis.Redis(port=cluster.redis.port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.keys()


def test_redis_has_what_the_compose_file_gives_it(cluster: Cluster) -> None:
    assert cluster.redis is not None
    command = service("redis")["command"]
    for name in ("--appendonly", "--appendfsync", "--maxmemory-policy"):
        given = command[command.index(name) + 1]
        assert cluster.redis.ask("CONFIG", "GET", name[2:]) == {name[2:].encode(): given.encode()}
