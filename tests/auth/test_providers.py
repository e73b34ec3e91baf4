"""Keys that change while tokens are verified: which tokens count when, and how often a provider is asked."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.auth import TokenVerifier, VerifiedToken, make_verifier
from gateway.auth.providers import MAX_KEY_SET_BYTES, MAX_WAITING, MIN_ASKED_SECONDS, FileKeys, UrlKeys
from gateway.errors import ConfigurationError, HttpRefusal, Overloaded
from gateway.observability.metrics import Telemetry
from gateway.runtime.file_watcher import FileWatcher
from gateway.runtime.reread import read_again
from gateway.settings.model import Settings
from tests.clocks import Clock
from tests.identity import AUDIENCE, ISSUER, IdentityProvider, SigningKey, key_set

OLD = SigningKey("old", "ES256")
NEW = SigningKey("new", "EdDSA")
FOREVER = 3600.0


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider(OLD) as provider:
        yield provider


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def url_keys(provider: IdentityProvider, clock: Clock, telemetry: Telemetry | None = None, **options: Any) -> UrlKeys:
    times = {"refresh_seconds": FOREVER, "retry_seconds": FOREVER, "min_asked_seconds": 10.0, "fetch_seconds": 20.0}
    return UrlKeys(provider.url, ["ES256", "EdDSA"], telemetry or Telemetry(), clock=clock, **{**times, **options})


def verifier(keys: UrlKeys) -> TokenVerifier:
    return TokenVerifier(keys, (AUDIENCE,), issuer=ISSUER, algorithms=["ES256", "EdDSA"])


async def let_in(verify: TokenVerifier, key: SigningKey, **claims: Any) -> VerifiedToken:
    caller = await verify.authenticate(f"Bearer {key.token(**claims)}")
    assert isinstance(caller, VerifiedToken)
    return caller


async def refused(verify: TokenVerifier, key: SigningKey, status: int = 401) -> HttpRefusal:
    with pytest.raises(HttpRefusal) as caught:
        await verify.authenticate(f"Bearer {key.token()}")
    assert caught.value.status == status
    return caught.value


async def learned(verify: TokenVerifier, key: SigningKey) -> VerifiedToken:
    """Wait until a key is known, although no token triggers a read."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(HttpRefusal):
                return await let_in(verify, key)
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def started(provider: IdentityProvider, clock: Clock, **options: Any) -> AsyncIterator[TokenVerifier]:
    verify = verifier(url_keys(provider, clock, **options))
    async with verify.running():
        yield verify


async def test_tokens_that_a_published_key_signed_are_accepted(provider: IdentityProvider, clock: Clock) -> None:
    async with started(provider, clock) as verify:
        assert (await let_in(verify, OLD)).principal is not None
        await refused(verify, SigningKey("old", "ES256"))
        assert provider.requests == 1


async def test_a_key_published_later_is_learned_from_the_first_token_that_names_it(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        provider.publish(OLD, NEW)
        await let_in(verify, NEW)
        await let_in(verify, OLD)
        assert provider.requests == 2


async def test_a_withdrawn_key_is_refused_as_soon_as_everything_is_read_again(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        await let_in(verify, OLD)
        provider.publish(NEW)
        await let_in(verify, OLD)
        await read_again()
        await refused(verify, OLD)
        await let_in(verify, NEW)


async def test_a_read_in_progress_is_followed_by_one_that_begins_when_everything_is_read_again(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        answer = provider.hold_back(OLD)
        early = asyncio.create_task(read_again())
        await asyncio.to_thread(provider.wait_for_request, 2)
        late = asyncio.create_task(read_again())
        provider.publish(NEW)
        answer()
        await asyncio.wait({early, late})
        await refused(verify, OLD)
        await let_in(verify, NEW)


async def test_a_flood_of_unknown_keys_asks_the_provider_once_in_a_while(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        for number in range(50):
            await refused(verify, SigningKey(f"unknown-{number}", "ES256"))
        assert provider.requests == 2
        clock.now += 9.9
        await refused(verify, SigningKey("unknown", "ES256"))
        assert provider.requests == 2
        clock.now += 0.2
        await refused(verify, SigningKey("unknown", "ES256"))
        assert provider.requests == 3


async def test_unknown_keys_delay_a_new_one_and_the_end_of_an_old_one_by_five_seconds(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock, min_asked_seconds=MIN_ASKED_SECONDS) as verify:
        await refused(verify, SigningKey("invented", "ES256"))
        provider.publish(NEW)
        clock.now += 4.9
        await refused(verify, NEW)
        await let_in(verify, OLD)
        clock.now += 0.2
        await refused(verify, SigningKey("invented too", "ES256"))
        await let_in(verify, NEW)
        await refused(verify, OLD)
        assert provider.requests == 3


async def test_unknown_keys_do_not_delay_reads_that_the_operator_asks_for(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        await refused(verify, SigningKey("invented", "ES256"))
        provider.publish(NEW)
        await read_again()
        await let_in(verify, NEW)
        await refused(verify, OLD)


async def test_a_few_tokens_that_name_an_unknown_key_wait_for_one_answer_and_all_others_come_again(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        provider.publish(OLD, NEW)
        waiting = [asyncio.create_task(let_in(verify, NEW, sub=f"user-{number}")) for number in range(50)]
        await asyncio.wait(waiting)
        sent_away = [task for task in waiting if isinstance(task.exception(), Overloaded)]
        callers = {task.result().principal for task in waiting if task not in sent_away}
        assert (len(callers), len(sent_away)) == (MAX_WAITING, 50 - MAX_WAITING)
        assert provider.requests == 2
        assert (await let_in(verify, NEW, sub="user-49")).principal is not None


async def test_requests_that_give_up_waiting_make_room_for_others(provider: IdentityProvider, clock: Clock) -> None:
    async with started(provider, clock) as verify:
        answer = provider.hold_back(OLD, NEW)
        impatient = [asyncio.create_task(let_in(verify, NEW, sub=f"gone-{number}")) for number in range(MAX_WAITING)]
        await asyncio.to_thread(provider.wait_for_request, 2)
        for task in impatient:
            task.cancel()
        await asyncio.wait(impatient)
        patient = [asyncio.create_task(let_in(verify, NEW, sub=f"user-{number}")) for number in range(MAX_WAITING)]
        answer()
        assert len({caller.principal for caller in await asyncio.gather(*patient)}) == MAX_WAITING


async def test_nobody_waits_for_a_provider_that_has_failed(provider: IdentityProvider, clock: Clock) -> None:
    async with started(provider, clock, retry_seconds=0.01) as verify:
        provider.send(b"", 500)
        await refused(verify, NEW)
        answer = provider.hold_back(OLD, NEW)
        await asyncio.to_thread(provider.wait_for_request, provider.requests + 1)
        clock.now += 3600
        for number in range(2 * MAX_WAITING):  # while the set is read again, and the provider does not answer
            await refused(verify, SigningKey(f"unknown-{number}", "ES256"))
        answer()
        await learned(verify, NEW)


async def test_a_client_that_disconnects_does_not_end_the_read_for_the_others(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        answer = provider.hold_back(OLD, NEW)
        first, second = (asyncio.create_task(let_in(verify, NEW, sub=name)) for name in ("a", "b"))
        await asyncio.to_thread(provider.wait_for_request, 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        answer()
        await second
        assert provider.requests == 2


NO_REASON_TO_ASK = {
    "an algorithm that is not accepted": SigningKey("unknown", "ES384").token(),
    "a known key with another algorithm": SigningKey("old", "EdDSA").token(),
    "no key id, and no key that fits": SigningKey(None, "EdDSA").token(),
    "a bad signature of a known key": SigningKey("old", "ES256").token(),
    "no token": "abc",
}


@pytest.mark.parametrize("token", NO_REASON_TO_ASK.values(), ids=NO_REASON_TO_ASK)
async def test_only_an_unknown_key_id_makes_us_ask(provider: IdentityProvider, clock: Clock, token: str) -> None:
    async with started(provider, clock) as verify:
        with pytest.raises(HttpRefusal):
            await verify.authenticate(f"Bearer {token}")
        assert provider.requests == 1


async def test_tokens_of_a_removed_key_are_refused_also_those_accepted_before(
    provider: IdentityProvider, clock: Clock
) -> None:
    async with started(provider, clock) as verify:
        header = f"Bearer {OLD.token()}"
        known = await verify.authenticate(header)
        assert await verify.authenticate(header) is known
        provider.publish(NEW)
        await let_in(verify, NEW)
        with pytest.raises(HttpRefusal):
            await verify.authenticate(header)


async def test_a_key_that_has_left_is_known_to_have_left_until_it_is_back(
    provider: IdentityProvider, clock: Clock
) -> None:
    keys = url_keys(provider, clock)
    stays, leaves = SigningKey("stays"), SigningKey("leaves")
    provider.publish(stays, leaves)
    async with keys.running():
        verify = verifier(keys)
        names = [(await verify.authenticate(f"Bearer {key.token()}")).key for key in (stays, leaves)]
        assert len(set(names)) == 2
        told: list[list[bool]] = []
        verify.on_change(lambda: told.append([verify.has_left(name) for name in names]))
        for published in ([stays], [stays, leaves], [leaves]):
            provider.publish(*published)
            await keys._read()
        assert told == [[False, True], [False, False], [True, False]]
        assert not verify.has_left(b"")


async def test_the_same_keys_again_forget_no_token(provider: IdentityProvider, clock: Clock) -> None:
    async with started(provider, clock) as verify:
        header = f"Bearer {OLD.token()}"
        known = await verify.authenticate(header)
        await refused(verify, SigningKey("unknown", "ES256"))
        assert provider.requests == 2
        assert await verify.authenticate(header) is known


BROKEN: dict[str, tuple[bytes, int]] = {
    "down": (b"", 503),
    "a redirect": (b"", 302),
    "no JSON": (b"<html>", 200),
    "no keys": (b'{"keys":[]}', 200),
    "too large": (b" " * (MAX_KEY_SET_BYTES + 1), 200),
    "too many": (key_set(*[OLD.jwk()] * 65), 200),
}


@pytest.mark.parametrize(("body", "status"), BROKEN.values(), ids=BROKEN)
async def test_while_the_provider_is_broken_its_keys_of_before_stay_and_that_is_said_once(
    provider: IdentityProvider, clock: Clock, caplog: pytest.LogCaptureFixture, body: bytes, status: int
) -> None:
    caplog.set_level(logging.INFO, "gateway.auth.providers")
    async with started(provider, clock, retry_seconds=0.01) as verify:
        provider.send(body, status, [("Location", provider.url)])
        await refused(verify, SigningKey("unknown", "ES256"))
        await asyncio.to_thread(provider.wait_for_request, 4)
        await let_in(verify, OLD)
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert [record.getMessage() for record in warnings] == ["token keys not read; keeping the previous ones"]
        provider.publish(NEW)
        await learned(verify, NEW)
        assert "token keys are read again" in caplog.messages


async def test_a_key_in_the_query_of_the_url_is_never_logged(
    provider: IdentityProvider, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    keys = UrlKeys(
        f"{provider.url}?key=a-secret-key",
        ["ES256"],
        Telemetry(),
        clock=clock,
        refresh_seconds=FOREVER,
        retry_seconds=0.01,
    )
    arrived = asyncio.Event()
    keys.on_change(arrived.set)
    provider.send(b"", 500)
    async with keys.running():
        provider.publish(OLD)
        await arrived.wait()
    assert {"token keys not read; keeping the previous ones", "token keys are read again"} <= set(caplog.messages)
    assert {vars(record)["url"] for record in caplog.records if "url" in vars(record)} == {provider.url}
    assert "a-secret-key" not in "".join(str(vars(record)) for record in caplog.records)


async def test_keys_are_read_again_without_anybody_asking(provider: IdentityProvider, clock: Clock) -> None:
    async with started(provider, clock, refresh_seconds=0.01) as verify:
        provider.publish(NEW)
        await asyncio.to_thread(provider.wait_for_request, provider.requests + 2)
        await refused(verify, OLD)
        await let_in(verify, NEW)


async def test_tokens_are_not_called_bad_while_the_provider_has_never_answered(
    provider: IdentityProvider, clock: Clock
) -> None:
    provider.send(b"", 500)
    async with started(provider, clock) as verify:
        clock.now += 10
        refusal = await refused(verify, OLD, 503)
        assert dict(refusal.headers) == {"retry-after": "5"}
        assert provider.requests == 1


async def test_a_provider_that_comes_up_later_is_noticed_without_anybody_asking(
    provider: IdentityProvider, clock: Clock
) -> None:
    provider.send(b"", 500)
    keys = url_keys(provider, clock, retry_seconds=0.01)
    verify, arrived = verifier(keys), asyncio.Event()
    keys.on_change(arrived.set)
    async with verify.running():
        provider.publish(OLD)
        await arrived.wait()
        await let_in(verify, OLD)


async def test_a_slow_provider_delays_the_start_by_its_time_limit_and_no_more(
    provider: IdentityProvider, clock: Clock
) -> None:
    provider.drip(in_head=True)
    async with started(provider, clock, fetch_seconds=0.1) as verify:
        await refused(verify, OLD, 503)


async def test_leaving_does_not_wait_for_the_provider(provider: IdentityProvider, clock: Clock) -> None:
    async with started(provider, clock, refresh_seconds=0.0):
        provider.drip(in_head=True)
        await asyncio.to_thread(provider.wait_for_request, provider.requests + 1)


async def test_metrics_report_the_number_of_keys_and_how_reading_them_went(
    provider: IdentityProvider, clock: Clock, telemetry: Telemetry
) -> None:
    verify = verifier(url_keys(provider, clock, telemetry))
    async with verify.running():
        provider.send(b"", 500)
        await refused(verify, NEW)

    def metric(name: str, **labels: str) -> float | None:
        return telemetry.registry.get_sample_value(name, labels)

    assert metric("gateway_token_keys") == 1
    assert metric("gateway_token_keys_read_total", result="read") == 1
    assert metric("gateway_token_keys_read_total", result="failed") == 1


async def test_a_bug_while_reading_is_logged_and_locks_nobody_out(
    provider: IdentityProvider, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_args: object, **_kwargs: object) -> bytes:
        raise LookupError("a bug")

    async with started(provider, clock) as verify:
        monkeypatch.setattr("gateway.auth.providers.fetch", broken)
        await refused(verify, NEW)
        await let_in(verify, OLD)
    assert any(record.exc_info for record in caplog.records)


def file_settings(path: Path) -> Settings:
    return Settings.load({"GATEWAY_JWKS_FILE": str(path), "GATEWAY_JWT_ISSUER": ISSUER, "GATEWAY_AUDIENCE": AUDIENCE})


def file_verifier(path: Path) -> TokenVerifier:
    verify = make_verifier(file_settings(path), Telemetry())
    assert isinstance(verify, TokenVerifier)
    return verify


def watcher_of(verify: TokenVerifier) -> FileWatcher[Any]:
    assert isinstance(verify._keys, FileKeys)
    return verify._keys._watcher


@pytest.mark.setting("jwks_file")
async def test_a_file_of_keys_is_read_at_the_start_and_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(OLD))
    verify = file_verifier(path)
    header = f"Bearer {OLD.token()}"
    await verify.authenticate(header)
    path.write_bytes(key_set(NEW))
    watcher = watcher_of(verify)
    await watcher.look()
    await verify.authenticate(header)
    await watcher.look()
    with pytest.raises(HttpRefusal):
        await verify.authenticate(header)
    await let_in(verify, NEW)


async def test_a_file_that_breaks_leaves_the_keys_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(key_set(OLD))
    verify = file_verifier(path)
    watcher = watcher_of(verify)
    path.write_bytes(b'{"keys":[{"kty":"oct","k":"topsecret"}]}')
    for _ in range(4):
        await watcher.look()
    await let_in(verify, OLD)
    (record,) = caplog.records
    assert "GATEWAY_JWKS_FILE: it has no key that verifies" in vars(record)["reason"]
    assert "topsecret" not in caplog.text


@pytest.mark.setting("jwks_file")
def test_a_file_that_is_missing_or_broken_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    with pytest.raises(ConfigurationError, match=r"GATEWAY_JWKS_FILE: .* cannot be read: No such file"):
        file_verifier(path)
    path.write_bytes(b"{")
    with pytest.raises(ConfigurationError, match="GATEWAY_JWKS_FILE: not a JWK Set"):
        file_verifier(path)


@pytest.mark.setting("jwks_url", "jwt_issuer")
async def test_the_settings_choose_where_keys_come_from(provider: IdentityProvider) -> None:
    settings = Settings.load(
        {"GATEWAY_JWKS_URL": provider.url, "GATEWAY_JWT_ISSUER": ISSUER, "GATEWAY_AUDIENCE": AUDIENCE}
    )
    verify = make_verifier(settings, Telemetry())
    assert isinstance(verify, TokenVerifier)
    async with verify.running():
        await let_in(verify, OLD)
        assert provider.requests == 1
