"""Secrets: where they may come from, what is trimmed, and that no mistake in a URL shows a part of its password."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from redis.asyncio.connection import parse_url

from gateway.auth.providers import read_key_file
from gateway.cli.check import examine
from gateway.errors import ConfigurationError
from gateway.http_client.target import proxy_of
from gateway.settings.model import REDIS_SCHEMES, Settings, secret_fields, secret_values, variable
from gateway.upstreams.config.options import Proxy, Url
from gateway.upstreams.config.variables import Variables
from loadtest.cluster import clean_environment
from tests import forkserver
from tests.identity import key_set, rsa_key

SECRET = "0123456789abcdef0123456789abcdef"
SECRETS = {
    "seal_keys": "1f" * 32 + ",\n" + "2e" * 32,
    "jwt_secret": SECRET,
    "token_exchange_client_secret": "two words",
    "redis_url": "redis://:pass%20word@127.0.0.1:6379/0",
}
ENDS = ["\n", "\r\n", "\n\n", " ", "\t", " \r\n", "\u00a0\n"]


def test_every_secret_is_tried_here() -> None:
    assert secret_fields() == SECRETS.keys()


@pytest.mark.setting("seal_keys", "jwt_secret", "token_exchange_client_secret", "redis_url")
def test_the_values_of_all_secrets_are_known() -> None:
    settings = Settings.load({variable(name): value for name, value in SECRETS.items()})
    assert secret_values(settings) == {*SECRETS.values(), "1f" * 32, "2e" * 32}
    assert secret_values(Settings.load({})) == frozenset()


@pytest.mark.setting("seal_keys", "jwt_secret", "token_exchange_client_secret", "redis_url")
@pytest.mark.parametrize("end", ENDS, ids=repr)
@pytest.mark.parametrize(("name", "secret"), SECRETS.items(), ids=SECRETS)
def test_blanks_and_line_ends_around_a_secret_do_not_count(name: str, secret: str, end: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for text in (secret + end, end + secret, end + secret + end):
        file.write_bytes(text.encode())
        for environ in ({variable(name): text}, {f"{variable(name)}_FILE": str(file)}):
            assert getattr(Settings.load(environ), name).get_secret_value() == secret


@pytest.mark.parametrize("name", SECRETS)
def test_blanks_alone_are_not_a_secret(name: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(" \r\n")
    for environ in ({variable(name): " \n"}, {f"{variable(name)}_FILE": str(file)}):
        with pytest.raises(ConfigurationError, match=f"^{next(iter(environ))}: "):
            Settings.load(environ)


def test_blanks_do_not_make_a_secret_longer() -> None:
    with pytest.raises(ConfigurationError, match="only 31 bytes long"):
        Settings.load({"GATEWAY_JWT_SECRET": SECRET[1:] + "  \n"})


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_what_a_reference_of_the_file_of_upstreams_stands_for_is_trimmed_too(end: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(f"{end}s3 cret{end}".encode())
    variables = Variables({"TOKEN": f"{end}s3 cret{end}", "BLANK": end}, tmp_path)
    for text in ("${TOKEN}", "${env:TOKEN}", "${TOKEN:-x}", "${file:token}", "${BLANK:-s3 cret}"):
        assert variables.replace(f"Bearer {text}") == "Bearer s3 cret"


@pytest.mark.parametrize("end", ["\n", "\r\n", " \r\n", "\t"], ids=repr)
def test_the_file_of_a_key_set_may_end_in_blanks_and_line_ends(end: str, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(end.encode() + key_set(rsa_key()) + end.encode())
    for path in (file, f"{file}{end}", f"{end}{file}"):
        settings = Settings.load({"GATEWAY_JWKS_FILE": str(path)})
        assert settings.jwks_file is not None
        assert read_key_file(Path(settings.jwks_file), ["RS256"]).key_ids == ["rsa"]


HEAD, TAIL = "hunter2", "swordfish"
"""How every password here begins and ends, to find its parts in what is shown."""
ODD = st.text(st.sampled_from("@/#?%:,;[]\\ \t\n\"'<>{}|^`&=+$!*()~01a\u00e4\u2100\uff0f\uff20"), max_size=6)
ANY = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
PASSWORDS = st.builds(lambda middle: f"{HEAD}{middle}{TAIL}", ODD | ANY)
USERS = st.sampled_from(["", "user", "12"])
PLACES = st.sampled_from(
    ["redis.example.com", "redis.example.com:6379", "127.0.0.1:6379/0", "[::1]:6379/0", "r:1/0?a=b"]
)


def hides(*shown: str) -> bool:
    return not any(part in text.lower() for text in shown for part in (HEAD, TAIL))


def shown_of(environ: dict[str, str]) -> tuple[Settings | None, str]:
    """Return the settings, None if they are refused, and what is shown of them."""
    try:
        settings = Settings.load(environ)
    except ConfigurationError as error:
        return None, str(error)
    return settings, f"{settings!r} {settings}"


@given(st.sampled_from(REDIS_SCHEMES[:2] + REDIS_SCHEMES[3:]), USERS, PASSWORDS, PLACES)
def test_a_redis_url_means_the_password_that_was_written_or_is_refused_and_shows_nothing_of_it(
    scheme: str, user: str, password: str, place: str
) -> None:
    settings, shown = shown_of({"GATEWAY_REDIS_URL": f"{scheme}{user}:{password}@{place}"})
    assert hides(shown)
    if settings is None:
        return
    assert settings.redis_url is not None
    read = parse_url(settings.redis_url.get_secret_value().replace("+cluster", ""))
    assert read["host"] in ("redis.example.com", "127.0.0.1", "::1", "r")
    assert read["password"] == password or re.search("%[0-9A-Fa-f]{2}", password)


@given(st.sampled_from(REDIS_SCHEMES), st.text(min_size=1, max_size=12))
def test_an_encoded_password_is_always_taken(scheme: str, password: str) -> None:
    place = "/run/redis.sock" if scheme == "unix://" else "redis.example.com:6379/0"
    try:
        encoded = quote(password, safe="")
    except UnicodeEncodeError:
        return
    settings, _ = shown_of({"GATEWAY_REDIS_URL": f"{scheme}user:{encoded}@{place}"})
    assert settings is not None
    assert settings.redis_url is not None
    assert parse_url(settings.redis_url.get_secret_value().replace("+cluster", ""))["password"] == password


GOOD_REDIS_URLS = [
    *("redis://127.0.0.1", "redis://127.0.0.1:6379/", "redis:///0", "redis://", "redis://my_redis-1.svc:6379/15"),
    *("rediss://[fe80::1%25eth0]:6379/0", "redis://h:1?ssl_ca_certs=/etc/ca.pem&a=b", "redis+cluster://h:1"),
    *("unix:///run/redis.sock?db=1", "unix://user:pass@/run/redis.sock", "redis://us:er:pass~!$&'()*+,;=@h"),
    'redis://:p"^|{}<>`@h',
]
BAD_REDIS_URLS = [
    *("redis://:p@ss@h", "redis://:p/w@h", "redis://:1/2@h", "redis://:1/@h", "redis://:1?w@h", "redis://:1#w@h"),
    *("redis://:p%w@h", "redis://:p%4@h", "redis://:p[w@h", "redis://:p\\w@h", "redis://:p w@h", "redis://:p\tw@h"),
    *(
        "redis://:p\u00e4@h",
        "redis://:p\u2100@h",
        "redis://user:pass:6379",
        "redis://h:port",
        "redis://h/db",
        "redis://h/0#x",
    ),
    *("unix://:p/w@/run/redis.sock", "unix://:p@w@/run/redis.sock", "unix:///run/redis.sock#p", "redis://h?a=p@h"),
]


@pytest.mark.parametrize("url", GOOD_REDIS_URLS)
def test_forms_of_redis_urls_that_mean_one_thing_are_taken(url: str) -> None:
    assert shown_of({"GATEWAY_REDIS_URL": url})[0] is not None


@pytest.mark.parametrize("url", BAD_REDIS_URLS)
def test_redis_urls_that_may_mean_two_things_are_refused(url: str) -> None:
    settings, shown = shown_of({"GATEWAY_REDIS_URL": url})
    assert settings is None
    assert shown.startswith("GATEWAY_REDIS_URL: not a Redis URL; in a password, write % as %25")
    assert len(shown) < 250


WEB = [
    *("GATEWAY_JWKS_URL", "GATEWAY_TOKEN_EXCHANGE_URL", "GATEWAY_PUBLIC_URL", "GATEWAY_AUTHORIZATION_SERVERS"),
    *("GATEWAY_PEERS", "GATEWAY_REPLICA_URL", "GATEWAY_SERVER_WEBSITE_URL", "GATEWAY_SERVER_ICONS"),
]
HOSTS = ["GATEWAY_ALLOWED_HOSTS", "GATEWAY_ALLOWED_ORIGINS", "GATEWAY_TRUSTED_PROXIES"]


@given(st.sampled_from(WEB + HOSTS), st.sampled_from(["https://", "http://", "htps://"]), USERS, PASSWORDS)
def test_no_other_url_may_have_a_password_and_none_shows_a_part_of_it(
    name: str, scheme: str, user: str, password: str
) -> None:
    for place in ("id.example.com", "id.example.com:8443/a?b=c", "127.0.0.1/a"):
        settings, shown = shown_of({name: f"{scheme}{user}:{password}@{place}"})
        assert settings is None
        assert hides(shown)


@pytest.mark.parametrize("name", WEB)
@pytest.mark.parametrize("url", ["https://12/3@h", "https://u:12/3@h", "https://u:12?3@h", "https://u:12#3@h"])
def test_a_password_that_begins_like_a_port_is_not_taken_for_one(name: str, url: str) -> None:
    settings, shown = shown_of({name: url})
    assert settings is None
    assert "12" not in shown


def refuses(read: Callable[[str], object], url: str) -> str | None:
    try:
        read(url)
    except (ValueError, ValidationError) as error:
        details = error.errors(include_input=False) if isinstance(error, ValidationError) else error
        return str(details)
    return None


@given(USERS, PASSWORDS, st.sampled_from(["proxy.example.com", "proxy.example.com:3128/", "[::1]:3128"]))
def test_a_proxy_gets_the_password_that_was_written_or_none(user: str, password: str, place: str) -> None:
    url = f"http://{user}:{password}@{place}"
    refusal = refuses(proxy_of, url)
    assert hides(refusal or "")
    assert hides(refuses(TypeAdapter(Proxy).validate_python, url) or "")
    if refusal is None:
        assert proxy_of(url).host in ("proxy.example.com", "::1")


TWO_READINGS = ["u:12/3@p", "u:p@12/3@p", "u:p@ss@p", "u:p@ss#w@p", "u:p@ss?w@p", "u:12?3@p", "u:12#3@p"]
"""URLs, without their scheme, whose host may be `p` or a part of the password."""


@pytest.mark.parametrize("rest", TWO_READINGS)
def test_a_url_with_two_readings_is_not_a_proxy_an_origin_or_an_upstream(rest: str) -> None:
    url = f"https://{rest}"
    readers: list[Callable[[str], object]] = [
        proxy_of,
        TypeAdapter(Proxy).validate_python,
        TypeAdapter(Url).validate_python,
    ]
    assert None not in [refuses(read, url) for read in readers]
    assert shown_of({"GATEWAY_ALLOWED_ORIGINS": url})[0] is None


def test_an_origin_has_no_user() -> None:
    assert shown_of({"GATEWAY_ALLOWED_ORIGINS": "https://user:pass@id.example.com"})[0] is None
    assert shown_of({"GATEWAY_ALLOWED_ORIGINS": "https://id.example.com"})[0] is not None


@given(USERS, PASSWORDS)
def test_an_upstream_gets_no_password_in_its_url(user: str, password: str) -> None:
    refusal = refuses(TypeAdapter(Url).validate_python, f"https://{user}:{password}@mcp.example.com/mcp")
    assert refusal is not None
    assert hides(refusal)


def test_an_upstream_may_have_an_at_sign_in_its_path_but_not_behind_a_port() -> None:
    read = TypeAdapter(Url).validate_python
    assert refuses(read, "https://mcp.example.com/@owner/name") is None
    assert refuses(read, "https://user:12/3@mcp.example.com/mcp") is not None
    assert "abc" not in (refuses(read, "https://:abc") or "abc")


MISTYPED = [
    "hunter2/w#rd@swordfish",
    "hunter2#swordfish",
    "12?hunter2swordfish",
    "hunter2,swordfish",
    "hunter2 %swordfish",
]


@pytest.mark.parametrize("password", MISTYPED)
def test_a_check_shows_nothing_of_a_password(password: str) -> None:
    names = [*WEB, *HOSTS]
    environ = dict.fromkeys(names, f"https://user:{password}@id.example.com/a")
    report = examine(None, {**environ, "GATEWAY_REDIS_URL": f"redis://:{password}@127.0.0.1:1/0"})
    assert hides(report.as_text(), report.as_json())


@pytest.mark.parametrize("password", MISTYPED)
def test_a_mistyped_proxy_is_named_without_its_password(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:{password}@127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    issued = {"GATEWAY_JWKS_URL": "https://id.example.com/keys", "GATEWAY_JWT_ISSUER": "id"}
    report = examine(None, issued)
    assert "GATEWAY_JWKS_URL: the keys cannot be read" in report.as_text()
    assert hides(report.as_text(), report.as_json())


def test_a_process_with_mistyped_passwords_shows_nothing_of_them(tmp_path: Path) -> None:
    environ = {
        **dict.fromkeys(WEB, f"https://user:{MISTYPED[0]}@id.example.com/a"),
        "GATEWAY_REDIS_URL": f"redis://:{MISTYPED[0]}@127.0.0.1:1/0",
        "GATEWAY_TOOLS": "gateway.demo",
    }
    for arguments in (["serve"], ["check"], ["check", "--json"], ["worker"], ["keys", "show"]):
        command = [sys.executable, "-m", "gateway", *arguments]
        ended = forkserver.run(command, env=clean_environment(environ), cwd=tmp_path)
        assert ended.returncode == 2
        assert "GATEWAY_REDIS_URL" in ended.stdout + ended.stderr or arguments == ["keys", "show"]
        assert hides(ended.stdout, ended.stderr)
