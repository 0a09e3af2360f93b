"""Which files below a folder declare the fleet: the same rules for a commit and for a plain folder on disk.

A repository is input from outside. Names that could mislead a reader are left out, links are not followed, and every
dimension (files, bytes, entries, depth) has a limit; passing one is an error, never a silent truncation, since a file
left out would read as a wish to delete what it declares.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from providers.git.errors import PathNotFound, RepositoryTooLarge
from providers.git.ignore import IGNORE_FILE, MAX_RULES, IgnoreFile, ignored, parse_ignore

YAML = (".yaml", ".yml")
_MAX_SKIPPED = 100


class EntryKind(Enum):
    """What an entry of a folder is."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "symbolic link"
    MODULE = "submodule"
    OTHER = "special file"


class FolderEntry(Protocol):
    """An entry of a folder, wherever the folder is."""

    @property
    def raw_name(self) -> bytes:
        """The name's bytes; they need not be text."""
        ...

    @property
    def kind(self) -> EntryKind:
        """What it is, without following a link."""
        ...

    def children(self) -> Iterable["FolderEntry"]:
        """The entries of a folder; valid until `close`."""
        ...

    def read(self, max_bytes: int) -> bytes | None:
        """A file's content, or None if it has more than `max_bytes`."""
        ...

    def close(self) -> None:
        """Free what `children` holds open."""
        ...


@dataclass(frozen=True)
class FileLimits:
    """The most that a fleet may have. Far above real fleets, far below what would hurt the agent."""

    suffixes: tuple[str, ...] = YAML
    max_files: int = 5_000
    max_bytes: int = 64 * 1024 * 1024
    max_file_bytes: int = 8 * 1024 * 1024
    max_entries: int = 100_000
    max_depth: int = 32


@dataclass(frozen=True)
class Skipped:
    """An entry that was left out, with the reason; `path` is fit for printing."""

    path: str
    reason: str


@dataclass(frozen=True)
class Files:
    """The files found (path from the repository's root, sorted, to content), and what was left out (100 at most)."""

    files: Mapping[str, bytes]
    skipped: tuple[Skipped, ...] = ()


@dataclass
class _Walk:
    """A walk in progress: what was found, and what is left of the limits."""

    limits: FileLimits
    files: dict[str, bytes] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    entries: int = 0
    bytes: int = 0
    rules: int = 0

    def skip(self, path: str, reason: str) -> None:
        if len(self.skipped) < _MAX_SKIPPED:
            self.skipped.append(Skipped(path, reason))

    def counted(self, children: Iterable[FolderEntry]) -> Iterator[FolderEntry]:
        for child in children:
            self.entries += 1
            if self.entries > self.limits.max_entries:
                raise RepositoryTooLarge(f"there are more than {self.limits.max_entries} entries")
            yield child

    def add(self, path: str, entry: FolderEntry) -> None:
        if len(self.files) >= self.limits.max_files:
            raise RepositoryTooLarge(f"there are more than {self.limits.max_files} files")
        content = entry.read(min(self.limits.max_file_bytes, self.limits.max_bytes - self.bytes))
        if content is None:
            raise RepositoryTooLarge(
                f"{path} is too large: {self.limits.max_file_bytes} bytes a file, {self.limits.max_bytes} in all"
            )
        self.bytes += len(content)
        self.files[path] = content

    def ignore_file(self, entry: FolderEntry, depth: int) -> IgnoreFile:
        rules = parse_ignore(entry.read(self.limits.max_file_bytes) or b"")
        self.rules += len(rules)
        if self.rules > MAX_RULES:
            raise RepositoryTooLarge(f"the {IGNORE_FILE} files have more than {MAX_RULES} rules together")
        return IgnoreFile(depth, rules)


def collect(root: FolderEntry, prefix: tuple[str, ...], limits: FileLimits) -> Files:
    """The files below the folder `root`, whose path is `prefix`. `.musterignore` counts from `root` down.

    Errors: RepositoryTooLarge.
    """
    walk = _Walk(limits)
    _folder(walk, root, prefix, len(prefix), ())
    return Files(
        MappingProxyType(dict(sorted(walk.files.items()))),
        tuple(sorted(walk.skipped, key=lambda one: (one.path, one.reason))),
    )


def split_path(sub_path: str) -> tuple[str, ...]:
    """The segments of a relative path; `""`, `.` and `/` are the root. Errors: PathNotFound for one that leaves it."""
    parts = tuple(part for part in sub_path.split("/") if part not in {"", "."})
    if ".." in parts:
        raise PathNotFound(f"{sub_path!r} leads out of the repository")
    return parts


def _folder(walk: _Walk, folder: FolderEntry, parts: tuple[str, ...], root: int, above: tuple[IgnoreFile, ...]) -> None:
    if len(parts) - root > walk.limits.max_depth:
        raise RepositoryTooLarge(f"folders are nested deeper than {walk.limits.max_depth}")
    try:
        named = list(_named(walk, folder.children(), parts))
        own = [walk.ignore_file(entry, len(parts)) for name, entry in named if _is_ignore_file(name, entry)]
        rules = (*above, *own)
        for name, entry in named:
            _entry(walk, entry, (*parts, name), root, rules)
    finally:
        folder.close()


def _is_ignore_file(name: str, entry: FolderEntry) -> bool:
    return name == IGNORE_FILE and entry.kind is EntryKind.FILE


def _entry(walk: _Walk, entry: FolderEntry, parts: tuple[str, ...], root: int, rules: tuple[IgnoreFile, ...]) -> None:
    if ignored(rules, parts, folder=entry.kind is EntryKind.FOLDER):
        return
    path = "/".join(parts)
    if entry.kind is EntryKind.FOLDER:
        _folder(walk, entry, parts, root, rules)
    elif entry.kind is not EntryKind.FILE:
        walk.skip(path, f"{entry.kind.value}: not followed")
    elif path.endswith(walk.limits.suffixes):
        walk.add(path, entry)


def _named(walk: _Walk, children: Iterable[FolderEntry], parts: tuple[str, ...]) -> Iterator[tuple[str, FolderEntry]]:
    """The children with names that can be shown and cannot deceive; the others are recorded as left out."""
    # A disk lists in any order; what is found, left out or too much must not depend on it.
    for child in sorted(walk.counted(children), key=lambda one: one.raw_name):
        name, reason = _name(child.raw_name)
        if name == ".git":
            continue
        if reason:
            walk.skip("/".join((*parts, name)), reason)
        else:
            yield name, child


def _name(raw: bytes) -> tuple[str, str]:
    """The name as text and why it is refused, if it is; a refused name comes escaped."""
    shown = repr(raw)[2:-1]
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        return shown, "the name is not UTF-8"
    if not name.isprintable() or "\\" in name:
        return shown, "the name has characters that do not print, or a backslash"
    if name in {"", ".", ".."} or "/" in name:
        return shown, "the name is not that of an entry"
    return name, ""
