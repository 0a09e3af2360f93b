"""The loader's fuzzer: the repository's own examples and kind pages, bent and broken, as a push may bring them.

Whatever stands in the files, the answer is a fleet, or problems with places in these files that can be printed.
"""

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fleet.offerings.declared import catalog_checks
from model import report
from model.fleet import Fleet
from model.loader import Check, InvalidFleet, inspect, load
from model.loader.load import Loaded
from model.loader.source import printable
from model.problem import MOST_CHARACTERS, Problem
from providers.aws.listing import PackageListing

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```yaml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
Files = dict[str, bytes]


@cache
def good_fleets() -> tuple[Files, ...]:
    """The examples as they are, and each fenced example of the kind pages."""
    examples = [
        {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.yaml"))}
        for folder in sorted((ROOT / "examples").iterdir())
        if folder.is_dir()
    ]
    pages = [
        {"page.yaml": fence.encode()}
        for page in sorted((ROOT / "docs" / "kinds").glob("*.md"))
        for fence in _FENCE.findall(page.read_text("utf-8"))
    ]
    return tuple(fleet for fleet in (*examples, *pages) if fleet)


@cache
def words() -> tuple[str, ...]:
    """Every word of the good fleets: keys and values land where they were never meant to."""
    text = "\n".join(content.decode() for fleet in good_fleets() for content in fleet.values())
    return tuple(sorted(set(re.findall(r"[^\s\[\]{},#\"']+", text))))


ODD = (
    "", "~", "null", "true", "yes", "-1", "0", "1e309", "0x10", "012", ".inf", ".nan", "9" * 400, "-" + "9" * 30,
    "1" * 5000, "1e999999999", "1e-999999999", "1." + "0" * 2000 + "1", "9223372036854775808", "18446744073709551616Ei",
    "Never", "999999999h", "-5m", "100%", "101%", "2026-01-31", "12:30:45", "* * * * *", "0 0 30 2 *", "*/0 * * * *",
    "<<", "<<: *a", "*a", "&a x", "!!python/object:os.system x", "!!binary aGk=", "? x", "|", ">-", "%YAML 1.1", "---",
    "...", "'", '"', '"\\u202e"', '"\\x00"', '"\\ud800"', "\u202e", "\ufeff", "\u2028", "\x07", "é" * 50, "😀", "In",
    "a" * 300, "/", "a/b/c", "kubernetes.io/", "../../etc/passwd", "::error file=x::", "{{ x }}", "$(x)",
)  # fmt: skip
"""Scalars and fragments that have hurt parsers."""


class LoaderFuzzer:
    """Feeds the loader."""

    name = "loader"
    most_seconds = 20.0
    most_growth_mib = 400

    @contextmanager
    def start(self) -> Iterator[Callable[[Random], None]]:
        """Nothing to set up."""
        yield self.attack

    def attack(self, rng: Random) -> None:
        """One broken repository, one in five held against what a region sells."""
        check(bent(rng), catalog_checks(PackageListing("us-east-1")) if rng.random() < 0.2 else ())


def bent(rng: Random) -> Files:
    """A good fleet, or two in one, with one to six changes."""
    fleets = good_fleets()
    files = dict(rng.choice(fleets))
    if rng.random() < 0.3:
        files |= {f"more/{name}": content for name, content in rng.choice(fleets).items()}
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        name = rng.choice(sorted(files))
        files[name] = rng.choice(CHANGES)(rng, files[name])
    return files


def check(files: Mapping[str, bytes], further: Sequence[Check] = ()) -> Loaded:
    """Load, and hold the answer against what an answer has to be."""
    loaded = inspect(files, further=further)
    failed = any(problem.severity == "error" for problem in loaded.problems)
    assert failed == (loaded.fleet is None), "a fleet, or errors: never both, never neither"
    lines = {
        name: content.decode("utf-8", "replace").count("\n") + content.count(b"\r") for name, content in files.items()
    }
    for problem in loaded.problems:
        assert problem.file in files, f"{problem.file} is no file of these"
        # U+0085, U+2028 and U+2029 end lines, too
        ends = sum(files[problem.file].decode("utf-8", "replace").count(end) for end in ("\x85", "\u2028", "\u2029"))
        assert 1 <= problem.line <= lines[problem.file] + ends + 1, f"no such line: {problem}"
        assert problem.column >= 1, f"no such column: {problem}"
        assert problem.message, "a problem without a message"
        assert len(problem.message) + len(problem.hint) <= 2 * MOST_CHARACTERS, f"{len(problem.message)} characters"
        assert printable(problem.message + problem.hint) == problem.message + problem.hint
    for render in report.FORMATS.values():
        render(loaded.problems)
    assert _again(files, further) == (loaded.fleet or loaded.problems), "the same files, another answer"
    return loaded


def _again(files: Mapping[str, bytes], further: Sequence[Check]) -> Fleet | tuple[Problem, ...]:
    try:
        return load(files, further=further)
    except InvalidFleet as invalid:
        return invalid.problems


# -- changes -----------------------------------------------------------------------------------------------------------


def _bytes(rng: Random, content: bytes) -> bytes:
    """Flips, removes or inserts bytes."""
    out = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 20))):
        place = rng.randrange(len(out) + 1)
        cut = min(len(out), place + rng.choice((0, 0, 1, 4)))
        out[place:cut] = bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 2))))
    return bytes(out)


def _lines(rng: Random, content: bytes) -> bytes:
    """Repeats, removes, moves or indents lines."""
    lines = content.split(b"\n")
    start = rng.randrange(len(lines))
    some = lines[start : start + rng.choice((1, 1, 2, 5, 20))]
    how = rng.randrange(5)
    if how == 0:
        return b"\n".join(lines[:start] + some * rng.choice((2, 2, 50)) + lines[start + len(some) :])
    rest = lines[:start] + lines[start + len(some) :]
    if how == 1:
        return b"\n".join(rest)
    if how == 2:
        place = rng.randrange(len(rest) + 1)
        return b"\n".join(rest[:place] + some + rest[place:])
    if how == 3:
        return b"\n".join(
            lines[:start] + [b" " * rng.choice((1, 2, 4)) + each for each in some] + lines[start + len(some) :]
        )
    return b"\n".join(lines[:start] + [each[rng.choice((1, 2)) :] for each in some] + lines[start + len(some) :])


def _word(rng: Random, content: bytes) -> bytes:
    """Puts another word in the place of one."""
    text = content.decode("utf-8", "surrogateescape")
    found = list(re.finditer(r"[^\s\[\]{},#\"']+", text))
    if not found:
        return content + rng.choice(ODD).encode()
    place = rng.choice(found)
    word = rng.choice(ODD) if rng.random() < 0.5 else rng.choice(words())
    colon = ":" if place[0].endswith(":") and rng.random() < 0.8 else ""
    return f"{text[: place.start()]}{word.rstrip(':')}{colon}{text[place.end() :]}".encode("utf-8", "surrogateescape")


def _letter(rng: Random, content: bytes) -> bytes:
    """Misspells a word by one letter: what people do."""
    text = content.decode("utf-8", "surrogateescape")
    found = list(re.finditer(r"[A-Za-z0-9./-]{3,}", text))
    if not found:
        return content
    place = rng.choice(found)
    at = rng.randrange(place.start(), place.end())
    typo = rng.choice(("", text[at] * 2, rng.choice(string.ascii_letters + string.digits), text[at].swapcase()))
    return f"{text[:at]}{typo}{text[at + 1 :]}".encode("utf-8", "surrogateescape")


def _tree(rng: Random, content: bytes) -> bytes:
    """Replaces, removes, repeats or nests a value of the parsed documents."""
    try:
        documents: list[Any] = list(yaml.safe_load_all(content))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError):
        return content
    here: Any = documents
    for _ in range(rng.randrange(1, 9)):
        keys = list(here) if isinstance(here, dict) else list(range(len(here))) if isinstance(here, list) else []
        if not keys:
            break
        key = rng.choice(keys)
        if not isinstance(here[key], dict | list) or not here[key] or rng.random() < 0.25:
            here[key] = _value(rng, here[key])
            break
        here = here[key]
    try:
        return yaml.safe_dump_all(documents).encode("utf-8", "replace")
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return content


def _value(rng: Random, old: Any) -> Any:
    choices: tuple[Callable[[], Any], ...] = (
        lambda: rng.choice((None, True, 0, -1, 2**63, 1.5, 1e308, [], {}, "")),
        lambda: rng.choice(words()),
        lambda: rng.choice(ODD[:33]),
        lambda: [old] * rng.choice((1, 2, 300)),
        lambda: {rng.choice(words()): old},
        lambda: {str(number): old for number in range(rng.choice((2, 200)))},
        lambda: _nested(old, rng.choice((3, 31, 33, 200))),
        lambda: old[: len(old) // 2] if isinstance(old, str | list) else old,
    )
    return rng.choice(choices)()


def _nested(value: Any, depth: int) -> Any:
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


def _splice(rng: Random, content: bytes) -> bytes:
    """The head of one file and the tail of another."""
    other = rng.choice(sorted(rng.choice(good_fleets()).values()))
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


def _repeat(rng: Random, content: bytes) -> bytes:
    """The whole file again, as further documents."""
    return b"\n---\n".join([content] * rng.choice((2, 2, 10)))


def _aliases(rng: Random, content: bytes) -> bytes:
    """Anchors and aliases, among them those that grow."""
    depth, width = rng.choice((2, 5, 9, 30)), rng.choice((2, 9))
    bomb = ["a0: &a0 [x]"] + [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, depth)
    ]
    merge = [f"m: {{<<: {rng.choice(('*a0', '[*a0, *a1]', '{b: 1}', '*nowhere'))}}}"]
    return content + ("\n---\n" + "\n".join(bomb + merge) + "\n").encode()


def _brackets(rng: Random, content: bytes) -> bytes:
    """Flow collections that are opened and never closed, or closed and never opened."""
    mark = rng.choice((b"[", b"{", b"]", b"}", b"- ", b"? ", b"!", b"&x ", b"'", b'"', b"[{", b"{a: "))
    place = rng.randrange(len(content) + 1)
    return content[:place] + mark * rng.choice((1, 2, 40, 5000)) + content[place:]


CHANGES: tuple[Callable[[Random, bytes], bytes], ...] = (
    _bytes, _lines, _lines, _word, _word, _word, _letter, _letter, _tree, _tree, _splice, _repeat, _aliases, _brackets,
)  # fmt: skip
