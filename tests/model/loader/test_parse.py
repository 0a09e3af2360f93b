"""YAML as people and attackers write it."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from model.loader.parse import LoaderLimits, parse
from model.loader.source import SourceFile, decode
from model.problem import Code, Problem


def read(text: str, limits: LoaderLimits | None = None) -> tuple[list[object], list[Problem]]:
    documents, problems = parse(SourceFile("f.yaml", text), limits or LoaderLimits())
    return [document.root.data for document in documents], problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", [{"a": 1}]),
        ("a: [1, {b: c}]", [{"a": [1, {"b": "c"}]}]),
        ("a: 1\n---\nb: 2", [{"a": 1}, {"b": 2}]),
        ("", []),
        ("---\n---\n# only a comment\n---\na: 1\n...\n", [{"a": 1}]),
        ("a: &x {b: 1}\nc: *x", [{"a": {"b": 1}, "c": {"b": 1}}]),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", [{"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}]),
        (
            "a: &x {k: 1}\nb: &y {k: 2, l: 2}\nc: {<<: [*x, *y]}",
            [{"a": {"k": 1}, "b": {"k": 2, "l": 2}, "c": {"k": 1, "l": 2}}],
        ),
        ("c: {'<<': 1}", [{"c": {"<<": 1}}]),
        ("true: 1\n8: 2\nNO: 3\n~: 4", [{"true": 1, "8": 2, "NO": 3, "~": 4}]),
        ("a: 'yes'\nb: \"012\"", [{"a": "yes", "b": "012"}]),
        ("a: |\n  x\n  y\n", [{"a": "x\ny\n"}]),
        ("%YAML 1.2\n---\na: 1", [{"a": 1}]),
        ("\ufeffa: 1", [{"a": 1}]),
        ("&x a: *x", [{"a": "a"}]),
    ],
)
def test_read(text: str, expected: list[object]) -> None:
    source = decode("f.yaml", text.encode())
    assert isinstance(source, SourceFile)
    documents, problems = parse(source)
    assert [document.root.data for document in documents] == expected
    assert problems == []


@pytest.mark.parametrize(
    ("text", "line", "column", "message", "code"),
    [
        ("a: 1\nb: 2\na: 3", 3, 1, "already given in line 1, column 1", Code.DUPLICATE_KEY),
        ("a:\n  b: 1\n  b: 1", 3, 3, "already given in line 2, column 3", Code.DUPLICATE_KEY),
        ("a: [1,\n\tb", 2, 3, "not YAML here: did not find expected ',' or ']'", Code.YAML_SYNTAX),
        ("a:\n\tb: 1", 2, 1, "a tab cannot indent", Code.YAML_SYNTAX),
        ("a: b: c", 1, 5, "not YAML here: mapping values are not allowed", Code.YAML_SYNTAX),
        ("a: [1, 2", 1, 9, "not YAML here: did not find expected", Code.YAML_SYNTAX),
        ("a: 'x", 1, 6, "not YAML here: found unexpected end of stream", Code.YAML_SYNTAX),
        ("a: !!str 3", 1, 4, "the tag !!str is not read", Code.YAML_SYNTAX),
        ("a: !!python/object/apply:os.system [x]", 1, 4, "is not read", Code.YAML_SYNTAX),
        ("a: !custom {}", 1, 4, "the tag !custom is not read", Code.YAML_SYNTAX),
        ("a: *x", 1, 4, "the alias *x has no anchor", Code.YAML_SYNTAX),
        ("a: &x 1\n---\nb: *x", 3, 4, "has no anchor before it in this document", Code.YAML_SYNTAX),
        ("a: &x [*x]", 1, 8, "would contain itself", Code.YAML_SYNTAX),
        ("a: &x {b: {c: *x}}", 1, 15, "would contain itself", Code.YAML_SYNTAX),
        ("? [a]\n: b", 1, 3, "a key must be text", Code.YAML_SYNTAX),
        ("a: &x [1]\n? *x\n: b", 2, 3, "a key must be text", Code.YAML_SYNTAX),
        ("'': b", 1, 1, "a key is empty", Code.YAML_SYNTAX),
        ("a: {<<: 1}", 1, 9, "the merge key << takes a mapping", Code.YAML_SYNTAX),
        ("- a", 1, 1, "a document must be a mapping", Code.NOT_A_DECLARATION),
        ("just text", 1, 1, "a document must be a mapping", Code.NOT_A_DECLARATION),
        ('a: "\\ud800"', 1, 7, "Unicode", Code.YAML_SYNTAX),
    ],
)  # fmt: skip
def test_problems(text: str, line: int, column: int, message: str, code: Code) -> None:
    _, (problem, *rest) = read(text)
    assert rest == []
    assert (problem.line, problem.column, problem.code) == (line, column, code)
    assert message in problem.message
    assert problem.message[0].islower()  # it goes on behind a place, or a path, and a colon
    assert problem.excerpt


def test_a_duplicate_key_and_a_stray_document_do_not_hide_the_rest() -> None:
    documents, problems = read("a: 1\na: 2\nb: 3\n---\n- x\n---\nc: 4")
    assert documents == [{"a": 1, "b": 3}, {"c": 4}]
    assert [problem.line for problem in problems] == [2, 5]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(12), "more than 100000 values, aliases expanded"),
        ("a: " + "[" * 100_000, "nested deeper than 32 levels"),
        ("a: " + "{b: " * 50_000, "nested deeper than 32 levels"),
        ("\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 50))]), "nested deeper than 32"),
        ("a: [" + "1," * 200_000 + "]", "more than 100000 values"),
    ],
)
def test_bombs(text: str, message: str) -> None:
    documents, problems = read(text)
    assert documents == []
    assert [problem.code for problem in problems] == [Code.TOO_LARGE]
    assert message in problems[0].message
    assert max(map(len, problems[0].excerpt.splitlines())) < 200


KEYS = st.text("abc-./ ", min_size=1, max_size=5)
PIECES = ["a: ", "b: 1\n", "- ", "[", "]", "{", "}", "&x ", "*x", "<<: ", "\n", "  ", "'", "---\n", "!t ", "? "]
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abcxyz 0:-_#'\"%&*!|>{}[],?", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=4), DATA, max_size=4))
def test_reads_what_a_yaml_writer_writes(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data, default_flow_style=None)
    documents, problems = read(text)
    assert problems == []
    assert documents == [data]


@given(st.text(max_size=60))
def test_any_text_gives_documents_or_problems(text: str) -> None:
    source = decode("f.yaml", text.encode("utf-8", "surrogatepass"))
    if isinstance(source, SourceFile):
        documents, problems = parse(source)
        assert all(isinstance(document.root.data, dict) for document in documents)
        assert all(1 <= problem.line <= len(source.lines) for problem in problems)


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_any_mixture_of_yaml_gives_documents_or_problems(parts: list[str]) -> None:
    documents, problems = read("".join(parts))
    assert all(isinstance(document, dict) for document in documents)
    assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)
