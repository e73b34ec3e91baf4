"""Names of hosts: which ones mean this machine, and where a port begins."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings.hosts import is_loopback, place_of, without_port


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LocalHost",
        "127.0.0.1",
        "127.255.255.254",
        "::1",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
    ],
)
def test_names_of_this_machine(name: str) -> None:
    assert is_loopback(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "localhost.",
        "localhost.evil.example",
        "evil-localhost",
        "evil.localhost",
        "local\u212aost",
        "127.0.0.1.",
        "127.0.0.1.evil.example",
        "127.1",
        "0177.0.0.1",
        "2130706433",
        "0x7f.0.0.1",
        "127.0.0.1 ",
        "126.255.255.255",
        "128.0.0.1",
        "0.0.0.0",
        "::",
        "[::]",
        "[::2]",
        "[::ffff:192.0.2.1]",
        "[::ffff:0.0.0.0]",
        "[127.0.0.1]",
        "[localhost]",
        "[::1",
        "::1]",
        "[[::1]]",
        "[::1%evil.example]",
        "::1%lo",
        "10.0.0.1",
        "169.254.169.254",
    ],
)
def test_names_of_another_machine_and_invalid_names_are_not_loopback(name: str) -> None:
    assert not is_loopback(name)


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_of_this_machine_if_it_is_within_127_also_when_mapped(
    address: ipaddress.IPv4Address,
) -> None:
    expected = address in ipaddress.ip_network("127.0.0.0/8")
    assert is_loopback(str(address)) == expected
    assert is_loopback(f"[::ffff:{address}]") == expected


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("localhost:8080", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::1]:65535", "[::1]"),
        ("2001:db8::1", None),
        ("localhost:80:80", None),
        ("", None),
        (":8080", None),
        ("localhost:", None),
        ("localhost:80x", None),
        ("localhost:-1", None),
        ("localhost:+1", None),
        ("localhost: 80", None),
        ("localhost:\u0661", None),
        ("localhost:000080", None),
        ("localhost:80:", None),
        ("localhost:80@evil.example", None),
    ],
)
def test_the_name_ends_where_the_port_begins(host: str, name: str | None) -> None:
    assert without_port(host) == name


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://id.example.com/keys?key=secret", "https://id.example.com/keys"),
        ("https://user:secret@id.example.com:8443/a/b#secret", "https://id.example.com:8443/a/b"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_of_a_url_only_the_scheme_host_and_path_are_shown(url: str, place: str) -> None:
    assert place_of(url) == place
