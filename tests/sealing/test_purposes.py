"""Every sealed value opens for its purpose, caller and deployment, in time, and for nothing else."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RejectReason
from gateway.sealing import base64url, formats
from gateway.sealing.binding import (
    cursor_binding,
    field_binding,
    owner,
    owner_secret_binding,
    request_id_binding,
    request_state_binding,
    session_binding,
)
from gateway.sealing.digest import arguments_digest
from gateway.sealing.envelope import LABEL, Rejected, Sealer
from gateway.sealing.keyring import KeyRing
from gateway.sealing.list_cursor import CursorMaker
from gateway.sealing.packing import pack, unpack
from gateway.sealing.principal import Principal
from gateway.sealing.request_id import CallAddress, TaskAddress, open_request_id, seal_request_id
from gateway.sealing.session import Session, open_session, seal_session
from gateway.sealing.state import open_state, seal_state
from gateway.sealing.task_list_cursor import open_task_cursor, seal_task_cursor
from tests.sealing.randomness import repeatable

NOW = 1_800_000_000
EXPIRY = NOW + 3600
AUDIENCE = "gateway"
ALICE = Principal("https://issuer.example", "alice", "editor")
RING = KeyRing.parse("00" * 31 + "0a")

SESSION = Session("2025-11-25", frozenset({"sampling", "roots"}), bytes(range(16)), EXPIRY)
CALL = CallAddress("http://10.0.0.7:8080", bytes(range(16)), bytes(range(16, 32)), "resolution", EXPIRY)
TASK = TaskAddress("task-1", "confirm", EXPIRY)
MARK = (EXPIRY * 1000, "task-1")
JOURNAL: dict[str, Any] = {"answers": {}}


def make_sealer() -> Sealer:
    return Sealer(RING, repeatable())


SEALER = make_sealer()
CURSORS = CursorMaker(RING)


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of sealed value: how it is bound, made and opened, what it contains, and its layout."""

    name: str
    bind: Callable[[str, Principal | None], bytes]
    seal: Callable[[Sealer, bytes], str]
    open: Callable[[object, bytes, float], Any]
    value: Any
    text: str = ""
    schema: int = 0
    label: str = LABEL

    def sealed(self, audience: str = AUDIENCE, principal: Principal | None = ALICE) -> str:
        return self.seal(SEALER, self.bind(audience, principal))

    def opened(
        self, token: object, now: float = NOW, audience: str = AUDIENCE, principal: Principal | None = ALICE
    ) -> Any:
        return self.open(token, self.bind(audience, principal), now)

    def reason(
        self, token: object, now: float = NOW, audience: str = AUDIENCE, principal: Principal | None = ALICE
    ) -> RejectReason:
        with pytest.raises(Rejected) as caught:
            self.opened(token, now, audience, principal)
        return caught.value.reason

    def payload(self) -> dict[str, Any]:
        payload = unpack(SEALER.open(self.sealed(), self.bind(AUDIENCE, ALICE)).plaintext)
        assert type(payload) is dict
        return payload

    def with_payload(self, payload: object) -> str:
        return SEALER.seal(pack(payload), self.bind(AUDIENCE, ALICE))


STATE_KIND = Kind(
    "request state",
    lambda audience, principal: request_state_binding(
        audience, principal, "tools/call", "echo", arguments_digest({"a": 1})
    ),
    lambda sealer, aad: seal_state(sealer, JOURNAL, aad=aad, now=NOW, expires_at=EXPIRY, max_bytes=65_536),
    lambda token, aad, now: open_state(SEALER, token, aad=aad, now=now, max_bytes=65_536).journal,
    JOURNAL,
    schema=formats.REQUEST_STATE.reads,
)
SESSION_KIND = Kind(
    "session",
    session_binding,
    lambda sealer, aad: seal_session(sealer, SESSION, aad=aad),
    lambda token, aad, now: open_session(SEALER, token, aad=aad, now=now).session,
    SESSION,
    "s1.9E3yRV_s62b_yG842VJ4bGuGsnP_NPzhnWuATgpYoTsVtZqh-96e3EvJIAh8OvRwVX17rmgYjUhdF6uajfZPqvW0NPlps6BIh08br13LHQ5tfgj"
    "qp1yAxL1ksn-tzirDcwSdTgNc",
    formats.SESSION.reads,
)
CALL_KIND = Kind(
    "request id of a call",
    request_id_binding,
    lambda sealer, aad: seal_request_id(sealer, CALL, aad=aad),
    lambda token, aad, now: open_request_id(SEALER, token, aad=aad, now=now),
    CALL,
    "s1.9E3yRV_s62b_yG842VJ4bGuGsnP_NPzhnWuATghYoTsVtZqh-96e3EvJPQh3OrQlFCc66i1c0BNdH6OEmnaJpfa29OnfzxQh8ThvkHTjJDdJRSr"
    "Xh2TVx2PnE7Cy9co52L7yA2S6rszR7RDnIrz29QnkC3cCwP14Pk0Ua0LMNie9ntaEu4KgET349uQqv7hIjOqu_35zVwDl",
    formats.REQUEST_ID.reads,
)
TASK_KIND = Kind(
    "request id of a task",
    request_id_binding,
    lambda sealer, aad: seal_request_id(sealer, TASK, aad=aad),
    lambda token, aad, now: open_request_id(SEALER, token, aad=aad, now=now),
    TASK,
    "s1.9E3yRV_s62b_yG842VJ4bGuGsnP_NPzhnWuATgpYoTsVtZqh-96e3EvJPQh3N6UvCS4_7TSR1BSXEG6en6GBYO67JPcL18E67mEuiMaSDQ6vncD"
    "DGmolr7HAOQ",
    formats.REQUEST_ID.reads,
)
CURSOR_KIND = Kind(
    "task cursor",
    lambda audience, principal: cursor_binding(audience, principal, "tasks/list"),
    lambda sealer, aad: seal_task_cursor(sealer, MARK, aad=aad),
    lambda token, aad, now: open_task_cursor(SEALER, token, aad=aad),
    MARK,
    "s1.9E3yRV_s62b_yG842VJ4bGuGsnP_NPzhnWuATgxYoTsUvZEeNbXWn0P5aO2q5KczDO4i_ipekkyxAPgUKahjz3P694Sf49SF",
    formats.TASK_CURSOR.reads,
)
FIELD_KIND = Kind(
    "field at rest",
    lambda audience, principal: field_binding(audience, owner(principal, audience, b"secret"), "task-1", "journal"),
    lambda sealer, aad: sealer.seal(pack(JOURNAL), aad),
    lambda token, aad, now: unpack(SEALER.open(token, aad).plaintext),
    JOURNAL,
)
SECRET_KIND = Kind(
    "secret that names owners",
    lambda audience, principal: owner_secret_binding(audience),
    lambda sealer, aad: sealer.seal(pack(JOURNAL), aad),
    lambda token, aad, now: unpack(SEALER.open(token, aad).plaintext),
    JOURNAL,
)
CATALOGUE_KIND = Kind(
    "catalogue cursor",
    lambda audience, principal: b"",
    lambda sealer, aad: CURSORS.make("tools/list", "echo"),
    lambda token, aad, now: CURSORS.read("tools/list", token),
    "echo",
    label="c1.",
)

HERE = [SESSION_KIND, CALL_KIND, TASK_KIND, CURSOR_KIND]
PAYLOADS = [STATE_KIND, *HERE]
EXPIRING = [STATE_KIND, SESSION_KIND, CALL_KIND, TASK_KIND]
PURPOSES = [STATE_KIND, SESSION_KIND, CALL_KIND, CURSOR_KIND, SECRET_KIND, FIELD_KIND, CATALOGUE_KIND]
SEALED = [kind for kind in PURPOSES if kind is not CATALOGUE_KIND]

each_here = pytest.mark.parametrize("kind", HERE, ids=lambda kind: kind.name)
each_payload = pytest.mark.parametrize("kind", PAYLOADS, ids=lambda kind: kind.name)
each_token = pytest.mark.parametrize("kind", [*PAYLOADS, FIELD_KIND, CATALOGUE_KIND], ids=lambda kind: kind.name)
each_expiring = pytest.mark.parametrize("kind", EXPIRING, ids=lambda kind: kind.name)


@pytest.mark.parametrize("principal", [ALICE, None], ids=["alice", "anonymous"])
@pytest.mark.parametrize(("made", "wanted"), list(itertools.product(PURPOSES, PURPOSES)), ids=lambda kind: kind.name)
def test_nothing_is_accepted_in_place_of_anything_else(made: Kind, wanted: Kind, principal: Principal | None) -> None:
    token = made.sealed(principal=principal)
    if made is wanted:
        assert wanted.opened(token, principal=principal) == made.value
    else:
        expected = RejectReason.MALFORMED if CATALOGUE_KIND in {made, wanted} else RejectReason.NOT_AUTHENTIC
        assert wanted.reason(token, principal=principal) is expected


@pytest.mark.parametrize("principal", [ALICE, None], ids=["alice", "anonymous"])
def test_it_is_the_purpose_that_keeps_them_apart_and_not_what_is_inside(principal: Principal | None) -> None:
    """A token that contains the fields of all kinds opens only as the kind that it was sealed as."""
    everything = {name: value for kind in SEALED for name, value in kind.payload().items()} | {"v": 1}
    for made, wanted in itertools.product(SEALED, SEALED):
        token = SEALER.seal(pack(everything), made.bind(AUDIENCE, principal))
        if made is wanted:
            assert wanted.opened(token, principal=principal) == (
                everything if wanted in {FIELD_KIND, SECRET_KIND} else made.value
            )
        else:
            assert wanted.reason(token, principal=principal) is RejectReason.NOT_AUTHENTIC


def test_no_name_of_a_field_at_rest_makes_a_token_fit() -> None:
    for made, name in itertools.product(SEALED[:-1], ("session", "return-address", "cursor", "request-state", "")):
        for place in ((owner(ALICE, AUDIENCE, b"secret"), "task-1"), ("", ""), (name, name)):
            with pytest.raises(Rejected):
                SEALER.open(made.sealed(), field_binding(AUDIENCE, *place, name))


@each_here
def test_a_sealed_journal_comes_back_on_every_replica(kind: Kind) -> None:
    token = kind.seal(make_sealer(), kind.bind(AUDIENCE, ALICE))
    assert kind.opened(token) == kind.value
    assert kind.opened(kind.sealed(principal=None), principal=None) == kind.value


@each_here
def test_the_token_does_not_drift(kind: Kind) -> None:
    """Fixed key, randomness and content give exactly this text: a change here breaks a mixed fleet."""
    assert kind.seal(make_sealer(), kind.bind(AUDIENCE, ALICE)) == kind.text


@each_here
def test_another_caller_or_deployment_does_not_open_it(kind: Kind) -> None:
    token = kind.sealed()
    for other in (
        None,
        Principal("", "", ""),
        Principal("https://other.example", "alice", "editor"),
        Principal("https://issuer.example", "bob", "editor"),
        Principal("https://issuer.example", "alice", "cli"),
    ):
        assert kind.reason(token, principal=other) is RejectReason.NOT_AUTHENTIC
    for audience in ("", "gateway2", "Gateway"):
        assert kind.reason(token, audience=audience) is RejectReason.NOT_AUTHENTIC
    assert kind.reason(kind.sealed(principal=None)) is RejectReason.NOT_AUTHENTIC


@each_token
def test_one_changed_bit_at_any_byte_never_opens(kind: Kind) -> None:
    raw = base64url.decode(kind.sealed().removeprefix(kind.label))
    for position, bit in itertools.product(range(len(raw)), range(8)):
        changed = bytearray(raw)
        changed[position] ^= 1 << bit
        expected = RejectReason.UNKNOWN_KEY if position < 4 else RejectReason.NOT_AUTHENTIC
        assert kind.reason(kind.label + base64url.encode(bytes(changed))) is expected


@each_token
def test_one_changed_bit_in_any_character_never_opens(kind: Kind) -> None:
    token = kind.sealed()
    for position, bit in itertools.product(range(len(token)), range(8)):
        changed = token[:position] + chr(ord(token[position]) ^ 1 << bit) + token[position + 1 :]
        assert kind.reason(changed) in {RejectReason.MALFORMED, RejectReason.UNKNOWN_KEY, RejectReason.NOT_AUTHENTIC}


@each_expiring
def test_it_is_good_until_just_before_its_expiry_and_expired_exactly_at_it(kind: Kind) -> None:
    token = kind.sealed()
    assert kind.opened(token, math.nextafter(EXPIRY, 0)) == kind.value
    assert kind.reason(token, EXPIRY) is RejectReason.EXPIRED
    assert kind.reason(token, EXPIRY + 1e9) is RejectReason.EXPIRED


@each_expiring
def test_an_expired_one_of_another_caller_reveals_nothing(kind: Kind) -> None:
    assert kind.reason(kind.sealed(), EXPIRY, principal=None) is RejectReason.NOT_AUTHENTIC


@each_expiring
@pytest.mark.parametrize("expiry", [None, True, "1800003600", [], math.nan], ids=repr)
def test_without_a_time_for_its_expiry_it_is_never_alive(kind: Kind, expiry: object) -> None:
    payload = kind.payload()
    expected = RejectReason.EXPIRED if type(expiry) is float else RejectReason.MALFORMED
    assert kind.reason(kind.with_payload({**payload, "exp": expiry})) is expected
    del payload["exp"]
    assert kind.reason(kind.with_payload(payload)) is RejectReason.MALFORMED


@each_payload
def test_only_a_higher_schema_number_is_refused_and_whatever_else_it_holds(kind: Kind) -> None:
    payload = kind.payload()
    assert payload["v"] == kind.schema
    assert kind.opened(kind.with_payload({**payload, "v": kind.schema - 1})) == kind.value
    for rest in (payload, {}, {"exp": NOW - 1}, {"exp": NOW - 1, "j": {}}, {"exp": "never", "ver": 7}, {"j": "moved"}):
        assert kind.reason(kind.with_payload({**rest, "v": kind.schema + 1})) is RejectReason.NEWER_SCHEMA


@each_payload
def test_fields_that_nobody_knows_do_not_matter(kind: Kind) -> None:
    later = {"added_later": [2**90, {"deep": b"\x00"}], "": None}
    assert kind.opened(kind.with_payload({**kind.payload(), **later})) == kind.value


@each_here
def test_a_field_that_is_missing_or_of_another_type_is_malformed(kind: Kind) -> None:
    payload = kind.payload()
    wrongs: tuple[Any, ...] = (None, True, 1.5, "?", b"?", [], {})
    for name, wrong in itertools.product(payload.keys() - {"exp"}, wrongs):
        if type(wrong) is not type(payload[name]):
            assert kind.reason(kind.with_payload({**payload, name: wrong})) is RejectReason.MALFORMED, (name, wrong)
    for name in payload:
        without = {other: value for other, value in payload.items() if other != name}
        assert kind.reason(kind.with_payload(without)) is RejectReason.MALFORMED, name


@each_here
@pytest.mark.parametrize("payload", [None, [], "text", 1, {}], ids=repr)
def test_anything_but_a_map_of_ours_is_malformed(kind: Kind, payload: object) -> None:
    assert kind.reason(kind.with_payload(payload)) is RejectReason.MALFORMED


@each_here
def test_a_plaintext_that_is_not_message_pack_is_malformed(kind: Kind) -> None:
    for plaintext in (b"", b"\xc1", b"\x81\xa1v", b"\x91" * 100):
        assert kind.reason(SEALER.seal(plaintext, kind.bind(AUDIENCE, ALICE))) is RejectReason.MALFORMED


@each_here
def test_a_token_longer_than_any_that_is_sealed_is_too_large(kind: Kind) -> None:
    assert kind.reason(kind.with_payload({**kind.payload(), "more": "x" * 1200})) is RejectReason.TOO_LARGE
    assert kind.reason("x" * 1501) is RejectReason.TOO_LARGE


@each_payload
def test_a_token_of_a_key_that_is_gone_is_of_an_unknown_key(kind: Kind) -> None:
    other = Sealer(KeyRing.parse("00" * 31 + "0b"), repeatable())
    assert kind.reason(kind.seal(other, kind.bind(AUDIENCE, ALICE))) is RejectReason.UNKNOWN_KEY


@each_payload
@given(thing=st.text() | st.binary() | st.integers() | st.lists(st.text()) | st.none() | st.floats() | st.booleans())
def test_anything_presented_is_only_ever_rejected(kind: Kind, thing: object) -> None:
    assert kind.reason(thing) is RejectReason.MALFORMED
