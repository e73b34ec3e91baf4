"""The command line, mostly as real processes: its output and its exit codes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest
from prometheus_client import generate_latest

from gateway.auth import SharedSecret, TokenVerifier
from gateway.cli import dev
from gateway.cli.main import main
from gateway.errors import ConfigurationError
from gateway.observability.process_metrics import ProcessTelemetry
from gateway.runtime.version import __version__
from gateway.sealing.keyring import KeyRing, generate_entry
from gateway.sealing.principal import Principal
from gateway.storage.redis_keys import RedisKeys
from gateway.web.listener import listen
from loadtest.cluster import RedisServer, wait_until
from tests import forkserver

SECRET = "0123456789abcdef0123456789abcdef"
KEY = "1f" * 32
ROOT = Path(__file__).parent.parent.parent

SERVING = {
    "GATEWAY_TOOLS": "gateway.demo",
    "GATEWAY_SEAL_KEYS": KEY,
    "GATEWAY_AUDIENCE": "here",
    "GATEWAY_JWT_SECRET": SECRET,
    "GATEWAY_METRICS_PORT": "off",
}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with only these settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    return {**inherited, "PYTHONPATH": str(ROOT), **settings}


def gateway(
    *arguments: str, settings: Mapping[str, str], cwd: Path = ROOT, pass_fds: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments]
    return forkserver.run(command, env=environment(settings), cwd=cwd, pass_fds=pass_fds)


class Serving(NamedTuple):
    """A running `gateway serve`, where it serves, and what it says from then on."""

    process: forkserver.Forked | subprocess.Popen[bytes]
    url: str
    stderr: TextIO


@contextmanager
def serving(
    *arguments: str, pass_fds: Sequence[int] = (), says: str = r"serving url=(http://\S+)/mcp", **settings: str
) -> Iterator[Serving]:
    """Run `gateway serve` until it prints its address."""
    command = [sys.executable, "-m", "gateway", "serve", *arguments]
    reader, writer = os.pipe()
    with os.fdopen(reader) as stderr:
        try:
            process = forkserver.start(
                command, env=environment({**SERVING, **settings}), cwd=ROOT, pass_fds=pass_fds, stderr=writer
            )
        finally:
            os.close(writer)
        try:
            said = []
            for line in stderr:
                said.append(line)
                found = re.search(says, line)
                if found:
                    yield Serving(process, found[1], stderr)
                    break
            else:
                pytest.fail(f"it did not serve: {said}")
        finally:
            process.kill()
            process.wait()


def assert_one_clear_line(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("gateway: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("name", ["GATEWAY_TOOLS", "GATEWAY_SEAL_KEYS", "GATEWAY_AUDIENCE", "GATEWAY_JWT_SECRET"])
def test_serve_without_what_it_needs_says_what_in_one_line_and_exits_2(name: str) -> None:
    assert_one_clear_line(gateway("serve", "--port", "0", settings={**SERVING, name: ""}), name)


ALL_WRONG = {
    "GATEWAY_TOOLS": "no_such_tools,none_either",
    "GATEWAY_SEAL_KEYS": "hunter2",
    "GATEWAY_JWKS_FILE": "/nowhere/jwks.json",
    "GATEWAY_AUDIT_LOG": "/nowhere/audit",
    "GATEWAY_REDIS_URL": "redis://here?no_such_option=1",
    "GATEWAY_LOG_LEVEL": "loud",
    "GATEWAY_METRICS_PORT": "off",
}
WRONG_EVERYWHERE = ["GATEWAY_LOG_LEVEL", "GATEWAY_AUDIENCE", "GATEWAY_SEAL_KEYS", "GATEWAY_REDIS_URL"]
WRONG_TOOLS = ["no module named 'no_such_tools'", "no module named 'none_either'"]


def problems_in(stderr: str) -> list[str]:
    """Return what each line that reports a problem names first."""
    lines = [line.removeprefix("gateway: ") for line in stderr.splitlines() if line.startswith("gateway: ")]
    return [re.split("[:;]", line)[0] for line in lines]


@pytest.mark.setting("tools", "audit_log", "redis_url", "jwks_file")
def test_serve_reports_all_that_is_wrong_in_one_start_and_what_a_misspelt_setting_stands_for() -> None:
    settings = {**ALL_WRONG, "GATEWAY_LEG_SECOND": "3"}
    with listen("127.0.0.1", 0) as taken:
        result = gateway("serve", "--port", str(taken.getsockname()[1]), settings=settings)
    assert result.returncode == 2
    wrong = [*WRONG_EVERYWHERE[:2], "GATEWAY_JWT_ISSUER", *WRONG_EVERYWHERE[2:], "GATEWAY_JWKS_FILE"]
    named = problems_in(result.stderr)
    assert named[:-1] == [*wrong, "GATEWAY_AUDIT_LOG", *WRONG_TOOLS]
    assert named[-1].startswith("cannot listen on")
    assert 'setting=GATEWAY_LEG_SECOND hint="did you mean GATEWAY_LEG_SECONDS?"' in result.stderr
    assert "hunter2" not in result.stderr


def test_a_worker_reports_all_that_is_wrong_in_one_start() -> None:
    result = gateway("worker", "--concurrency", "many", settings=ALL_WRONG)
    assert result.returncode == 2
    wrong = ["--concurrency", *WRONG_EVERYWHERE, "GATEWAY_AUDIT_LOG", *WRONG_TOOLS]
    assert sorted(problems_in(result.stderr)) == sorted(wrong)


def test_dev_reports_all_that_is_wrong_before_it_imports_the_tools(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        dev.run(2, 1, "0.0.0.0", 0, {**ALL_WRONG, "GATEWAY_AUTH": "none", "GATEWAY_LEG_SECOND": "3"})
    named = [problem.partition(":")[0] for problem in caught.value.problems]
    assert named[:-1] == ["GATEWAY_LOG_LEVEL", "GATEWAY_SEAL_KEYS", "GATEWAY_REDIS_URL", "GATEWAY_AUDIT_LOG"]
    assert named[-1].startswith("GATEWAY_AUTH=none")
    assert "did you mean GATEWAY_LEG_SECONDS?" in capfd.readouterr().out


def test_dev_reports_a_mistake_in_the_tools_once_before_it_starts_anything(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:")
    result = gateway("dev", "--port", "0", settings={"GATEWAY_TOOLS": "broken"}, cwd=tmp_path)
    assert (result.returncode, result.stderr.count("SyntaxError")) == (2, 1), result.stderr
    assert result.stderr.startswith("gateway: ")
    assert "store" not in result.stdout


def test_tools_may_read_at_import_what_dev_makes_for_its_run(tmp_path: Path) -> None:
    source = "import os\nassert os.environ['GATEWAY_AUDIENCE'] == 'dev'\nraise ImportError('read')\n"
    (tmp_path / "reads.py").write_text(source)
    result = gateway("dev", "--port", "0", settings={"GATEWAY_TOOLS": "reads"}, cwd=tmp_path)
    assert result.returncode == 2
    assert "read" in result.stderr
    assert "AssertionError" not in result.stderr


@pytest.mark.setting("host", "port")
def test_serve_listens_at_the_address_that_is_set_unless_options_say_otherwise() -> None:
    with serving(GATEWAY_HOST="127.0.0.1", GATEWAY_PORT="0") as (_, url, _):
        assert url.startswith("http://127.0.0.1:")
        assert not url.endswith(":8080")
        taken = url.rpartition(":")[2]
    with serving(GATEWAY_HOST="127.0.0.2", GATEWAY_PORT=taken) as (_, url, _):
        assert url == f"http://127.0.0.2:{taken}"
    with serving("--host", "127.0.0.1", "--port", "0", GATEWAY_HOST="127.0.0.2", GATEWAY_PORT=taken) as (_, url, _):
        assert url.startswith("http://127.0.0.1:")
    wrong = gateway("serve", settings={**SERVING, "GATEWAY_PORT": "70000"})
    assert_one_clear_line(wrong, "GATEWAY_PORT: '70000' is not valid; use a port between 1 and 65535, or 0 for any")
    exposed = gateway("serve", settings={**SERVING, "GATEWAY_AUTH": "none", "GATEWAY_HOST": "0.0.0.0"})
    assert_one_clear_line(exposed, "GATEWAY_AUTH=none")


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (["tools"], ["GATEWAY_LOG_LEVEL", *WRONG_TOOLS]),
        (["token", "--sub", "a"], ["GATEWAY_LOG_LEVEL", "GATEWAY_JWT_SECRET", "GATEWAY_AUDIENCE"]),
        (["keys", "show"], ["GATEWAY_LOG_LEVEL", "GATEWAY_SEAL_KEYS"]),
    ],
    ids=" ".join,
)
def test_a_short_command_reports_all_that_is_wrong(
    command: list[str], wrong: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ALL_WRONG.items():
        monkeypatch.setenv(name, value)
    assert main(command) == 2
    assert problems_in(capsys.readouterr().err) == wrong


@pytest.mark.setting("seal_keys")
def test_serve_with_a_bad_key_says_so_without_showing_it() -> None:
    result = gateway("serve", "--port", "0", settings={**SERVING, "GATEWAY_SEAL_KEYS": "hunter2"})
    assert_one_clear_line(result, "GATEWAY_SEAL_KEYS", "gateway keys new")
    assert "hunter2" not in result.stderr


def test_serve_with_a_wrong_setting_says_what_to_write() -> None:
    result = gateway("serve", "--port", "0", settings={**SERVING, "GATEWAY_STATE_TTL_SECONDS": "soon"})
    assert_one_clear_line(result, "GATEWAY_STATE_TTL_SECONDS: 'soon' is not valid; use a whole number of seconds")


def test_serve_on_a_taken_port_says_so_in_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert_one_clear_line(
            gateway("serve", "--port", port, settings=SERVING), f"port {port} is already in use", "--port"
        )


def test_serve_on_a_taken_metrics_port_says_so_in_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        result = gateway("serve", "--port", "0", "--metrics-port", port, settings=SERVING)
        assert_one_clear_line(result, f"port {port} is already in use", "--metrics-port")


@pytest.mark.setting("metrics_host", "metrics_port")
@pytest.mark.parametrize(
    ("option", "setting", "host"),
    [([], "", "127.0.0.1"), ([], "127.0.0.3", "127.0.0.3"), (["127.0.0.4"], "127.0.0.3", "127.0.0.4")],
)
def test_metrics_are_served_on_loopback_unless_an_address_is_named(option: list[str], setting: str, host: str) -> None:
    options = ["--host", "127.0.0.2", "--port", "0", *(f"--metrics-host={address}" for address in option)]
    with serving(*options, says=r"metrics url=(\S+)", GATEWAY_METRICS_PORT="0", GATEWAY_METRICS_HOST=setting) as (
        _,
        url,
        _,
    ):
        assert url.startswith(f"http://{host}:")
        with urllib.request.urlopen(url, timeout=20) as response:
            assert response.read().startswith(b"# HELP")


@pytest.mark.parametrize(("host", "client"), [("127.0.0.1", "192.0.2.7"), ("::1", "::1")])
def test_the_address_of_all_addresses_serves_ipv4_and_ipv6_and_clients_have_their_own(
    host: str, client: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit"
    options = ("--host", "::", "--port", "0")
    with serving(*options, GATEWAY_TRUSTED_PROXIES="127.0.0.1", GATEWAY_AUDIT_LOG=str(audit)) as (_, url, _):
        assert url.startswith("http://[::]:")
        with closing(HTTPConnection(host, int(url.rpartition(":")[2]), timeout=20)) as connection:
            connection.request("POST", "/mcp", b"{}", {"X-Forwarded-For": "192.0.2.7"})
            assert connection.getresponse().status == 401
        wait_until(lambda: f"client={client}" in audit.read_text(), "the line of the refusal")


@pytest.mark.setting("auth")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_serve_without_identity_on_an_open_address_is_refused(host: str) -> None:
    result = gateway("serve", "--host", host, "--port", "0", settings={**SERVING, "GATEWAY_AUTH": "none"})
    assert_one_clear_line(result, "GATEWAY_AUTH=none", "127.0.0.1")


def test_serve_without_identity_on_an_inherited_open_socket_is_refused() -> None:
    with listen("0.0.0.0", 0) as open_to_all:
        descriptor = open_to_all.fileno()
        result = gateway(
            "serve", "--fd", str(descriptor), pass_fds=[descriptor], settings={**SERVING, "GATEWAY_AUTH": "none"}
        )
    assert_one_clear_line(result, "GATEWAY_AUTH=none")


def test_serve_rejects_a_descriptor_that_is_not_a_socket() -> None:
    assert_one_clear_line(gateway("serve", "--fd", "0", settings=SERVING), "--fd 0")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "broken_tools"),
        ("import no_such_library", "no_such_library"),
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("from gateway import tool\n@tool(version=0)\nasync def f() -> str: ...", "version 0"),
    ],
    ids=["missing", "needs a library", "raises", "no Python", "breaks a rule"],
)
@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("tools",)], ids=["serve", "tools"])
def test_a_tool_module_that_does_not_import_is_reported_in_one_line(
    tmp_path: Path, command: tuple[str, ...], source: str | None, words: str
) -> None:
    if source is not None:
        (tmp_path / "broken_tools.py").write_text(source)
    result = gateway(*command, "--tools", "broken_tools", cwd=tmp_path, settings={**SERVING, "GATEWAY_TOOLS": ""})
    assert_one_clear_line(result, "broken_tools", words)


def test_serve_answers_health_and_exits_0_when_asked_to_stop() -> None:
    with serving("--port", "0") as (process, url, _):
        for path in ("/healthz", "/readyz"):
            with urllib.request.urlopen(url + path) as response:
                assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_serve_on_ctrl_c_ends_without_a_traceback() -> None:
    with serving("--port", "0") as (process, _, stderr):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert "Traceback" not in stderr.read()


def test_serve_takes_over_a_socket_of_its_parent() -> None:
    with listen("127.0.0.1", 0) as listener:
        descriptor = listener.fileno()
        with serving("--fd", str(descriptor), pass_fds=[descriptor]) as (_, url, _):
            assert url.endswith(f":{listener.getsockname()[1]}")
            with urllib.request.urlopen(url + "/healthz") as response:
                assert response.status == 200


def test_serve_warns_of_a_setting_that_does_not_exist() -> None:
    with serving("--port", "0", says="(.+)", GATEWAY_LEG_SECOND="5") as (_, first_line, _):
        assert "setting=GATEWAY_LEG_SECOND" in first_line


def test_keys_new_prints_a_new_key_each_time_that_a_ring_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new"]) == 0
    assert main(["keys", "new"]) == 0
    entries = capsys.readouterr().out.split()
    assert len(set(entries)) == 2
    assert len(KeyRing.parse(",".join(entries)).keys) == 2


def test_keys_new_loads_neither_the_web_framework_nor_the_settings() -> None:
    code = (
        "import sys; from gateway.cli.main import main; main(['keys', 'new']);"
        "print([name for name in ('fastapi', 'uvicorn', 'pydantic', 'jwt', 'gateway.sizing') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment({}), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.setting("jwt_secret", "jwt_audience", "jwt_issuer")
def test_token_prints_one_that_a_replica_with_the_same_secret_accepts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**SERVING, "GATEWAY_JWT_ISSUER": "us"}.items():
        monkeypatch.setenv(name, value)
    options = ["--sub", "ada", "--scope", "read", "--scope", "write extra", "--ttl", "60", "--client-id", "cli"]
    assert main(["token", *options]) == 0
    verified = asyncio.run(
        TokenVerifier(SharedSecret(SECRET), ("here",), issuer="us").authenticate(
            f"Bearer {capsys.readouterr().out.strip()}"
        )
    )
    assert verified.principal == Principal("us", "ada", "cli")
    assert verified.scopes == {"read", "write", "extra"}


def claims_of(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return claims


@pytest.mark.setting("jwt_scope_claim")
def test_token_writes_the_scopes_where_replicas_read_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**SERVING, "GATEWAY_JWT_SCOPE_CLAIM": "permissions"}.items():
        monkeypatch.setenv(name, value)
    assert main(["token", "--sub", "ada", "--scope", "read", "--scope", "write"]) == 0
    claims = claims_of(capsys.readouterr().out.strip())
    assert (claims["permissions"], claims.get("scope")) == ("read write", None)


@pytest.mark.setting("jwt_issuer")
def test_a_token_carries_the_issuer_and_the_claims_that_are_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**SERVING, "GATEWAY_JWT_ISSUER": "us"}.items():
        monkeypatch.setenv(name, value)
    given = ["tenant=acme", "level=3", 'roles=["a","b"]', "note=a=b", "nothing=null", "not=NaN", "empty="]
    options = [option for claim in given for option in ("--claim", claim)]
    assert main(["token", "--sub", "ada", "--issuer", "https://other.example", *options]) == 0
    claims = claims_of(capsys.readouterr().out.strip())
    assert claims["iss"] == "https://other.example"
    expected = {"tenant": "acme", "level": 3, "roles": ["a", "b"], "note": "a=b", "nothing": None}
    assert {name: claims[name] for name in expected} == expected
    assert (claims["not"], claims["empty"]) == ("NaN", "")


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("sub=eve", "'sub' is reserved; use --sub"),
        ("exp=1", "use --ttl"),
        ("aud=x", "set GATEWAY_AUDIENCE"),
        ("iss=x", "use --issuer"),
        ("scope=x", "use --scope"),
        ("tenant", "'tenant' is not NAME=VALUE"),
        ("=x", "is not NAME=VALUE"),
    ],
)
def test_a_claim_that_has_an_option_or_no_value_is_refused(
    claim: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["token", "--sub", "ada", "--claim", claim])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.setting("seal_keys")
def test_keys_show_prints_the_ids_that_the_metric_shows_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = generate_entry(os.urandom), "ab" * 32
    (tmp_path / "keys").write_text(f"{new}\n{old}\n")
    monkeypatch.setenv("GATEWAY_SEAL_KEYS_FILE", str(tmp_path / "keys"))
    assert main(["keys", "show"]) == 0
    shown = capsys.readouterr().out
    telemetry = ProcessTelemetry()
    telemetry.seal_keys([key.key_id.hex() for key in KeyRing.parse(f"{new},{old}").keys])
    metric = re.findall(
        r'gateway_seal_keys\{key_id="(\w+)",role="(\w+)"\} 1', generate_latest(telemetry.registry).decode()
    )
    assert sorted(tuple(line.split()) for line in shown.splitlines()) == sorted(metric)
    assert [line.split()[1] for line in shown.splitlines()] == ["seals", "opens"]
    assert old not in shown
    assert new not in shown


@pytest.mark.parametrize("name", ["GATEWAY_JWT_SECRET", "GATEWAY_AUDIENCE"])
def test_token_without_a_secret_or_an_audience_says_what_to_set(name: str) -> None:
    assert_one_clear_line(gateway("token", "--sub", "ada", settings={**SERVING, name: ""}), name)


@pytest.mark.setting("tools")
def test_tools_lists_name_version_and_the_first_line_of_the_description() -> None:
    result = gateway("tools", settings={"GATEWAY_TOOLS": "gateway.demo"})
    assert result.returncode == 0
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == ["NAME", "VERSION", "DESCRIPTION"]
    assert any(re.match(r"update_work_item +1 +Update a work item", row) for row in rows)


def inventory(**settings: str) -> dict[str, Any]:
    result = gateway("tools", "--json", "--tools", "gateway.demo", settings=settings)
    return {tool["name"]: tool for tool in json.loads(result.stdout)}


def test_tools_as_json_has_the_input_schemas() -> None:
    tools = inventory()
    assert set(tools["update_work_item"]["inputSchema"]["properties"]) == {"workItemId", "fields"}
    assert tools["update_work_item"]["version"] == 1


def test_tools_as_json_shows_which_questions_a_release_asks_again() -> None:
    old, new = (inventory(GATEWAY_DEMO_RELEASE=release)["link_accounts"] for release in "12")
    assert (old["version"], new["version"]) == (1, 2)
    assert list(old["asks"]) == ["github_login", "google_login"]
    assert list(new["asks"]) == ["github_login", "microsoft_login"]
    assert old["asks"]["github_login"] == new["asks"]["github_login"]


def test_tools_as_json_shows_how_a_tool_becomes_a_task() -> None:
    tools = inventory()
    told = {name: (tools[name]["task"], tools[name]["start"]) for name in ("crunch", "report", "provision_vm")}
    assert told == {
        "crunch": ("forbidden", None),
        "report": ("optional", "task"),
        "provision_vm": ("optional", "call"),
    }


def test_tools_lists_below_each_name_what_matters_to_a_call_under_another_release(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        """
from gateway import ElicitUrl, Roots, Sample, prompt, resource, server, tool

server(name="shop", title="The shop", version="2.1")

@tool(version=2, task="optional", scopes=["buy", "a"], asks={"pay": ElicitUrl("", ""), "text": Sample("", 1)})
async def buy() -> str: ...

@buy.migrate(from_=1, to=2)
def moved(value): ...

@prompt(asks={"where": Roots()})
async def greet() -> str:
    \"\"\"Greet.\"\"\"

@resource("shop://goods")
async def goods() -> str: ...
"""
    )
    result = gateway("tools", "--tools", "shop", settings={}, cwd=tmp_path)
    text = re.sub(r" [0-9a-f]{24}$", " DIGEST", result.stdout, flags=re.MULTILINE)
    assert text.splitlines() == [
        "NAME  VERSION  DESCRIPTION",
        "buy   2",
        "  task optional, begins as a task",
        "  scopes a buy",
        "  migrates checkpoints from version 1 to 2",
        "  asks pay (url) DIGEST",
        "  asks text (sampling/createMessage) DIGEST",
        "",
        "PROMPT  VERSION  DESCRIPTION",
        "greet   1        Greet.",
        "  asks where (roots/list) DIGEST",
        "",
        "RESOURCE  VERSION  DESCRIPTION",
        "goods     1",
        "",
        "served as shop 2.1 (The shop)",
    ], result.stderr


def test_tools_without_a_module_says_how_to_name_one() -> None:
    assert_one_clear_line(gateway("tools", settings={}), "GATEWAY_TOOLS", "--tools")


def test_tool_modules_are_found_in_the_working_directory_also_by_the_installed_command(tmp_path: Path) -> None:
    (tmp_path / "my_tools.py").write_text(
        'from gateway import tool\n@tool\nasync def hello() -> str:\n    """Say hello."""\n    return "hello"\n'
    )
    code = "import sys; sys.path.remove(''); from gateway.cli.main import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", code, "tools", "--tools", "my_tools"],
        env=environment({}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "hello  1        Say hello." in result.stdout.splitlines(), result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--port", "65536"],
        ["serve", "--port", "-1"],
        ["dev", "--replicas", "0"],
        ["dev", "--replicas", "two"],
        ["token", "--sub", "a", "--ttl", "0"],
        ["token"],
        ["unknown"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_exits_2_with_its_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: gateway")


@pytest.mark.parametrize(
    "command",
    [[], ["serve"], ["dev"], ["keys"], ["keys", "new"], ["keys", "show"], ["token"], ["tools"], ["size"]],
    ids=" ".join,
)
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {' '.join(['gateway', *command])} ")


@pytest.mark.parametrize("command", [[], ["keys"]], ids=["gateway", "keys"])
def test_a_command_line_without_its_command_gets_the_help_and_exits_2(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"usage: {' '.join(['gateway', *command])} [-h]")
    assert "\n    new " in output.err or "\n    serve " in output.err


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_both_options_for_the_version_print_it(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([option])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"sealed-gateway {__version__} (")


@pytest.mark.parametrize(
    "command",
    [
        *("tools", "tools --json", "check", "check --json", "size", "size --json", "keys new", "keys show"),
        *("token --sub ann", "completion bash", "upstreams --haproxy", "--help", "--version", "worker --help"),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_command_whose_reader_has_gone_ends_quietly_as_other_tools_do(command: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    settings = environment({**SERVING, "GATEWAY_JWT_SECRET": SECRET, "PYTHONUNBUFFERED": unbuffered})
    with os.fdopen(writer, "wb") as nobody:
        result = subprocess.run(
            [sys.executable, "-m", "gateway", *command.split()],
            env=settings,
            cwd=ROOT,
            stdout=nobody,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert result.stderr == b""
    # argparse overlooks that its help cannot be written
    assert result.returncode == (0 if unbuffered and command.endswith(("--help", "--version")) else 141)


@pytest.mark.parametrize("command", ["serve", "dev"])
def test_a_broken_pipe_in_a_command_that_serves_is_an_error(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(f"gateway.cli.main._{command}", fail)
    assert main([command]) == 1
    assert "BrokenPipeError" in capsys.readouterr().err


def test_an_interrupted_command_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.cli.main._keys_new", interrupt)
    assert main(["keys", "new"]) == 130
    assert capsys.readouterr().err == ""


def test_a_port_that_nobody_listens_on_is_free_again_after_serve_ended() -> None:
    with serving("--port", "0") as (process, url, _):
        port = int(url.rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, "--appendonly", "no")
    server.start()
    server.wait_ready()
    yield server
    server.end()


WORKING = {**SERVING, "GATEWAY_REDIS_URL": "redis://127.0.0.1:1/0"}


@pytest.mark.parametrize("name", ["GATEWAY_TOOLS", "GATEWAY_SEAL_KEYS", "GATEWAY_AUDIENCE", "GATEWAY_REDIS_URL"])
def test_a_worker_without_what_it_needs_says_what_in_one_line_and_exits_2(name: str) -> None:
    assert_one_clear_line(gateway("worker", settings={**WORKING, name: ""}), name)


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)], ids=lambda command: command[0])
def test_a_store_of_a_newer_release_is_one_clear_line(command: Sequence[str], store: RedisServer) -> None:
    store.ask("SET", RedisKeys("here", 1).agreed_format(), "99")
    result = gateway(*command, settings={**SERVING, "GATEWAY_REDIS_URL": f"redis://127.0.0.1:{store.port}/0"})
    assert_one_clear_line(result, "the task store has format 99", "start the newer release")


def test_a_worker_with_a_wrong_option_says_what_to_write() -> None:
    result = gateway("worker", "--concurrency", "many", settings=WORKING)
    assert_one_clear_line(result, "--concurrency: 'many' is not valid; use a whole number")


def test_the_options_of_a_worker_are_in_its_help() -> None:
    result = gateway("worker", "--help", settings={})
    assert result.returncode == 0
    for option in ("--concurrency", "--worker-id", "--metrics-host", "--metrics-port"):
        assert option in result.stdout


@pytest.mark.setting("tools")
@pytest.mark.parametrize(
    ("options", "reason"), [("task='required'", "runs only as a task"), ("single_use=True", "is single-use")]
)
def test_serving_a_tool_that_needs_a_task_store_without_one_is_one_clear_line(
    tmp_path: Path, options: str, reason: str
) -> None:
    (tmp_path / "needy.py").write_text(f"from gateway import tool\n@tool({options})\nasync def needy() -> str: ...\n")
    settings = {**SERVING, "GATEWAY_TOOLS": "needy"}
    assert_one_clear_line(gateway("serve", "--port", "0", settings=settings, cwd=tmp_path), reason, "GATEWAY_REDIS_URL")
