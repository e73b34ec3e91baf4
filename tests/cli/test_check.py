"""`gateway check`: all problems at once, each under its subject, with an exit code that a pipeline can act on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import redis

from gateway.cli.check import Finding, Report, examine
from gateway.cli.check_replicas import unencrypted
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.runtime.version import __version__
from gateway.sealing.formats import TASK_STORE
from gateway.sealing.keyring import KeyRing
from gateway.settings.model import Settings
from gateway.storage import RedisTaskStore, connect
from gateway.storage.redis_keys import RedisKeys
from gateway.tokens.key_holder import KeyHolder
from loadtest.cluster import REPOSITORY, RedisServer, clean_environment, free_port
from tests import forkserver
from tests.identity import IdentityProvider, Request, SigningKey
from tests.integration.fleet import Fleet
from tests.token_endpoint import TokenEndpoint

KEY, OTHER_KEY = "1f" * 32, "2e" * 32
PASSWORD = "hunter2-hunter2"
GOOD = {
    "GATEWAY_TOOLS": "gateway.demo",
    "GATEWAY_SEAL_KEYS": f"{KEY},{OTHER_KEY}",
    "GATEWAY_AUDIENCE": "here",
    "GATEWAY_AUTH": "none",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real server with a password, which a deployment already uses."""
    server = RedisServer(tmp_path_factory.mktemp("store"), "--appendonly", "no")
    server.start()
    server.wait_ready()
    server.ask("CONFIG", "SET", "requirepass", PASSWORD)
    server.password = PASSWORD
    asyncio.run(agree(url_of(server)))
    yield server
    server.end()


async def agree(url: str) -> None:
    """Check in with the store as a replica does when it starts."""
    holder = KeyHolder(KeyRing.parse(KEY), "here", clock=time.time, random_bytes=os.urandom)
    used = RedisTaskStore(
        connect(url, ProcessTelemetry()), holder, partitions=8, max_ttl_ms=86_400_000, max_value_bytes=4096
    )
    await used.check()
    await used.aclose()


def url_of(server: RedisServer, password: str = PASSWORD) -> str:
    return f"redis://:{password}@127.0.0.1:{server.port}/0"


def found(environ: Mapping[str, str], tools: str | None = None) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine(tools, environ).findings}


def states(findings: Mapping[str, Finding]) -> dict[str, str]:
    return {subject: finding.state for subject, finding in findings.items() if finding.state != "ok"}


@pytest.mark.setting("tools", "seal_keys", "auth")
def test_a_good_configuration_is_described_by_subject() -> None:
    report = examine("gateway.demo.machines", GOOD)
    assert report.exit_code == 0
    first, second = (key.key_id.hex() for key in KeyRing.parse(f"{KEY},{OTHER_KEY}").keys)
    assert [line.split(maxsplit=2) for line in report.as_text().splitlines()][:3] == [
        ["settings", "ok"],
        ["keys", "ok", f"{first} seals, {second} opens"],
        ["tools", "ok", f"1 tool; served as sealed-gateway {__version__}"],
    ]
    assert KEY not in report.as_text() + report.as_json()


@pytest.mark.setting("tools", "seal_keys", "redis_url")
def test_every_subjects_problems_are_reported_together() -> None:
    findings = found(
        {
            "GATEWAY_TOOLS": "no_such_tools,gateway.demo,none_either",
            "GATEWAY_SEAL_KEYS": "hunter2",
            "GATEWAY_JWKS_URL": "ftp://id.example.com",
            "GATEWAY_REDIS_URL": "redis://here:port",
            "GATEWAY_LOG_LEVEL": "loud",
            "GATEWAY_LEG_SECOND": "3",
        }
    )
    assert states(findings) == dict.fromkeys(["settings", "keys", "tools", "store", "identity provider"], "wrong")
    assert [line.partition(":")[0] for line in findings["settings"].wrong] == ["GATEWAY_LOG_LEVEL", "GATEWAY_AUDIENCE"]
    assert len(findings["tools"].wrong) == 2
    report = Report(tuple(findings.values()))
    assert report.exit_code == 2
    assert "GATEWAY_LEG_SECOND is not a setting and has no effect (did you mean GATEWAY_LEG_SECONDS?)" in (
        report.as_text()
    )
    assert json.loads(report.as_json())["exit_code"] == 2


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1?no_such_option=1",
        "rediss+cluster://127.0.0.1:1?no_such_option=1",
        "redis+cluster://127.0.0.1:1/3",
    ],
)
def test_a_url_that_redis_would_refuse_later_is_wrong_at_once(url: str) -> None:
    findings = found({**GOOD, "GATEWAY_REDIS_URL": url})
    assert states(findings) == {"store": "wrong"}
    assert findings["store"].wrong == ["GATEWAY_REDIS_URL: not a Redis URL; use one like redis://host:6379/0"]


def test_a_wrong_value_causes_no_complaint_about_its_default() -> None:
    wrong = {"GATEWAY_AUTH": "off", "GATEWAY_REDIS_URL": "http://127.0.0.1"}
    findings = found({**GOOD, **wrong, "GATEWAY_TOOLS": "gateway.demo.echoes"})
    assert states(findings) == {"store": "wrong", "identity provider": "wrong"}
    assert [len(findings[subject].wrong) for subject in ("store", "identity provider")] == [1, 1]


@pytest.mark.setting("tools")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys\nprint('hello')\nsys.exit(3)", "SystemExit"),
        ("x = 1", "'checked_tools' has no tool, prompt or resource; decorate"),
        ("from gateway import tool\n@tool(version=0)\nasync def f() -> str: ...", "version 0"),
        (
            "from gateway import tool\n@tool(task='required')\nasync def f() -> str: ...",
            "GATEWAY_REDIS_URL: not set, but the tool 'f' runs only as a task",
        ),
        (
            "from gateway import tool\n@tool(name='a')\nasync def f() -> str: ...\n"
            "@tool(name='a')\nasync def g() -> str: ...",
            "two tools are named 'a'",
        ),
    ],
    ids=["exits", "defines nothing", "breaks a rule", "needs a store", "doubles a name"],
)
def test_problems_of_tools_are_found_without_serving(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checked_tools.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "checked_tools", raising=False)
    findings = found(GOOD, "checked_tools")
    sys.modules.pop("checked_tools", None)
    (problem,) = [line for finding in findings.values() for line in finding.wrong]
    assert words in problem
    assert capsys.readouterr().out == ""


@pytest.mark.setting("redis_url", "audience", "task_partitions")
def test_a_store_that_fits_is_named_and_not_changed(store: RedisServer) -> None:
    with redis.Redis.from_url(url_of(store)) as client:
        before = sorted(client.keys())
        other = found({**GOOD, "GATEWAY_AUDIENCE": "elsewhere", "GATEWAY_REDIS_URL": url_of(store)})
        assert sorted(client.keys()) == before
    assert states(other) == {}
    assert other["store"].notes[0].startswith("Redis 7")


@pytest.mark.setting("redis_url", "audience", "task_partitions")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"GATEWAY_TASK_PARTITIONS": "3"}, ["GATEWAY_TASK_PARTITIONS: 3", "set it to 8"]),
        ({"GATEWAY_SEAL_KEYS": OTHER_KEY}, ["GATEWAY_SEAL_KEYS: none of these keys opens the secret"]),
        ({"password": "wrong"}, ["GATEWAY_REDIS_URL: the server refused the login"]),
    ],
    ids=["partitions", "keys", "password"],
)
def test_a_store_that_does_not_fit_is_wrong(store: RedisServer, changes: dict[str, str], words: list[str]) -> None:
    url = url_of(store, changes.get("password", PASSWORD))
    findings = found({**GOOD, "GATEWAY_REDIS_URL": url, **changes})
    assert states(findings) == {"store": "wrong"}
    (problem,) = findings["store"].wrong
    assert all(word in problem for word in words)
    assert PASSWORD not in problem


def test_a_store_that_may_evict_and_has_other_partitions_is_wrong_twice(store: RedisServer) -> None:
    store.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        findings = found({**GOOD, "GATEWAY_TASK_PARTITIONS": "3", "GATEWAY_REDIS_URL": url_of(store)})
    finally:
        store.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert len(findings["store"].wrong) == 2
    assert "allkeys-lru; set it to noeviction" in findings["store"].wrong[0]


def test_a_store_of_a_newer_release_is_wrong(store: RedisServer) -> None:
    key = RedisKeys("here", 8).agreed_format()
    written = store.ask("GET", key)
    assert isinstance(written, bytes)
    store.ask("SET", key, str(TASK_STORE.reads + 1))
    try:
        findings = found({**GOOD, "GATEWAY_REDIS_URL": url_of(store)})
    finally:
        store.ask("SET", key, written.decode())
    (problem,) = findings["store"].wrong
    assert f"the task store has format {TASK_STORE.reads + 1}" in problem
    assert "start the newer release" in problem


def test_an_unreachable_server_may_be_a_temporary_problem() -> None:
    away = f"127.0.0.1:{free_port()}"
    report = examine(
        None,
        {
            **GOOD,
            "GATEWAY_AUTH": "jwt",
            "GATEWAY_JWKS_URL": f"http://{away}/jwks",
            "GATEWAY_JWT_ISSUER": "https://id.example.com",
            "GATEWAY_REDIS_URL": f"redis://:{PASSWORD}@{away}/0",
        },
    )
    findings = {finding.subject: finding for finding in report.findings}
    assert states(findings) == {"store": "unreachable", "identity provider": "unreachable"}
    assert report.exit_code == 1
    assert "GATEWAY_REDIS_URL: the server does not answer" in findings["store"].unreachable[0]
    assert "GATEWAY_JWKS_URL: the keys cannot be read" in findings["identity provider"].unreachable[0]
    assert PASSWORD not in report.as_text()


def with_provider(provider: IdentityProvider, **changes: str) -> Finding:
    base = provider.url.rpartition("/")[0]
    given = {"GATEWAY_AUTH": "jwt", "GATEWAY_JWKS_URL": provider.url, "GATEWAY_JWT_ISSUER": base}
    return found({**GOOD, **given, **changes})["identity provider"]


@pytest.mark.setting("jwks_url", "jwt_issuer", "auth")
def test_a_provider_with_keys_of_use_is_well_and_one_without_is_wrong() -> None:
    with IdentityProvider(SigningKey("a")) as provider:
        assert with_provider(provider).notes == ["1 key to verify tokens with"]
        finding = with_provider(provider, GATEWAY_JWT_ALGORITHMS="RS256")
        assert finding.wrong == ["GATEWAY_JWKS_URL: it has no key that verifies RS256; check GATEWAY_JWT_ALGORITHMS"]
        provider.send(b"<html>")
        assert with_provider(provider).wrong[0].startswith("GATEWAY_JWKS_URL: not a JWK Set")


@pytest.mark.setting("jwt_issuer")
def test_a_provider_that_issues_under_another_name_is_wrong() -> None:
    with IdentityProvider(SigningKey("a")) as provider:
        base = provider.url.rpartition("/")[0]

        def answer(request: Request) -> None:
            if request.path.endswith("/.well-known/openid-configuration"):
                request.reply(200, json.dumps({"issuer": f"{base}/"}).encode())
            else:
                request.reply(200, provider_keys)

        provider_keys = json.dumps({"keys": [SigningKey("a").jwk()]}).encode()
        provider.answer(answer)
        (problem,) = with_provider(provider).wrong
        assert problem == (
            f"GATEWAY_JWT_ISSUER: the provider at {base!r} issues tokens as {base + '/'!r}; use that value"
        )
        assert with_provider(provider, GATEWAY_JWT_ISSUER=f"{base}/").state == "ok"


def with_endpoint(endpoint: TokenEndpoint, **changes: str) -> Finding:
    given = {"GATEWAY_AUTH": "jwt", "GATEWAY_JWT_SECRET": "s" * 32, **endpoint.environ}
    return found({**GOOD, **given, **changes})["identity provider"]


@pytest.mark.setting("token_exchange_url", "token_exchange_client_id", "token_exchange_client_secret")
def test_a_token_endpoint_is_asked_without_a_token() -> None:
    with TokenEndpoint() as endpoint:
        assert with_endpoint(endpoint).notes[1:] == ["tokens can be exchanged"]
        assert [set(form) for form in endpoint.forms] == [{"grant_type"}]
        (wrong,) = with_endpoint(endpoint, GATEWAY_TOKEN_EXCHANGE_CLIENT_SECRET="another-secret").wrong
        assert wrong == (
            "GATEWAY_TOKEN_EXCHANGE_CLIENT_ID: the endpoint answers invalid_client; use the id and the secret of a "
            "client that may exchange tokens"
        )
        for answer, told in (("unsupported_grant_type", "unsupported_grant_type"), ("", "no error code")):
            endpoint.send(json.dumps({"error": answer}).encode(), 400)
            (wrong,) = with_endpoint(endpoint).wrong
            assert wrong.startswith(f"GATEWAY_TOKEN_EXCHANGE_URL: the endpoint answers {told}; use the token endpoint")
        endpoint.send(b"", 503)
        (unreachable,) = with_endpoint(endpoint).unreachable
        assert unreachable.startswith("GATEWAY_TOKEN_EXCHANGE_URL: the endpoint cannot be asked (HTTP 503)")
        (wrong,) = with_endpoint(endpoint, GATEWAY_TOKEN_EXCHANGE_CLIENT_ID="").wrong
        assert wrong == (
            "GATEWAY_TOKEN_EXCHANGE_CLIENT_ID: not set, but GATEWAY_TOKEN_EXCHANGE_URL is; an exchange of tokens needs "
            "both"
        )


def test_the_command_prints_a_line_for_each_subject_and_exits_as_the_report_says(tmp_path: Path) -> None:
    (tmp_path / "loud_tools.py").write_text(
        "from gateway import tool\nprint('hello')\n@tool\nasync def hello() -> str: ...\n"
    )
    settings = {**GOOD, "GATEWAY_TOOLS": "", "GATEWAY_REDIS_URL": f"redis://127.0.0.1:{free_port()}/0"}
    command = [sys.executable, "-m", "gateway", "check", "--json", "--tools", "loud_tools"]
    result = forkserver.run(command, env=clean_environment(settings), cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    report = json.loads(result.stdout)
    assert report["exit_code"] == 1
    assert [subject["state"] for subject in report["subjects"]] == ["ok", "ok", "ok", "ok", "unreachable", "ok", "ok"]
    assert report["subjects"][2]["notes"] == ["1 tool", f"served as sealed-gateway {__version__}"]
    assert result.stderr == "hello\n"
    assert str(REPOSITORY) not in result.stdout


def test_a_tool_name_that_some_clients_refuse_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dotted_tools.py").write_text(
        "from gateway import tool\n@tool('a.b')\nasync def f() -> None: ...\n@tool\nasync def fine() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = found(GOOD, "dotted_tools")["tools"]
    assert finding.state == "ok"
    assert finding.notes[::2] == ["2 tools", "some clients refuse the tool name a.b: use 1 to 64 of A-Z a-z 0-9 _ -"]


@pytest.mark.setting("trusted_proxies")
@pytest.mark.parametrize("wide", ["10.0.0.0/8", "10.0.0.0/23", "fd00::/63", "0.0.0.0/0"])
def test_a_network_of_more_than_balancers_is_named(wide: str) -> None:
    report = examine(None, {**GOOD, "GATEWAY_TRUSTED_PROXIES": f"192.0.2.7,{wide}"})
    (finding,) = (finding for finding in report.findings if finding.subject == "settings")
    (warning,) = finding.warnings
    assert warning.startswith(f"GATEWAY_TRUSTED_PROXIES: every machine in {wide} is believed")
    assert report.exit_code == 0


def test_a_network_of_balancers_is_not() -> None:
    assert found({**GOOD, "GATEWAY_TRUSTED_PROXIES": "192.0.2.7,10.0.0.0/24,fd00::/64,::1"})["settings"].warnings == []


@pytest.mark.setting("replica_url", "peers", "audience", "seal_keys")
def test_the_urls_of_replicas_are_asked_whether_a_replica_of_this_deployment_is_there(tmp_path: Path) -> None:
    with Fleet(tmp_path, {"GATEWAY_SEAL_KEYS": KEY, "GATEWAY_AUDIENCE": "tests"}, names=("r1",)) as fleet:
        url, gone = fleet.replicas[0].url, f"http://127.0.0.1:{free_port()}"
        own = {"GATEWAY_SEAL_KEYS": KEY, "GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none"}

        def replicas(**environ: str) -> Finding:
            return found({**own, **environ}, "gateway.demo")["replicas"]

        assert replicas().notes == ["GATEWAY_REPLICA_URL and GATEWAY_PEERS are not set"]
        good = replicas(GATEWAY_REPLICA_URL=url, GATEWAY_PEERS=url)
        assert good.notes == [f"a replica replies at {url.removesuffix('/mcp')}/_gateway/hop"] * 2
        assert (good.state, good.warnings) == ("ok", [])
        for changes, reason in (
            ({"GATEWAY_SEAL_KEYS": OTHER_KEY}, "(status 404)"),
            ({"GATEWAY_AUDIENCE": "others"}, "(status 404)"),
            ({"GATEWAY_REPLICA_URL": f"{url}/below", "GATEWAY_PEERS": f"{url}/below"}, "(status 404)"),
            (
                {"GATEWAY_REPLICA_URL": gone, "GATEWAY_PEERS": gone},
                "(reason unreachable: Connection refused)",
            ),
        ):
            bad = replicas(**{"GATEWAY_REPLICA_URL": url, "GATEWAY_PEERS": url, **changes})
            assert (bad.state, bad.notes) == ("ok", []), "it may not have started yet"
            for name, warning in zip(("GATEWAY_REPLICA_URL", "GATEWAY_PEERS"), bad.warnings, strict=True):
                assert warning.startswith(f"{name}: no replica of this deployment replies at http://127.0.0.1:")
                assert reason in warning
        alias = url.replace("127.0.0.1", "localhost")
        (warning,) = replicas(GATEWAY_REPLICA_URL=alias, GATEWAY_PEERS=alias).warnings
        assert warning.startswith("GATEWAY_REPLICA_URL: "), "the replica there has another one"


@pytest.mark.setting("holders", "replica_url", "peers")
def test_holders_are_asked_and_plain_http_between_hosts_is_named(tmp_path: Path) -> None:
    with Fleet(tmp_path, {"GATEWAY_SEAL_KEYS": KEY, "GATEWAY_AUDIENCE": "tests"}, names=("r1",)) as fleet:
        own = {"GATEWAY_SEAL_KEYS": KEY, "GATEWAY_AUDIENCE": "tests", "GATEWAY_AUTH": "none"}
        good = found({**own, "GATEWAY_HOLDERS": fleet.replicas[0].url}, "gateway.demo")["replicas"]
        assert good.notes == [f"a replica replies at {fleet.replicas[0].url.removesuffix('/mcp')}/_gateway/hop"]
        assert good.warnings == []
    names = ("GATEWAY_REPLICA_URL", "GATEWAY_PEERS", "GATEWAY_HOLDERS")
    far = unencrypted(Settings.load(dict.fromkeys(names, "http://192.0.2.1")))
    assert [line.partition(":")[0] for line in far] == list(names)
    assert unencrypted(Settings.load(dict.fromkeys(names, "https://192.0.2.1"))) == []


@pytest.mark.setting("holders", "replica_url", "peers")
def test_upstreams_whose_state_each_replica_has_for_itself_are_named(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.json"
    file.write_text(json.dumps({"mcpServers": {"memory": {"command": "false"}}}))

    def notes(**environ: str) -> list[str]:
        finding = found({**GOOD, "GATEWAY_UPSTREAMS": str(file), **environ}, "gateway.demo")["upstreams"]
        return [note for note in finding.notes if "GATEWAY_HOLDERS" in note]

    url = f"http://127.0.0.1:{free_port()}"
    assert notes() == []
    for name in ("GATEWAY_REPLICA_URL", "GATEWAY_PEERS"):
        (note,) = notes(**{name: url})
        assert note.startswith("memory: each replica has its own")
        assert notes(**{name: url}, GATEWAY_HOLDERS=url) == []


class Stranger(BaseHTTPRequestHandler):
    """Accepts everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"fine")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_stranger_that_accepts_everything_is_not_taken_for_a_replica() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever).start()
        url = f"http://127.0.0.1:{stranger.server_port}"
        finding = found({**GOOD, "GATEWAY_REPLICA_URL": url, "GATEWAY_PEERS": url})["replicas"]
        stranger.shutdown()
    replica, peers = finding.warnings
    assert "the reply does not open (reason malformed)" in replica
    assert peers.endswith(": something else answers at the URL")
