"""The page, its files and its headers, and who may read what it reads."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import re
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from gateway.auth.tokens import mint
from gateway.calls.task_access import TaskAccess
from gateway.http.asgi import Receive, Scope, Send
from gateway.tasks.model import TaskView
from gateway.web.playground.files import read_files
from gateway.web.playground.headers import CONTENT_SECURITY_POLICY
from gateway.web.playground.readings import MAX_READINGS, MAX_WAITING
from tests.asgi import HOST, Client, RawHeaders, make_app
from tests.http.serving import PATIENCE_SECONDS, serving
from tests.integration.raw import Answer

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
MAX_FIRST_BYTES = 150 * 1024
REBOUND = (b"host", b"rebound.example.com")
ELSEWHERE = (b"origin", b"https://evil.example.com")

app_with = functools.cache(make_app)
"""The application with these settings, which no test changes."""


async def get(path: str, headers: RawHeaders = (HOST,), method: str = "GET", **settings: Any) -> Answer:
    app = app_with(**{"playground": "on", **settings})
    return await Client(app).send([b""], headers, method=method, path=path)


@pytest.mark.setting("playground")
async def test_the_page_is_served_at_the_root() -> None:
    answer = await get("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert b"playground/app.js" in answer.body


@pytest.mark.setting("playground")
@pytest.mark.parametrize("path", ["/", "/playground/app.js", "/playground/config"])
async def test_nothing_is_served_unless_the_setting_is_on(path: str) -> None:
    answer = await get(path, playground="off")
    assert answer.status == 404
    assert "content-security-policy" not in answer.headers


@pytest.mark.setting("playground")
@pytest.mark.parametrize("path", ["/", "/playground/app.js", "/playground/config", "/nowhere"])
@pytest.mark.parametrize("headers", [(HOST,), (REBOUND,), (HOST, ELSEWHERE)])
async def test_every_response_has_the_headers_refusals_included(path: str, headers: RawHeaders) -> None:
    answer = await get(path, headers)
    assert answer.headers["content-security-policy"] == POLICY == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("headers", [(REBOUND,), (HOST, ELSEWHERE)])
async def test_a_rebound_host_and_another_origin_are_refused(headers: RawHeaders) -> None:
    assert (await get("/", headers)).status == 403
    assert (await get("/playground/config", headers)).status == 403


async def test_a_page_that_may_call_the_gateway_reads_nothing_of_the_playground() -> None:
    app = (b"origin", b"https://app.example.com")
    answer = await get("/playground/config", (HOST, app), allowed_origins="https://app.example.com")
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.setting("connection_close")
async def test_each_response_closes_its_connection_where_a_balancer_needs_that() -> None:
    assert (await get("/", connection_close="on")).headers["connection"] == "close"
    assert "connection" not in (await get("/")).headers


async def test_an_unchanged_file_is_not_sent_again() -> None:
    first = await get("/playground/app.js")
    again = await get("/playground/app.js", (HOST, (b"if-none-match", first.headers["etag"].encode())))
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", ["/playground/../pyproject.toml", "/playground/%2e%2e/x", "/playground/vendor/", "//"])
async def test_only_the_files_of_the_page_are_served(path: str) -> None:
    assert (await get(path)).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_the_page_can_only_be_read(method: str) -> None:
    assert (await get("/", method=method)).status == 405


@pytest.mark.setting("playground", "auth")
async def test_the_configuration_says_how_to_reach_the_gateway() -> None:
    config = msgspec.json.decode((await get("/playground/config")).body)
    assert config["auth"] == "none"
    assert config["fleet"] is False
    assert config["wire"] == "2026-07-28"
    assert msgspec.json.decode((await get("/playground/config", playground="dev")).body)["fleet"] is True


async def test_tasks_need_a_token_where_callers_are_authenticated() -> None:
    secret = "s" * 32
    answer = await get("/playground/tasks", auth="jwt", jwt_secret=secret, redis_url="unix:///nowhere")
    assert answer.status == 401
    assert "www-authenticate" in answer.headers


async def test_the_servers_behind_the_gateway_are_listed_for_callers_only() -> None:
    assert msgspec.json.decode((await get("/playground/upstreams")).body) == {"upstreams": []}
    assert (await get("/playground/upstreams", auth="jwt", jwt_secret="s" * 32)).status == 401


@pytest.mark.setting("rate_limit")
@pytest.mark.parametrize("path", ["/playground/upstreams", "/playground/tasks"])
async def test_what_a_caller_reads_counts_in_its_rate(path: str) -> None:
    secret = "s" * 32
    bearer = (b"authorization", b"Bearer " + mint(secret, path, "tests").encode())
    settings = {"auth": "jwt", "jwt_secret": secret, "redis_url": "unix:///nowhere", "rate_limit": "1/h burst 2"}
    statuses = [(await get(path, (HOST, bearer), **settings)).status for _ in range(3)]
    assert 429 not in statuses[:2]
    assert statuses[2] == 429


async def test_without_a_task_store_there_are_no_tasks_to_list() -> None:
    assert (await get("/playground/tasks")).status == 404
    assert msgspec.json.decode((await get("/playground/config")).body)["tasks"] is False


async def test_without_its_store_the_list_of_tasks_says_so() -> None:
    answer = await get("/playground/tasks", redis_url="unix:///nowhere")
    assert answer.status == 503
    assert msgspec.json.decode(answer.body)["error"]["code"] == -31001


class HeldReadings:
    """Stands for the readings of tasks, which last until they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.running = self.most = 0

    async def newest(self, *_: object) -> list[TaskView]:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.to_thread(self.released.wait, PATIENCE_SECONDS)
        self.running -= 1
        return []


def test_two_lists_of_tasks_are_read_at_a_time_and_a_few_more_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    held, app = HeldReadings(), make_app(playground="on", redis_url="unix:///nowhere")
    monkeypatch.setattr(TaskAccess, "newest", held.newest)

    async def without_store(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await app.site(scope, receive, send)

    with serving(without_store) as server, ThreadPoolExecutor(MAX_READINGS + MAX_WAITING + 1) as threads:

        def read(_number: int) -> int:
            with server.client() as client:
                client.request("GET", "/playground/tasks", headers={"Host": "localhost"})
                return client.getresponse().status

        reading = [threads.submit(read, number) for number in range(MAX_READINGS + MAX_WAITING + 1)]
        try:
            refused, _ = wait(reading, PATIENCE_SECONDS, FIRST_COMPLETED)
            assert [each.result() for each in refused] == [503]
            assert held.running == MAX_READINGS
        finally:
            held.released.set()
        assert sorted(each.result() for each in reading) == [200] * (MAX_READINGS + MAX_WAITING) + [503]
        assert held.most == MAX_READINGS == 2
        assert read(0) == 200


def test_the_library_is_the_one_that_is_documented() -> None:
    files = read_files()
    stated = re.search(r"sha256 ([0-9a-f]{64})", files["vendor/LIBRARIES.txt"].content.decode())
    assert stated is not None
    assert hashlib.sha256(files["vendor/preact-htm.js"].content).hexdigest() == stated[1]


def test_the_first_load_is_small() -> None:
    loaded = [file for path, file in read_files().items() if not path.endswith((".txt", ".svg"))]
    assert sum(len(file.content) for file in loaded) <= MAX_FIRST_BYTES


async def test_the_page_works_below_a_path_of_another_application() -> None:
    host = FastAPI()
    host.mount("/tools", make_app(playground="on").site)
    page = await Client(host).send([b""], (HOST,), method="GET", path="/tools/")
    script = await Client(host).send([b""], (HOST,), method="GET", path="/tools/playground/app.js")
    assert (page.status, script.status) == (200, 200)
    assert b'"/playground' not in page.body
