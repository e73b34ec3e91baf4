"""The Kubernetes manifests: they build, are valid, and agree with the settings, the image and how processes drain."""

from __future__ import annotations

import ipaddress
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gateway.settings.model import Settings
from gateway.web.site import HEALTH_PATHS
from loadtest.cluster import new_key
from loadtest.cluster.common import SYSTEM_DIRECTORIES
from tests.deploy.files import (
    HAPROXY,
    IMAGE,
    KUBERNETES,
    MARGIN_SECONDS,
    PINNED,
    SECRETS,
    SETTINGS,
    USER,
    checked,
    drain_seconds,
    environment,
    manifests,
    slow_tool,
)

pytestmark = pytest.mark.slow

CLUSTER_VERSIONS = ("1.27", "1.37")
"""The oldest and the newest whose schemas they are checked against."""

OVERLAY = "overlays/production"
QUEUE_WAIT = "queue-wait"
"""The overlay with the other autoscaler, as its comment describes."""

COMMENTED = "# patchesStrategicMerge:\n#   - autoscaling-queue-wait.yaml\n"
Objects = dict[tuple[str, str], dict[str, Any]]


def kubectls() -> list[str]:
    """Return the programs that build: this environment's kubectl, and the system's if there is one."""
    other = shutil.which("kubectl", path=":".join(SYSTEM_DIRECTORIES))
    return [slow_tool("kubectl"), *([] if other is None else [other])]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The built base, the overlay, and the overlay with the other autoscaler."""
    copy = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(KUBERNETES, copy)
    kustomization = copy / OVERLAY / "kustomization.yaml"
    text = kustomization.read_text()
    assert COMMENTED in text
    kustomization.write_text(text.replace(COMMENTED, COMMENTED.replace("# ", "")))
    directories = {"base": KUBERNETES / "base", OVERLAY: KUBERNETES / OVERLAY, QUEUE_WAIT: copy / OVERLAY}
    return {name: checked(kubectls()[0], "kustomize", str(directory)) for name, directory in directories.items()}


@pytest.fixture(scope="module", params=["base", OVERLAY, QUEUE_WAIT])
def text(request: pytest.FixtureRequest, texts: dict[str, str]) -> str:
    return texts[request.param]


@pytest.fixture(scope="module")
def objects(text: str) -> Objects:
    return {(found["kind"], found["metadata"]["name"]): found for found in manifests(text)}


def of_kind(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    return {name: found for (of, name), found in objects.items() if of == kind}


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    return {name: found["spec"]["template"]["spec"] for name, found in of_kind(objects, "Deployment").items()}


def container(objects: Objects, name: str) -> dict[str, Any]:
    (found,) = pods(objects)[name]["containers"]
    assert isinstance(found, dict)
    return found


def variables(objects: Objects, name: str) -> dict[str, str]:
    config_maps = {name: found["data"] for name, found in of_kind(objects, "ConfigMap").items()}
    return environment(container(objects, name), config_maps)


WORKLOADS = pytest.mark.parametrize("name", ["gateway", "worker"])


@pytest.mark.parametrize("version", CLUSTER_VERSIONS)
def test_every_manifest_is_valid(text: str, version: str, tmp_path: Path) -> None:
    built = tmp_path / "built.yaml"
    built.write_text(text)
    said = checked(slow_tool("kubernetes-validate"), "--strict", "-k", version, str(built))
    assert said.count("passed for resource") == len(manifests(text))


@pytest.mark.parametrize("directory", ["base", OVERLAY])
def test_every_kubectl_builds_the_same(directory: str) -> None:
    built = [manifests(checked(kubectl, "kustomize", str(KUBERNETES / directory))) for kubectl in kubectls()]
    kinds = [
        sorted((found["kind"], found["metadata"]["name"].partition("-settings")[0]) for found in all_) for all_ in built
    ]
    assert kinds[0]
    assert all(found == kinds[0] for found in kinds)


def test_every_file_is_part_of_what_is_built() -> None:
    for directory in (KUBERNETES / "base", KUBERNETES / OVERLAY):
        text = (directory / "kustomization.yaml").read_text()
        assert [path.name for path in directory.glob("*.yaml") if path.name not in text] == ["kustomization.yaml"]


def test_there_is_everything_that_a_deployment_needs(objects: Objects) -> None:
    assert set(of_kind(objects, "Deployment")) == {"gateway", "worker"}
    assert set(of_kind(objects, "HorizontalPodAutoscaler")) == {"gateway", "worker"}
    assert set(of_kind(objects, "PodDisruptionBudget")) == {"gateway", "worker"}
    assert set(of_kind(objects, "Service")) == {"gateway", "gateway-replicas"}
    assert set(of_kind(objects, "NetworkPolicy")) == {"gateway", "worker", "egress"}
    assert of_kind(objects, "Secret") == {}


@WORKLOADS
def test_every_variable_is_a_setting(objects: Objects, name: str) -> None:
    names = {variable for variable in variables(objects, name) if variable.startswith("GATEWAY_")}
    assert names
    assert names <= SETTINGS


@WORKLOADS
def test_the_settings_are_right_and_enough(objects: Objects, name: str, tmp_path: Path) -> None:
    (tmp_path / "seal_keys").write_text(new_key())
    (tmp_path / "redis_url").write_text("rediss://:password@redis.example.com:6380/0")
    values = {"$metadata.name": f"{name}-7d9c6b5f4-x2x4q", "$status.podIP": "10.244.1.7"}
    given = {key: values.get(value, value) for key, value in variables(objects, name).items()}
    address = given.get("POD_IP", "")
    environ = {
        key: value.replace("$(POD_IP)", address).replace("/secrets/", f"{tmp_path}/") for key, value in given.items()
    }
    settings = Settings.load(environ)
    settings.check_serving() if name == "gateway" else settings.check_working()
    assert settings.replica_id == values["$metadata.name"]
    if name == "gateway":
        assert settings.replica_url == "http://10.244.1.7:8080"


@WORKLOADS
def test_secrets_come_as_files(objects: Objects, name: str) -> None:
    given = variables(objects, name)
    assert given.keys() & SECRETS == set()
    assert all("secretKeyRef" not in str(entry) for entry in container(objects, name)["env"])
    (volume,) = pods(objects)[name]["volumes"]
    assert volume["secret"] == {"secretName": "gateway-secrets", "defaultMode": 0o440}
    (mount,) = container(objects, name)["volumeMounts"]
    assert mount == {"name": volume["name"], "mountPath": "/secrets", "readOnly": True}
    assert all(value.startswith("/secrets/") for key, value in given.items() if key.endswith("_FILE"))


@WORKLOADS
def test_a_pod_has_time_to_leave_and_nothing_delays_that_it_learns_of_it(objects: Objects, name: str) -> None:
    needed = drain_seconds(variables(objects, name), worker=name == "worker")
    assert pods(objects)[name]["terminationGracePeriodSeconds"] >= needed + MARGIN_SECONDS
    assert "lifecycle" not in container(objects, name)


def test_a_replica_that_leaves_serves_on_until_its_readiness_was_looked_at(objects: Objects) -> None:
    probe = container(objects, "gateway")["readinessProbe"]
    notices = probe["periodSeconds"] * probe["failureThreshold"] + probe["timeoutSeconds"]
    assert float(variables(objects, "gateway")["GATEWAY_DRAIN_NOTICE_SECONDS"]) > notices


@WORKLOADS
def test_probes_ask_at_ports_and_paths_that_there_are(objects: Objects, name: str) -> None:
    found = container(objects, name)
    ports = {port["name"] for port in found["ports"]}
    probes = {key: found[key]["httpGet"] for key in found if key.endswith("Probe")}
    assert all(probe["port"] in ports for probe in probes.values())
    paths = {key: probe["path"] for key, probe in probes.items()}
    if name == "gateway":
        assert paths == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
        assert set(paths.values()) == HEALTH_PATHS
    else:
        assert paths == {"readinessProbe": "/metrics"}


@WORKLOADS
def test_prometheus_scrapes_every_process(objects: Objects, name: str) -> None:
    (port,) = (port["containerPort"] for port in container(objects, name)["ports"] if port["name"] == "metrics")
    given = of_kind(objects, "Deployment")[name]["spec"]["template"]["metadata"]["annotations"]
    assert given == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }
    arguments = container(objects, name)["args"]
    if name == "gateway":
        assert port == Settings.model_fields["metrics_port"].default
    else:
        assert arguments[arguments.index("--metrics-port") + 1] == str(port)


def test_what_others_must_reach_is_served_on_all_addresses(objects: Objects) -> None:
    for name, option in (("gateway", "--host"), ("gateway", "--metrics-host"), ("worker", "--metrics-host")):
        arguments = container(objects, name)["args"]
        assert arguments[arguments.index(option) + 1] == "0.0.0.0"


@WORKLOADS
def test_a_pod_may_do_as_little_as_it_can(objects: Objects, name: str) -> None:
    pod, found = pods(objects)[name], container(objects, name)
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert {security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert found["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in found["resources"]["limits"]


@WORKLOADS
def test_no_service_puts_variables_into_pods_that_look_like_settings(objects: Objects, name: str) -> None:
    assert pods(objects)[name]["enableServiceLinks"] is False


@WORKLOADS
def test_updates_take_nothing_away_first_and_the_autoscaler_alone_counts(objects: Objects, name: str) -> None:
    spec = of_kind(objects, "Deployment")[name]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "replicas" not in spec
    assert pods(objects)[name]["topologySpreadConstraints"]
    scaler = of_kind(objects, "HorizontalPodAutoscaler")[name]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert scaler["minReplicas"] > of_kind(objects, "PodDisruptionBudget")[name]["spec"]["maxUnavailable"]


def test_callers_have_a_limit_and_the_balancer_is_believed_for_its_hosts_alone(objects: Objects) -> None:
    limits = ("GATEWAY_RATE_LIMIT", "GATEWAY_ALLOWED_HOSTS", "GATEWAY_TRUSTED_PROXIES")
    environ = variables(objects, "gateway")
    settings = Settings.load({name: environ[name] for name in limits})
    assert settings.rate_limit is not None
    assert settings.allowed_hosts
    trusted = [ipaddress.ip_network(network) for network in settings.trusted_proxies]
    assert trusted
    assert all(network.is_private and network.prefixlen >= 16 for network in trusted)


def test_nothing_sticks(objects: Objects, text: str) -> None:
    assert {found["spec"]["sessionAffinity"] for found in of_kind(objects, "Service").values()} == {"None"}
    assert of_kind(objects, "Service")["gateway-replicas"]["spec"]["clusterIP"] == "None"
    assert "ClientIP" not in text
    assert "cookie" not in text.lower()


def test_the_name_of_all_replicas_is_that_of_a_service_with_an_address_for_each(objects: Objects) -> None:
    (peers,) = Settings.load({"GATEWAY_PEERS": variables(objects, "gateway")["GATEWAY_PEERS"]}).peers
    place = urlsplit(peers)
    found = of_kind(objects, "Service")[str(place.hostname)]["spec"]
    assert found["clusterIP"] == "None"
    assert [port["port"] for port in found["ports"]] == [place.port]
    assert "GATEWAY_PEERS" not in variables(objects, "worker")


def test_selectors_select(objects: Objects) -> None:
    labels = {
        name: found["spec"]["template"]["metadata"]["labels"] for name, found in of_kind(objects, "Deployment").items()
    }
    for name, found in of_kind(objects, "Deployment").items():
        assert found["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
    for found in of_kind(objects, "Service").values():
        assert found["spec"]["selector"].items() <= labels["gateway"].items()
        assert not found["spec"]["selector"].items() <= labels["worker"].items()
        assert {port["targetPort"] for port in found["spec"]["ports"]} == {"http"}
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        for name in ("gateway", "worker"):
            assert of_kind(objects, kind)[name]["spec"][field]["matchLabels"].items() <= labels[name].items()
    everyone = of_kind(objects, "NetworkPolicy")["egress"]["spec"]["podSelector"]["matchLabels"]
    assert all(everyone.items() <= given.items() for given in labels.values())


def test_only_who_must_reaches_a_replica_and_a_worker_is_only_watched(objects: Objects) -> None:
    policies = of_kind(objects, "NetworkPolicy")
    ports = {
        name: [port["port"] for rule in policies[name]["spec"].get("ingress", []) for port in rule["ports"]]
        for name in ("gateway", "worker")
    }
    assert ports == {"gateway": [8080, 9464], "worker": [9465]}
    assert all("from" in rule for name in ports for rule in policies[name]["spec"]["ingress"])
    assert set(policies["gateway"]["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    calls, _ = policies["gateway"]["spec"]["ingress"]
    neighbours = policies["gateway"]["spec"]["podSelector"]
    assert {"podSelector": neighbours} in calls["from"]
    assert {"podSelector": neighbours} in policies["gateway"]["spec"]["egress"][0]["to"]
    reached = {port["port"] for rule in policies["egress"]["spec"]["egress"] for port in rule["ports"]}
    assert reached == {53, 443, 6379, 6380}


def test_the_overlay_names_its_own_image_by_version(texts: dict[str, str]) -> None:
    for name, of in (("base", IMAGE), (OVERLAY, f"registry.example.com/mcp/{IMAGE}")):
        objects = {(found["kind"], found["metadata"]["name"]): found for found in manifests(texts[name])}
        assert {container(objects, workload)["image"] for workload in ("gateway", "worker")} == {of}
        assert PINNED.fullmatch(of)


def test_the_other_autoscaler_scales_by_a_metric_that_replicas_serve(texts: dict[str, str]) -> None:
    def metrics_of(name: str) -> list[dict[str, Any]]:
        (found,) = (
            found
            for found in manifests(texts[name])
            if (found["kind"], found["metadata"]["name"]) == ("HorizontalPodAutoscaler", "gateway")
        )
        metrics = found["spec"]["metrics"]
        assert isinstance(metrics, list)
        return metrics

    assert [metric["type"] for metric in metrics_of(OVERLAY)] == ["Resource"]
    waits, cpu = metrics_of(QUEUE_WAIT)
    assert cpu["resource"]["name"] == "cpu"
    assert waits["pods"]["metric"]["name"] == "gateway_queue_wait_p90_seconds"
    telemetry = (KUBERNETES.parent.parent / "gateway" / "admission" / "load_metrics.py").read_text()
    assert waits["pods"]["metric"]["name"] in telemetry
    text = (KUBERNETES / OVERLAY / "autoscaling-queue-wait.yaml").read_text()
    assert set(re.findall(r"gateway_\w+", text)) == {waits["pods"]["metric"]["name"]}
    milliseconds = int(waits["pods"]["target"]["averageValue"].removesuffix("m"))
    assert milliseconds < Settings.model_fields["queue_target_ms"].default


def test_the_ingress_does_what_our_own_balancer_does(texts: dict[str, str]) -> None:
    (ingress,) = (found for found in manifests(texts[OVERLAY]) if found["kind"] == "Ingress")
    shipped = {" ".join(line.split()) for line in HAPROXY.read_text().splitlines()}
    snippet = ingress["metadata"]["annotations"]["haproxy.org/backend-config-snippet"].splitlines()
    assert set(snippet) <= shipped
    assert "retry-on conn-failure 503" in snippet
    assert "http-request deny deny_status 404 if { path,url_dec -m sub /_gateway/ }" in snippet
    assert f"timeout server {ingress['metadata']['annotations']['haproxy.org/timeout-server']}" in shipped


def test_the_hosts_of_the_ingress_are_served(texts: dict[str, str]) -> None:
    found = manifests(texts[OVERLAY])
    (ingress,) = (one for one in found if one["kind"] == "Ingress")
    (settings,) = (one["data"] for one in found if one["kind"] == "ConfigMap")
    hosts = [rule["host"] for rule in ingress["spec"]["rules"]]
    assert hosts == settings["GATEWAY_ALLOWED_HOSTS"].split(",")
    assert hosts == [settings["GATEWAY_PUBLIC_URL"].removeprefix("https://")]
    assert hosts == [host for tls in ingress["spec"]["tls"] for host in tls["hosts"]]


def test_pods_are_held_to_the_strictest_standard(texts: dict[str, str]) -> None:
    (namespace,) = (found for found in manifests(texts[OVERLAY]) if found["kind"] == "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    named = {found["metadata"].get("namespace") for found in manifests(texts[OVERLAY]) if found["kind"] != "Namespace"}
    assert named == {namespace["metadata"]["name"]}


def test_a_misspelt_field_would_be_found(texts: dict[str, str], tmp_path: Path) -> None:
    (deployment, *_) = (found for found in manifests(texts["base"]) if found["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 45
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(deployment))
    command = [slow_tool("kubernetes-validate"), "--strict", "-k", CLUSTER_VERSIONS[0], str(wrong)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
