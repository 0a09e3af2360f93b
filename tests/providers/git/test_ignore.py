"""`.musterignore` against its oracle, `git check-ignore`."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.git.errors import RepositoryTooLarge
from providers.git.ignore import IgnoreFile, ignored, parse_ignore
from tests.providers.git.support import ENVIRONMENT


def is_ignored(rules: bytes, path: str, *, folder: bool = False) -> bool:
    """As a walk from the root would find it: an ignored folder hides all below."""
    files = [IgnoreFile(0, parse_ignore(rules))]
    parts = path.split("/")
    above = any(ignored(files, parts[:depth], folder=True) for depth in range(1, len(parts)))
    return above or ignored(files, parts, folder=folder)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("oracle")
    subprocess.run(["git", "init", "-q", str(path)], check=True, env=ENVIRONMENT)
    return path


def git_says(oracle: Path, rules: bytes, paths: list[str]) -> list[bool]:
    (oracle / ".gitignore").write_bytes(rules)
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"],
        cwd=oracle,
        env=ENVIRONMENT,
        input="\0".join(paths).encode() + b"\0",
        capture_output=True,
        check=False,
    )
    fields = done.stdout.decode().split("\0")[:-1]
    patterns = fields[2::4]
    assert len(patterns) == len(paths), done.stderr
    return [bool(pattern) and not pattern.startswith("!") for pattern in patterns]


PATHS = [
    "a",
    "b",
    "a.yaml",
    "b.yaml",
    "a/b",
    "a/a.yaml",
    "a/b/c",
    "a/b/c.yaml",
    "x/a",
    "x/a/b",
    "x/y/a.yaml",
    "foo.bak",
    "#a",
    "!a",
    "a b",
    "a ",
    "[a]",
    "-",
    "a-b",
    "]",
    "ab",
    "aab",
    "abab",
    "a/x/y/b",
    "A",
    "ä.yaml",
    "a\\b",
    "secret/k.yaml",
    "z",
]

TABLE = [
    b"a",
    b"/a",
    b"a/",
    b"/a/",
    b"a/b",
    b"/a/b",
    b"*.yaml",
    b"/*.yaml",
    b"a/*.yaml",
    b"**/b",
    b"a/**",
    b"a/**/b",
    b"**",
    b"/**",
    b"**/",
    b"*",
    b"!a",
    b"*\n!a",
    b"*\n!/a",
    b"*.yaml\n!a.yaml",
    b"a/\n!a/a.yaml",
    b"\\#a",
    b"\\!a",
    b"#a",
    b"a b",
    b"a\\ ",
    b"a ",
    b"a\\",
    b"[ab]",
    b"[!a]",
    b"[^a].yaml",
    b"[a-c].yaml",
    b"[]]",
    b"[]-a]",
    b"[a",
    b"[[:alpha:]]",
    b"[[:nope:]]",
    b"[[:alpha:]",
    b"[a-]",
    b"[\\]]",
    b"[z-a]",
    b"?",
    b"a?b",
    b"a*b",
    b"*a*b*",
    b"**.yaml",
    b"a**b",
    b"a**",
    b"\\a",
    b"\\*",
    b"a\r\n",
    b"\xef\xbb\xbfa\n",
    b"",
    b"\n\n",
    b"/",
    b"//",
    b"!",
    b"a//b",
    b"./a",
    b"a/../b",
    b"***/b",
    b"a/**/**/b",
    b"**/a/**",
    b"\xc3\xa4*",
    b"\xff",
    b"a\\\\b",
    b"[a/]b",
    b"a[/]b",
    b"\\[a\\]",
    b"*/b",
    b"*/*/c",
    b"[*]",
    b"secret/\n*.bak\n!foo.bak",
    b"[a-b-c]",
    b"[!!]",
    b"[--a]",
    b"\\/?",
    b"\\/a",
    b"a\\/b",
]


@pytest.mark.parametrize("rules", TABLE, ids=lambda rules: rules.decode("utf-8", "backslashreplace"))
def test_as_git(oracle: Path, rules: bytes) -> None:
    expected = dict(zip(PATHS, git_says(oracle, rules, PATHS), strict=True))
    assert {path: is_ignored(rules, path) for path in PATHS} == expected


lines = st.text(st.sampled_from("ab*/?![]-^\\ .#"), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, min_size=1, max_size=4))
def test_as_git_for_any_rules(oracle: Path, text: list[str]) -> None:
    rules = "\n".join(text).encode()
    assert [is_ignored(rules, path) for path in PATHS] == git_says(oracle, rules, PATHS)


def test_a_deeper_file_overrides_and_counts_from_its_folder() -> None:
    files = [IgnoreFile(0, parse_ignore(b"*.yaml")), IgnoreFile(1, parse_ignore(b"!/keep.yaml"))]
    assert not ignored(files, ("d", "keep.yaml"), folder=False)
    assert ignored(files, ("d", "e", "keep.yaml"), folder=False)


def test_folders_only() -> None:
    assert is_ignored(b"a/", "a", folder=True)
    assert not is_ignored(b"a/", "a")


@pytest.mark.parametrize("pattern", [b"*a" * 100 + b"b", b"**/" * 100 + b"b", b"a*" * 200 + b"b", b"[a]*" * 100 + b"z"])
def test_no_pattern_blows_up(pattern: bytes) -> None:
    """One that went back over what its stars took would not end within a lifetime."""
    assert not parse_ignore(pattern)[0].matches(["a" * 255] * 16, folder=False)


@pytest.mark.parametrize("content", [b"a\n" * 1001, b"a" * 1025])
def test_limits(content: bytes) -> None:
    with pytest.raises(RepositoryTooLarge):
        parse_ignore(content)
