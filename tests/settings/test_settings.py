"""Settings are read once, checked, reported in one line if wrong, and documented."""

from __future__ import annotations

import ast
import inspect
import itertools
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from gateway.engine.leg_policy import LegPolicy
from gateway.errors import ConfigurationError
from gateway.settings.model import MIN_JWT_SECRET_BYTES, Settings, known_variables, secret_fields, variable
from gateway.settings.problems import Problems

SECRET = "s" * MIN_JWT_SECRET_BYTES
REDIS_URL = "rediss://user:s3cret@redis.example.com:6380/0"
DOCUMENT = Path(__file__).parent.parent.parent / "docs/run/settings.md"

SERVING = {
    "GATEWAY_TOOLS": "some.tools",
    "GATEWAY_SEAL_KEYS": "0" * 64,
    "GATEWAY_AUDIENCE": "here",
    "GATEWAY_JWT_SECRET": SECRET,
}

ANY_NAME = "any"
"""Stands for the name that a replica makes up for itself."""


@dataclass(frozen=True, slots=True)
class Example:
    """One setting: its default, a valid text, and what that means. `wrong` is None if other tests try a wrong one."""

    default: Any
    text: str
    value: Any
    wrong: str | None


EXAMPLES = {
    "GATEWAY_SEAL_KEYS": Example(None, "0" * 64, SecretStr("0" * 64), None),
    "GATEWAY_TOOLS": Example((), " one , two.three,", ("one", "two.three"), "not a module"),
    "GATEWAY_UPSTREAMS": Example(None, " upstreams.json ", "upstreams.json", "up\x00"),
    "GATEWAY_MAX_CHILDREN": Example(16, "0", 0, "1001"),
    "GATEWAY_SERVER_NAME": Example(None, "shop", "shop", "two\nlines"),
    "GATEWAY_SERVER_TITLE": Example(None, " The shop ", "The shop", "two\nlines"),
    "GATEWAY_SERVER_VERSION": Example(None, "2.1", "2.1", "two\nlines"),
    "GATEWAY_SERVER_INSTRUCTIONS": Example(None, "Search.\nOrder.", "Search.\nOrder.", " "),
    "GATEWAY_SERVER_WEBSITE_URL": Example(
        None, "https://shop.example.com/?a=1", "https://shop.example.com/?a=1", "shop.example.com"
    ),
    "GATEWAY_SERVER_ICONS": Example(
        (), "https://a.example/1.png, https://a.example/2", ("https://a.example/1.png", "https://a.example/2"), "1.png"
    ),
    "GATEWAY_AUDIENCE": Example(None, "here", "here", "two\nlines"),
    "GATEWAY_STATE_TTL_SECONDS": Example(3600, "60", 60, "0"),
    "GATEWAY_FLOW_MAX_SECONDS": Example(86400, "120", 120, "1e3"),
    "GATEWAY_STATE_MAX_BYTES": Example(65536, "2048", 2048, "64K"),
    "GATEWAY_ANSWER_SECONDS": Example(3600, "600", 600, "0"),
    "GATEWAY_SESSION_TTL_SECONDS": Example(2592000, "61", 61, "0"),
    "GATEWAY_AUTH": Example("jwt", "None", "none", "basic"),
    "GATEWAY_JWT_SECRET": Example(None, SECRET, SecretStr(SECRET), "hunter2-hunter2"),
    "GATEWAY_JWKS_URL": Example(
        None, "https://id.example.com/keys?v=2", "https://id.example.com/keys?v=2", "http://id.example.com/jwks"
    ),
    "GATEWAY_JWKS_FILE": Example(None, "/run/jwks.json", "/run/jwks.json", "/run/\x00"),
    "GATEWAY_JWT_ALGORITHMS": Example((), "ES256, EdDSA", ("ES256", "EdDSA"), "none"),
    "GATEWAY_JWT_AUDIENCE": Example(None, "tokens", "tokens", "\x00"),
    "GATEWAY_JWT_ISSUER": Example(None, "https://issuer.example", "https://issuer.example", " "),
    "GATEWAY_JWKS_REFRESH_SECONDS": Example(300, "60", 60, "1"),
    "GATEWAY_JWT_LEEWAY_SECONDS": Example(30, "0", 0, "-1"),
    "GATEWAY_PUBLIC_URL": Example(
        None, "https://mcp.example.com/tools/", "https://mcp.example.com/tools/", "https://mcp.example.com/?a=b"
    ),
    "GATEWAY_AUTHORIZATION_SERVERS": Example(
        (),
        "https://id.example.com/,http://[::1]:8443/tenant",
        ("https://id.example.com/", "http://[::1]:8443/tenant"),
        "https://id.example.com,id2.example.com",
    ),
    "GATEWAY_LOGIN_SCOPES": Example((), "notes:read, notes:write", ("notes:read", "notes:write"), 'read,"write"'),
    "GATEWAY_JWT_CLAIMS": Example(
        (), "email, groups,https://example.com/tenant", ("email", "groups", "https://example.com/tenant"), "e mail"
    ),
    "GATEWAY_TOOL_HEADERS": Example((), "X-Tenant, accept-language", ("x-tenant", "accept-language"), "mcp-session-id"),
    "GATEWAY_JWT_SCOPE_CLAIM": Example(None, " permissions ", "permissions", "two claims"),
    "GATEWAY_JWT_CLIENT_IDS": Example(
        (), "1h57kf5cpq17m0eml12EXAMPLE, cli", ("1h57kf5cpq17m0eml12EXAMPLE", "cli"), "c\x7f"
    ),
    "GATEWAY_TOKEN_EXCHANGE_URL": Example(
        None, "https://id.example.com/token", "https://id.example.com/token", "http://id.example.com/token"
    ),
    "GATEWAY_TOKEN_EXCHANGE_CLIENT_ID": Example(None, "gateway", "gateway", "two\nlines"),
    "GATEWAY_TOKEN_EXCHANGE_CLIENT_SECRET": Example(None, "hunter2", SecretStr("hunter2"), None),
    "GATEWAY_LEG_SECONDS": Example(60.0, "1.5", 1.5, "nan"),
    "GATEWAY_MAX_BODY_BYTES": Example(1048576, "4096", 4096, "9" * 5000),
    "GATEWAY_MAX_UNANSWERED_BYTES": Example(67108864, "1048576", 1_048_576, "1048575"),
    "GATEWAY_MAX_HEADER_BYTES": Example(32768, "8192", 8192, "1023"),
    "GATEWAY_MAX_HEADERS": Example(100, "50", 50, "15"),
    "GATEWAY_MAX_JSON_DEPTH": Example(100, "20", 20, "201"),
    "GATEWAY_MAX_JSON_VALUES": Example(150_000, "1000", 1000, "999"),
    "GATEWAY_MAX_ANSWERS": Example(100, "10", 10, "0"),
    "GATEWAY_MAX_RESULT_BYTES": Example(16777216, "1048576", 1_048_576, "16 MiB"),
    "GATEWAY_RATE_LIMIT": Example(
        None, " 100/S burst 200 ", {"requests": 100, "seconds": 1, "burst": 200}, "100 per second"
    ),
    "GATEWAY_STREAMS_PER_PRINCIPAL": Example(32, "4", 4, "many"),
    "GATEWAY_HEAD_SECONDS": Example(10.0, "5", 5, "0"),
    "GATEWAY_BODY_SECONDS": Example(10.0, "0.5", 0.5, "inf"),
    "GATEWAY_UNREAD_SECONDS": Example(30.0, "5", 5, "0"),
    "GATEWAY_MAX_UNREAD_BYTES": Example(67108864, "1048576", 1_048_576, "64 MiB"),
    "GATEWAY_MAX_CONNECTIONS": Example(4096, "1000", 1000, "-1"),
    "GATEWAY_REPLICA_ID": Example(ANY_NAME, "r-1.a_b", "r-1.a_b", "räplica"),
    "GATEWAY_REPLICA_URL": Example(None, " http://10.0.0.7:8080/ ", "http://10.0.0.7:8080", "http://10.0.0.7:8080?x=1"),
    "GATEWAY_PEERS": Example(
        (),
        " http://10.0.0.7:8080/ , https://replicas.example.com/inner",
        ("http://10.0.0.7:8080", "https://replicas.example.com/inner"),
        "http://10.0.0.7:8080,replicas:8080",
    ),
    "GATEWAY_HOLDERS": Example(
        (), " http://h-0:8080/mcp , http://h-1:8080", ("http://h-0:8080", "http://h-1:8080"), "http://h-0:8080,h-1:8080"
    ),
    "GATEWAY_REPLICA_HEADER": Example(True, "Off", False, "perhaps"),
    "GATEWAY_CONNECTION_CLOSE": Example(False, "1", True, "2"),
    "GATEWAY_STRICT_ASKS": Example(False, "on", True, "strict"),
    "GATEWAY_SHOW_ERRORS": Example(False, "on", True, "all"),
    "GATEWAY_PLAYGROUND": Example("off", " ON ", "on", "yes"),
    "GATEWAY_ALLOWED_HOSTS": Example(
        (),
        "mcp.example.com, mcp.example.com:8443",
        ("mcp.example.com", "mcp.example.com:8443"),
        "mcp.example.com,*.example.com",
    ),
    "GATEWAY_ALLOWED_ORIGINS": Example((), "https://app.example.com", ("https://app.example.com",), "app.example.com"),
    "GATEWAY_TRUSTED_PROXIES": Example((), "10.0.0.0/8,192.0.2.7", ("10.0.0.0/8", "192.0.2.7"), "10.0.0.1/8"),
    "GATEWAY_HOST": Example("127.0.0.1", "::", "::", "http://0.0.0.0"),
    "GATEWAY_PORT": Example(8080, "0", 0, "off"),
    "GATEWAY_METRICS_HOST": Example("127.0.0.1", "::1", "::1", "http://127.0.0.1"),
    "GATEWAY_METRICS_PORT": Example(9464, "0", 0, "65536"),
    "GATEWAY_LOG_LEVEL": Example("info", "DEBUG", "debug", "loud"),
    "GATEWAY_LOG_FORMAT": Example("text", "JSON", "json", "xml"),
    "GATEWAY_AUDIT_LOG": Example("stderr", "audit.log", "audit.log", "two\nlines"),
    "GATEWAY_AUDIT_LOG_REQUIRED": Example(False, "on", True, "always"),
    "GATEWAY_REDIS_URL": Example(None, REDIS_URL, SecretStr(REDIS_URL), "http://:hunter2@localhost"),
    "GATEWAY_TASK_PARTITIONS": Example(8, "2", 2, "0"),
    "GATEWAY_TASK_MAX_TTL_SECONDS": Example(86400, "3600", 3600, "1d"),
    "GATEWAY_TASKS_PER_PRINCIPAL": Example(1000, "5", 5, "none"),
    "GATEWAY_TASK_BYTES_PER_PRINCIPAL": Example(67108864, "5000000", 5_000_000, "64 MiB"),
    "GATEWAY_TASK_MAX_ARGUMENT_BYTES": Example(262144, "2048", 2048, "1023"),
    "GATEWAY_TASK_MAX_RESULT_BYTES": Example(4194304, "67108864", 67_108_864, "64 MiB"),
    "GATEWAY_TASK_LEASE_SECONDS": Example(30.0, "1.5", 1.5, "0"),
    "GATEWAY_IMMEDIATE_WAIT_MS": Example(250, "100", 100, "-1"),
    "GATEWAY_HIDE_TASK_TOOLS": Example(False, "on", True, "some"),
    "GATEWAY_WORKER_CONCURRENCY": Example(32, "4", 4, "-1"),
    "GATEWAY_MAX_INFLIGHT": Example(None, "7", 7, "0"),
    "GATEWAY_QUEUE_TARGET_MS": Example(50.0, "20.5", 20.5, "0.5"),
    "GATEWAY_SHED_INPUT_REQUESTS": Example(False, "on", True, "empty"),
    "GATEWAY_DRAIN_NOTICE_SECONDS": Example(3.0, "1.5", 1.5, "-1"),
    "GATEWAY_DRAIN_SECONDS": Example(25.0, "0", 0, "inf"),
}
"""Every setting. All texts together form a valid environment."""


def refusal(environ: dict[str, str], **overrides: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(environ, **overrides)
    return str(caught.value)


def test_a_service_called_gateway_does_not_set_the_port() -> None:
    assert Settings.load({"GATEWAY_PORT": "tcp://10.0.0.7:8080"}).port == 8080


def test_an_empty_environment_gives_the_documented_defaults() -> None:
    values = Settings.load({}).model_dump()
    values["replica_id"] = ANY_NAME
    assert {variable(name): value for name, value in values.items()} == {
        name: example.default for name, example in EXAMPLES.items()
    }


def test_a_line_break_at_the_end_is_part_of_a_value() -> None:
    assert refusal({"GATEWAY_REPLICA_ID": "r1\n"}).startswith(
        r"GATEWAY_REPLICA_ID: 'r1\n' is not valid; use 1 to 64 letters"
    )


def test_every_setting_is_read_from_its_variable() -> None:
    values = Settings.load({name: example.text for name, example in EXAMPLES.items()}).model_dump()
    assert {variable(name): value for name, value in values.items()} == {
        name: example.value for name, example in EXAMPLES.items()
    }


@pytest.mark.setting("strict_asks", "show_errors", "max_answers", "tool_headers", "max_result_bytes")
def test_each_setting_of_legs_reaches_their_policy() -> None:
    policy = LegPolicy.of(Settings.load({name: example.text for name, example in EXAMPLES.items()}))
    assert asdict(policy) == {field.name: EXAMPLES[variable(field.name)].value for field in fields(policy)}


@pytest.mark.parametrize("off", ["off", " OFF ", ""])
def test_a_rate_limit_can_be_off(off: str) -> None:
    assert Settings.load({"GATEWAY_RATE_LIMIT": off}).rate_limit is None


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_REPLICA_ID", "from-the-process")
    assert Settings.load().replica_id == "from-the-process"


def test_an_empty_variable_counts_as_unset() -> None:
    assert Settings.load({"GATEWAY_METRICS_PORT": "", "GATEWAY_AUDIENCE": ""}).metrics_port == 9464


def test_what_is_given_as_an_argument_wins_over_the_environment_and_none_does_not() -> None:
    settings = Settings.load(
        {"GATEWAY_REPLICA_ID": "env", "GATEWAY_METRICS_PORT": "1"}, replica_id=None, metrics_port="off"
    )
    assert settings.replica_id == "env"
    assert settings.metrics_port is None


@pytest.mark.parametrize(
    ("environ", "audiences"),
    [
        ({}, ()),
        ({"GATEWAY_AUDIENCE": "a"}, ("a",)),
        ({"GATEWAY_AUDIENCE": "a", "GATEWAY_PUBLIC_URL": "https://b.test"}, ("a", "https://b.test/mcp")),
        ({"GATEWAY_AUDIENCE": "a", "GATEWAY_JWT_AUDIENCE": "c"}, ("c",)),
        ({"GATEWAY_AUDIENCE": "a", "GATEWAY_PUBLIC_URL": "https://b.test", "GATEWAY_JWT_AUDIENCE": "c"}, ("c",)),
    ],
)
def test_tokens_are_for_the_deployment_or_its_url_unless_they_have_an_audience_of_their_own(
    environ: dict[str, str], audiences: tuple[str, ...]
) -> None:
    assert Settings.load(environ).token_audiences == audiences


def test_replicas_without_a_name_get_different_short_ones() -> None:
    first, second = Settings.load({}).replica_id, Settings.load({}).replica_id
    assert first != second
    assert len(first) <= 32
    assert Settings.load({"GATEWAY_REPLICA_ID": first}).replica_id == first


@pytest.mark.parametrize(
    "url", ["http://10.0.0.7:8080", "https://r1.example.com/inner", "http://[::1]:8080", "http://r1"]
)
def test_other_replicas_may_reach_this_one_by_http_too(url: str) -> None:
    assert Settings.load({"GATEWAY_REPLICA_URL": f"{url}/"}).replica_url == url


@pytest.mark.parametrize("url", ["http://10.0.0.7:8080", "https://r1/tools", "http://mcp", "http://r1/mcp-tools"])
@pytest.mark.parametrize("end", ["", "/", "/mcp", "/mcp/"])
def test_the_url_of_a_replica_may_be_that_of_its_endpoint(url: str, end: str) -> None:
    settings = Settings.load({"GATEWAY_REPLICA_URL": url + end, "GATEWAY_PEERS": f"http://r2,{url}{end}"})
    assert (settings.replica_url, settings.peers) == (url, ("http://r2", url))


@pytest.mark.parametrize(
    "url",
    [
        *("10.0.0.7:8080", "ftp://r1", "http://", "http://user@r1", "http://r1#x", "http://r1?", "http://r1:0"),
        *("http://r 1", "http://r1/" + "x" * 300),
    ],
)
def test_a_url_that_nobody_could_reach_a_replica_at_is_refused(url: str) -> None:
    assert "GATEWAY_REPLICA_URL" in refusal({"GATEWAY_REPLICA_URL": url})
    assert "GATEWAY_PEERS" in refusal({"GATEWAY_PEERS": f"http://10.0.0.7:8080,{url}"})


def test_processes_with_one_environment_can_each_name_their_own_host() -> None:
    settings = Settings.load({"GATEWAY_REPLICA_URL": "http://{hostname}:8080"})
    assert settings.replica_url == f"http://{socket.gethostname()}:8080"


def test_settings_cannot_be_changed_after_they_were_read() -> None:
    settings = Settings.load({})
    with pytest.raises(ValidationError):
        settings.state_ttl_seconds = 1


@pytest.mark.parametrize(
    ("name", "value"), [(name, example.wrong) for name, example in EXAMPLES.items() if example.wrong is not None]
)
def test_a_wrong_value_is_reported_in_one_line_that_names_the_variable_and_what_to_write(name: str, value: str) -> None:
    message = refusal({name: value})
    assert message.startswith(f"{name}: ")
    assert "; use " in message
    assert message.isprintable()
    assert len(message) < 250


def test_a_wrong_option_is_reported_by_the_name_of_the_option() -> None:
    assert refusal({}, metrics_port="x").startswith("--metrics-port: 'x' is not valid; use a port")


def test_an_argument_that_is_not_a_setting_is_refused() -> None:
    assert "'metrics_prt' is not a setting" in refusal({}, metrics_prt="1")


def test_a_secret_never_shows_in_a_message_or_a_repr() -> None:
    assert "hunter2" not in refusal({"GATEWAY_JWT_SECRET": "hunter2-hunter2"})
    assert SECRET not in refusal({"GATEWAY_JWT_SECRET": SECRET + "\udc80"})
    assert "hunter2" not in refusal({"GATEWAY_REDIS_URL": "http://:hunter2@localhost"})
    for url in ("http://id.example.com/keys?key=hunter2", "https://id.example.com/keys#hunter2"):
        message = refusal({"GATEWAY_JWKS_URL": url})
        assert "//id.example.com/keys' is not valid" in message
        assert "hunter2" not in message
    settings = Settings.load({**SERVING, "GATEWAY_JWKS_URL": "https://id.example.com/keys?key=hunter2"})
    assert "hunter2" not in repr(settings)
    assert SECRET not in repr(settings)
    assert SERVING["GATEWAY_SEAL_KEYS"] not in str(settings)


def test_a_short_secret_is_refused_by_its_bytes() -> None:
    assert "15 bytes" in refusal({"GATEWAY_JWT_SECRET": "x" * 15})
    Settings.load({"GATEWAY_JWT_SECRET": "é" * (MIN_JWT_SECRET_BYTES // 2)})


def test_every_secret_can_be_given_as_a_file(tmp_path: Path) -> None:
    assert len(secret_fields()) == 4
    for name in secret_fields():
        file = tmp_path / name
        secret = REDIS_URL if name == "redis_url" else SECRET
        file.write_text(secret + "\n")
        settings = Settings.load({f"{variable(name)}_FILE": str(file)})
        assert getattr(settings, name).get_secret_value() == secret
        assert settings.unknown == {}


def test_a_file_keeps_its_inner_newlines(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("one\ntwo\n")
    keys = Settings.load({"GATEWAY_SEAL_KEYS_FILE": str(file)}).seal_keys
    assert keys is not None
    assert keys.get_secret_value() == "one\ntwo"


def test_a_secret_given_both_ways_is_refused(tmp_path: Path) -> None:
    message = refusal({"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_JWT_SECRET_FILE": str(tmp_path)})
    assert message == "GATEWAY_JWT_SECRET: set together with GATEWAY_JWT_SECRET_FILE; keep one of them"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "cannot be read: No such file"), (b"\n \n", "is empty"), (b"\xff\xfe", "is not a UTF-8 text file")],
)
def test_a_file_without_a_secret_is_reported_by_name(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    message = refusal({"GATEWAY_JWT_SECRET_FILE": str(file)})
    assert message.startswith("GATEWAY_JWT_SECRET_FILE: ")
    assert complaint in message


def test_names_that_look_like_settings_but_are_not_are_collected() -> None:
    settings = Settings.load(
        {"GATEWAY_TOOL": "x", "GATEWAY_TOOLS_FILE": "y", "GATEWAY_DEMO_RELEASE": "2", "HOME": "/", **SERVING}
    )
    assert list(settings.unknown) == ["GATEWAY_TOOL", "GATEWAY_TOOLS_FILE"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("GATEWAY_LEG_SECOND", "GATEWAY_LEG_SECONDS"),
        ("GATEWAY_LEGSECONDS", "GATEWAY_LEG_SECONDS"),
        ("GATEWAY_REDIS_URL_FLIE", "GATEWAY_REDIS_URL_FILE"),
        ("GATEWAY_audience", "GATEWAY_AUDIENCE"),
        ("GATEWAY_COLOUR", None),
        ("GATEWAY_", None),
    ],
)
def test_a_misspelt_setting_comes_with_the_one_that_is_meant(written: str, meant: str | None) -> None:
    assert Settings.load({written: "x"}).unknown == {written: meant}


def test_all_wrong_settings_are_reported_at_once_a_line_each(tmp_path: Path) -> None:
    environ = {
        "GATEWAY_LOG_LEVEL": "loud",
        "GATEWAY_STATE_TTL_SECONDS": "soon",
        "GATEWAY_JWT_SECRET_FILE": str(tmp_path / "nothing"),
        "GATEWAY_SEAL_KEYS": "0" * 64,
        "GATEWAY_SEAL_KEYS_FILE": str(tmp_path / "nothing"),
    }
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(environ, metrics_port="x")
    named = [line.partition(":")[0] for line in caught.value.problems]
    assert named == [
        "GATEWAY_SEAL_KEYS",
        "GATEWAY_JWT_SECRET_FILE",
        "GATEWAY_STATE_TTL_SECONDS",
        "--metrics-port",
        "GATEWAY_LOG_LEVEL",
    ]


def test_all_missing_settings_are_reported_at_once_and_wrong_ones_only_once() -> None:
    problems = Problems()
    settings = Settings.load({"GATEWAY_TOOLS": "not a module", "GATEWAY_JWKS_URL": "ftp://x"}, problems=problems)
    with problems.noted():
        settings.check_serving()
    named = [line.partition(":")[0] for line in problems.lines]
    assert named == ["GATEWAY_TOOLS", "GATEWAY_JWKS_URL", "GATEWAY_SEAL_KEYS", "GATEWAY_AUDIENCE"]


def test_a_complete_environment_may_serve() -> None:
    Settings.load(SERVING).check_serving()


@pytest.mark.parametrize("name", SERVING)
def test_a_serving_process_names_what_is_missing(name: str) -> None:
    settings = Settings.load({key: value for key, value in SERVING.items() if key != name})
    with pytest.raises(ConfigurationError, match=name) as caught:
        settings.check_serving()
    assert str(caught.value).isprintable()


def test_a_process_without_identity_needs_no_secret() -> None:
    Settings.load({**SERVING, "GATEWAY_JWT_SECRET": "", "GATEWAY_AUTH": "none"}).check_serving()


JWKS = {
    **SERVING,
    "GATEWAY_JWT_SECRET": "",
    "GATEWAY_JWKS_URL": "https://id.example.com/jwks",
    "GATEWAY_JWT_ISSUER": "https://id.example.com",
}


def serving_refusal(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load(environ).check_serving()
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_tokens_can_be_verified_with_the_keys_of_an_identity_provider() -> None:
    Settings.load(JWKS).check_serving()
    Settings.load({**JWKS, "GATEWAY_JWKS_URL": "", "GATEWAY_JWKS_FILE": "/run/jwks.json"}).check_serving()
    Settings.load({**JWKS, "GATEWAY_JWT_ALGORITHMS": "PS256,ES384"}).check_serving()


def test_a_key_set_needs_an_issuer_and_a_shared_secret_does_not() -> None:
    message = serving_refusal({**JWKS, "GATEWAY_JWT_ISSUER": ""})
    assert message.startswith("GATEWAY_JWT_ISSUER: not set, but GATEWAY_JWKS_URL needs it")
    Settings.load(SERVING).check_serving()


@pytest.mark.parametrize(
    "names",
    [
        ("GATEWAY_JWT_SECRET", "GATEWAY_JWKS_URL"),
        ("GATEWAY_JWT_SECRET", "GATEWAY_JWKS_FILE"),
        ("GATEWAY_JWKS_URL", "GATEWAY_JWKS_FILE"),
    ],
)
def test_tokens_are_verified_in_one_way_only(names: tuple[str, str]) -> None:
    ways = {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_JWKS_URL": "https://x.example", "GATEWAY_JWKS_FILE": "/run/jwks"}
    environ = {**SERVING, "GATEWAY_JWT_SECRET": "", "GATEWAY_JWT_ISSUER": "i", **{name: ways[name] for name in names}}
    assert serving_refusal(environ).startswith(f"{names[0]}: set together with {names[1]}; keep the one")


@pytest.mark.parametrize("algorithms", ["HS256,RS256", "ES256,HS256"])
def test_algorithms_of_secrets_and_of_public_keys_never_mix(algorithms: str) -> None:
    assert "HS256, which needs a shared secret, is mixed" in refusal({"GATEWAY_JWT_ALGORITHMS": algorithms})


def test_algorithms_must_fit_what_verifies() -> None:
    assert "GATEWAY_JWT_SECRET cannot verify" in serving_refusal({**SERVING, "GATEWAY_JWT_ALGORITHMS": "RS256"})
    assert "GATEWAY_JWKS_URL cannot verify" in serving_refusal({**JWKS, "GATEWAY_JWT_ALGORITHMS": "HS256"})


def test_algorithms_that_are_not_chosen_follow_from_what_verifies() -> None:
    assert Settings.load(SERVING).token_algorithms == ("HS256",)
    assert Settings.load(JWKS).token_algorithms == ("RS256", "ES256", "EdDSA")
    assert Settings.load({**JWKS, "GATEWAY_JWT_ALGORITHMS": "PS512"}).token_algorithms == ("PS512",)


def test_without_identity_nothing_of_tokens_is_checked() -> None:
    Settings.load({**JWKS, "GATEWAY_AUTH": "none", "GATEWAY_JWT_SECRET": SECRET}).check_serving()


BAD_URLS = [
    "http://id.example.com/jwks",
    "http://127.0.0.1.example.com/jwks",
    "http://localhost@id.example.com/jwks",
    "https://user@id.example.com/jwks",
    "https://user:pass@id.example.com/jwks",
    "ftp://id.example.com/jwks",
    "file:///etc/passwd",
    "id.example.com",
    "https://",
    "https:///jwks",
    "https://id.example.com/jwks#x",
    "https://id.example.com:0/",
    "https://id.example.com:99999/",
    "https://[::1/",
    'https://id.example.com/"',
    "https://id.example.com/\\",
    "https://id.example.com/a b",
    "https://idé.example.com/",
]


@pytest.mark.parametrize("url", BAD_URLS)
@pytest.mark.parametrize("name", ["GATEWAY_JWKS_URL", "GATEWAY_PUBLIC_URL", "GATEWAY_AUTHORIZATION_SERVERS"])
def test_a_url_is_https_or_of_this_machine_and_holds_nobodys_name(name: str, url: str) -> None:
    message = refusal({name: url})
    assert message.startswith(f"{name}: ")
    assert "pass@" not in message


@pytest.mark.parametrize(
    "url", ["https://id.example.com", "http://127.0.0.1:1/x", "http://localhost", "HTTP://[::1]:8/"]
)
def test_a_url_of_this_machine_may_be_plain(url: str) -> None:
    settings = Settings.load({"GATEWAY_JWKS_URL": url, "GATEWAY_PUBLIC_URL": url})
    assert settings.jwks_url == settings.public_url == url


def test_the_file_of_a_secret_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("0" * 64)
    settings = Settings.load({"GATEWAY_SEAL_KEYS_FILE": str(file)})
    assert settings.file_of("seal_keys") == file
    assert settings.file_of("jwt_secret") is None
    assert Settings.load({"GATEWAY_SEAL_KEYS_FILE": str(file)}, seal_keys="1" * 64).file_of("seal_keys") is None


def descriptions() -> dict[str, str]:
    """Return the text below each field, in one line."""
    tree = ast.parse(inspect.getsource(Settings)).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_is_documented_with_its_default_and_its_description(name: str) -> None:
    field = Settings.model_fields[name]
    default = field.get_default()
    if field.default_factory is not None:
        shown = "made at start"
    elif default is None or default == ():
        shown = "none"
    elif isinstance(default, bool):
        shown = "`on`" if default else "`off`"
    else:
        shown = f"`{default:g}`" if isinstance(default, float) else f"`{default}`"
    assert f"| `{variable(name)}` | {shown} | {descriptions()[name]} |\n" in DOCUMENT.read_text(encoding="utf-8")


def test_the_document_lists_no_setting_that_does_not_exist() -> None:
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `GATEWAY_")]
    assert {row.split("`")[1] for row in rows} == {variable(name) for name in Settings.model_fields}


def test_the_document_names_every_file_form() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in known_variables() if name not in text] == []
