"""The log names the target of a failed request without what may be a secret in a URI."""

from __future__ import annotations

import pytest

from gateway.upstreams.relay import _logged


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("postgres://ada:hunter2@db:5432/shop", "postgres://db:5432/shop"),
        ("postgres://ada:hun@ter2@db/shop?sslpassword=x#y", "postgres://db/shop?…"),
        ("https://files.example/a#token=x", "https://files.example/a#…"),
        ("mail:box?key=x", "mail:box?…"),
        ("https://files.example/a@b", "https://files.example/a@b"),
        (f"db://{'u' * 300}:secret@host/a", "db://host/a"),
        ("shop__find?", "shop__find?"),
        ("a" * 300, "a" * 200),
    ],
)
def test_no_user_query_or_fragment_of_a_uri_is_logged(target: str, shown: str) -> None:
    assert _logged(target) == shown
