"""Bytes that are not reviewable text, and excerpts."""

import pytest

from model.loader.source import SourceFile, decode
from model.problem import Code, Problem


@pytest.mark.parametrize(
    ("content", "line", "column", "message"),
    [
        (b"a: 1\nb: \xff\n", 2, 4, "byte 0xff is not UTF-8"),
        (b"\xff\xfea\x00", 1, 1, "the file is UTF-16"),
        (b"\xfe\xff\x00a", 1, 1, "the file is UTF-16"),
        (b"a: caf\xe9", 1, 7, "byte 0xe9"),
        (b"a: 1\x00", 1, 5, "U+0000"),
        (b"a: \x1b[31mred", 1, 4, "U+001B"),
        ("a: x\u202ey".encode(), 1, 5, "U+202E"),
        ("a: 1\nb: \u2066".encode(), 2, 4, "U+2066"),
        ("a\ufeff: 1".encode(), 1, 2, "U+FEFF"),
    ],
)
def test_refused(content: bytes, line: int, column: int, message: str) -> None:
    problem = decode("f.yaml", content)
    assert isinstance(problem, Problem)
    assert (problem.line, problem.column, problem.code) == (line, column, Code.ENCODING)
    assert message in problem.message
    assert "\x1b" not in problem.excerpt


@pytest.mark.parametrize("text", ["é", "日本語: 値", "a: 1\r\nb: 2", "😀", "a:\tb"])
def test_accepted(text: str) -> None:
    source = decode("f.yaml", text.encode())
    assert isinstance(source, SourceFile)
    assert source.text == text


def test_excerpt() -> None:
    source = SourceFile("f", "one\n  two: x\nthree")
    assert source.excerpt(2, 8) == "1 | one\n2 |   two: x\n  |        ^\n3 | three"
    assert source.excerpt(1, 1) == "1 | one\n  | ^\n2 |   two: x"
    assert source.excerpt(3, 1).splitlines()[-1] == "  | ^"


def test_excerpt_of_a_long_line_shows_the_place() -> None:
    source = SourceFile("f", "x" * 500 + "HERE" + "y" * 500)
    text, caret = source.excerpt(1, 501).splitlines()
    assert text[caret.index("^")] == "H"
    assert len(text) < 140


def test_excerpt_of_an_empty_file() -> None:
    assert SourceFile("f", "").excerpt(1, 1) == "1 |\n  | ^"
