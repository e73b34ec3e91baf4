"""Characters that people do not see are removed, except where a script or an emoji needs them."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.upstream.cleaning import clean_line, clean_text
from gateway.protocol.upstream.unseen import without_unseen

EVERY = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
VISIBLE = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Unicode property Prepended_Concatenation_Mark: signs of category Cf that enclose the digits after them."""
IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
"""Unicode 15.1, DerivedCoreProperties.txt, Default_Ignorable_Code_Point."""
BLANK = "\u2800\U0001d159\U00016fe4"


def test_every_character_that_is_shown_as_nothing_is_removed_between_letters_and_between_emoji() -> None:
    unseen = {c for c in EVERY if unicodedata.category(c) in {"Cc", "Cf"}} | {chr(code) for code in IGNORABLE}
    for character in unseen - VISIBLE - set("\t\n"):
        for before, after in [("a", "b"), ("", ""), ("é", " "), ("1", "2"), ("漢", "字")]:
            assert without_unseen(f"{before}{character}{after}") == f"{before}{after}", hex(ord(character))
    for character in unseen - VISIBLE - set("\t\n\ufe0e\ufe0f\u200d"):
        assert without_unseen(f"😀{character}😀") == "😀😀", hex(ord(character))


@pytest.mark.slow
def test_no_other_character_is_removed() -> None:
    removed = {c for c in EVERY if without_unseen(c) == ""} - set(BLANK)
    assert {unicodedata.category(c) for c in removed} <= {"Cc", "Cf", "Mn", "Lo", "Cn"}
    assert {c for c in removed if unicodedata.category(c) in {"Mn", "Lo", "Cn"}} <= {
        chr(code) for code in (*IGNORABLE, *range(0x13430, 0x13440))
    }, "the last ones are of category Cf in newer versions of Unicode"
    assert without_unseen("".join(VISIBLE) + "\t\n") == "".join(VISIBLE) + "\t\n"


@pytest.mark.parametrize(
    "text",
    [
        *("می\u200cخ", "क्\u200dष", "क्\u200cष", "ന്\u200d വ", "ශ්\u200dරී", "ᠠ\u200dᠡ"),
        *("👩🏽\u200d🚀", "👨\u200d⚕\ufe0f", "❤\ufe0f\u200d🔥", "☺\ufe0e", "1\ufe0f\u20e3", "#\ufe0f\u20e3", "©\ufe0f"),
        *("Zoë", "naïve", "שלום", "日本語", "a\tb\nc", "x\u0301", "→", "€ 5"),
    ],
)
def test_what_a_script_or_an_emoji_needs_stays(text: str) -> None:
    assert without_unseen(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\u200db", "ab"),
        ("می\u200c\u200cخ", "میخ"),
        ("😀\u200d\u200d😀", "😀😀"),
        ("a\ufe0f\u200d😀", "a😀"),
        ("😀\ufe0f\ufe0f", "😀\ufe0f"),
        ("1\ufe0f", "1"),
        ("क्\u200d\u200d", "क्"),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴"),
        ("漢\U000e0100\ufe00", "漢"),
        ("\u202ereversed\u202c", "reversed"),
    ],
)
def test_what_nothing_needs_goes(text: str, left: str) -> None:
    assert without_unseen(text) == left


@given(st.text(st.sampled_from("aم😀क्\u200c\u200d\ufe0f\u20e31\U000e0041\u202e\x1b\u2028\r\n ")))
def test_a_clean_text_stays_as_it_is(text: str) -> None:
    assert clean_text(clean_text(text)) == clean_text(text)
    assert clean_line(clean_line(text)) == clean_line(text)
    assert "\n" not in clean_line(text)


def test_every_kind_of_line_break_is_one() -> None:
    assert clean_text("a\r\nb\rc\x85d\u2028e\u2029f") == "a\nb\nc\nd\ne\nf"
    assert clean_line("a\r\nb\rc\x85d\u2028e\u2029f") == "a b c d e f"


@pytest.mark.parametrize("blank", BLANK)
def test_symbols_without_a_mark_are_removed(blank: str) -> None:
    assert without_unseen(f"a{blank}b{blank * 3}⠃{blank}") == "ab⠃"


def test_words_of_braille_stay_apart() -> None:
    assert without_unseen("⠓⠊⠀⠽⠕⠥") == "⠓⠊⠀⠽⠕⠥"
