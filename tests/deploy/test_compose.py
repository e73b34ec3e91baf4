"""The compose file: valid, hardened, complete, and consistent with the settings and the other files of `deploy/`."""

from __future__ import annotations

import ipaddress
import os
import re
import runpy
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import redis

from gateway.sealing.keyring import KeyRing
from gateway.settings.model import MIN_JWT_SECRET_BYTES, Settings
from loadtest.cluster.common import clean_environment, find_program
from loadtest.cluster.redis_server import RedisServer
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    DOCKERFILE,
    HAPROXY,
    IMAGE,
    MARGIN_SECONDS,
    PINNED,
    SECRETS,
    SETTINGS,
    checked,
    compose,
    drain_seconds,
    seconds,
    service,
    tool,
)

pytestmark = pytest.mark.slow

SERVICES: dict[str, dict[str, Any]] = compose()["services"]
OURS = ("gateway", "worker", "secrets", "own")
MAKE_SECRETS = DEPLOY / "make_secrets.py"


def test_it_keeps_to_the_compose_specification() -> None:
    checked(tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(COMPOSE))


def test_there_are_three_replicas_two_workers_and_what_they_need() -> None:
    assert set(SERVICES) == {"haproxy", "gateway", "worker", "secrets", "own", "redis", "prometheus", "grafana"}
    replicas = {name: found["deploy"]["replicas"] for name, found in SERVICES.items() if "deploy" in found}
    assert replicas == {"gateway": 3, "worker": 2}


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_or_built_here(name: str) -> None:
    if name in OURS:
        assert SERVICES[name]["image"] == IMAGE
        build = SERVICES[name]["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    else:
        assert PINNED.fullmatch(SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_may_more_than_it_must(name: str) -> None:
    found = SERVICES[name]
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert {"privileged", "cap_add", "pid", "ipc", "devices"}.isdisjoint(found)


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_published_is_reached_from_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


def test_only_the_balancer_and_the_pages_for_operators_are_published() -> None:
    assert {name for name, found in SERVICES.items() if "ports" in found} == {"haproxy", "prometheus", "grafana"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_file_that_is_mounted_is_there_and_every_volume_declared(name: str) -> None:
    for mount in SERVICES[name].get("volumes", []):
        source, _, target = mount.partition(":")
        if source.startswith("."):
            assert (DEPLOY / source).exists(), source
            assert target.endswith(":ro")
        else:
            assert source in compose()["volumes"]


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in {"gateway", "secrets", "own"}])
def test_every_service_says_whether_it_is_well(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_every_variable_is_a_setting_that_is_right_and_no_secret_is_written_down(name: str, tmp_path: Path) -> None:
    environ: dict[str, str] = SERVICES[name]["environment"]
    assert {variable for variable in environ if variable.startswith("GATEWAY_")} <= SETTINGS
    assert environ.keys() & SECRETS == set()
    checked(sys.executable, str(MAKE_SECRETS), str(tmp_path))
    settings = Settings.load({key: value.replace("/secrets/", f"{tmp_path}/") for key, value in environ.items()})
    settings.check_serving() if name == "gateway" else settings.check_working()


def test_replicas_and_workers_agree() -> None:
    gateway, worker = SERVICES["gateway"]["environment"], SERVICES["worker"]["environment"]
    assert worker.items() <= gateway.items()
    for name in ("gateway", "worker"):
        assert "secrets:/secrets:ro" in SERVICES[name]["volumes"]


def test_containers_have_time_to_leave() -> None:
    for name in ("gateway", "worker"):
        needed = drain_seconds(SERVICES[name]["environment"], worker=name == "worker")
        assert seconds(SERVICES[name]["stop_grace_period"]) >= needed + MARGIN_SECONDS
    (hard_stop,) = re.findall(r"hard-stop-after (\S+)", HAPROXY.read_text())
    assert seconds(SERVICES["haproxy"]["stop_grace_period"]) > seconds(hard_stop)


def test_redis_writes_everything_and_deletes_nothing() -> None:
    command = SERVICES["redis"]["command"]
    given = dict(zip(command[1::2], command[2::2], strict=True))
    assert given["--appendonly"] == "yes"
    assert given["--maxmemory-policy"] == "noeviction"
    assert "redis:/data" in SERVICES["redis"]["volumes"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[tuple[RedisServer, Path]]:
    """Redis as the compose file starts it, with the files of the service that runs before."""
    checked(sys.executable, str(MAKE_SECRETS), str(tmp_path), str(tmp_path))
    options = [part.replace("/store-secrets/", f"{tmp_path}/") for part in SERVICES["redis"]["command"][1:]]
    server = RedisServer(tmp_path, *options)
    server.start()
    server.wait_ready()
    yield server, tmp_path
    server.end()


def test_redis_lets_in_who_has_the_password_that_replicas_read_and_nobody_else(store: tuple[RedisServer, Path]) -> None:
    server, secrets = store
    url = (secrets / "redis_url").read_text().strip()
    host = url.rpartition("@")[2]
    assert host == "redis:6379/0"
    with redis.Redis.from_url(url.replace(host, f"127.0.0.1:{server.port}/0")) as client:
        assert client.set("key", "value")
    password = urlsplit(url).password
    for user, word in ((None, None), (None, "wrong"), ("health", "none")):
        with redis.Redis(port=server.port, username=user, password=word) as stranger, pytest.raises(redis.RedisError):
            stranger.get("key")
    assert password is not None
    assert password not in Path(f"/proc/{server.pid}/cmdline").read_text()
    assert password not in (secrets / "users.acl").read_text()


def test_redis_is_found_well_without_its_password_and_not_when_it_is_gone(store: tuple[RedisServer, Path]) -> None:
    server, _ = store
    command = [*SERVICES["redis"]["healthcheck"]["test"][1:], "-p", str(server.port)]
    command = [*command[:-3], *command[-2:], "ping"]
    assert checked(*command).strip() == "PONG"
    server.end()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_redis_gets_its_users_before_it_starts_and_the_service_that_makes_them_can_write() -> None:
    assert SERVICES["redis"]["depends_on"]["secrets"] == {"condition": "service_completed_successfully"}
    assert "store-secrets:/store-secrets:ro" in SERVICES["redis"]["volumes"]
    assert "store-secrets:/store-secrets" in SERVICES["secrets"]["volumes"]
    assert "secrets:/secrets:ro" not in SERVICES["redis"]["volumes"]
    assert [name for name in SERVICES if "store-secrets" in str(SERVICES[name].get("volumes"))] == ["secrets", "redis"]


def test_a_caller_has_a_limit_and_asks_for_a_host_that_is_published() -> None:
    environ: dict[str, str] = service("gateway")["environment"]
    settings = Settings.load({name: text for name, text in environ.items() if not name.endswith("_FILE")})
    assert settings.rate_limit is not None
    assert {f"{host}:8080" for host in settings.allowed_hosts} >= {"localhost:8080", "127.0.0.1:8080"}
    assert SERVICES["haproxy"]["ports"][0].startswith("127.0.0.1:")


def test_only_its_clients_can_reach_redis() -> None:
    assert compose()["networks"]["store"] == {"internal": True}
    assert {name for name, found in SERVICES.items() if "store" in found.get("networks", [])} == {
        *("redis", "gateway", "worker")
    }
    assert SERVICES["redis"]["networks"] == ["store"]


def test_replicas_and_workers_are_reached_by_those_who_must_reach_them() -> None:
    for name in ("gateway", "worker"):
        assert SERVICES[name]["networks"] == ["default", "store"]
    assert list(SERVICES["haproxy"]["networks"]) == ["default"]
    for name in ("prometheus", "grafana"):
        assert "networks" not in SERVICES[name]


def test_a_replica_is_known_to_the_others_by_its_own_name_and_believes_the_balancer() -> None:
    environ = service("gateway")["environment"]
    assert environ["GATEWAY_REPLICA_URL"] == "http://{hostname}:8080"
    assert environ["GATEWAY_PEERS"] == "http://gateway:8080", "the name of the service, which is that of all"
    balancer = service("haproxy")["networks"]["default"]["ipv4_address"]
    assert environ["GATEWAY_TRUSTED_PROXIES"] == balancer, "and nobody else"
    (network,) = compose()["networks"]["default"]["ipam"]["config"]
    subnet, others = (_by_default(network[name]) for name in ("subnet", "ip_range"))
    assert subnet.is_private
    assert others.subnet_of(subnet)
    assert ipaddress.ip_address(str(_by_default(balancer).network_address)) in set(subnet.hosts()) - set(others)


def test_haproxy_gets_the_list_of_what_it_may_repeat_before_it_starts(tmp_path: Path) -> None:
    own, haproxy = SERVICES["own"], SERVICES["haproxy"]
    file = haproxy["environment"]["GATEWAY_BALANCER_OWN"]
    shell, option, script = own["entrypoint"]
    assert script == f"gateway upstreams --haproxy > {file}"
    assert "own:/own" in own["volumes"]
    assert "own:/own:ro" in haproxy["volumes"]
    assert haproxy["depends_on"]["own"] == {"condition": "service_completed_successfully", "restart": True}
    assert own["environment"] == SERVICES["worker"]["environment"], "it knows of the same tools and upstreams"
    checked(sys.executable, str(MAKE_SECRETS), str(tmp_path))
    environ = {name: text.replace("/secrets/", f"{tmp_path}/") for name, text in own["environment"].items()}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [shell, option, script.replace(file, f"{tmp_path}/own.lst")]
    subprocess.run(command, env={**clean_environment(environ), "PATH": path}, check=True)
    assert (tmp_path / "own.lst").read_text().splitlines()[1:] == ["*"], "there are no upstreams"


def _by_default(text: str) -> ipaddress.IPv4Network:
    """Return a network or an address as it is if nobody sets `SUBNET`."""
    return ipaddress.IPv4Network(re.sub(r"\$\{SUBNET:-([\d.]+)\}", r"\1", text))


TOOLS_OF: Final = {
    "gateway": "python",
    "worker": "python",
    "redis": "redis-cli",
    "haproxy": "wget",
    "prometheus": "wget",
    "grafana": "wget",
}
"""The programs that each service's image has for health checks: busybox, if it is not ours."""


@pytest.mark.parametrize("name", TOOLS_OF)
def test_a_service_is_looked_at_with_a_tool_that_its_image_has(name: str) -> None:
    found = service(name)
    if "healthcheck" in found:
        assert found["healthcheck"]["test"][:2] == ["CMD", TOOLS_OF[name]]
    else:
        assert "image" in found
        assert f'CMD ["{TOOLS_OF[name]}"' in DOCKERFILE.read_text()


def test_the_program_that_makes_the_secrets_is_where_it_is_started() -> None:
    found = SERVICES["secrets"]
    _, program, directory, store_directory = found["entrypoint"]
    assert f"store-secrets:{store_directory}" in found["volumes"]
    assert f"./make_secrets.py:{program}:ro" in found["volumes"]
    assert f"secrets:{directory}" in found["volumes"]
    assert all(f"secrets:{directory}:ro" in SERVICES[name]["volumes"] for name in ("gateway", "worker"))


def test_nothing_starts_before_its_secrets_are_made() -> None:
    for name in ("gateway", "worker"):
        assert SERVICES[name]["depends_on"]["secrets"] == {"condition": "service_completed_successfully"}
    assert SERVICES["secrets"]["restart"] == "no"


def test_haproxy_takes_its_configuration_with_just_this_environment(tmp_path: Path) -> None:
    environ: dict[str, str] = dict(SERVICES["haproxy"]["environment"])
    config = HAPROXY.read_text()
    assert all(variable in config for variable in environ)
    command = [find_program("haproxy", package="haproxy"), "-c", "-q", "-f", str(HAPROXY)]
    (tmp_path / "own.lst").write_text("*\n")
    environ["GATEWAY_BALANCER_OWN"] = str(tmp_path / "own.lst")
    done = subprocess.run(command, env=clean_environment(environ), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_balancer_reaches_the_replicas_and_prometheus_the_balancer() -> None:
    environ = SERVICES["haproxy"]["environment"]
    assert environ["GATEWAY_BALANCER_REPLICAS"] == "gateway:8080"
    assert environ["GATEWAY_BALANCER_METRICS"] == ":8404"
    assert SERVICES["haproxy"]["ports"] == [f"127.0.0.1:8080{environ['GATEWAY_BALANCER_BIND']}"]


def test_prometheus_reaches_the_metrics_of_replicas() -> None:
    assert service("gateway")["environment"]["GATEWAY_METRICS_HOST"] == "0.0.0.0"


def test_a_worker_serves_its_metrics_to_others_at_the_port_it_is_checked_at() -> None:
    worker = service("worker")
    options = dict(zip(worker["command"][1::2], worker["command"][2::2], strict=True))
    assert options == {"--metrics-host": "0.0.0.0", "--metrics-port": "9465"}
    assert f":{options['--metrics-port']}/metrics" in worker["healthcheck"]["test"][-1]


def test_nobody_logs_in_to_grafana() -> None:
    environ = SERVICES["grafana"]["environment"]
    assert environ["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environ["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environ["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"


def test_its_secrets_are_good_and_made_once(tmp_path: Path) -> None:
    first = checked(sys.executable, str(MAKE_SECRETS), str(tmp_path))
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert checked(sys.executable, str(MAKE_SECRETS), str(tmp_path)) == "all secrets exist already\n"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == texts
    assert set(texts) == {"seal_keys", "jwt_secret", "redis_url"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    assert len(KeyRing.parse(texts["seal_keys"]).keys) == 1
    assert len(texts["jwt_secret"].strip()) >= MIN_JWT_SECRET_BYTES
    assert not any(text.strip() in first for text in texts.values())


def test_only_the_secret_that_is_missing_is_made(tmp_path: Path) -> None:
    (tmp_path / "seal_keys").write_text("mine")
    assert checked(sys.executable, str(MAKE_SECRETS), str(tmp_path)) == "made: jwt_secret, redis_url\n"
    assert (tmp_path / "seal_keys").read_text() == "mine"


def test_many_that_start_at_once_agree_on_one_secret(tmp_path: Path) -> None:
    makers = [
        subprocess.Popen([sys.executable, str(MAKE_SECRETS), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [maker.communicate()[0] for maker in makers]
    assert [maker.returncode for maker in makers] == [0] * 4
    assert sum("seal_keys" in text for text in said) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jwt_secret", "redis_url", "seal_keys"]


def test_a_secret_that_somebody_else_has_just_made_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "seal_keys"
    monkeypatch.setattr(os, "fsync", lambda _descriptor: theirs.write_text("theirs"))
    make_missing = runpy.run_path(str(MAKE_SECRETS))["make_missing"]
    assert make_missing(tmp_path) == ["jwt_secret", "redis_url"]
    assert theirs.read_text() == "theirs"
    assert {path.name for path in tmp_path.iterdir()} == {"seal_keys", "jwt_secret", "redis_url"}
