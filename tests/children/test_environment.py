"""A child gets the variables that programs need, those of its entry, and none of the gateway."""

from __future__ import annotations

import pytest

from gateway.children.environment import environment


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "XDG_CACHE_HOME",
        "HTTP_PROXY",
        "https_proxy",
        "NO_PROXY",
        "all_proxy",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
    ],
)
def test_what_programs_need_is_passed_on(name: str) -> None:
    assert environment({name: "x"}, {}, ()) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    [
        "GATEWAY_JWT_SECRET",
        "GATEWAY_SEAL_KEYS",
        "OTEL_EXPORTER_OTLP_HEADERS",
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PYTHONPATH",
        "LD_PRELOAD",
        "HOMEPAGE",
        "MY_PATH",
        "SSH_AUTH_SOCK",
        "PATHS",
    ],
)
def test_other_variables_are_not(name: str) -> None:
    assert environment({name: "x"}, {}, ()) == {}


def test_an_entry_adds_and_replaces_variables() -> None:
    assert environment({"PATH": "/bin", "HOME": "/root"}, {"PATH": "/opt/bin", "GITHUB_TOKEN": "t"}, ()) == {
        "PATH": "/opt/bin",
        "HOME": "/root",
        "GITHUB_TOKEN": "t",
    }


def test_no_child_gets_a_variable_of_the_gateway_or_the_value_of_a_secret() -> None:
    given = {
        "GATEWAY_REDIS_URL": "redis://x",
        "gateway_x": "1",
        "OTEL_SERVICE_NAME": "g",
        "MY_KEY": "s3cret",
        "EMPTY": "",
    }
    assert environment({"USER": "s3cret", "HOME": "/root"}, given, {"s3cret", ""}) == {"HOME": "/root", "EMPTY": ""}
