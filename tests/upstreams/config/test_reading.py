"""The file of upstreams: what desktop clients write is read as it is, and every mistake is one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigurationError
from gateway.http_client.tls import TlsFiles
from gateway.settings.rates import Rate
from gateway.upstreams.config.definition import Credentials, Definition, TaskRule, UpstreamFile
from gateway.upstreams.config.reading import MAX_FILE_BYTES, UpstreamReader
from gateway.upstreams.config.reading import OPTIONS as FILE_OPTIONS

SECRET = "hunter2-hunter2"
ENVIRON = {"TOKEN": SECRET, "TRICKY": 'x", "pin": "off'}
URL = "https://bugs.example.com/mcp"


def read(document: Any, path: Path = Path("upstreams.json")) -> UpstreamFile:
    text = document if isinstance(document, str) else json.dumps(document)
    return UpstreamReader(path, ENVIRON).parse(text.encode())


def define(entry: dict[str, Any] | None = None, name: str = "bugs", **options: Any) -> Definition:
    [definition] = read({"mcpServers": {name: {"url": URL, **(entry or {}), "gateway": options}}}).definitions
    return definition


def mistakes(document: Any, path: Path = Path("upstreams.json")) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(document, path)
    assert SECRET not in str(caught.value)
    return list(caught.value.problems)


def mistake(entry: dict[str, Any]) -> str:
    """Return the one line about an entry, without the file."""
    [line] = mistakes({"mcpServers": {"bugs": entry}})
    return line.removeprefix("upstreams.json: ")


CLAUDE = """{
  // from the desktop client
  "globalShortcut": "",
  "mcpServers": {
    "github": {"url": "https://github.example/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"},
               "gateway": {"tools": {"deny": ["delete_*"]}, "ask": {"*": "hold", "search_*": "replay"},
                           "scopes": {"*": ["github"]}}},
    "time": {"command": "uvx", "args": ["mcp-server-time"], "env": {"TZ": "UTC"},},
    "bugs": {"python": "bugs_server:mcp"},
    "off": {"disabled": true, "url": "${NOT_SET}"},
  },
}"""

VS_CODE = """{
  "inputs": [{"type": "promptString", "id": "token"}],
  "servers": {
    "bugs": {"type": "http", "url": "https://bugs.example.com/mcp", "dev": {"watch": "*"}},
    "files": {"type": "stdio", "command": "node", "args": ["x.js"], "cwd": ".", "envFile": "${env:ENV_FILE:-.env}"}
  }
}"""


def test_the_file_of_a_desktop_client_is_read_as_it_is() -> None:
    found = read(CLAUDE)
    github, time, bugs = found.definitions
    assert (time.transport, time.command, time.args) == ("stdio", "uvx", ("mcp-server-time",))
    assert (github.name, github.prefix, github.url) == ("github", "github", "https://github.example/mcp")
    assert github.headers == (("Authorization", f"Bearer {SECRET}"),)
    assert not github.serves_tool("delete_all")
    assert (github.ask.of("search_bugs"), github.ask.of("get")) == ("replay", "hold")
    assert github.scopes.of("anything") == {"github"}
    assert (bugs.transport, bugs.python, bugs.path, bugs.session_scope) == ("python", "bugs_server:mcp", "/mcp", "call")
    assert found.notes == ("upstreams.json: keys that have no effect here: globalShortcut",)


def test_the_file_of_vs_code_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\n")
    found = read(VS_CODE, tmp_path / "mcp.json")
    assert [definition.url for definition in found.definitions] == [URL, ""]
    assert found.definitions[1].variables == {"A": "1"}
    assert found.notes == (f"{tmp_path}/mcp.json: keys that have no effect here: inputs, bugs.dev",)


def test_toml_is_read_by_its_suffix() -> None:
    text = f'[mcpServers.bugs]\nurl = "{URL}"\n[mcpServers.bugs.gateway]\nscopes = {{"*" = ["bugs"]}}\n'
    [definition] = read(text, Path("upstreams.toml")).definitions
    assert definition.scopes.of("x") == {"bugs"}
    with pytest.raises(ConfigurationError, match="not valid JSON"):
        read(text)


def test_an_entry_without_options_has_the_defaults() -> None:
    definition = define()
    assert definition == Definition("bugs", "bugs", "http", URL)
    assert (definition.timeout_seconds, definition.held_seconds, definition.max_in_flight) == (60, 600, 64)
    assert (definition.max_result_bytes, definition.rate, definition.pin) == (16 * 2**20, None, "off")
    assert (definition.scope, definition.session_scope, definition.depends_on_caller) == (None, "caller", False)
    assert definition.task.of("x") == TaskRule()


def test_every_option_is_read(tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    options = {
        "prefix": "b",
        "prompts": {"allow": ["a*"]},
        "resources": {"deny": ["file:*"], "unlisted": True},
        "era": {"*": "stateless", "old": "session"},
        "ask": "refuse",
        "task": {"*": "optional", "slow": {"after_seconds": 5}},
        "scopes": ["bugs"],
        "credentials": {
            "kind": "client_credentials",
            "token_url": "https://login.example.com/token",
            "client_id": "me",
            "client_secret": "${TOKEN}",
            "scope": "a b",
        },
        "forward_headers": ["X-GitHub-Token"],
        "timeout_seconds": 2.5,
        "held_seconds": 30,
        "max_in_flight": 1,
        "max_connections": 2,
        "max_result_bytes": 2048,
        "idle_seconds": 9,
        "rate": "100/s burst 200",
        "tls": {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"},
        "proxy": "http://user:${TOKEN}@proxy:3128",
    }
    path = tmp_path / "upstreams.json"
    [found] = read({"mcpServers": {"bugs": {"url": URL, "gateway": options}}}, path).definitions
    assert found.prefix == "b"
    assert (found.prompts.takes("abc"), found.prompts.takes("b")) == (True, False)
    assert not found.resources.takes("file:///etc/passwd")
    assert found.unlisted is True
    assert (found.era.of("new"), found.era.of("old")) == ("stateless", "session")
    assert found.serves_tool("old")
    assert found.ask.of("x") == "refuse"
    assert (found.task.of("x"), found.task.of("slow")) == (TaskRule("optional"), TaskRule("optional", 5.0))
    assert found.scopes.of("x") == {"bugs"}
    assert found.credentials == Credentials(
        "client_credentials", "https://login.example.com/token", "me", SECRET, scope="a b"
    )
    assert (found.forward_headers, found.depends_on_caller) == (("x-github-token",), True)
    assert (found.timeout_seconds, found.held_seconds, found.idle_seconds) == (2.5, 30.0, 9.0)
    assert (found.max_in_flight, found.max_connections, found.max_result_bytes) == (1, 2, 2048)
    assert found.rate == Rate(100, 1, 200)
    assert found.tls == TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    assert found.proxy == f"http://user:{SECRET}@proxy:3128"
    assert SECRET not in repr(found)
    assert type(found.credentials.client_secret) is str


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"resources": {"deny": ["https://h:8080*"]}}, "resources.deny"),
        ({"scopes": {"https://h:8080*": ["a"]}}, "scopes"),
    ],
)
def test_a_glob_that_would_miss_uris_is_a_mistake(options: dict[str, Any], key: str) -> None:
    line = mistake({"url": URL, "gateway": options})
    assert f"gateway.{key}" in line
    assert "write https://h:8080/*" in line
    assert define(resources={"allow": ["https://h:8080*"]}).resources.allow == ("https://h:8080*",)


@pytest.mark.parametrize("value", [True, False, None])
def test_unlisted_resources_are_served_refused_or_left_to_the_rules(value: bool | None) -> None:
    assert define(resources={"unlisted": value}).unlisted is value


def test_one_rule_for_tasks_may_stand_alone() -> None:
    assert define(task={"after_seconds": 5}).task.of("x") == TaskRule("optional", 5.0)
    assert define(task="required").task.of("x") == TaskRule("required")


def test_exchanged_tokens_belong_to_a_caller() -> None:
    definition = define(credentials={"kind": "token_exchange", "audience": "bugs"})
    assert (definition.scope, definition.depends_on_caller) == ("caller", True)


def test_null_is_the_same_as_nothing() -> None:
    entry = {"url": URL, "headers": None, "gateway": dict.fromkeys(FILE_OPTIONS)}
    assert read({"mcpServers": {"bugs": entry}}).definitions == (define(),)
    assert define(era={"old": None}, tls={"ca": None}) == define(era={"old": "auto"})


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp"])
def test_a_type_names_the_transport(kind: str) -> None:
    assert define({"type": kind}).transport == "http"


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        *[("my_bugs", "my-bugs"), ("GitHub", "github"), ("a" * 32, "a" * 32), ("a__b", "a--b")],
        *[("my_Server Name", "my-server-name"), ("a.b/c", "a-b-c"), ("@scope/pkg (2)", "scope-pkg-2"), ("-x-", "x")],
        *[("1password", "u-1password"), ("café", "caf"), ("a" * 64, "a" * 32), ("a" * 31 + " b", "a" * 31)],
        ("файлы", "u-" + hashlib.sha256("файлы".encode()).hexdigest()[:6]),
    ],
)
def test_a_prefix_is_made_of_the_name(name: str, prefix: str) -> None:
    assert define(name=name).prefix == prefix


@pytest.mark.parametrize(("scope", "depends"), [("shared", False), ("caller", True), ("call", True)])
def test_an_upstream_may_be_called_only_in_sessions_of_any_scope(scope: str, depends: bool) -> None:
    [found] = read({"mcpServers": {"bugs": {"url": URL, "gateway": {"era": "session", "scope": scope}}}}).definitions
    assert (found.era.of("any"), found.session_scope, found.depends_on_caller) == ("session", scope, depends)


def test_disabled_entries_are_left_out_and_not_read() -> None:
    found = read({"mcpServers": {"a": {"url": "${NOT_SET}", "disabled": True}, "b": {"url": URL, "disabled": False}}})
    assert [definition.name for definition in found.definitions] == ["b"]


def test_a_value_cannot_become_an_option() -> None:
    assert define({"headers": {"X-Token": "${TRICKY}"}}).headers == (("X-Token", ENVIRON["TRICKY"]),)


def options(gateway: Any) -> dict[str, Any]:
    return {"url": URL, "gateway": gateway}


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (options({"pinn": "off"}), "bugs: gateway.pinn: not an option; did you mean 'pin'?"),
        (options({"tls": {"a": 1}}), "bugs: gateway.tls.a: not an option; did you mean 'ca'?"),
        (options({"pin": "on"}), "bugs: gateway.pin: 'on' is not valid; use 'off', 'warn' or 'refuse'"),
        (options({"ask": {"a": True}}), "bugs: gateway.ask.a: true is not valid; use 'hold', "),
        (options({"task": "soon"}), "bugs: gateway.task: 'soon' is not valid; use never, "),
        (options({"rate": 5}), "bugs: gateway.rate: 5 is not valid; use a rate such as 100/s"),
        (options({"max_in_flight": 0}), "bugs: gateway.max_in_flight: 0 is not valid; use a whole "),
        (options({"max_in_flight": True}), "bugs: gateway.max_in_flight: true is not valid"),
        (options({"timeout_seconds": 10**400}), "bugs: gateway.timeout_seconds: 10000"),
        (options({"timeout_seconds": "9"}), "bugs: gateway.timeout_seconds: '9' is not valid"),
        (options({"tools": ["a"]}), "bugs: gateway.tools: a list is not valid; use an object"),
        (options({"tools": {"allow": "*"}}), "bugs: gateway.tools.allow: '*' is not valid; use a list "),
        *(
            (options({"resources": {"unlisted": value}}), f"bugs: gateway.resources.unlisted: {shown} is ")
            for value, shown in (("true", "'true'"), (1, "1"), (0, "0"), ("", "''"), ([], "a list"), ({}, "an object"))
        ),
        (options({"tools": {"unlisted": True}}), "bugs: gateway.tools.unlisted: not an option"),
        (options({"resources": {"unlistd": True}}), "bugs: gateway.resources.unlistd: not an option; did "),
        (options({"scopes": {"*": ["a b"]}}), "bugs: gateway.scopes.*.0: 'a b' is not valid"),
        *(
            (options({"task": task}), f"bugs: gateway.task{key}: 9999 is not valid; use a number ")
            for task, key in (
                ({"after_seconds": 9999}, ".after_seconds"),
                ({"slow": {"after_seconds": 9999}}, ".slow.after_seconds"),
            )
        ),
        (options({"era": "never"}), "bugs: gateway.era: 'never' is not valid; use 'auto', "),
        (options({"era": {"a\n": "auto"}}), r"bugs: gateway.era.a\n: 'a\n' is not valid; use 1 to "),
        (options({"a\nb: c": 1}), r"bugs: gateway.a\nb: c: not an option"),
        (options({"scopes": ["a"] * 300}), "bugs: gateway.scopes: 300 are too many; use at most 256"),
        (options({"scopes": ["a", 5]}), "bugs: gateway.scopes.1: 5 is not valid; use a list of scopes"),
        (options([]), "bugs: gateway: a list is not valid; use an object"),
        (options({"prefix": "1a"}), "bugs: gateway.prefix: '1a' is not valid; use 1 to 32 of a-z"),
        (options({"prefix": "a" * 33}), "bugs: gateway.prefix: 'aaa"),
        (options({"proxy": "socks5://${TOKEN}@x"}), "bugs: gateway.proxy: not valid; use the http "),
        (options({"tls": {"ca": "missing.pem"}}), "bugs: gateway.tls.ca: 'missing.pem' cannot be read"),
        ({"url": "http://a/", "gateway": {"tls": {}}}, ""),
        ({"url": "ftp://a"}, "bugs: url: not an http or https URL"),
        ({"url": "https://me:${TOKEN}@a/"}, "bugs: url: has a user name or a fragment"),
        ({"url": "https://a/#x"}, "bugs: url: has a user name or a fragment"),
        ({"url": "https://"}, "bugs: url: not a valid URL"),
        ({"url": "https://a:99999/"}, "bugs: url: not a valid URL"),
        ({"url": "https://[a/"}, "bugs: url: not a valid URL"),
        ({"url": "https://a/ b"}, "bugs: url: not a valid URL"),
        ({"url": "https://a/" + "x" * 3000}, "bugs: url: longer than 2048 characters"),
        ({"url": ["https://a"]}, "bugs: url: a list is not valid; use an http or https URL"),
        ({"url": "${NOPE}"}, "bugs: url: the variable NOPE is not set"),
        ({"url": "https://a/${input:key}"}, "bugs: url: ${input:key} asks the user of a desktop client"),
        (
            {"type": "sse", "url": "https://a/sse"},
            "bugs: type: the gateway does not speak the SSE transport of 2024-11-05",
        ),
        ({"type": "ws", "url": URL}, "bugs: type: 'ws' is not valid; use http or stdio"),
        ({"type": "stdio", "url": URL}, "bugs: type: 'stdio' does not fit url; remove it"),
        ({"url": URL, "command": "x"}, "bugs: has url and command; keep one of them"),
        ({"url": URL, "httpUrl": URL}, "bugs: has url and httpUrl; keep one of them"),
        ({"httpUrl": "ftp://a"}, "bugs: httpUrl: not an http or https URL"),
        ({"serverUrl": "${NOPE}"}, "bugs: serverUrl: the variable NOPE is not set"),
        ({"type": "stdio", "serverUrl": URL}, "bugs: type: 'stdio' does not fit serverUrl; remove it"),
        ({"args": ["x"]}, "bugs: has no url, command or python; add one of them"),
        ({}, "bugs: says nothing; add a url, a command or a python object"),
        ({"url": URL, "disabled": "yes"}, "bugs: disabled: 'yes' is not valid; use true or false"),
        ({"url": URL, "headers": {"A": 1}}, "bugs: headers.A: not the value of a header"),
        ({"url": URL, "headers": {"A": "${TOKEN}\nB: c"}}, "bugs: headers.A: not the value of a header"),
        ({"url": URL, "headers": {"A b": "x"}}, "bugs: headers.A b: not the name of a header"),
        ({"url": URL, "headers": {"Host": "x"}}, "bugs: headers.Host: the gateway sets this header itself"),
        (
            {"url": URL, "headers": {"Mcp-Param-X": "x"}},
            "bugs: headers.Mcp-Param-X: the gateway sets this header itself",
        ),
        ({"url": URL, "headers": {"A": "x", "a": "y"}}, "bugs: headers.a: written twice; keep one of them"),
        ({"command": ""}, "bugs: command: '' is not valid; use the name or path of a program"),
        ({"command": "x", "args": "y"}, "bugs: args: 'y' is not valid; use a list of texts"),
        ({"command": "x", "env": {"A": 1}}, "bugs: env.A: the value is not valid; use a text for each variable"),
        ({"command": "x", "cwd": "/no/such/folder"}, "bugs: cwd: '/no/such/folder' is not a folder"),
        ({"command": "x", "cwd": "x" * 5000}, "bugs: cwd: 'xxxxx"),
        ({"command": "x", "envFile": "no.env"}, "bugs: envFile: 'no.env' cannot be read"),
        ({"command": "x", "gateway": {"tls": {}}}, "bugs: gateway.tls: only upstreams with a url have this option"),
        ({"python": "bugs"}, "bugs: python: 'bugs' is not valid; use a module and an object in it"),
        ({"python": "bugs:.mcp"}, "bugs: python: 'bugs:.mcp' is not valid; use a module and an object in it"),
        ({"python": "bugs:mcp", "gateway": {"path": "mcp"}}, "bugs: gateway.path: 'mcp' is not valid; use a path that"),
        (
            {"python": "bugs:mcp", "gateway": {"tls": {}}},
            "bugs: gateway.tls: only upstreams with a url have this option",
        ),
        ({"url": URL, "gateway": {"path": "/x"}}, "bugs: gateway.path: only upstreams with a python object have this"),
    ],
)
def test_a_mistake_is_one_line_with_its_upstream_and_key(entry: dict[str, Any], line: str) -> None:
    if line:
        assert mistake(entry).startswith(line)
    else:
        read({"mcpServers": {"bugs": entry}})


def own(**changes: Any) -> dict[str, Any]:
    return {"kind": "client_credentials", "token_url": "https://login.example/t", "client_id": "a", **changes}


@pytest.mark.parametrize(
    ("credentials", "line"),
    [
        ("password", "gateway.credentials: 'password' is not valid; use 'none', 'headers', "),
        ({}, "gateway.credentials: has no kind; add it: none, headers, client_credentials or token_exchange"),
        ("token_exchange", "gateway.credentials: token_exchange has no audience and no resource"),
        ({"kind": "password"}, "gateway.credentials.kind: 'password' is not valid; use 'none', 'headers', "),
        ({"kind": "headers", "scope": "x"}, "gateway.credentials.scope: not an option; "),
        (
            own(token_url="http://login.example/t", client_secret="b"),
            "gateway.credentials.token_url: not safe for secrets; use an https URL",
        ),
        (
            own(),
            "gateway.credentials.client_secret: missing; write a text",
        ),
        (
            own(client_secret=[SECRET]),
            "gateway.credentials.client_secret: the value is not valid",
        ),
    ],
)
def test_credentials_without_what_they_need_are_a_mistake(credentials: Any, line: str) -> None:
    assert mistake({"url": URL, "gateway": {"credentials": credentials}}).startswith(f"bugs: {line}")


def test_two_ways_to_authenticate_are_a_mistake() -> None:
    entry = {"url": URL, "headers": {"authorization": "x"}, "gateway": {"credentials": "none"}}
    assert mistake(entry) == ("bugs: headers: Authorization does not fit credentials of kind none; remove one of them")


def test_a_shared_connection_cannot_exchange_tokens() -> None:
    options = {"scope": "shared", "credentials": {"kind": "token_exchange", "audience": "bugs"}}
    assert mistake({"url": URL, "gateway": options}).startswith("bugs: gateway.scope: shared, but token_exchange gives")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Authorization", "a caller's own credentials are never forwarded"),
        ("COOKIE", "a caller's own credentials are never forwarded"),
        ("Mcp-Session-Id", "the gateway sets this header itself"),
        ("x-token", "also in headers"),
        ("a b", "is not valid; use a list of names of headers"),
    ],
)
def test_credentials_of_callers_are_never_forwarded(name: str, words: str) -> None:
    entry = {"url": URL, "headers": {"X-Token": "x"}, "gateway": {"forward_headers": [name]}}
    assert words in mistake(entry)


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl"])
@pytest.mark.parametrize("path", [("mcpServers",), ("servers",), ("mcp", "servers")])
def test_every_spelling_of_desktop_clients_is_read(key: str, path: tuple[str, ...]) -> None:
    document: dict[str, Any] = {"bugs": {key: URL}}
    for name in reversed(path):
        document = {name: document, "inputs": []}
    found = read(document)
    assert [definition.url for definition in found.definitions] == [URL]
    places = [".".join((*path[:depth], "inputs")) for depth in range(len(path))]
    assert found.notes == (f"upstreams.json: keys that have no effect here: {', '.join(places)}",)


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ([], "a list is not valid; use an object"),
        ({}, "has no mcpServers; add it"),
        ({"mcpServers": {}, "servers": {}}, "has both mcpServers and servers; keep one"),
        ({"mcpServers": {}}, "mcpServers: names no upstream; add one"),
        ({"mcpServers": []}, "mcpServers: a list is not valid; use an object"),
        (
            {"mcpServers": {f"a{number}": {"url": URL} for number in range(257)}},
            "mcpServers: names 257 upstreams; use at",
        ),
        ({"mcpServers": {"a": 5}}, "a: 5 is not valid; use an object"),
        ({"mcpServers": {"a\nb": {"url": URL, "gateway": {"prefix": "a"}}}}, r"'a\nb': not a name for an upstream"),
        ({"mcp": {"servers": {"a": 5}}, "servers": {}}, "has both servers and mcp.servers; keep one"),
        ({"mcp": {"servers": []}}, "mcp.servers: a list is not valid; use an object"),
        ({"mcp": []}, "has no mcpServers; add it"),
        ('{"mcpServers": {"a": {"url": "https://a", "url": "https://b"}}}', "mcpServers.a.url: written twice in one "),
        ('{"mcpServers": ', "not valid JSON at line 1, column 16"),
        (" " * (MAX_FILE_BYTES + 1), "larger than 1048576 bytes"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(document: Any, line: str) -> None:
    [found] = mistakes(document)
    assert found.startswith(f"upstreams.json: {line}")


def test_all_mistakes_come_at_once() -> None:
    entries = {
        "a": {"url": "x", "gateway": {"pin": "x", "rate": "x"}},
        "b": {"type": "sse"},
        "c": {"url": URL, "headers": {"X": "${NOPE}", "Y": "${ALSO_NOPE}"}},
    }
    assert [line.split(": ")[1:3] for line in mistakes({"mcpServers": entries})] == [
        ["a", "url"],
        ["a", "gateway.rate"],
        ["a", "gateway.pin"],
        ["b", "type"],
        ["c", "headers.X"],
        ["c", "headers.Y"],
    ]


def test_names_that_make_one_prefix_collide() -> None:
    [line] = mistakes({"mcpServers": {"a.b": {"url": URL}, "a b": {"url": URL}}})
    assert line.endswith("a b: gateway.prefix: 'a-b' is also the prefix of 'a.b'; write another one")


@pytest.mark.parametrize("others", [{"a-b": {"url": URL}}, {"x": {"url": URL, "gateway": {"prefix": "a-b"}}}])
def test_two_upstreams_cannot_share_a_prefix(others: dict[str, Any]) -> None:
    [line] = mistakes({"mcpServers": {"a_b": {"command": "x"}, **others}})
    assert line.endswith("gateway.prefix: 'a-b' is also the prefix of 'a_b'; write another one")


def test_only_one_upstream_may_have_no_prefix() -> None:
    bare = {"url": URL, "gateway": {"prefix": ""}}
    assert read({"mcpServers": {"a": bare, "b": {"url": URL}}}).definitions[0].prefix == ""
    [line] = mistakes({"mcpServers": {"a": bare, "b": bare}})
    assert "only one upstream may have none" in line


def test_a_file_that_is_missing_or_not_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"GATEWAY_UPSTREAMS: '.*' cannot be read: No such file"):
        UpstreamReader(tmp_path / "missing.json", {}).read()
    (tmp_path / "a.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ConfigurationError, match="not UTF-8 text"):
        UpstreamReader(tmp_path / "a.json", {}).read()


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"mcpServers": {"bugs": {"url": URL}}}), encoding="utf-8-sig")
    assert len(UpstreamReader(tmp_path / "a.json", {}).read().definitions) == 1


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["*", "${TOKEN}", "${"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["*", "kind", "allow", "after_seconds", "${TOKEN}"]), inner, max_size=3)
    ),
    max_leaves=6,
)
OPTIONS = st.dictionaries(
    st.sampled_from(
        [
            *("prefix", "tools", "era", "scope", "ask", "task", "scopes", "credentials", "forward_headers", "rate"),
            *("pin", "timeout_seconds", "max_in_flight", "tls", "proxy", "nonsense"),
        ]
    ),
    VALUES,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={"url": VALUES | st.just(URL), "command": VALUES, "headers": VALUES, "type": VALUES, "gateway": OPTIONS},
)


@given(st.dictionaries(st.text(max_size=5), ENTRIES | VALUES, max_size=3))
def test_any_file_is_read_or_refused_without_revealing_a_secret(entries: dict[str, Any]) -> None:
    lines: tuple[str, ...] = ()
    said = ""
    try:
        said = repr(read(json.dumps({"mcpServers": entries})))
    except ConfigurationError as error:
        lines = error.problems
    assert all(line.startswith("upstreams.json: ") for line in lines)
    assert SECRET not in said + "".join(lines)
