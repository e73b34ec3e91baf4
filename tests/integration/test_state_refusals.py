"""A state opens only for its own caller, deployment and request; every other use gets the same refusal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import urandom
from typing import Any

import msgspec
import pytest

from gateway.auth.tokens import mint
from gateway.engine.journal import Journal
from gateway.sealing import base64url
from gateway.sealing.binding import (
    cursor_binding,
    field_binding,
    request_id_binding,
    request_state_binding,
    session_binding,
)
from gateway.sealing.digest import arguments_digest
from gateway.sealing.envelope import LABEL, Sealer
from gateway.sealing.formats import REQUEST_STATE
from gateway.sealing.keyring import KeyRing
from gateway.sealing.packing import pack
from gateway.sealing.principal import Principal
from gateway.sealing.state import seal_state
from loadtest.cluster import Replica, new_key
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, accept, post, tool_call

pytestmark = pytest.mark.slow

AUDIENCE = "tests"
SECRET = "a secret that only these tests know, 32 bytes"
ALICE = Principal("", "alice", "")
KEY = new_key()
REMOVED_KEY = new_key()
MAX_BYTES = 4096
ARGUMENTS = {"greeting": "Hi", "punctuation": {"marks": ["!", 1, 2.5]}}
FROZEN = (
    b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Invalid or expired requestState",'
    b'"data":{"reason":"invalid_request_state"}}}'
)
HEADER_BYTES = 28
"""Key id and nonce of a token."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Replicas with one shared key: two of a deployment, one without identity, one of another deployment."""
    environ = {
        "GATEWAY_TOOLS": "tests.integration.tools",
        "GATEWAY_SEAL_KEYS": KEY,
        "GATEWAY_AUDIENCE": AUDIENCE,
        "GATEWAY_AUTH": "jwt",
        "GATEWAY_JWT_SECRET": SECRET,
        "GATEWAY_JWT_AUDIENCE": "everyone",
        "GATEWAY_STATE_MAX_BYTES": str(MAX_BYTES),
    }
    own = {"elsewhere": {"GATEWAY_AUDIENCE": "production"}, "anonymous": {"GATEWAY_AUTH": "none"}}
    with Fleet(
        tmp_path_factory.mktemp("fleet"), environ, names=("r1", "r2", "elsewhere", "anonymous"), own=own
    ) as fleet:
        yield fleet


def token(user: str, **claims: Any) -> str:
    return mint(SECRET, user, "everyone", **claims)


@dataclass(frozen=True)
class Retry:
    """A second leg; its fields say how it differs from the first one, which Alice sent to r1."""

    state: Any = None
    replica: str = "r2"
    user: str | None = "alice"
    claims: Mapping[str, Any] = field(default_factory=dict)
    tool: str = "greet"
    arguments: Mapping[str, Any] = field(default_factory=lambda: ARGUMENTS)
    request_id: Any = 2

    def send(self, fleet: Fleet) -> Answer:
        message = tool_call(self.tool, self.arguments, requestState=self.state, inputResponses=accept(name="Ada"))
        message["id"] = self.request_id
        bearer = None if self.user is None else token(self.user, **self.claims)
        return post(fleet[self.replica], message, token=bearer)


def first_leg(fleet: Fleet, replica: str = "r1") -> str:
    user = None if replica == "anonymous" else token("alice")
    return post(fleet[replica], tool_call("greet", ARGUMENTS), token=user).state


def check_refused(fleet: Fleet, retry: Retry, reason: str) -> None:
    """Check that the retry gets the uniform refusal; its true reason is only in the log and in the counter."""
    replica = fleet[retry.replica]
    logged = len(replica.logged("requestState rejected"))
    counted = replica.metric("gateway_state_rejections_total", reason=reason)
    refused = replica.metric("gateway_requests_refused_total", reason="invalid_state")
    answer = retry.send(fleet)
    assert (answer.status, answer.body) == (400, FROZEN % msgspec.json.encode(retry.request_id))
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-gateway-replica"] == retry.replica
    assert set(answer.headers) == {"date", "content-type", "content-length", "x-gateway-replica"}
    told = replica.wait_for_log("requestState rejected", count=logged + 1)
    assert [line["reason"] for line in told[logged:]] == [reason]
    assert replica.metric("gateway_state_rejections_total", reason=reason) == counted + 1
    assert replica.metric("gateway_requests_refused_total", reason="invalid_state") == refused + 1


SAME_REQUEST: dict[str, Retry] = {
    "as it was": Retry(),
    "on the first replica": Retry(replica="r1"),
    "names in another order": Retry(arguments={"punctuation": {"marks": ["!", 1, 2.5]}, "greeting": "Hi"}),
    "an integral float": Retry(arguments={"greeting": "Hi", "punctuation": {"marks": ["!", 1.0, 2.5]}}),
    "another token of the same user": Retry(claims={"scopes": ["more"], "ttl_seconds": 60}),
    "another id": Retry(request_id="b"),
}


@pytest.mark.parametrize("retry_", SAME_REQUEST.values(), ids=SAME_REQUEST)
def test_a_state_opens_for_the_same_caller_and_request(fleet: Fleet, retry_: Retry) -> None:
    answer = Retry(**{**vars(retry_), "state": first_leg(fleet)}).send(fleet)
    assert answer.text == "Hi Ada"


def test_a_state_opens_again_as_long_as_it_is_valid(fleet: Fleet) -> None:
    """After a lost response, the client may send the same retry again, to any replica."""
    state = first_leg(fleet)
    assert [Retry(state, replica=name).send(fleet).text for name in ("r2", "r1", "r2")] == ["Hi Ada"] * 3


ANOTHER_REQUEST: dict[str, Retry] = {
    "another user": Retry(user="mallory"),
    "another client of the user": Retry(claims={"client_id": "app"}),
    "another issuer of the user": Retry(claims={"issuer": "https://issuer.test"}),
    "another tool": Retry(tool="greet_too"),
    "another audience": Retry(replica="elsewhere"),
    "nobody": Retry(replica="anonymous", user=None),
    "no arguments": Retry(arguments={}),
    "one argument less": Retry(arguments={"greeting": "Hi"}),
    "one argument more": Retry(arguments={**ARGUMENTS, "extra": None}),
    "another argument": Retry(arguments={**ARGUMENTS, "greeting": "Hello"}),
    "another case": Retry(arguments={**ARGUMENTS, "greeting": "hi"}),
    "another order in a list": Retry(arguments={**ARGUMENTS, "punctuation": {"marks": [1, "!", 2.5]}}),
    "a text for a number": Retry(arguments={**ARGUMENTS, "punctuation": {"marks": ["!", "1", 2.5]}}),
    "true for one": Retry(arguments={**ARGUMENTS, "punctuation": {"marks": ["!", True, 2.5]}}),
    "another fraction": Retry(arguments={**ARGUMENTS, "punctuation": {"marks": ["!", 1, 2.5000000000000004]}}),
}


@pytest.mark.parametrize("retry_", ANOTHER_REQUEST.values(), ids=ANOTHER_REQUEST)
def test_a_state_of_another_caller_or_request_is_refused(fleet: Fleet, retry_: Retry) -> None:
    check_refused(fleet, Retry(**{**vars(retry_), "state": first_leg(fleet)}), "not_authentic")


def test_an_anonymous_state_is_refused_when_a_user_brings_it(fleet: Fleet) -> None:
    state = first_leg(fleet, "anonymous")
    assert Retry(state, "anonymous", None).send(fleet).text == "Hi Ada"
    check_refused(fleet, Retry(state), "not_authentic")


@pytest.mark.parametrize("user", ["", "anonymous", "None"])
def test_no_user_can_be_named_so_that_anonymous_states_open(fleet: Fleet, user: str) -> None:
    state = first_leg(fleet, "anonymous")
    check_refused(fleet, Retry(state, user=user, claims={"client_id": "app"}), "not_authentic")


def flip(state: str, position: int, bit: int) -> str:
    raw = bytearray(base64url.decode(state.removeprefix(LABEL)))
    raw[position] ^= 1 << bit
    return LABEL + base64url.encode(bytes(raw))


REGIONS: dict[str, tuple[int, str]] = {
    "first of key id": (0, "unknown_key"),
    "last of key id": (3, "unknown_key"),
    "first of nonce prefix": (4, "not_authentic"),
    "last of nonce prefix": (15, "not_authentic"),
    "first of nonce": (16, "not_authentic"),
    "last of nonce": (27, "not_authentic"),
    "first of ciphertext": (28, "not_authentic"),
    "inside ciphertext": (60, "not_authentic"),
    "last of ciphertext": (-17, "not_authentic"),
    "first of tag": (-16, "not_authentic"),
    "last of tag": (-1, "not_authentic"),
}


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize(("position", "reason"), REGIONS.values(), ids=REGIONS)
def test_one_changed_bit_in_any_region_is_refused(fleet: Fleet, position: int, reason: str, bit: int) -> None:
    check_refused(fleet, Retry(flip(first_leg(fleet), position, bit)), reason)


ALTERED_TEXTS: dict[str, Callable[[str], Any]] = {
    "empty": lambda _state: "",
    "the label alone": lambda _state: LABEL,
    "no label": lambda state: state.removeprefix(LABEL),
    "another label": lambda state: "s2." + state.removeprefix(LABEL),
    "label in capitals": lambda state: "S1." + state.removeprefix(LABEL),
    "padded": lambda state: state + "=" * (-len(state.removeprefix(LABEL)) % 4 or 4),
    "blank before": lambda state: " " + state,
    "blank after": lambda state: state + " ",
    "newline after": lambda state: state + "\n",
    "NUL after": lambda state: state + "\0",
    "standard alphabet": lambda state: state[:-8] + "+/+/+/+/",
    "not ASCII": lambda state: state + "é",
    "not a character of any plane but the astral": lambda state: state + "\U0001f511",
    "only a header": lambda state: LABEL + base64url.encode(bytes(HEADER_BYTES)),
    "number": lambda _state: 1,
    "zero": lambda _state: 0,
    "true": lambda _state: True,
    "false": lambda _state: False,
    "fraction": lambda _state: 1.5,
    "array": lambda state: [state],
    "empty array": lambda _state: [],
    "object": lambda state: {"requestState": state},
    "empty object": lambda _state: {},
}


@pytest.mark.parametrize("alter", ALTERED_TEXTS.values(), ids=ALTERED_TEXTS)
def test_text_that_is_not_a_token_is_refused(fleet: Fleet, alter: Callable[[str], Any]) -> None:
    check_refused(fleet, Retry(alter(first_leg(fleet))), "malformed")


def test_a_shortened_and_a_lengthened_token_are_refused(fleet: Fleet) -> None:
    raw = base64url.decode(first_leg(fleet).removeprefix(LABEL))
    for changed in (raw[:-1], raw + b"\0", raw[:HEADER_BYTES] + raw[-16:]):
        check_refused(fleet, Retry(LABEL + base64url.encode(changed)), "not_authentic")


def test_a_token_over_the_size_cap_is_refused(fleet: Fleet) -> None:
    check_refused(fleet, Retry(LABEL + "A" * MAX_BYTES), "too_large")


def test_the_tail_of_one_state_does_not_fit_the_head_of_another(fleet: Fleet) -> None:
    one, other = (base64url.decode(first_leg(fleet).removeprefix(LABEL)) for _leg in range(2))
    check_refused(fleet, Retry(LABEL + base64url.encode(one[:HEADER_BYTES] + other[HEADER_BYTES:])), "not_authentic")


def sealer(key: str = KEY) -> Sealer:
    return Sealer(KeyRing.parse(key), urandom)


def binding() -> bytes:
    return request_state_binding(AUDIENCE, ALICE, "tools/call", "greet", arguments_digest(ARGUMENTS))


def journal_map() -> dict[str, Any]:
    return Journal.begin(now_ms=int(time.time() * 1000), flow_max_ms=3_600_000, random_bytes=urandom).to_map()


def sealed(*, key: str = KEY, now: float = 0.0, ttl: float = 3600.0) -> str:
    """Seal a state as a replica with this key and this clock would."""
    return seal_state(sealer(key), journal_map(), aad=binding(), now=now, expires_at=now + ttl, max_bytes=MAX_BYTES)


def test_a_state_sealed_here_as_a_replica_would_is_accepted(fleet: Fleet) -> None:
    """This shows that the changes of the next tests are the reason for their refusals."""
    assert Retry(sealed(now=time.time())).send(fleet).text == "Hi Ada"


def test_an_expired_state_is_refused(fleet: Fleet) -> None:
    check_refused(fleet, Retry(sealed(now=time.time() - 3601)), "expired")


def test_a_state_sealed_with_a_key_that_was_removed_is_refused(fleet: Fleet) -> None:
    check_refused(fleet, Retry(sealed(key=REMOVED_KEY, now=time.time())), "unknown_key")


OTHER_PURPOSES: dict[str, bytes] = {
    "session": session_binding(AUDIENCE, ALICE),
    "request id": request_id_binding(AUDIENCE, ALICE),
    "cursor": cursor_binding(AUDIENCE, ALICE, "tools/call"),
    "field at rest": field_binding(AUDIENCE, "alice", "task", "journal"),
}


@pytest.mark.parametrize("other", OTHER_PURPOSES.values(), ids=OTHER_PURPOSES)
def test_a_token_sealed_for_another_purpose_is_refused(fleet: Fleet, other: bytes) -> None:
    now = time.time()
    state = seal_state(sealer(), journal_map(), aad=other, now=now, expires_at=now + 60, max_bytes=MAX_BYTES)
    check_refused(fleet, Retry(state), "not_authentic")


CONTENTS: dict[str, tuple[Any, str]] = {
    "newer schema": ({"v": REQUEST_STATE.reads + 1}, "newer_schema"),
    "no journal": ({"v": REQUEST_STATE.writes, "exp": 1e12}, "malformed"),
    "an empty journal": ({"v": REQUEST_STATE.writes, "exp": 1e12, "j": {}}, "malformed"),
    "no map": ([], "malformed"),
    "no expiry": ({"v": REQUEST_STATE.writes, "j": {}}, "malformed"),
    "expiry NaN": ({"v": REQUEST_STATE.writes, "exp": float("nan"), "j": {}}, "expired"),
}


@pytest.mark.parametrize(("content", "reason"), CONTENTS.values(), ids=CONTENTS)
def test_an_authentic_token_with_other_contents_is_refused(fleet: Fleet, content: Any, reason: str) -> None:
    check_refused(fleet, Retry(sealer().seal(pack(content), binding())), reason)


def test_the_state_is_judged_before_the_answers(fleet: Fleet) -> None:
    """Neither answers that would finish the call nor answers of a wrong type change the refusal."""
    message = tool_call("greet", ARGUMENTS, requestState="s1.", inputResponses={"who": 7})
    answer = post(fleet["r1"], message, token=token("alice"))
    assert answer.body == FROZEN % b"1"


@pytest.mark.parametrize("absent", [{}, {"requestState": None}], ids=["absent", "null"])
def test_no_state_is_a_first_leg(fleet: Fleet, absent: dict[str, Any]) -> None:
    assert post(fleet["r1"], tool_call("greet", ARGUMENTS, **absent), token=token("alice")).state


def test_answers_may_come_without_a_state(fleet: Fleet) -> None:
    message = tool_call("greet", ARGUMENTS, inputResponses=accept(name="Ada"))
    assert post(fleet["r1"], message, token=token("alice")).text == "Hi Ada"


def test_a_key_that_only_opens_still_opens(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rotation `old` → `new,old` → `new`: a state of the old key opens until the key is gone."""
    old, new = new_key(), new_key()
    with Fleet(
        tmp_path_factory.mktemp("rotation"),
        {"GATEWAY_TOOLS": "tests.integration.tools"},
        names=("old", "both", "new"),
        own={
            "old": {"GATEWAY_SEAL_KEYS": old},
            "both": {"GATEWAY_SEAL_KEYS": f"{new},{old}"},
            "new": {"GATEWAY_SEAL_KEYS": new},
        },
    ) as fleet:

        def second_leg(state: str, replica: str) -> Answer:
            return Retry(state, replica, user=None).send(fleet)

        of_old, of_both = (post(fleet[name], tool_call("greet", ARGUMENTS)).state for name in ("old", "both"))
        assert second_leg(of_old, "both").text == "Hi Ada"
        assert second_leg(of_both, "new").text == "Hi Ada"
        check_refused(fleet, Retry(of_old, "new", user=None), "unknown_key")
        check_refused(fleet, Retry(of_both, "old", user=None), "unknown_key")
        assert _key_ids(fleet["both"]) == {
            "opened": _key_ids(fleet["old"])["sealed"],
            "sealed": _key_ids(fleet["new"])["opened"],
        }


def _key_ids(replica: Replica) -> dict[str, str]:
    """Return the keys that a replica sealed and opened with, as operators read them to retire a key."""
    ids = {}
    for verb in ("opened", "sealed"):
        for entry in KeyRing.parse(replica.environ["GATEWAY_SEAL_KEYS"]).keys:
            if replica.metric(f"gateway_states_{verb}_total", key_id=entry.key_id.hex()) > 0:
                ids[verb] = entry.key_id.hex()
    return ids
