"""`docs/examples/user_secret.py`: a secret reaches the tool of the user who entered it, and nobody else."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.fernet import Fernet
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from httpx2 import Response

from docs.examples import user_secret
from gateway import Principal
from gateway.testing import run
from tests.examples.serving import call, settings
from tests.integration.raw import Answer

KEY = "the key of Ada's weather account"
ACCEPT = {"action": "accept"}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setenv("SECRETS_FILE", str(tmp_path / "secrets.db"))
    monkeypatch.setenv("SECRETS_KEY", Fernet.generate_key().decode())
    monkeypatch.setenv("SITE_URL", "https://example.com")
    app = user_secret.make_app(**settings())

    def signed_in_user(request: Request) -> str | None:
        subject = request.cookies.get("user")  # stands for the session of a login
        return None if subject is None else user_secret.user_of(Principal("", subject, "website"))

    app.dependency_overrides[user_secret.signed_in_user] = signed_in_user
    return app


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def ask(client: TestClient, user: str = "ada", **params: Any) -> Answer:
    return call(client, user, "forecast", {"city": "Oslo"}, **params)


def link_of(answer: Answer) -> str:
    (question,) = answer.result["inputRequests"].values()
    assert question["params"]["mode"] == "url"
    return str(question["params"]["url"])


def visit(client: TestClient, link: str, user: str | None) -> Response:
    parts = urlsplit(link)
    assert (parts.netloc, parts.path) == ("example.com", "/secret")
    return client.get(f"/secret?{parts.query}", headers={} if user is None else {"cookie": f"user={user}"})


def send(client: TestClient, link: str, user: str, secret: str = KEY) -> Response:
    (ticket,) = parse_qs(urlsplit(link).query)["ticket"]
    return client.post("/secret", data={"ticket": ticket, "secret": secret}, headers={"cookie": f"user={user}"})


def test_a_user_enters_a_secret_once_and_every_later_call_has_it(client: TestClient, tmp_path: Path) -> None:
    asked = ask(client)
    link = link_of(asked)
    page = visit(client, link, "ada")
    assert page.status_code == 200
    assert "ada" in page.text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert send(client, link, "ada").status_code == 200
    done = ask(client, requestState=asked.state, inputResponses={"key 1": ACCEPT})
    assert done.text == ask(client).text == f"Oslo: sunny (with a key of {len(KEY)} characters)"
    assert KEY.encode() not in (tmp_path / "secrets.db").read_bytes()
    assert link_of(ask(client, "bob")) != link


def test_a_user_who_agreed_but_entered_nothing_is_asked_again_three_times_at_most(client: TestClient) -> None:
    answer = ask(client)
    for attempt in range(1, 4):
        assert list(answer.result["inputRequests"]) == [f"key {attempt}"]
        answer = ask(client, requestState=answer.state, inputResponses={f"key {attempt}": ACCEPT})
    assert answer.text == "There is still no key for your weather account."


def test_a_link_that_somebody_else_asked_for_shows_no_form_and_takes_no_secret(client: TestClient) -> None:
    link = link_of(ask(client, "mallory"))
    for refused in (visit(client, link, "ada"), send(client, link, "ada")):
        assert (refused.status_code, "<form" in refused.text) == (403, False)
        assert user_secret.HEADERS.items() <= {name.title(): refused.headers[name] for name in refused.headers}.items()
    assert visit(client, link, None).status_code == 401
    assert "inputRequests" in ask(client, "mallory").result
    assert "inputRequests" in ask(client, "ada").result


def test_a_form_is_used_once_and_a_changed_or_old_link_not_at_all(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_of(ask(client))
    assert visit(client, link[:-3], "ada").status_code == 400
    assert send(client, link, "ada", "").status_code == 400
    assert send(client, link, "ada", "x" * 5000).status_code == 413
    assert send(client, link, "ada").status_code == 200
    assert send(client, link, "ada", "another").status_code == 400
    monkeypatch.setattr(user_secret, "MINUTES", -1)
    assert visit(client, link, "ada").status_code == 400


def test_a_used_form_is_remembered_as_long_as_its_link_works(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.time()
    assert user_secret.store("a request", "ada", KEY)
    monkeypatch.setattr(time, "time", lambda: begun + user_secret.MINUTES * 60 + 1)
    assert not user_secret.store("a request", "ada", "another")


def test_callers_without_a_subject_share_no_secret() -> None:
    principal = Principal("https://id.test", "", "a service")
    assert run(user_secret.forecast, {"city": "Oslo"}, principal=principal).text.startswith("Sign in first")


def test_only_the_user_of_the_server_may_read_the_database(client: TestClient, tmp_path: Path) -> None:
    ask(client)
    assert stat.S_IMODE((tmp_path / "secrets.db").stat().st_mode) == 0o600


def test_something_else_that_the_site_has_sealed_is_no_ticket(client: TestClient) -> None:
    user = user_secret.user_of(Principal("", "ada", "website"))
    for sealed in (["secret", user, "a request"], [f"secret of {user}", KEY], "ticket"):
        ticket = user_secret.fernet().encrypt(json.dumps(sealed).encode()).decode()
        assert client.get(f"/secret?ticket={ticket}", headers={"cookie": "user=ada"}).status_code == 400


def test_without_a_login_of_your_own_nobody_gets_in(app: FastAPI) -> None:
    app.dependency_overrides.clear()
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert visit(client, link_of(ask(client)), "ada").status_code == 401


def test_the_form_escapes_names(client: TestClient) -> None:
    page = visit(client, link_of(ask(client, "<b>ada</b>")), "<b>ada</b>")
    assert page.status_code == 200
    assert "&lt;b&gt;ada&lt;/b&gt;" in page.text
