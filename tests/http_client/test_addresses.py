"""The address guard: which addresses a URL may lead to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.http_client.addresses import AddressRule, is_allowed
from gateway.http_client.client import HttpClient
from gateway.http_client.failures import HttpFailure, HttpReason
from gateway.http_client.lookups import AddressRefused, allowed_addresses
from tests.http_client.peers import OK, always, ask, serving

NEVER_BY_NAME = [
    "0.0.0.0", "0.1.2.3", "100.100.100.200", "168.63.129.16", "169.254.0.1", "169.254.169.254", "169.254.170.2",
    "192.0.0.192", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "fe80::1", "fe80::1%eth0", "febf::1", "ff02::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
]  # fmt: skip
PRIVATE = [
    "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.8.8.8", "172.16.0.1", "172.31.255.255", "192.168.1.1", "::1", "fc00::1",
    "fd12:3456::1", "198.18.0.1", "192.0.2.1", "198.51.100.7", "203.0.113.9", "2001:db8::1", "3fff::1", "fec0::1",
    "100::1", "5f00::1", "2001:20::1", "64:ff9b:1::a00:1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2001:4860:4860::8888", "2a00::1"]


@pytest.mark.parametrize("text", NEVER_BY_NAME)
def test_a_name_never_leads_to_metadata_or_to_no_single_machine(text: str) -> None:
    assert not is_allowed(ip_address(text), AddressRule.OPERATOR)
    assert not is_allowed(ip_address(text), AddressRule.GLOBAL)


@pytest.mark.parametrize("text", PRIVATE)
def test_only_the_operators_url_leads_to_a_private_address(text: str) -> None:
    assert is_allowed(ip_address(text), AddressRule.OPERATOR)
    assert not is_allowed(ip_address(text), AddressRule.GLOBAL)


@pytest.mark.parametrize("text", PUBLIC)
def test_any_url_leads_to_a_public_address(text: str) -> None:
    assert is_allowed(ip_address(text), AddressRule.OPERATOR)
    assert is_allowed(ip_address(text), AddressRule.GLOBAL)


def carriers(inner: IPv4Address) -> dict[str, IPv6Address]:
    """Return the IPv6 addresses that stand for an IPv4 address."""
    number = int(inner)
    return {
        "mapped": IPv6Address(0xFFFF << 32 | number),
        "compatible": IPv6Address(number),
        "translated": IPv6Address(0xFFFF << 48 | number),
        "NAT64": IPv6Address(int(IPv6Address("64:ff9b::")) | number),
        "6to4": IPv6Address(0x2002 << 112 | number << 80 | 1),
        "Teredo client": IPv6Address(0x20010000 << 96 | 0x01010101 << 64 | number ^ 0xFFFFFFFF),
        "Teredo server": IPv6Address(0x20010000 << 96 | number << 64 | 0x01010101 ^ 0xFFFFFFFF),
    }


@given(st.integers(0, 2**32 - 1) | st.sampled_from([int(IPv4Address(t)) for t in NEVER_BY_NAME[:12]]))
def test_an_address_inside_another_is_judged_like_itself(number: int) -> None:
    assume(number > 1)  # `::` and `::1` carry nothing
    inner = IPv4Address(number)
    for kind, outer in carriers(inner).items():
        for rule in AddressRule:
            assert is_allowed(outer, rule) == is_allowed(inner, rule), (kind, rule)


@given(st.integers(1, 2**32 - 1))
def test_an_isatap_or_local_nat64_address_is_no_way_around(number: int) -> None:
    inner = IPv4Address(number)
    isatap = IPv6Address(int(IPv6Address("2606:4700::5efe:0:0")) | number)
    local_nat64 = IPv6Address(0x0064FF9B0001 << 80 | (number >> 16) << 64 | (number & 0xFFFF) << 40)
    assert is_allowed(isatap, AddressRule.GLOBAL) == is_allowed(inner, AddressRule.GLOBAL)
    assert not is_allowed(local_nat64, AddressRule.GLOBAL)
    if not is_allowed(inner, AddressRule.OPERATOR):
        assert not is_allowed(isatap, AddressRule.OPERATOR)
        assert not is_allowed(local_nat64, AddressRule.OPERATOR)


@given(st.ip_addresses())
def test_what_somebody_else_may_name_the_operator_may_too(address: IPv4Address | IPv6Address) -> None:
    if is_allowed(address, AddressRule.GLOBAL):
        assert is_allowed(address, AddressRule.OPERATOR)
        assert not address.is_loopback
        assert not address.is_link_local
        assert not address.is_multicast


async def addresses_of(host: str, rule: AddressRule, *found: str) -> list[str]:
    async def resolve(name: str, port: int) -> list[str]:
        assert (name, port) == (host, 443)
        return list(found)

    return await allowed_addresses(host, 443, rule, resolve)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_refused_address_of_a_name_refuses_the_name(place: int) -> None:
    found = ["93.184.216.34", "2606:4700::1111"]
    assert await addresses_of("upstream.example", AddressRule.GLOBAL, *found) == found
    found.insert(place, "169.254.169.254")
    for rule in AddressRule:
        with pytest.raises(AddressRefused, match=r"169\.254\.169\.254"):
            await addresses_of("upstream.example", rule, *found)


@pytest.mark.parametrize("text", ["169.254.169.254", "127.0.0.1", "::1", "fe80::1%lo", "::ffff:169.254.169.254"])
async def test_a_literal_is_the_operators_word_but_nobody_elses(text: str) -> None:
    assert await addresses_of(text, AddressRule.OPERATOR) == [text]
    with pytest.raises(AddressRefused):
        await addresses_of(text, AddressRule.GLOBAL)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost"])
async def test_other_spellings_of_an_address_are_names(host: str) -> None:
    async with serving(always(OK)) as peer:
        client = HttpClient(peer.url(host=host), rule=AddressRule.GLOBAL)
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert caught.value.reason in {HttpReason.REFUSED_ADDRESS, HttpReason.UNREACHABLE}
        assert not caught.value.sent
        assert not peer.talks


@pytest.mark.parametrize("host", ["169.254.169.254.", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"])
async def test_another_spelling_of_a_metadata_address_is_no_literal(host: str) -> None:
    with pytest.raises(HttpFailure) as caught:
        await ask(HttpClient(f"http://{host}/"))
    assert caught.value.reason in {HttpReason.REFUSED_ADDRESS, HttpReason.UNREACHABLE}
    assert not caught.value.sent


async def test_a_name_is_not_resolved_again_after_it_was_checked() -> None:
    answers = iter([["127.0.0.1"], ["169.254.169.254"]])

    async def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    async with serving(always(OK)) as peer:
        client = HttpClient(peer.url(host="upstream.example"), resolve=rebinding)
        assert await ask(client) == b"ok"
        await client.aclose()
        with pytest.raises(HttpFailure) as caught:
            await ask(client)
        assert (caught.value.reason, caught.value.sent) == (HttpReason.REFUSED_ADDRESS, False)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://upstream.example/", "must start with http"),
        ("https://user:secret@upstream.example/", "must not contain a user name"),
        ("https://upstream.example/a b", "spaces"),
        ("https://upstream.example/a\r\nb", "spaces"),
        ("https:///mcp", "names no host"),
        ("https://upstream.example:99999/", "not valid"),
        ("https://[::1/", "not valid"),
        (f"https://{'a' * 70}.example/", "not valid"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_being_quoted(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        HttpClient(url)
    assert "secret" not in str(caught.value)
