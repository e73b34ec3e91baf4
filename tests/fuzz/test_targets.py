"""The fuzzer's corpus, replayed; and its targets, each of which fails when the code breaks its promise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from gateway.admission.bodies import BodyBudget
from gateway.auth import keys, verifier
from gateway.authoring.uri_templates import UriTemplate
from gateway.engine.journal import Journal
from gateway.errors import ConfigurationError, TooManyBodyBytes
from gateway.protocol import headers as http
from gateway.protocol import strict_json
from gateway.protocol.released import requests as released
from gateway.protocol.uris import authority, canonical, templates
from gateway.sealing.envelope import Sealer
from gateway.settings.model import Settings
from gateway.upstreams.config import definition
from gateway.web.origins import OriginPolicy
from tests.fuzz import slow_json, targets
from tests.fuzz.targets import NOW, TARGETS

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).parent / "corpus"
MAX_FILE_BYTES = 8192
INPUTS = sorted(CORPUS.glob("*/*"))


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_input_of_the_corpus_breaks_a_promise(file: Path) -> None:
    data = file.read_bytes()
    assert len(data) <= MAX_FILE_BYTES
    TARGETS[file.parent.name](data)


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {file.parent.name for file in INPUTS} == set(TARGETS)


class Broken(Exception):
    """An error that no caller of the broken code expects."""


def fail(*_: Any, **__: Any) -> Any:
    raise Broken


BREAKAGES: dict[str, tuple[str, object, str, Callable[..., Any]]] = {
    "a reader that keeps the last of two names": ("json_bodies", targets, "decode", json.loads),
    "a reader that reads nothing": ("json_bodies", targets, "decode", lambda _: {}),
    "a check of a request that crashes": ("requests", released, "_read_log_level", fail),
    "a request read with the wrong id": ("requests", targets, "request_id_of", lambda _: 2**70),
    "a header accepted twice": ("headers", http, "_join_repeated", dict),
    "a sentinel with two spellings": ("headers", http, "decode_header_value", lambda value: value.strip("=?") or None),
    "a token opened without its tag": ("tokens", Sealer, "open", lambda *_, **__: (b"\x84", b"")),
    "an opener that crashes": ("tokens", Sealer, "open", fail),
    "a journal that reads back as another": ("journals", Journal, "to_map", lambda _: {"flow": "x"}),
    "a template that misses a uri": ("uri_templates", UriTemplate, "_spans", lambda *_: None),
    "a template that takes dots for a name": ("uri_templates", UriTemplate, "match", lambda *_: {"a": ".."}),
    "a uri with a control character": ("uris", canonical, "_encoded", lambda text: text),
    "a uri with its default port": ("uris", authority, "_port", lambda _, port: f":{port}" if port else ""),
    "a file with a host that is none": ("uris", canonical, "_of_file", lambda text: ("", f"/{text.lstrip('/')}")),
    "a template that sends another uri": ("uris", templates.ForeignTemplate, "text_of", lambda *_: "file:///other"),
    "a rule that matches nothing": ("uris", definition.Definition, "serves_resource", lambda *_: True),
    "a policy for everybody": ("hosts", OriginPolicy, "_check_host", lambda *_: None),
    "a policy for every origin": ("hosts", OriginPolicy, "_is_allowed", lambda *_: True),
    "a digest of nothing": ("digests", targets, "arguments_digest", lambda _: b""),
    "a digest that tells 1 from 1.0": ("digests", targets, "arguments_digest", repr),
    "a verifier that takes every token": (
        "bearer_tokens",
        jwt,
        "decode",
        lambda *_, **__: {"sub": "a", "exp": NOW + 9, "aud": "tests"},
    ),
    "a verifier that crashes": ("bearer_tokens", verifier, "scopes_of", fail),
    "a key set with secrets in it": ("key_sets", keys, "_load", lambda *_: b"secret"),
    "a key set that keeps every key": ("key_sets", keys, "_algorithms_of", lambda _: frozenset({"RS256"})),
    "settings that show a secret": (
        "settings",
        Settings,
        "check_serving",
        lambda made: _raise(ConfigurationError(f"not {made.seal_keys and made.seal_keys.get_secret_value()}")),
    ),
    "a budget that counts nothing": ("budgets", BodyBudget, "take", lambda *_: None),
    "a budget that frees nothing": ("budgets", BodyBudget, "free", lambda *_: None),
    "a budget that refuses everybody": ("budgets", BodyBudget, "take", lambda *_: _raise(TooManyBodyBytes())),
    "a reader that counts no values": ("budgets", strict_json, "_values", lambda _: 0),
    "a reader that counts values in texts": ("budgets", strict_json, "_without_strings", lambda body, _pause: body),
    "settings that crash": ("settings", Settings, "check_serving", fail),
}


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(("target", "place", "name", "broken"), BREAKAGES.values(), ids=BREAKAGES)
def test_the_corpus_shows_what_is_broken(
    monkeypatch: pytest.MonkeyPatch, target: str, place: object, name: str, broken: Callable[..., Any]
) -> None:
    monkeypatch.setattr(place, name, broken)
    found = 0
    for file in INPUTS:
        if file.parent.name == target:
            try:
                TARGETS[target](file.read_bytes())
            except Exception:  # noqa: BLE001 - whatever it is, libFuzzer would stop here
                found += 1
    assert found > 0


STRICT: dict[str, Any] = {
    ' {"a" : [1, -2, 3.5, 1e3, true, false, null]} ': {"a": [1, -2, 3.5, 1000.0, True, False, None]},
    r'"\ud83d\ude00\u00e9\/\n"': "\U0001f600é/\n",
    "[]": [],
    "{}": {},
    "-0": 0,
}


@pytest.mark.parametrize(("text", "value"), STRICT.items())
def test_the_slow_reader_reads_strict_json(text: str, value: Any) -> None:
    assert targets.same(slow_json.read(text.encode()), value)


NOT_STRICT = [
    *("", " ", "01", "+1", "1.", ".5", "1e", "NaN", "-Infinity", "1e309", "tru", "'a'", "[1,]", '{"a":1,}', '{"a"}'),
    *('{"a":1,"a":2}', r'{"a":1,"\u0061":2}', r'"\ud800"', r'"\ud83d\u0041"', r'"\udc00"', r'"\x"', '"\x1f"', '"a'),
    *("1 2", "\ufeff1", "\u00a01", "/**/1", "[" * 101 + "]" * 101, "1" * 309, "0." + "1" * 309, "[", "{", "]", '{"a":'),
]


@pytest.mark.parametrize("text", NOT_STRICT)
def test_the_slow_reader_refuses_everything_else(text: str) -> None:
    with pytest.raises(slow_json.NotStrict):
        slow_json.read(text.encode())


def test_the_slow_reader_rejects_bytes_that_are_not_utf_8() -> None:
    with pytest.raises(slow_json.NotStrict):
        slow_json.read(b'"\xed\xa0\x80"')
