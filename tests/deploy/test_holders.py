"""The deployments with holders: they are valid, and a holder is found by its name until its last call has ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gateway.settings.model import Settings
from loadtest.cluster import new_key
from tests.deploy.files import (
    DEPLOY,
    IMAGE,
    KUBERNETES,
    MARGIN_SECONDS,
    SETTINGS,
    checked,
    compose,
    drain_seconds,
    environment,
    manifests,
    seconds,
    slow_tool,
)
from tests.deploy.test_kubernetes import CLUSTER_VERSIONS, Objects, of_kind

pytestmark = pytest.mark.slow

HELD = compose(DEPLOY / "compose.holders.yaml")["services"]
SERVICES = compose()["services"]
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../base]
components: [../../components/holders]
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an overlay with the component builds."""
    folder = tmp_path_factory.mktemp("holders")
    shutil.copytree(KUBERNETES, folder / "kubernetes")
    overlay = folder / "kubernetes" / "overlays" / "held"
    overlay.mkdir()
    (overlay / "kustomization.yaml").write_text(OVERLAY)
    file = folder / "built.yaml"
    file.write_text(checked(slow_tool("kubectl"), "kustomize", str(overlay)))
    return file


@pytest.fixture(scope="module")
def objects(built: Path) -> Objects:
    return {(found["kind"], found["metadata"]["name"]): found for found in manifests(built.read_text())}


@pytest.fixture(scope="module")
def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    found = of_kind(objects, "Deployment") | of_kind(objects, "StatefulSet")
    return {name: each["spec"]["template"]["spec"] for name, each in found.items()}


def variables(objects: Objects, pod: dict[str, Any]) -> dict[str, str]:
    config_maps = {name: found["data"] for name, found in of_kind(objects, "ConfigMap").items()}
    (container,) = pod["containers"]
    return environment(container, config_maps)


@pytest.mark.parametrize("version", CLUSTER_VERSIONS)
def test_every_manifest_is_valid(built: Path, version: str) -> None:
    said = checked(slow_tool("kubernetes-validate"), "--strict", "-k", version, str(built))
    assert said.count("passed for resource") == len(manifests(built.read_text()))


def test_every_process_has_the_same_holders_and_upstreams(objects: Objects, pods: dict[str, dict[str, Any]]) -> None:
    assert set(pods) == {"gateway", "worker", "holder"}
    for pod in pods.values():
        given = variables(objects, pod)
        assert {name for name in given if name.startswith("GATEWAY_")} <= SETTINGS
        assert given["GATEWAY_HOLDERS"] == "http://holder-0.holders:8080,http://holder-1.holders:8080"
        folder, _, file = given["GATEWAY_UPSTREAMS"].rpartition("/")
        (container,) = pod["containers"]
        (name,) = (mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == folder)
        (config_map,) = (volume["configMap"]["name"] for volume in pod["volumes"] if volume["name"] == name)
        assert json.loads(objects["ConfigMap", config_map]["data"][file])["mcpServers"]


def test_each_holder_is_in_the_list_by_the_name_of_its_pod(
    objects: Objects, pods: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "seal_keys").write_text(new_key())
    (tmp_path / "redis_url").write_text("rediss://:password@redis.example.com:6380/0")
    stateful = objects["StatefulSet", "holder"]["spec"]
    given = variables(objects, pods["holder"])
    holders = given["GATEWAY_HOLDERS"].split(",")
    assert len(holders) == stateful["replicas"]
    for number, url in enumerate(holders):
        pod = f"holder-{number}"
        environ = {key: value.replace("$metadata.name", pod) for key, value in given.items()}
        environ |= {key: value.replace("/secrets/", f"{tmp_path}/") for key, value in environ.items()}
        environ["GATEWAY_REPLICA_URL"] = environ["GATEWAY_REPLICA_URL"].replace("$(GATEWAY_REPLICA_ID)", pod)
        settings = Settings.load(environ)
        settings.check_serving()
        assert (settings.replica_url, url) == (f"http://{pod}.{stateful['serviceName']}:8080", settings.replica_url)


def test_the_address_of_a_holder_that_drains_stays(objects: Objects) -> None:
    service = objects["Service", "holders"]["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["selector"] == objects["StatefulSet", "holder"]["spec"]["selector"]["matchLabels"]
    ready = [name for name, found in of_kind(objects, "Service").items() if name != "holders"]
    assert all(objects["Service", name]["spec"]["selector"] != service["selector"] for name in ready), "no balancer"


def test_a_holder_has_time_for_the_users_of_its_calls(objects: Objects, pods: dict[str, dict[str, Any]]) -> None:
    given, pod = variables(objects, pods["holder"]), pods["holder"]
    needed = drain_seconds(given, worker=False)
    assert needed > 2 * drain_seconds(variables(objects, pods["gateway"]), worker=False)
    assert pod["terminationGracePeriodSeconds"] >= needed + MARGIN_SECONDS
    assert "lifecycle" not in pod["containers"][0]
    assert objects["PodDisruptionBudget", "holder"]["spec"]["maxUnavailable"] == 1


def test_a_holder_is_as_confined_as_a_replica(pods: dict[str, dict[str, Any]]) -> None:
    replica, holder = pods["gateway"], pods["holder"]
    for name in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert holder[name] == replica[name]
    (own,), (other,) = holder["containers"], replica["containers"]
    assert own["securityContext"] == other["securityContext"]
    assert own["image"] == other["image"] == IMAGE


def test_only_processes_of_the_gateway_reach_a_holder(objects: Objects) -> None:
    ours = {"matchLabels": {"app.kubernetes.io/part-of": "sealed-gateway"}}
    policy = objects["NetworkPolicy", "holder"]["spec"]
    (calls, scrapes) = policy["ingress"]
    assert calls == {"from": [{"podSelector": ours}], "ports": [{"protocol": "TCP", "port": 8080}]}
    assert [port["port"] for port in scrapes["ports"]] == [9464]
    towards = objects["NetworkPolicy", "to-holders"]["spec"]
    assert towards["podSelector"] == ours
    (rule,) = towards["egress"]
    assert rule["to"] == [{"podSelector": policy["podSelector"]}]


def test_compose_adds_a_holder_that_every_process_knows() -> None:
    assert set(HELD) - set(SERVICES) == {"holder"}
    holder = HELD["holder"]["environment"]
    for name in ("gateway", "worker", "own", "holder"):
        given = HELD[name]["environment"]
        assert set(given) <= SETTINGS
        assert (given["GATEWAY_HOLDERS"], given["GATEWAY_UPSTREAMS"]) == (
            "http://holder:8080",
            "/upstreams/upstreams.json",
        )
        (file,) = (mount for mount in HELD[name]["volumes"] if mount.endswith(":/upstreams/upstreams.json:ro"))
        assert (DEPLOY / file.partition(":")[0]).exists()
    assert holder["GATEWAY_REPLICA_URL"] == holder["GATEWAY_HOLDERS"]
    shared = SERVICES["worker"]["environment"].keys() - {"GATEWAY_DRAIN_SECONDS"}
    assert {name: holder[name] for name in shared} == {name: SERVICES["worker"]["environment"][name] for name in shared}
    assert HELD["holder"]["networks"] == SERVICES["gateway"]["networks"]
    assert HELD["holder"]["depends_on"] == SERVICES["gateway"]["depends_on"]


def test_compose_confines_a_holder_as_a_replica_and_gives_it_time() -> None:
    holder, replica = HELD["holder"], SERVICES["gateway"]
    for name in ("image", "read_only", "cap_drop", "security_opt", "restart"):
        assert holder[name] == replica[name]
    needed = drain_seconds(holder["environment"], worker=False)
    assert seconds(holder["stop_grace_period"]) >= needed + MARGIN_SECONDS
    assert needed > 2 * drain_seconds(replica["environment"], worker=False)
    (balancer,) = (service for name, service in SERVICES.items() if name == "haproxy")
    assert "holder" not in str(balancer["environment"])
