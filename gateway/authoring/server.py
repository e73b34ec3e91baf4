"""How a tool module introduces what it serves: name, title, version, instructions, website and icons."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import msgspec

from gateway.authoring.listings import WEB, checked_url, listed_icons
from gateway.authoring.mistakes import known_name, place_of_code
from gateway.authoring.served import Icons
from gateway.errors import AuthoringError
from gateway.protocol.identity import Identity

if TYPE_CHECKING:  # loading it takes time, which authors' tests do not have
    from gateway.settings.model import Settings

MAX_LINE_CHARACTERS: Final = 512
MAX_INSTRUCTIONS_CHARACTERS: Final = 65_536
"""As in the setting."""

_VARIABLE: Final = "__gateway_server__"
_WHERE: Final = "server(…)"

P = ParamSpec("P")


class Introduction(msgspec.Struct, frozen=True):
    """What one call of `server` said.

    `fields` are those of `Identity` that it set. `place` is the `file:line` of the call.
    """

    fields: Mapping[str, Any]
    place: str


def _only_options(function: Callable[P, None]) -> Callable[P, None]:
    """Explain how to call `server` where Python would only say that an argument is unexpected."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> None:
        if args:
            raise AuthoringError(f"server(…) takes its options by name, such as server(name={args[0]!r})")
        for name in options:
            if name not in known:
                raise AuthoringError(f"server(…) has no option {name!r}; {known_name(name, known, 'its options are')}")
        function(*args, **options)

    return checked


@_only_options
def server(
    *,
    name: str | None = None,
    title: str | None = None,
    version: str | None = None,
    instructions: str | None = None,
    website_url: str | None = None,
    icons: Icons | None = None,
) -> None:
    """Say what this tool module's server is called. Settings of the deployment, such as `GATEWAY_SERVER_NAME`, win.

    Call it once, at the top level of a tool module.

    Args:
        name: a name for programs.
        title: a name for people.
        version: the version of what you serve.
        instructions: how to use the server, for the language model. Clients may add it to the system prompt.
        website_url: where people read more.
        icons: `Icon` objects of the protocol (MCP "Overview", icons).

    Raises:
        AuthoringError: a value is not valid, the call is not at the top level, or the module has another one.
    """
    frame = sys._getframe(2)  # noqa: SLF001 - the module that calls, through `_only_options`
    lines = {"name": name, "title": title, "version": version}
    fields: dict[str, Any] = {option: _line(option, text) for option, text in lines.items() if text is not None}
    if instructions is not None:
        fields["instructions"] = _instructions(instructions)
    if website_url is not None:
        fields["website_url"] = checked_url("website_url", website_url, WEB, _WHERE)
    if icons is not None:
        fields["icons"] = tuple(listed_icons(icons, _WHERE))
    _introduce(frame, fields)


def _introduce(frame: FrameType, fields: dict[str, Any]) -> None:
    """Leave an introduction in the module that this frame runs."""
    if frame.f_code.co_name != "<module>":
        raise AuthoringError("call server(…) at the top level of a tool module")
    introduction = Introduction(fields, place_of_code(frame.f_code, frame.f_lineno))
    earlier = frame.f_globals.get(_VARIABLE)
    if earlier is not None and earlier.place != introduction.place:
        raise AuthoringError(two_introductions(earlier, introduction))
    frame.f_globals[_VARIABLE] = introduction  # where the registry finds it, as it finds tools


def two_introductions(first: Introduction, second: Introduction) -> str:
    """Return the error for two calls of `server`."""
    return f"server(…) is called at {first.place} and at {second.place}; keep one of them"


def identity_of(settings: Settings, introduction: Introduction | None) -> Identity:
    """Return how a deployment introduces itself: its settings, else what its tool modules say, else the defaults."""
    given = {
        "name": settings.server_name,
        "title": settings.server_title,
        "version": settings.server_version,
        "instructions": settings.server_instructions,
        "website_url": settings.server_website_url,
        "icons": tuple({"src": url} for url in settings.server_icons) or None,
    }
    said = {} if introduction is None else introduction.fields
    return Identity(**{**said, **{field: value for field, value in given.items() if value is not None}})


def _line(option: str, text: Any) -> str:
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text.strip()) <= MAX_LINE_CHARACTERS:
        raise AuthoringError(f"server(…) has {option}={text!r}; use one line of 1 to {MAX_LINE_CHARACTERS} characters")
    return text.strip()


def _instructions(text: Any) -> str:
    if not isinstance(text, str) or not text.strip():
        raise AuthoringError(f"server(…) has instructions={text!r}; use a text")
    cleaned = inspect.cleandoc(text)
    unprintable = next((letter for letter in cleaned if not letter.isprintable() and letter not in "\n\t"), None)
    if unprintable is not None:
        raise AuthoringError(f"server(…) has {unprintable!r} in its instructions; leave it out")
    if len(cleaned) > MAX_INSTRUCTIONS_CHARACTERS:
        raise AuthoringError(
            f"server(…) has instructions of {len(cleaned)} characters; use up to {MAX_INSTRUCTIONS_CHARACTERS}"
        )
    return cleaned
