"""URLs to which a user may be sent: a page of a server, and what it looks like."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl

from gateway.protocol.web_urls import MAX_URL_LENGTH, web_url_problem

NOT_WEB = [
    *("javascript:alert(1)", "JavaScript:alert(1)", "file:///etc/passwd", "data:text/html,x", "vbscript:x", "blob:x"),
    *(
        "about:blank",
        "ftp://a.example/",
        "ws://a.example/",
        "mailto:a@a.example",
        "tel:1",
        "ms-settings:x",
        "view-source:x",
    ),
    *(
        "",
        " ",
        "not a url",
        "/path",
        "//a.example/",
        "a.example",
        "http",
        "http:",
        "https:a.example",
        "http:/a.example",
    ),
    *("\thttps://a.example/", " https://a.example/", "h\nttps://a.example/", "java\nscript:x", "http\\://a.example"),
]
BAD_HOSTS = [
    *(
        "http://",
        "https:///",
        "https://?x",
        "https://#x",
        "https://:443/",
        "https://.",
        "https://-a",
        "https://[",
        "https://[]/",
    ),
    *(
        "https://a b/",
        "https://a\\b/",
        "https://a%2eb/",
        "https://bücher.example/",
        "https://\u0430pple.example/",
        "https://a<b/",
    ),
    *(
        "https://a.example:65536/",
        "https://a.example:x/",
        "https://a.example:123456/",
        "https://a\x00/",
        "https://a\u202eb/",
    ),
]
USERS = [
    "https://bank.example@evil.example/",
    "https://u:p@a.example/",
    "https://@a.example/",
    "https://a.example:1@b/",
]
BAD_RESTS = [
    *(
        "https://a.example/a b",
        "https://a.example/\n",
        "https://a.example/\x1b",
        "https://a.example/é",
        "https://a.example/%",
    ),
    *(
        "https://a.example/%zz",
        "https://a.example/\\",
        'https://a.example/"',
        "https://a.example/<script>",
        "https://a.example?\t",
    ),
    *("https://a.example/ ", "https://a.example#\u200b", "https://a.example/\U000e0041"),
]
GOOD = [
    *("https://a.example", "http://a.example/", "HTTPS://A.Example/a%20b?c=d&e=f#g", "http://localhost:8080/x"),
    *(
        "https://127.0.0.1/",
        "https://[::1]:443/",
        "https://xn--bcher-kva.example/",
        "https://a.example/@user?to=me@x.example",
    ),
    *("https://my_host/", "https://a.example:/", "https://a.example/(a);b=1,2'!*$~"),
]


@pytest.mark.parametrize(
    ("urls", "says"),
    [
        (NOT_WEB, "is not an absolute http or https URL"),
        (BAD_HOSTS, "has no valid host"),
        (USERS, "has a user name"),
        (BAD_RESTS, "percent-encode"),
        (["https://a.example/" + "x" * MAX_URL_LENGTH], "has 8210 characters; use at most 8192"),
    ],
)
def test_a_url_that_no_user_may_be_sent_to_has_a_reason_and_a_way_out(urls: list[str], says: str) -> None:
    for url in urls:
        assert says in str(web_url_problem(url)), url


@pytest.mark.parametrize("url", GOOD)
def test_a_page_of_a_server_is_accepted(url: str) -> None:
    assert web_url_problem(url) is None


@given(st.from_regex(r"\A[hH]ttps?:/{0,3}[\\x00-\x7fé\u2028]{0,12}\Z") | st.text(max_size=20))
def test_other_readers_of_urls_see_a_page_of_the_same_host_in_every_accepted_url(url: str) -> None:
    if web_url_problem(url) is None:
        python, pydantic = urlsplit(url), AnyUrl(url)
        assert python.scheme == pydantic.scheme in {"http", "https"}
        assert python.hostname
        assert python.username is None
        assert pydantic.username is None
        assert pydantic.host is not None
