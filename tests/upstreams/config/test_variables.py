"""References in configuration files: what they stand for, and errors that reveal no value."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.config.variables import MAX_FILE_BYTES, SecretText, VariableError, Variables

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="${}"), max_size=10)
ENVIRON = {"TOKEN": "s3cret", "EMPTY": "", "ODD": "${TOKEN}"}


def replace(text: str, folder: Path = Path("/nowhere")) -> str:
    return Variables(ENVIRON, folder).replace(text)


@given(st.lists(PLAIN | st.tuples(NAMES, PLAIN, st.booleans(), st.booleans())), st.dictionaries(NAMES, st.text()))
def test_every_reference_is_replaced_once_and_all_else_stays(
    parts: list[str | tuple[str, str, bool, bool]], environ: dict[str, str]
) -> None:
    text = wanted = ""
    missing = False
    for part in parts:
        if isinstance(part, str):
            text, wanted = text + part, wanted + part
            continue
        name, default, has_prefix, has_default = part
        text += f"${{{'env:' * has_prefix}{name}{f':-{default}' * has_default}}}"
        wanted += (environ.get(name) or default) if has_default else environ.get(name, "")
        missing = missing or (not has_default and name not in environ)
    variables = Variables(environ, Path())
    if missing:
        with pytest.raises(VariableError, match="is not set"):
            variables.replace(text)
    else:
        assert variables.replace(text) == wanted


@given(st.text(st.sampled_from("${}:-TOKENenvfile/input \n\x00")))
def test_any_text_is_replaced_or_refused_without_a_value(text: str) -> None:
    said = ""
    try:
        replace(text)
    except VariableError as error:
        said = str(error)
    assert "s3cret" not in said


def test_what_was_replaced_is_marked_and_what_was_not_is_untouched() -> None:
    assert isinstance(replace("Bearer ${TOKEN}"), SecretText)
    text = "cost: $5 {a} $TOKEN"
    assert replace(text) is text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${NOPE:-}", ""),
        ("${env:NOPE:-a:-b}", "a:-b"),
        ("${TOKEN:-x}", "s3cret"),
        ("${ODD}", "${TOKEN}"),
    ],
)
def test_a_default_is_for_variables_that_are_unset_or_empty(text: str, value: str) -> None:
    assert replace(text) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${NOPE}", "the variable NOPE is not set"),
        ("${input:token}", r"\$\{input:token\} asks the user of a desktop client"),
        ("${TOKEN", "has no `}`"),
        ("${TO${KEN}}", "has no `}`"),
        ("${}", "is not a reference"),
        ("${NOT-A-NAME:-hunter2}", r"\$\{NOT-A-NAME\} is not a reference"),
        ("${vault:a/b}", "is not a reference"),
        ("${file:}", "names no file"),
        ("${file:missing}", "'missing' of .* cannot be read: No such file"),
    ],
)
def test_another_reference_is_an_error_that_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(VariableError, match=words) as caught:
        replace(text)
    assert "hunter2" not in str(caught.value)


def test_a_file_is_read_without_its_last_line_end_from_the_folder_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\r\n\n")
    variables = Variables({}, tmp_path)
    assert variables.replace("Bearer ${file:token}") == variables.replace(f"Bearer ${{file:{tmp_path}/token}}")
    assert variables.replace("${file:token}") == "s3cret"
    assert set(variables.files) == {tmp_path / "token"}


@pytest.mark.parametrize(("content", "words"), [(b"\xff", "not UTF-8"), (b"x" * (MAX_FILE_BYTES + 1), "larger than")])
def test_a_file_that_is_not_a_small_text_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(VariableError, match=words):
        replace("${file:token}", tmp_path)
