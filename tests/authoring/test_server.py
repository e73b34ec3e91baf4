"""`server(…)` in a tool module says what the server is called; the settings of the deployment win."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.authoring.server import Introduction, identity_of, server
from gateway.errors import AuthoringError, ConfigurationError
from gateway.protocol.identity import Identity
from gateway.registry.registry import Registry, load_registry
from gateway.runtime.version import __version__
from gateway.settings.model import Settings

TOP = "from gateway import server\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder for modules, which are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(folder: Path, **sources: str) -> Registry:
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(TOP + source)
    return load_registry(sources)


def test_without_a_word_the_server_is_the_gateway() -> None:
    identity = identity_of(Settings.load({}), None)
    assert identity.whole == {"name": "sealed-gateway", "version": __version__}
    assert identity.display_name is None
    assert identity.guidance == {}


def test_settings_win_over_what_a_module_says(folder: Path) -> None:
    said = load(folder, probe_shop="server(name='shop', version='2', instructions='''\n    Search.\n    Order.\n''')\n")
    settings = {
        "GATEWAY_SERVER_VERSION": "3",
        "GATEWAY_SERVER_ICONS": "https://a.example/i.png,https://a.example/j?k=1",
    }
    assert identity_of(Settings.load(settings), said.introduction) == Identity(
        name="shop",
        version="3",
        instructions="Search.\nOrder.",
        icons=({"src": "https://a.example/i.png"}, {"src": "https://a.example/j?k=1"}),
    )


def test_two_calls_are_refused_with_both_places(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"at probe_twice\.py:2 and at probe_twice\.py:3; keep one of them"):
        load(folder, probe_twice="server(name='a')\nserver(title='b')\n")
    with pytest.raises(ConfigurationError, match=r"^server\(…\) is called at probe_a\.py:2 and at probe_b\.py:2; keep"):
        load(folder, probe_a="server(name='a')\n", probe_b="server(name='a')\n")


def test_one_module_may_introduce_the_tools_of_others(folder: Path) -> None:
    registry = load(
        folder,
        probe_face="server(name='shop')\n",
        probe_tools="from gateway import tool\n@tool\nasync def f() -> None: ...\n",
    )
    assert registry.introduction == Introduction({"name": "shop"}, "probe_face.py:2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "has name=''; use one line of 1 to 512 characters"),
        ({"title": "two\nlines"}, "use one line"),
        ({"version": 2}, "has version=2; use one line"),
        ({"instructions": " "}, "has instructions=' '; use a text"),
        ({"instructions": "a\ud800b"}, r"has '\ud800' in its instructions; leave it out"),
        ({"instructions": "a\x00b"}, r"has '\x00' in its instructions"),
        ({"instructions": "a" * 65_537}, "instructions of 65537 characters; use up to 65536"),
        ({"website_url": "shop.example.com"}, "use a URL that starts with https:// or http://"),
        ({"icons": [{"source": "x"}]}, "use a mapping with the URL of the icon in 'src'"),
        ({"titel": "y"}, "server(…) has no option 'titel'; did you mean 'title'?"),
        ({"port": 1}, "has no option 'port'; its options are icons, instructions, name, title, version, website_url"),
        ({"icons": 3}, "has icons=3; use a list of mappings"),
        ({"icons": [{"src": "data:,", "sizes": "48x48"}]}, "use a list of texts, such as ['48x48']"),
        ({"icons": [{"src": "data:,", "theme": "blue"}]}, "has an icon with theme='blue'; use 'light' or 'dark'"),
        ({"icons": [{"src": "data:,", "mimetype": "image/png"}]}, "has an icon with 'mimetype'; "),
        ({"icons": [{"src": "icon.png"}]}, "use a URL that starts with https:// or http:// or data:"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_to_use(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        exec(compile("server(**options)", "probe", "exec"), {"server": server, "options": options})
    assert message in str(caught.value)


def test_an_option_without_its_name_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"takes its options by name, such as server\(name='shop'\)"):
        cast("Any", server)("shop")


def test_a_call_in_a_function_is_refused() -> None:
    with pytest.raises(AuthoringError, match="top level of a tool module"):
        server(name="shop")


def test_instructions_may_have_lines_and_any_length_that_the_setting_may_have(folder: Path) -> None:
    said = load(folder, probe_lines="server(instructions='é\\n' + 'a' * 65_534)\n")
    assert identity_of(Settings.load({}), said.introduction).instructions == "é\n" + "a" * 65_534
