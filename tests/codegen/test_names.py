"""Hostile names in C: identifiers, comments and strings."""

from __future__ import annotations

import keyword
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from uma.codegen import c_comment, c_identifier, c_string

# Characters that mean something in C, in its trigraphs, and to those who read it.
HOSTILE = st.text(st.sampled_from("*/\\?'\"\n\r\0%{}#=(ax1_ \t\u2028\u202eé\U0001f600\ud800")) | st.text()


@pytest.mark.parametrize(
    "name, identifier",
    [
        ("kws", "kws"),
        ("serving_default_input_1:0", "serving_default_input_1_0"),
        ("a//b**c", "a_b_c"),
        ("_x__y_", "x_y"),
        ("", "unnamed"),
        ("日本", "unnamed"),
        ("3d", "n3d"),
        ("int", "m_int"),
        ("co_await", "m_co_await"),
        ("lambda", "m_lambda"),
        ("True", "m_True"),
        ("Math", "m_Math"),
        ("EOF", "m_EOF"),
        ("int8_t", "m_int8_t"),
        ("INT_LEAST8_MAX", "m_INT_LEAST8_MAX"),
        ("uma", "m_uma"),
        ("uma_model", "m_uma_model"),
        ("umami", "umami"),
        ("sem", "m_sem"),
        ("x" * 100, "x" * 60),
        ("uint" + "x" * 70 + "_t", "uint" + "x" * 56),
    ],
)
def test_identifiers(name: str, identifier: str) -> None:
    assert c_identifier(name) == identifier


def test_taken_identifiers_get_a_number() -> None:
    assert c_identifier("x", {"x"}) == "x_2"
    assert c_identifier("x", {"x", "x_2"}) == "x_3"
    assert c_identifier("x" * 100, {"x" * 60}) == "x" * 49 + "_2"


@given(HOSTILE)
def test_identifiers_are_safe_and_stay_what_they_are(name: str) -> None:
    identifier = c_identifier(name)
    assert identifier.isascii() and identifier.isidentifier() and not keyword.iskeyword(identifier)
    assert len(identifier) <= 60 and "__" not in identifier and not identifier.startswith("_")
    assert c_identifier(identifier) == identifier


@given(st.lists(HOSTILE | st.sampled_from(["a", "a_2", "A", "int"]), max_size=30))
def test_identifiers_differ(names: list[str]) -> None:
    taken: set[str] = set()
    for name in names:
        identifier = c_identifier(name, taken)
        assert identifier not in taken
        assert c_identifier(identifier) == identifier
        taken.add(identifier)


def test_many_equal_names() -> None:
    taken: set[str] = set()
    for _ in range(20_000):
        taken.add(c_identifier("x" * 1000, taken))
    assert len(taken) == 20_000


@given(HOSTILE)
@example("*" * 300)
@example("a" * 198 + "*/")
@example("*/*/" * 3)
@example("???/\n*/")
def test_comments_cannot_be_closed(text: str) -> None:
    comment = c_comment(text)
    assert comment.isascii() and comment.isprintable() and len(comment) <= 2 * 200
    inside = f" {comment} "
    assert "*/" not in inside and "/*" not in inside and "??" not in inside


@given(st.lists(HOSTILE, min_size=1, max_size=20))
def test_strings_are_what_they_were(texts: list[str]) -> None:
    """Read back by the rules of C99 for literals without trigraphs."""
    for text in texts:
        literal = c_string(text)
        assert literal.isascii() and literal.isprintable() and "??" not in literal
        assert literal[0] == literal[-1] == '"'
        value = bytearray()
        inside = literal[1:-1]
        position = 0
        while position < len(inside):
            character = inside[position]
            assert character != '"'
            if character != "\\":
                value.append(ord(character))
                position += 1
            elif inside[position + 1] in '"\\?':
                value.append(ord(inside[position + 1]))
                position += 2
            else:
                value.append(int(inside[position + 1 : position + 4], 8))
                position += 4
        assert bytes(value) == text.encode("utf-8", "backslashreplace")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_reads_the_same_strings_and_comments(compiler: str, tmp_path: Path) -> None:
    texts = [
        '??/" */ \\',
        "a\nb\tc%d",
        "é\U0001f600\u202e",
        "\x01\x7f1",
        "//*/*??/\n",
        "\\",
        "*/",
        "/*",
        "#include <x>",
    ]
    lines = [f"    puts({c_string(text)}); /* {c_comment(text)} */" for text in texts]
    source = tmp_path / "strings.c"
    source.write_text("\n".join(["#include <stdio.h>", "int main(void)", "{", *lines, "    return 0;", "}", ""]))
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, str(source), "-o", str(tmp_path / "strings")], check=True)
    printed = subprocess.run([str(tmp_path / "strings")], check=True, capture_output=True).stdout
    assert printed.decode() == "".join(f"{text}\n" for text in texts)
