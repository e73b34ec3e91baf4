"""No secret leaks: replicas log at the most verbose level through good and bad requests, and all output is searched.

Secrets are seal keys in every form, the secret of bearer tokens, bearer tokens and what they are signed with, sealed
states, arguments and answers. The search covers the output of every process, the audit log, the metrics, the error
bodies, the arguments of every process, and the `repr` of objects.
"""

from __future__ import annotations

import base64
import re
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from os import urandom
from pathlib import Path
from typing import Any

import pytest

from gateway.auth.keys import SharedSecret
from gateway.auth.verifier import TokenVerifier
from gateway.errors import ConfigurationError, InvalidRequestState, RejectReason
from gateway.sealing import base64url
from gateway.sealing.envelope import Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker
from gateway.settings.model import Settings
from loadtest.cluster import REPOSITORY, Replica, clean_environment, new_key, wait_until
from tests import forkserver
from tests.integration.fleet import Fleet
from tests.integration.raw import (
    META,
    META_LOG_LEVEL,
    Answer,
    RawConnection,
    accept,
    head_of,
    headers_of,
    post,
    post_bytes,
    tool_call,
)
from tests.security.provider import AUDIENCE, claims, with_secret, written

pytestmark = pytest.mark.slow

OLD, NEW, BROKEN = new_key(), new_key(), new_key()[:-1]
SECRET = "jwt-secret-that-must-not-show-0123456789"
OTHER_SECRET = "jwt-secret-of-somebody-else-0123456789ab"
SHORT_SECRET = "jwt-secret-too-short"
ARGUMENT = "argument-that-must-not-show"
ANSWER = "answer-that-must-not-show"
SHOWN_CHARACTERS = 16
"""A secret has leaked if this many consecutive characters of it appear."""


def bearer(secret: str = SECRET, **changes: Any) -> str:
    return written({"alg": "HS256"}, claims(**changes), with_secret(secret.encode()))


def forms_of_key(entry: str) -> Iterator[str]:
    """Yield every form in which a seal key, or a key derived from it, might be written."""
    yield entry
    try:
        made = KeyRing.parse(entry)
    except ConfigurationError:
        return
    for raw in (base64url.decode(entry), made.sealing_key.secret, CursorMaker(made)._keys[made.sealing_key.key_id]):
        yield from (
            raw.hex(),
            raw.hex().upper(),
            base64url.encode(raw),
            base64.b64encode(raw).decode(),
            repr(raw)[2:-1],
        )


class Watch:
    """Collects secrets, and all output that must not contain them."""

    def __init__(self) -> None:
        self.secrets = [SECRET, OTHER_SECRET, SHORT_SECRET, ARGUMENT, ANSWER]
        self.told: dict[str, str] = {}
        for entry in (OLD, NEW, BROKEN):
            self.secrets += forms_of_key(entry)

    def send(self, replica: Replica, message: Mapping[str, Any], token: str | None = None) -> Answer:
        """Send a request; its token, its state and the returned state are secrets."""
        if token is not None:
            self.secrets += [token, token.rpartition(".")[2]]
        state = message["params"].get("requestState")
        if isinstance(state, str) and len(state) > SHOWN_CHARACTERS:
            self.secrets.append(state)
        answer = post(replica, message, token=token)
        if answer.status == 200 and answer.message.get("result", {}).get("requestState"):
            self.secrets.append(answer.state)
        else:
            self.hear(f"answer of {replica.name}", answer.body.decode() + repr(dict(answer.headers)))
        return answer

    def hear(self, where: str, text: str) -> None:
        """Keep an output for the search."""
        self.told[where] = self.told.get(where, "") + text + "\n"

    def shown(self) -> list[tuple[str, str]]:
        """Return which secrets leaked where; their start, middle or end is enough."""
        parts = {
            secret[start : start + SHOWN_CHARACTERS]
            for secret in self.secrets
            if len(secret) >= SHOWN_CHARACTERS
            for start in (0, max(0, (len(secret) - SHOWN_CHARACTERS) // 2), max(0, len(secret) - SHOWN_CHARACTERS))
        }
        return [(where, part) for where, text in self.told.items() for part in parts if part in text]


GOOD: dict[str, Any] = {"greeting": ARGUMENT}
BAD_AUTHORIZATIONS: tuple[Callable[[], str], ...] = (
    lambda: f"Basic {base64.b64encode(SECRET.encode()).decode()}",
    lambda: f"Bearer {bearer()} {bearer()}",
    bearer,
    lambda: f"Bearer {bearer()};x",
)


def make_noise(watch: Watch, replica: Replica) -> None:
    """Send good and bad requests of every kind."""
    good = bearer()
    state = watch.send(replica, tool_call("greet", GOOD), good).state
    answered = {"requestState": state, "inputResponses": accept(name=ANSWER)}
    assert post(replica, tool_call("greet", GOOD, **answered), token=good).text == f"{ARGUMENT} {ANSWER}"
    for token in (
        bearer(OTHER_SECRET),
        bearer(exp=0),
        bearer(aud="other"),
        bearer(sub=1),
        good[:-3],
        good + "x",
        "x.y.z",
    ):
        watch.send(replica, tool_call("greet", GOOD), token)
    watch.send(replica, tool_call("greet", GOOD))
    for bad in (
        state[:-1],
        state + "A",
        state[:60] + "A" * 40,
        "s1." + "A" * 200,
        state.replace("s1.", "s2."),
        [state],
        "",
    ):
        watch.send(replica, tool_call("greet", GOOD, **{**answered, "requestState": bad}), good)
    watch.send(replica, tool_call("greet", {"greeting": "other"}, **answered), good)
    watch.send(replica, tool_call("greet", GOOD, **answered), bearer(sub="mallory"))
    for name, arguments in (
        ("lose", {"treasure": ARGUMENT}),
        ("lose_in_step", {"treasure": ARGUMENT}),
        ("ask_for_a_number", {}),
        ("echo", {"text": [ARGUMENT]}),
        ("echo", {}),
        ("missing", {"text": ARGUMENT}),
    ):
        watch.send(replica, tool_call(name, arguments, inputResponses=accept(name=ANSWER)), good)
    wrong_answers: tuple[Any, ...] = (
        {"who": ANSWER},
        {"who": {"action": "decline", "content": {"name": ANSWER}}},
        {ANSWER: {}},
        [ANSWER],
    )
    for answers in wrong_answers:
        watch.send(replica, tool_call("lose", {"treasure": ARGUMENT}, inputResponses=answers), good)
    loud = {**META, META_LOG_LEVEL: "debug", "progressToken": 7}
    watch.send(replica, tool_call("lose", {"treasure": ARGUMENT}, _meta=loud, inputResponses=accept(name=ANSWER)), good)
    break_http(watch, replica, good)


def break_http(watch: Watch, replica: Replica, good: str) -> None:
    """Send malformed requests, each with secrets in it."""
    message = tool_call("greet", GOOD)
    headers = {**headers_of(message), "authorization": f"Bearer {good}"}
    for body in (
        f'{{"text": "{ARGUMENT}"'.encode(),
        f'["{ARGUMENT}"]'.encode(),
        ARGUMENT.encode(),
        b"\xff" + ANSWER.encode(),
    ):
        watch.hear("error", post_bytes(replica, body, headers).body.decode())
    for more in (
        {"content-encoding": "gzip"},
        {"mcp-name": "other"},
        {"host": "evil.test"},
        {"origin": "https://evil.test"},
    ):
        watch.hear("error", post_bytes(replica, ARGUMENT.encode(), {**headers, **more}).body.decode())
    for make in BAD_AUTHORIZATIONS:
        authorization = make()
        watch.secrets.append(authorization.rpartition(" ")[2].rstrip(";x"))
        watch.hear("error", post_bytes(replica, b"", {**headers, "authorization": authorization}).body.decode())
    with RawConnection(replica) as connection:
        connection.head([*head_of(message), ("Authorization", f"Bearer {good}"), ("Content-Length", f"5, {ARGUMENT}")])
        watch.hear("error", connection.answer().body.decode())
    with RawConnection(replica) as connection:  # disconnects in the middle
        connection.head([*head_of(message), ("Authorization", f"Bearer {good}"), ("Content-Length", "1000")])
        connection.socket.sendall(f'{{"{ARGUMENT}"'.encode())


def rotate(watch: Watch, replica: Replica, keys: Path, text: str, said: str) -> None:
    """Rewrite the file of seal keys, and wait until the replica logs its reaction."""
    before = replica.log_text().count(said)
    keys.write_text(text)
    wait_until(lambda: replica.log_text().count(said) > before, said)


def metrics_of(replica: Replica) -> str:
    (url,) = re.findall(r"http://[0-9.]+:\d+/metrics", replica.log_text())[-1:]
    with urllib.request.urlopen(url) as response:
        text: str = response.read().decode()
    return text


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


BAD_STARTS: tuple[dict[str, str], ...] = (
    {"GATEWAY_SEAL_KEYS": BROKEN},
    {"GATEWAY_SEAL_KEYS": f"{OLD},{OLD}"},
    {"GATEWAY_SEAL_KEYS": f"{OLD} {NEW}"},
    {"GATEWAY_SEAL_KEYS": OLD, "GATEWAY_SEAL_KEYS_FILE": OLD},
    {"GATEWAY_JWT_SECRET": SHORT_SECRET},
    {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_JWT_ALGORITHMS": "RS256"},
    {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_JWKS_FILE": "/nowhere"},
    {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_TOOLS": "no_such_module"},
    {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_LOG_LEVEL": "loud"},
)


def start_badly(settings: Mapping[str, str]) -> str:
    """Start a replica that fails to start; return its output."""
    base = {"GATEWAY_TOOLS": "tests.security.served", "GATEWAY_SEAL_KEYS": OLD, "GATEWAY_AUDIENCE": AUDIENCE}
    ended = forkserver.run(
        [sys.executable, "-m", "gateway", "serve", "--port", "0", "--metrics-port", "0"],
        env=clean_environment({**base, "GATEWAY_LOG_LEVEL": "debug", **settings}),
        cwd=REPOSITORY,
    )
    assert ended.returncode == 2, ended
    return ended.stdout + ended.stderr


def test_nothing_that_a_noisy_run_says_holds_a_secret(tmp_path: Path) -> None:
    keys, jwt_secret, audit = tmp_path / "keys", tmp_path / "secret", tmp_path / "audit.log"
    keys.write_text(f"{OLD}\n")
    jwt_secret.write_text(SECRET)
    environ = {
        "GATEWAY_TOOLS": "tests.security.served",
        "GATEWAY_SEAL_KEYS": "",
        "GATEWAY_SEAL_KEYS_FILE": str(keys),
        "GATEWAY_AUDIENCE": AUDIENCE,
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_LOG_LEVEL": "debug",
    }
    own = {
        "json": {"GATEWAY_JWT_SECRET": SECRET},
        "text": {
            "GATEWAY_JWT_SECRET_FILE": str(jwt_secret),
            "GATEWAY_LOG_FORMAT": "text",
            "GATEWAY_AUDIT_LOG": str(audit),
        },
    }
    watch = Watch()
    with Fleet(tmp_path, environ, names=("json", "text"), own=own) as fleet:
        for replica in fleet.replicas:
            make_noise(watch, replica)
        for text, said in (
            (f"{NEW},{OLD}\n", "seal keys replaced"),
            (f"{NEW},{BROKEN}\n", "key file rejected"),
            (f"{NEW}\n", "seal keys replaced"),
        ):
            rotate(watch, fleet["json"], keys, text, said)
            make_noise(watch, fleet["json"])
        for replica in fleet.replicas:
            watch.hear(f"metrics of {replica.name}", metrics_of(replica))
            watch.hear(f"arguments of {replica.name}", command_line(replica.pid))
    for replica in fleet.replicas:
        watch.hear(f"log of {replica.name}", replica.log_text())
    watch.hear("audit log", audit.read_text())
    for settings in BAD_STARTS:
        watch.hear("bad starts", start_badly(settings))

    heard = watch.told
    assert '"level": "debug"' in heard["log of json"]
    assert "it is gone" in heard["log of json"]
    assert "it is gone" in heard["log of text"]
    assert "requestState rejected" in heard["log of text"]
    assert "alice" in heard["audit log"]
    assert "gateway_state_rejections_total" in heard["metrics of text"]
    assert "--replica-id json" in heard["arguments of json"]
    assert heard["bad starts"].count("GATEWAY_") >= len(BAD_STARTS)
    assert [where for where, text in heard.items() if "request failed" in text] == []
    assert watch.shown() == []


def test_the_search_would_find_each_secret_in_each_place() -> None:
    watch = Watch()
    watch.hear("somewhere", "nothing to see")
    assert watch.shown() == []
    for secret in list(watch.secrets):
        watch.told = {"somewhere": f"before{secret[-SHOWN_CHARACTERS:]}after"}
        assert watch.shown() != []


def settings() -> Settings:
    return Settings.load({"GATEWAY_SEAL_KEYS": f"{OLD},{NEW}", "GATEWAY_JWT_SECRET": SECRET, "GATEWAY_AUDIENCE": "a"})


RING = KeyRing.parse(f"{OLD},{NEW}")
OBJECTS: dict[str, Callable[[], object]] = {
    "settings": settings,
    "the dump of settings": lambda: settings().model_dump(),
    "the JSON of settings": lambda: settings().model_dump_json(),
    "the secret of settings": lambda: settings().jwt_secret,
    "a ring": lambda: RING,
    "a key": lambda: RING.sealing_key,
    "a sealer": lambda: Sealer(RING, urandom),
    "a cipher": lambda: Sealer(RING, urandom)._cipher,
    "a maker of cursors": lambda: CursorMaker(RING),
    "a shared secret": lambda: SharedSecret(SECRET),
    "a verifier": lambda: TokenVerifier(SharedSecret(SECRET), ("a",)),
    "a refusal": lambda: InvalidRequestState(RejectReason.NOT_AUTHENTIC),
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_no_object_shows_a_secret_when_it_is_printed(make: Callable[[], object]) -> None:
    watch = Watch()
    thing = make()
    watch.hear("printed", f"{thing!r} {thing} {[thing]}")
    assert watch.shown() == []
