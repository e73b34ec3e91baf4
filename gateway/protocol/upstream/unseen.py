"""Pure: characters that people do not see, and models and terminals obey.

A text of an upstream can hide orders for a model in characters that no screen shows. Such are tags (U+E0000 to
U+E007F), joiners and spaces of no width, marks of direction, and variation selectors. Terminals obey control
characters. All of them are removed, except where a script or an emoji needs them to look right.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.protocol.ignorable import IGNORABLE

_CONTROL: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Unicode category Cc, but tab and line feed."""

_FORMAT: Final = "\ufff9-\ufffb\U00013430-\U0001343f"
"""The rest of category Cf, but the number signs of Arabic, Syriac and Kaithi, which are visible."""

_BLANK: Final = "\u2800\U0001d159\U00016fe4"
"""Symbols without a mark: a braille cell without dots, a notehead, a filler of Khitan."""

_LETTERS: Final = (
    "\u0620-\u06dc\u06de-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17dd\u1820-\u18aa\ufb50-\ufdff\ufe70-\ufefc"
)
"""The scripts from Arabic to Mongolian, in which a joiner between two letters changes how both look."""

_VIRAMAS: Final = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
"""The signs of Indic scripts that take a vowel away. A joiner after one changes its look, also at the end of a word."""

_EMOJI: Final = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u27ff\u2801-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
"""All characters of emoji (Unicode UTS #51), and symbols beside them."""

_NEEDED: Final = (
    f"(?<=[{_LETTERS}])[\u200c\u200d](?=[{_LETTERS}])"
    f"|(?<=[{_VIRAMAS}])[\u200c\u200d](?![\u200c\u200d])"
    f"|(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d(?=[{_EMOJI}])"
    f"|(?<=[{_EMOJI}])[\ufe0e\ufe0f]"
    "|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    "|(?<=[\u2801-\u28ff])\u2800(?=[\u2801-\u28ff])"
)
"""A joiner between two letters or two emoji or after a virama, the selector that makes an emoji or a keycap, and the
space between two words of braille."""

_UNSEEN: Final = re.compile(f"(?!{_NEEDED})[{_CONTROL}{IGNORABLE}{_FORMAT}{_BLANK}]")


def without_unseen(text: str) -> str:
    """Return a text without the characters that people do not see, except for tabs and line feeds."""
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub("", text)
