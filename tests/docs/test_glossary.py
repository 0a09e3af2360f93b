"""The glossary names every type that a reader meets outside its own file, each where it stands, and nothing else."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("agent", "fleet", "model", "providers")
_HEADING = re.compile(r"^## (.+)$")
_OURS = re.compile(r"`([^`]+)`")
_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
_ALIAS = re.compile(r"^([A-Z]\w*[a-z]\w*) = ", re.MULTILINE)
_IMPORTED = re.compile(r"^\s*from [\w.]+ import (\([^)]*\)|.*)", re.MULTILINE)
_BY_MODULE = re.compile(r"\b[a-z_]+\.([A-Z]\w+)")
_WORD = re.compile(r"\w+")


class Entry(NamedTuple):
    """What the glossary gives as ours (a class, or a path), and the heading it stands under."""

    name: str
    heading: str


def entries() -> Iterator[Entry]:
    """Everything in backticks in the first column of a table."""
    heading = ""
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        if found := _HEADING.match(line):
            heading = found[1]
        elif line.startswith("|"):
            for name in _OURS.findall(line.split(" | ")[0]):
                yield Entry(name, heading)


SOURCES: Mapping[str, str] = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for top in PRODUCT
    for path in sorted((ROOT / top).rglob("*.py"))
}
CLASSES: Mapping[str, str] = {name: file for file, text in SOURCES.items() for name in _CLASS.findall(text)}
"""Public class -> the file that defines it; names are unique (`tests/test_shape.py`)."""
ALIASES = frozenset((name, file) for file, text in SOURCES.items() for name in _ALIAS.findall(text))
"""Type aliases, which may stand in the glossary and need not: (name, file)."""
ENTRIES = tuple(entries())


def shared() -> Iterator[str]:
    """Public classes that another file than their own imports."""
    users: dict[str, set[str]] = {}
    for file, text in SOURCES.items():
        names = {name for group in _IMPORTED.findall(text) for name in _WORD.findall(group)}
        for name in (names | set(_BY_MODULE.findall(text))) & CLASSES.keys():
            users.setdefault(name, set()).add(file)
    return (name for name in sorted(CLASSES) if users.get(name, set()) - {CLASSES[name]})


def places_of(name: str) -> frozenset[str]:
    """The files that define a type of this name; for a path, itself where a package or module is there."""
    if "/" in name:
        return frozenset({name} if (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file() else ())
    defined = {CLASSES[name]} if name in CLASSES else {file for alias, file in ALIASES if alias == name}
    return frozenset(defined)


def stands_under(file: str, heading: str) -> bool:
    """Whether a file belongs to one of the packages and modules that a heading names."""
    return any(file.startswith((f"{place}/", f"{place}.py")) for place in heading.split(", "))


def test_everything_it_names_exists() -> None:
    gone = [f"`{name}` (under {heading})" for name, heading in ENTRIES if not places_of(name)]
    assert not gone, f"docs/glossary.md names what is not there (renamed or removed?): {', '.join(gone)}"


def test_every_type_stands_under_the_room_that_defines_it() -> None:
    wrong = [
        f"`{name}` stands under {heading}, but is defined in {', '.join(sorted(places))}"
        for name, heading in ENTRIES
        if "/" not in name and (places := places_of(name)) and not any(stands_under(it, heading) for it in places)
    ]
    assert not wrong, "docs/glossary.md: " + "; ".join(wrong)


def test_nothing_stands_twice() -> None:
    names = [name for name, _ in ENTRIES]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"docs/glossary.md has two lines for {', '.join(twice)}"


def test_every_room_stands_there() -> None:
    rooms = {f"fleet/{path.name}" for path in (ROOT / "fleet").iterdir() if (path / "__init__.py").is_file()}
    missing = sorted(rooms - {name for name, _ in ENTRIES})
    assert not missing, f"docs/glossary.md lacks a line under Rooms for {', '.join(missing)}"


def test_every_type_that_several_files_share_stands_there() -> None:
    known = {name for name, _ in ENTRIES}
    missing = [f"`{name}` ({CLASSES[name]})" for name in shared() if name not in known]
    assert not missing, (
        "docs/glossary.md lacks types that more than one file uses: "
        + ", ".join(missing)
        + ". Give each a line: what it is in plain words, and the term of Kueue, Karpenter or Kubernetes beside it"
    )
