"""The numbers in the files for proxies match those of the gateway."""

from __future__ import annotations

import re
from typing import Final

import pytest

from gateway.protocol.method_table import METHODS
from gateway.settings.model import Settings
from tests.deploy.files import DEPLOY
from tests.docs.markdown import rows_of, section_of

HAPROXY: Final = (DEPLOY / "haproxy.cfg").read_text()
NGINX: Final = (DEPLOY / "nginx.conf").read_text()
CADDY: Final = (DEPLOY / "Caddyfile").read_text()
FILES: Final = {"haproxy": HAPROXY, "nginx": NGINX, "caddy": CADDY}
SILENCE: Final = [
    (HAPROXY, "timeout client"),
    (HAPROXY, "timeout server"),
    (NGINX, "proxy_read_timeout"),
    (CADDY, "response_header_timeout"),
    (CADDY, "read_timeout"),
]


def default(setting: str) -> float:
    return float(Settings.model_fields[setting].default)


def value(text: str, setting: str) -> int:
    """Return the number of a setting that the file has once, without its unit."""
    (found,) = re.findall(rf"^\s+{setting} (?:4 )?(\d+)[smk]?;?$", text, re.MULTILINE)
    return int(found)


@pytest.mark.parametrize(("text", "setting"), SILENCE, ids=[setting for _, setting in SILENCE])
def test_a_proxy_waits_longer_than_a_leg_may_take(text: str, setting: str) -> None:
    assert value(text, setting) >= default("leg_seconds") + 30


@pytest.mark.parametrize("name", FILES)
def test_a_setting_of_the_gateway_that_a_file_names_has_that_default(name: str) -> None:
    named = dict(re.findall(r"GATEWAY_(\w+)[ ,(]+(\d+)\)?", " ".join(FILES[name].replace("#", "").split())))
    assert {
        setting: float(number) for setting, number in named.items() if setting.lower() in Settings.model_fields
    } == {setting: default(setting.lower()) for setting in named if setting.lower() in Settings.model_fields}


def test_nginx_takes_what_the_gateway_takes() -> None:
    assert value(NGINX, "large_client_header_buffers") * 1024 == default("max_header_bytes")
    assert value(NGINX, "client_max_body_size") * 1024 * 1024 == default("max_body_bytes")
    assert value(NGINX, "client_body_buffer_size") == value(NGINX, "client_max_body_size")
    assert f"{default('max_header_bytes'):.0f} bytes" in NGINX
    assert f"{default('max_body_bytes'):.0f} bytes" in NGINX


def test_caddy_takes_heads_that_the_gateway_takes() -> None:
    (kib,) = re.findall(r"max_header_size (\d+)KiB", CADDY)
    assert (int(kib) + 4) * 1024 == default("max_header_bytes")


def test_caddy_notices_a_replica_that_leaves_before_it_refuses_calls() -> None:
    assert value(CADDY, "health_interval") * 2 < default("drain_notice_seconds")


def test_the_page_has_a_section_for_each_proxy_and_numbers_that_are_true() -> None:
    text = section_of("docs/run/load.md", "Behind a proxy")
    assert {title.lower() for title in re.findall(r"^### (\w+)$", text, re.MULTILINE)} == FILES.keys()
    told = re.findall(r"`GATEWAY_(\w+)`[ ,(]+(\d+)\)", text)
    assert len(told) >= 3
    assert [name for name, number in told if default(name.lower()) != float(number)] == []


def test_a_lost_reply_is_waited_for_as_long_as_the_page_says() -> None:
    (told,) = re.findall(r"after at most (\d+) s \|", section_of("docs/run/failures.md", "Replicas"))
    assert int(told) == value(HAPROXY, "timeout server")


def test_haproxy_repeats_every_method_on_which_no_upstream_acts_except_streams_and_the_page_says_so() -> None:
    found = {
        method for line in re.findall(r"acl own var\(txn\.method\) -m str (.+)", HAPROXY) for method in line.split()
    }
    assert found == {name for name, method in METHODS.items() if not method.relayed} - {"subscriptions/listen"}
    _, _, text = section_of("docs/run/load.md", "Behind a proxy").partition("### What HAProxy repeats")
    rows = rows_of(text.partition("\n### ")[0], 3)
    told = {name: answer for names, answer, _ in rows for name in re.findall(r"`(\w+/[\w/]+|initialize|ping)`", names)}
    assert {name for name, answer in told.items() if answer == "yes"} == found
    assert told.keys() == METHODS.keys()


def test_only_one_backend_of_haproxy_repeats_what_was_dropped() -> None:
    backends = dict(re.findall(r"^backend (\S+) from balanced\n((?:    .+\n)+)", HAPROXY, re.MULTILINE))
    retries = {name: re.findall(r"retry-on (.+)", text) for name, text in backends.items()}
    assert retries == {"replicas": ["conn-failure 503"], "repeatable": ["conn-failure empty-response 503"]}
    assert HAPROXY.count("retry-on ") == 2
    assert "default_backend replicas" in HAPROXY
