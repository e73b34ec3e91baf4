"""The playground's control of the processes of `gateway dev`, with real processes."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import dev as dev_command
from gateway.cli.fleet import CannotDo, KeyFile
from gateway.settings.model import Settings
from loadtest.cluster import wait_until
from tests.cli.test_dev import Dev
from tests.integration.raw import headers_of, tool_call

FLEET = "/playground/fleet"
NONE: Mapping[str, str] = {}


class Page:
    """The requests of a page that a run serves."""

    def __init__(self, dev: Dev) -> None:
        self.port = dev.port
        self.token = dev.page.partition("#fleet=")[2]

    def send(self, method: str, path: str = "", headers: Mapping[str, str] = NONE) -> tuple[int, Any]:
        return self.ask(method, FLEET + path, headers={"Sec-Fetch-Site": "same-origin", **headers})[:2]

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NONE
    ) -> tuple[int, Any, str | None]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None, response.headers["X-Gateway-Replica"]

    def order(self, path: str) -> tuple[int, Any]:
        return self.send("POST", path, {"X-Fleet-Token": self.token})

    def replicas(self) -> dict[str, Any]:
        status, fleet = self.send("GET", headers={"X-Fleet-Token": self.token})
        assert status == 200
        return {replica["id"]: replica for replica in fleet["replicas"]}

    def who_answers(self, path: str = "/mcp") -> str | None:
        message = tool_call("get_weather", {"location": "here"})
        return self.ask("POST", path, json.dumps(message).encode(), headers_of(message))[2]


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    with closing(Dev("--workers", "0", cwd=tmp_path_factory.mktemp("dev"))) as dev:
        dev.read_until_ready()
        yield dev


@pytest.fixture
def page(dev: Dev) -> Page:
    return Page(dev)


@pytest.mark.slow
def test_a_killed_replica_stays_away_until_it_is_started_and_the_others_answer(page: Page) -> None:
    assert page.order("/replicas/r1/kill")[0] == 200
    wait_until(lambda: page.replicas()["r1"]["state"] == "killed", "the replica to end")
    assert {page.who_answers() for _ in range(4)} == {"r2"}
    assert page.order("/replicas/r1/kill")[0] == 409
    assert page.order("/replicas/r1/start")[0] == 200
    wait_until(lambda: page.replicas()["r1"]["state"] == "ready", "the replica to be ready")
    assert {page.who_answers() for _ in range(4)} == {"r1", "r2"}


@pytest.mark.slow
def test_a_request_can_be_sent_to_one_replica(page: Page) -> None:
    assert {page.who_answers("/playground/replicas/r2/mcp") for _ in range(3)} == {"r2"}


@pytest.mark.slow
def test_an_added_replica_gets_its_share_of_requests(page: Page) -> None:
    assert page.order("/replicas")[0] == 200
    wait_until(lambda: page.replicas()["r3"]["state"] == "ready", "the replica to be ready")
    assert {page.who_answers() for _ in range(6)} == {"r1", "r2", "r3"}


@pytest.mark.slow
def test_legs_are_counted_by_replica(page: Page) -> None:
    def legs() -> int:
        return sum(replica.get("legs", 0) for replica in page.replicas().values())

    before = legs()
    page.who_answers()
    wait_until(lambda: legs() > before, "the leg to be counted")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Fleet-Token": "guessed"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Host": "rebound.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.slow
def test_another_page_cannot_control_the_processes(page: Page, headers: dict[str, str]) -> None:
    given = {"X-Fleet-Token": page.token, **headers}
    assert page.send("POST", "/replicas/r2/kill", given)[0] == 403
    assert page.replicas()["r2"]["state"] == "ready"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["", "/", "/session", "/token", "/replicas", "?x"])
@pytest.mark.parametrize("headers", [{}, {"X-Fleet-Token": ""}, {"Origin": "http://evil.example"}], ids=str)
def test_nobody_reads_the_token_or_the_state_without_it(page: Page, path: str, headers: dict[str, str]) -> None:
    status, answer = page.send("GET", path, headers)
    assert status == 403
    assert page.token not in json.dumps(answer)


@pytest.mark.slow
def test_the_token_is_behind_the_sharp_so_that_no_server_gets_it(dev: Dev, page: Page) -> None:
    assert dev.page == f"http://127.0.0.1:{dev.port}/#fleet={page.token}"
    assert len(page.token) >= 32
    assert page.send("GET", "/session", {"X-Fleet-Token": page.token})[0] == 404


@pytest.mark.slow
def test_an_unknown_process_and_an_unknown_order_are_refused(page: Page) -> None:
    assert page.order("/replicas/r9/kill")[0] == 404
    assert page.order("/replicas/r1/explode")[0] == 404
    assert page.order("/workers")[0] == 409
    assert page.ask("POST", "/playground/replicas/r9/mcp")[0] == 503


def test_the_keys_of_a_run_rotate_in_three_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.fleet.ROTATION_SECONDS", 0.0)
    keys = KeyFile(tmp_path / "keys")
    (old,) = keys.ids
    keys.rotate()
    assert keys.ids[0] == old
    new = keys.ids[1]
    keys.rotate()
    assert keys.ids == [new, old]
    keys.rotate()
    assert keys.ids == [new]


def test_a_step_waits_until_all_processes_have_the_last_one(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys")
    keys.rotate()
    with pytest.raises(CannotDo):
        keys.rotate()


MEMORY = Path(__file__).parents[1] / "upstreams" / "servers" / "memory.py"


def written(folder: Path, **upstreams: Any) -> str:
    path = folder / "upstreams.json"
    path.write_text(json.dumps({"mcpServers": upstreams}))
    return str(path)


def test_programs_run_in_a_holder_that_gets_no_requests_of_clients(tmp_path: Path) -> None:
    program = {"command": sys.executable, "args": ["-S", str(MEMORY)], "env": {"NOTES": str(tmp_path / "notes")}}
    options = ("--workers", "0", "--upstreams", written(tmp_path, memory=program))
    with closing(Dev(*options, cwd=tmp_path)) as dev:
        dev.read_until_ready()
        page = Page(dev)
        _, fleet = page.send("GET", headers={"X-Fleet-Token": page.token})
        assert [each["id"] for each in fleet["holders"]] == ["h1"]
        assert {each["id"] for each in fleet["replicas"]} == {"r1", "r2"}
        message = tool_call("memory__about", {})
        replies = [page.ask("POST", "/mcp", json.dumps(message).encode(), headers_of(message)) for _ in range(4)]
        assert {replica for _, _, replica in replies} == {"r1", "r2"}
        assert len({reply["result"]["content"][0]["text"] for _, reply, _ in replies}) == 1, "one program"
        assert page.order("/holders/h1/kill")[0] == 200


@pytest.mark.setting("holders", "upstreams", "metrics_port")
def test_a_holder_is_started_if_an_upstream_may_keep_connections(tmp_path: Path) -> None:
    def made(upstream: Any, **values: Any) -> tuple[Any, dict[str, str]]:
        environ: dict[str, str] = {}
        settings = Settings.load({}, upstreams=written(tmp_path, one=upstream), **values)
        with ExitStack() as stack:
            holder = dev_command._make_holder(settings, environ, stack)
            return holder, environ

    url = {"url": "http://127.0.0.1:9/mcp"}
    for upstream in ({"command": "true"}, {"python": "a:b"}, url):
        holder, environ = made(upstream)
        assert holder.name == "h1"
        assert holder.metrics is not None
        assert environ["GATEWAY_HOLDERS"].startswith("http://127.0.0.1:")
    assert made({"command": "true"}, metrics_port="off")[0].metrics is None
    assert made({**url, "gateway": {"era": "stateless"}}) == (None, {})
    assert made({"command": "true"}, holders="http://h-0") == (None, {})
    assert dev_command._make_holder(Settings.load({}), {}, ExitStack()) is None
