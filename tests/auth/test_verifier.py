"""Bearer tokens: which callers are accepted, which are refused, and what each of them learns."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import math
import string
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from gateway.auth import AnonymousVerifier, SharedSecret, TokenVerifier, VerifiedToken, make_verifier
from gateway.auth.tokens import mint
from gateway.auth.verifier import DEFAULT_LEEWAY_SECONDS, MAX_HEADER_CHARACTERS
from gateway.errors import HttpRefusal
from gateway.observability.metrics import Telemetry
from gateway.protocol.challenges import Challenges
from gateway.sealing import base64url
from gateway.sealing.principal import Principal
from gateway.settings.model import Settings
from tests.clocks import Clock

SECRET = "0123456789abcdef0123456789abcdef"
AUDIENCE = "here"
NOW = 1_800_000_000.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


def verifier(clock: Callable[[], float] = lambda: NOW, **options: Any) -> TokenVerifier:
    return TokenVerifier(SharedSecret(SECRET), (AUDIENCE,), clock=clock, **options)


def let_in(verify: TokenVerifier | AnonymousVerifier, header: str | None) -> VerifiedToken:
    """Authenticate at once: a shared secret never needs a wait."""
    with pytest.raises(StopIteration) as done:
        verify.authenticate(header).send(None)
    assert isinstance(done.value.value, VerifiedToken)
    return done.value.value


def signed(secret: str = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    given_claims = {"sub": "ada", "aud": AUDIENCE, "exp": NOW + 60, **claims}
    return jwt.encode(
        {name: value for name, value in given_claims.items() if value is not None}, secret, algorithm=algorithm
    )


def payload(claims: object) -> str:
    """Sign claims that a careful library would refuse to sign."""
    text = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return jwt.PyJWS().encode(text, SECRET, algorithm="HS256")


def refused(header: str | None, verify: TokenVerifier | None = None) -> HttpRefusal:
    with pytest.raises(HttpRefusal) as caught:
        let_in(verify or verifier(), header)
    assert caught.value.status == 401
    return caught.value


def test_a_minted_token_names_its_caller_scopes_and_expiry() -> None:
    token = mint(
        SECRET, "ada", AUDIENCE, scopes=["read", "write"], ttl_seconds=60, issuer="i", client_id="cli", now=NOW
    )
    verified = let_in(verifier(issuer="i"), f"Bearer {token}")
    assert verified.principal == Principal("i", "ada", "cli")
    assert verified.scopes == {"read", "write"}
    assert verified.expires_at == NOW + 60
    assert verified.ends_at == NOW + 60 + DEFAULT_LEEWAY_SECONDS
    assert verified.key == b""


def test_a_minted_token_without_options_is_accepted_by_a_verifier_without_options() -> None:
    verified = let_in(TokenVerifier(SharedSecret(SECRET), (AUDIENCE,)), f"Bearer {mint(SECRET, 'ada', AUDIENCE)}")
    assert verified.principal == Principal("", "ada", "")
    assert verified.scopes == frozenset()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_case_of_the_scheme_does_not_matter(scheme: str) -> None:
    assert let_in(verifier(), f"{scheme}  {signed()} ").principal == Principal("", "ada", "")


@pytest.mark.parametrize(
    ("claims", "client_id"),
    [({"client_id": "a", "azp": "b"}, "a"), ({"azp": "b"}, "b"), ({"client_id": "", "azp": "b"}, "b"), ({}, "")],
)
def test_the_client_is_client_id_else_azp(claims: dict[str, str], client_id: str) -> None:
    assert let_in(verifier(), f"Bearer {signed(**claims)}").principal == Principal("", "ada", client_id)


def test_a_client_may_call_for_itself_without_a_user() -> None:
    assert let_in(verifier(), f"Bearer {signed(sub=None, azp='job')}").principal == Principal("", "", "job")


def test_a_token_for_several_audiences_counts_if_ours_is_one() -> None:
    let_in(verifier(), f"Bearer {signed(aud=['there', AUDIENCE])}")


RESOURCE = "https://here.example/mcp"


@pytest.mark.setting("jwt_secret", "audience", "public_url")
@pytest.mark.parametrize("audience", [AUDIENCE, RESOURCE, [RESOURCE], ["there", RESOURCE], [AUDIENCE, RESOURCE]])
def test_a_token_may_be_for_the_deployment_or_for_the_url_that_clients_ask_for(audience: object) -> None:
    environ = {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_AUDIENCE": AUDIENCE, "GATEWAY_PUBLIC_URL": "https://here.example"}
    either = make_verifier(Settings.load(environ), Telemetry(), clock=lambda: NOW)
    let_in(either, f"Bearer {signed(aud=audience)}")
    assert isinstance(either, TokenVerifier)
    refused(f"Bearer {signed(aud='there')}", either)


@pytest.mark.setting("jwt_audience")
def test_where_an_audience_of_tokens_is_set_no_other_one_counts() -> None:
    environ = {
        "GATEWAY_JWT_SECRET": SECRET,
        "GATEWAY_AUDIENCE": AUDIENCE,
        "GATEWAY_PUBLIC_URL": "https://here.example",
        "GATEWAY_JWT_AUDIENCE": "tokens",
    }
    one = make_verifier(Settings.load(environ), Telemetry(), clock=lambda: NOW)
    assert isinstance(one, TokenVerifier)
    let_in(one, f"Bearer {signed(aud='tokens')}")
    for audience in (AUDIENCE, RESOURCE, [AUDIENCE, RESOURCE]):
        refused(f"Bearer {signed(aud=audience)}", one)


@pytest.mark.parametrize("header", [None, "", "Basic YTpi", "Bearerx abc", "abc"])
def test_without_a_token_the_challenge_names_no_error(header: str | None) -> None:
    assert refused(header).headers == (("www-authenticate", 'Bearer realm="mcp"'),)


BAD_TOKENS = {
    "no token after the scheme": "Bearer ",
    "nothing at all after the scheme": "Bearer",
    "two tokens": f"Bearer {signed()} {signed()}",
    "two tokens with a comma": f"Bearer {signed()},{signed()}",
    "a header too long": "Bearer " + "a" * MAX_HEADER_CHARACTERS,
    "a quoted token": f'Bearer "{signed()}"',
    "a token that is not ASCII": "Bearer é",
    "a lone surrogate": "Bearer \udc80",
    "no JWT": "Bearer abc",
    "an empty JWT": "Bearer ..",
    "another secret": f"Bearer {signed(secret='f' * 32)}",
    "another algorithm of the same family": f"Bearer {signed(algorithm='HS512', secret=SECRET * 2)}",
    "another audience": f"Bearer {signed(aud='there')}",
    "an audience that contains ours": f"Bearer {signed(aud=AUDIENCE + 'x')}",
    "no audience": f"Bearer {signed(aud=None)}",
    "an audience that is no string": f"Bearer {signed(aud=[1, AUDIENCE])}",
    "no expiry": f"Bearer {signed(exp=None)}",
    "expired": f"Bearer {signed(exp=NOW - 31)}",
    "an expiry that is a string": f"Bearer {signed(exp='tomorrow')}",
    "an expiry that is a bool": f"Bearer {signed(exp=True)}",
    "an expiry beyond every clock": f"Bearer {signed(exp=10**400)}",
    "an endless expiry": f"Bearer {signed(exp=math.inf)}",
    "a start that is a bool": f"Bearer {signed(nbf=True)}",
    "not yet valid": f"Bearer {signed(nbf=NOW + 31)}",
    "issued in the future": f"Bearer {signed(iat=NOW + 31)}",
    "an issue time that is no number": f"Bearer {signed(iat=[])}",
    "nobody": f"Bearer {signed(sub=None)}",
    "an empty user": f"Bearer {signed(sub='')}",
    "a client that is no string": f"Bearer {signed(client_id=7)}",
    "an issuer that is no string": f"Bearer {payload({'iss': {}, 'sub': 'ada', 'aud': AUDIENCE, 'exp': NOW + 60})}",
    "a user that is not Unicode": f"Bearer {signed(sub=chr(0xD800))}",
    "scopes that are no string": f"Bearer {signed(scope={'a': 'b'})}",
    "claims that are a list": f"Bearer {payload([])}",
    "claims that are no JSON": f"Bearer {payload(b'{')}",
    "claims nested too deeply": f"Bearer {payload(b'[' * 5000)}",
}


@pytest.mark.parametrize("header", BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_every_bad_token_gets_the_same_answer(header: str) -> None:
    refusal = refused(header)
    assert refusal.headers == (
        (
            "www-authenticate",
            'Bearer realm="mcp", error="invalid_token", error_description="The access token is not valid"',
        ),
    )
    assert str(refusal) == "The access token is not valid"


@pytest.mark.parametrize("error", [ValueError, RecursionError, jwt.PyJWTError])
def test_any_error_of_the_parser_is_a_refusal(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def give_up(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(jwt, "decode", give_up)
    refused("Bearer abc")


def test_an_unsigned_token_is_refused() -> None:
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
        for part in ({"alg": "none"}, {"sub": "ada", "aud": AUDIENCE, "exp": NOW + 60})
    )
    refused(f"Bearer {head}.{body}.")


def test_an_asymmetric_token_is_refused_whatever_signed_it() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    refused(f"Bearer {signed(secret=key.decode(), algorithm='RS256')}")


@given(st.text(max_size=300))
def test_no_header_whatever_breaks_the_verifier(text: str) -> None:
    verify = verifier()
    refused(text, verify)
    refused(f"Bearer {text}", verify)


@given(position=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=6))
def test_no_altered_token_is_accepted(position: int, bit: int) -> None:
    token = mint(SECRET, "ada", AUDIENCE, now=NOW)
    position %= len(token)
    altered = token[:position] + chr(ord(token[position]) ^ (1 << bit)) + token[position + 1 :]
    refused(f"Bearer {altered}")


def by_hand(header: str, claims: str) -> str:
    """Sign two segments unchanged."""
    signature = hmac.digest(SECRET.encode(), f"{header}.{claims}".encode(), "sha256")
    return f"{header}.{claims}.{base64url.encode(signature)}"


def with_unused_bits(segment: str) -> str:
    """Set a bit that decodes to nothing: in a last group of two or three characters, only some bits count."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    assert len(segment) % 4 in {2, 3}
    return segment[:-1] + alphabet[alphabet.index(segment[-1]) + 1]


HEADER, CLAIMS, SIGNATURE = jwt.encode({"sub": "ada", "aud": AUDIENCE, "exp": NOW + 60}, SECRET).split(".")
OTHER_SPELLINGS = {
    "a padded signature": f"{HEADER}.{CLAIMS}.{SIGNATURE}=",
    "a signature padded twice": f"{HEADER}.{CLAIMS}.{SIGNATURE}==",
    "unused bits in the signature": f"{HEADER}.{CLAIMS}.{with_unused_bits(SIGNATURE)}",
    "a signature with a character of no meaning": f"{HEADER}.{CLAIMS}.{SIGNATURE}!",
    "a character of no meaning in the middle": f"{HEADER}.{CLAIMS}.{SIGNATURE[:9]}*{SIGNATURE[9:]}",
    "a padded header, signed": by_hand(base64url.encode(b'{"alg":"HS256"} ') + "==", CLAIMS),
    "padded claims, signed": by_hand(HEADER, CLAIMS + "=" * (-len(CLAIMS) % 4 or 4)),
    "claims with a character of no meaning, signed": by_hand(HEADER, CLAIMS + "!"),
}


def test_the_spelling_that_the_others_are_made_from_is_accepted() -> None:
    let_in(verifier(), f"Bearer {HEADER}.{CLAIMS}.{SIGNATURE}")
    let_in(verifier(), f"Bearer {by_hand(HEADER, CLAIMS)}")


@pytest.mark.parametrize("token", OTHER_SPELLINGS.values(), ids=OTHER_SPELLINGS)
def test_a_token_has_one_spelling(token: str) -> None:
    refused(f"Bearer {token}")


def test_an_issuer_is_only_asked_for_where_one_is_set() -> None:
    assert let_in(verifier(), f"Bearer {signed(iss='any')}").principal == Principal("any", "ada", "")
    refused(f"Bearer {signed(iss='any')}", verifier(issuer="ours"))
    refused(f"Bearer {signed()}", verifier(issuer="ours"))


def test_clocks_may_differ_by_the_leeway_and_no_more(clock: Clock) -> None:
    header = f"Bearer {signed(exp=NOW, nbf=NOW, iat=NOW)}"
    for offset in (-30.0, 0.0, 29.9):
        clock.now = NOW + offset
        assert let_in(verifier(clock), header).expires_at == NOW
    for offset in (-30.1, 30.0):
        clock.now = NOW + offset
        refused(header, verifier(clock))


def test_a_token_is_verified_once_and_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    verify, header = verifier(), f"Bearer {signed()}"
    first = let_in(verify, header)
    monkeypatch.setattr(jwt, "decode", _must_not_run)
    assert let_in(verify, header) is first


def test_a_remembered_token_ends_when_it_would_have_been_refused(clock: Clock) -> None:
    verify, header = verifier(clock), f"Bearer {signed(exp=NOW + 10)}"
    let_in(verify, header)
    clock.now = NOW + 39.9
    let_in(verify, header)
    clock.now = NOW + 40
    refused(header, verify)


def test_a_refused_token_is_not_remembered(clock: Clock) -> None:
    verify, header = verifier(clock), f"Bearer {signed(nbf=NOW + 100, exp=NOW + 200)}"
    refused(header, verify)
    clock.now = NOW + 100
    let_in(verify, header)


def test_the_memory_is_bounded_and_forgets_the_least_recently_used(monkeypatch: pytest.MonkeyPatch) -> None:
    verify = verifier(cache_entries=2)
    first, second, third = (f"Bearer {signed(sub=name)}" for name in ("a", "b", "c"))
    for header in (first, second, first, third):
        let_in(verify, header)
    monkeypatch.setattr(jwt, "decode", _must_not_run)
    let_in(verify, first)
    let_in(verify, third)
    with pytest.raises(AssertionError, match="decoded again"):
        let_in(verify, second)


def test_one_token_in_many_spellings_is_remembered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verify = verifier(cache_entries=2)
    first, token = f"Bearer {signed(sub='a')}", signed(sub="b")
    let_in(verify, first)
    spellings = [
        f"{scheme}{' ' * blanks}{token}{end}"
        for scheme in ("Bearer", "bEARER")
        for blanks in (1, 2)
        for end in ("", " ")
    ]
    for header in spellings:
        let_in(verify, header)
    monkeypatch.setattr(jwt, "decode", _must_not_run)
    for header in (first, *spellings):
        assert verify.known(header) is let_in(verify, header)
    assert verify.known(f"Basic {token}") is None


def test_the_memory_holds_no_token() -> None:
    verify, token = verifier(), signed()
    let_in(verify, f"Bearer {token}")
    assert verify._verified
    assert token not in repr(verify._verified)
    assert SECRET not in repr(verify)


def test_the_reason_goes_to_the_log_and_the_token_does_not(caplog: pytest.LogCaptureFixture) -> None:
    token = signed(exp=NOW - 1000)
    with caplog.at_level(logging.INFO, logger="gateway.auth.verifier"):
        refused(f"Bearer {token}")
    (record,) = caplog.records
    assert vars(record)["reason"] == "expired"
    assert token not in str(vars(record))


@pytest.mark.parametrize("header", [None, "", "Basic x", "Bearer abc", f"Bearer {signed()}"])
def test_without_identity_everybody_is_the_anonymous_caller(header: str | None) -> None:
    caller = let_in(AnonymousVerifier(), header)
    assert caller.principal is None
    assert caller.scopes == frozenset()


@pytest.mark.setting("auth", "jwt_secret", "jwt_issuer")
def test_the_settings_choose_the_verifier() -> None:
    environ = {"GATEWAY_JWT_SECRET": SECRET, "GATEWAY_AUDIENCE": AUDIENCE, "GATEWAY_JWT_ISSUER": "i"}
    verify = make_verifier(Settings.load(environ), Telemetry(), clock=lambda: NOW)
    assert let_in(verify, f"Bearer {signed(iss='i')}").principal == Principal("i", "ada", "")
    assert isinstance(make_verifier(Settings.load({"GATEWAY_AUTH": "none"}), Telemetry()), AnonymousVerifier)
    with pytest.raises(ValueError, match="needs an audience"):
        make_verifier(Settings.load({}), Telemetry())
    with pytest.raises(ValueError, match="needs a secret or a key set"):
        make_verifier(Settings.load({"GATEWAY_AUDIENCE": AUDIENCE}), Telemetry())


def test_a_refused_caller_learns_where_to_get_a_token() -> None:
    verify = verifier(challenges=Challenges("https://here.example/.well-known/oauth-protected-resource/mcp"))
    for header in (None, "Bearer abc"):
        (challenge,) = (value for name, value in refused(header, verify).headers if name == "www-authenticate")
        assert challenge.endswith('resource_metadata="https://here.example/.well-known/oauth-protected-resource/mcp"')


def test_a_refused_caller_learns_what_it_needs_to_begin() -> None:
    verify = verifier(challenges=Challenges(login_scopes=["read", "profile"]))
    for header in (None, "Bearer abc"):
        (challenge,) = (value for name, value in refused(header, verify).headers if name == "www-authenticate")
        assert challenge.endswith('scope="profile read"')


def test_a_token_with_an_extension_that_must_be_understood_is_refused() -> None:
    token = jwt.encode({"sub": "ada", "aud": AUDIENCE, "exp": NOW + 60}, SECRET, headers={"crit": ["exp"], "exp": 1})
    refused(f"Bearer {token}")


def test_a_token_names_its_key_with_a_string_or_not_at_all() -> None:
    text = json.dumps({"sub": "ada", "aud": AUDIENCE, "exp": NOW + 60})
    let_in(verifier(), f"Bearer {signed_text(text, {'kid': 'any'})}")
    refused(f"Bearer {signed_text(text, {'kid': 7})}")


def signed_text(text: str, more: dict[str, Any]) -> str:
    """Sign with a header that a careful library would refuse."""
    head = json.dumps({"alg": "HS256", **more}).encode()
    signed_part = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (head, text.encode()))
    signature = base64.urlsafe_b64encode(hmac.digest(SECRET.encode(), signed_part, "sha256")).rstrip(b"=")
    return f"{signed_part.decode()}.{signature.decode()}"


def _must_not_run(*args: object, **kwargs: object) -> None:
    raise AssertionError("decoded again")
