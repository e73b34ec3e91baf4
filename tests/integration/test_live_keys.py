"""Seal keys and an identity provider's keys change while two real replicas serve."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.sealing.keyring import KeyRing
from loadtest.cluster import Replica, new_key, wait_until
from tests.identity import ISSUER, IdentityProvider, Request, SigningKey, key_set
from tests.integration.fleet import Fleet
from tests.integration.raw import Answer, accept, post, tool_call

CALLS_PER_PHASE = 12
CALLERS = 3
REFUSED = "key file rejected; the current keys stay in use"
TOOLS = {"GATEWAY_TOOLS": "tests.integration.tools"}


def key_id(entry: str) -> str:
    return KeyRing.parse(entry).sealing_key.key_id.hex()


def key_ids(*entries: str) -> str:
    return ", ".join(map(key_id, entries))


class Mount:
    """A mounted secret: every change swaps the whole folder by one rename, as the kubelet does."""

    def __init__(self, folder: Path, content: bytes) -> None:
        folder.mkdir()
        self._folder = folder
        self._version = 0
        self.file = folder / "keys"
        self.change(content)
        self.file.symlink_to("..data/keys")

    def change(self, content: bytes) -> None:
        self._version += 1
        version = self._folder / f"..{self._version}"
        version.mkdir()
        (version / "keys").write_bytes(content)
        (self._folder / "..data_tmp").symlink_to(version.name)
        (self._folder / "..data_tmp").rename(self._folder / "..data")


class Load:
    """Calls without a pause, each of two legs on two replicas in turn, until stopped."""

    def __init__(self, fleet: Fleet) -> None:
        self._replicas = fleet.replicas
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CALLERS)]
        self.completed = [0] * CALLERS
        self.lost: list[str] = []

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for_a_phase(self) -> None:
        """Wait until each caller has completed this many more calls."""
        before = list(self.completed)
        wait_until(
            lambda: (
                bool(self.lost)
                or all(now - then >= CALLS_PER_PHASE for now, then in zip(self.completed, before, strict=True))
            ),
            "calls to complete",
        )
        assert self.lost == []

    def _run(self, number: int) -> None:
        turn = number
        while not self._stop.is_set():
            turn += 1
            first, second = self._replicas[turn % 2], self._replicas[(turn + 1) % 2]
            try:
                asked = post(first, tool_call("greet"))
                done = post(second, tool_call("greet", requestState=asked.state, inputResponses=accept(name="Ada")))
                assert done.text == "Hello Ada"
            except Exception as error:  # noqa: BLE001 - whatever it is, a call was lost
                self.lost.append(repr(error))
                return
            self.completed[number] += 1


def finish(replica: Replica, state: str) -> Answer:
    return post(replica, tool_call("greet", requestState=state, inputResponses=accept(name="Ada")))


def opened(fleet: Fleet, entry: str) -> float:
    return sum(replica.metric("gateway_states_opened_total", key_id=key_id(entry)) for replica in fleet.replicas)


def sealed(fleet: Fleet, entry: str) -> float:
    return sum(replica.metric("gateway_states_sealed_total", key_id=key_id(entry)) for replica in fleet.replicas)


def wait_for_ring(fleet: Fleet, *entries: str) -> None:
    for replica in fleet.replicas:
        replica.wait_for_log("seal keys replaced", key_ids=key_ids(*entries))


def test_seal_keys_rotate_in_three_phases_under_load_and_no_call_is_lost(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    mount = Mount(tmp_path / "secret", old.encode())
    environ = {**TOOLS, "GATEWAY_SEAL_KEYS": "", "GATEWAY_SEAL_KEYS_FILE": str(mount.file)}
    with Fleet(tmp_path, environ) as fleet, Load(fleet) as load:
        load.wait_for_a_phase()
        waiting = [post(fleet["r1"], tool_call("greet")).state for _ in range(3)]

        mount.change(f"{old},{new}".encode())
        wait_for_ring(fleet, old, new)
        load.wait_for_a_phase()
        assert sealed(fleet, new) == 0

        mount.change(f"{new},{old}".encode())
        wait_for_ring(fleet, new, old)
        load.wait_for_a_phase()
        assert opened(fleet, new) > 0
        assert finish(fleet["r2"], waiting[0]).text == "Hello Ada"

        # Now each caller has begun new calls: no state that the old key sealed returns.
        unused = opened(fleet, old)
        load.wait_for_a_phase()
        assert opened(fleet, old) == unused
        assert finish(fleet["r2"], waiting[1]).text == "Hello Ada"
        assert opened(fleet, old) == unused + 1, "an operator sees that the old key is still in use"

        mount.change(new.encode())
        wait_for_ring(fleet, new)
        load.wait_for_a_phase()
        assert sum(replica.metric("gateway_state_rejections_total") for replica in fleet.replicas) == 0
        assert finish(fleet["r2"], waiting[2]).error == (400, -32602)
        assert fleet["r2"].metric("gateway_state_rejections_total", reason="unknown_key") == 1
        for replica in fleet.replicas:
            assert replica.metric("gateway_seal_keys", key_id=key_id(new), role="seals") == 1
            assert replica.metric("gateway_seal_keys", key_id=key_id(old)) == 0
            assert old not in replica.log_text()
            assert new not in replica.log_text()
    assert load.lost == []


def test_a_broken_file_of_seal_keys_is_told_once_and_the_replicas_go_on(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    mount = Mount(tmp_path / "secret", old.encode())
    environ = {**TOOLS, "GATEWAY_SEAL_KEYS": "", "GATEWAY_SEAL_KEYS_FILE": str(mount.file)}
    with Fleet(tmp_path, environ) as fleet, Load(fleet) as load:
        mount.change(f"{new},hunter2".encode())
        for replica in fleet.replicas:
            replica.wait_for_log(REFUSED)
        load.wait_for_a_phase()
        mount.change(f"{old},{new}".encode())
        wait_for_ring(fleet, old, new)
        for replica in fleet.replicas:
            (line,) = replica.wait_for_log(REFUSED)
            assert line["reason"].startswith("GATEWAY_SEAL_KEYS_FILE: key 2 of 2 is neither")
            assert "hunter2" not in replica.log_text()
    assert load.lost == []


OLD, NEW = SigningKey("old", "ES256"), SigningKey("new", "EdDSA")
IDENTITY = {
    **TOOLS,
    "GATEWAY_AUTH": "jwt",
    "GATEWAY_JWT_ISSUER": ISSUER,
    "GATEWAY_JWT_AUDIENCE": "here",
    "GATEWAY_PUBLIC_URL": "https://mcp.example.com",
}


def status(replica: Replica, token: str | None) -> int:
    return post(replica, tool_call("echo", {"text": "x"}), token=token).status


def test_the_keys_of_tokens_change_with_their_file(tmp_path: Path) -> None:
    mount = Mount(tmp_path / "jwks", key_set(OLD))
    with Fleet(tmp_path, {**IDENTITY, "GATEWAY_JWKS_FILE": str(mount.file)}) as fleet:
        token = OLD.token()
        for replica in fleet.replicas:
            assert [status(replica, token), status(replica, NEW.token())] == [200, 401]
        mount.change(key_set(NEW))
        for replica in fleet.replicas:
            replica.wait_for_log("token keys replaced", key_ids="new")
            assert [status(replica, token), status(replica, NEW.token())] == [401, 200]
            assert token not in replica.log_text()


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider(OLD) as provider:
        yield provider


def test_tokens_of_an_identity_provider_carry_a_call_over_replicas(tmp_path: Path, provider: IdentityProvider) -> None:
    with Fleet(tmp_path, {**IDENTITY, "GATEWAY_JWKS_URL": provider.url}) as fleet:
        one, other = fleet.replicas
        state = post(one, tool_call("greet"), token=OLD.token()).state
        retry = tool_call("greet", requestState=state, inputResponses=accept(name="Ada"))
        # Another token of the same user will do; the provider may even have changed its keys meanwhile.
        provider.publish(OLD, NEW)
        assert post(other, retry, token=NEW.token()).text == "Hello Ada"
        for stranger in (NEW.token(sub="eve"), NEW.token(client_id="cli"), NEW.token(azp="cli")):
            assert post(other, retry, token=stranger).error == (400, -32602)
        refusal = post(other, retry)
        assert refusal.status == 401
        assert refusal.headers["www-authenticate"] == (
            'Bearer realm="mcp", resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/mcp"'
        )


def test_a_provider_that_is_down_when_a_replica_starts_costs_503_until_it_is_up(
    tmp_path: Path, provider: IdentityProvider
) -> None:
    provider.send(b"", 500)
    with Fleet(tmp_path, {**IDENTITY, "GATEWAY_JWKS_URL": provider.url}, names=("r1",)) as fleet:
        replica = fleet["r1"]
        answer = post(replica, tool_call("echo", {"text": "x"}), token=OLD.token())
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert status(replica, None) == 401
        provider.publish(OLD)
        replica.wait_for_log("token keys replaced")
        assert status(replica, OLD.token()) == 200
        provider.send(b"", 500)
        assert status(replica, OLD.token()) == 200, "keys that are known stay"


def test_a_replica_answers_others_while_a_token_waits_for_the_provider(
    tmp_path: Path, provider: IdentityProvider
) -> None:
    with Fleet(tmp_path, {**IDENTITY, "GATEWAY_JWKS_URL": provider.url}, names=("r1",)) as fleet:
        replica = fleet["r1"]
        known = OLD.token()
        assert status(replica, known) == 200
        may_answer = threading.Event()

        def answer(request: Request) -> None:
            may_answer.wait()
            request.reply(200, key_set(OLD, NEW))

        provider.answer(answer)
        statuses: list[int] = []
        before = provider.requests
        waiting = threading.Thread(target=lambda: statuses.append(status(replica, NEW.token())))
        waiting.start()
        provider.wait_for_request(before + 1)
        # If it blocked the others, this would be answered only after the replica has given up on the provider.
        assert status(replica, known) == 200
        may_answer.set()
        waiting.join()
        assert statuses == [200]
