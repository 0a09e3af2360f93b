"""Which files below a folder declare the fleet: the same rules for a commit and for a plain folder on disk.

A repository is input from outside, and a file left out would read as a wish to delete what it declares. So an entry is
read, or left out by a rule that is written down (`.musterignore`, names that begin with a dot), or an error: links,
submodules, names that could mislead, and whatever passes a limit on files, bytes, entries or depth.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from providers.git.errors import EntryNotRead, PathNotFound, RepositoryTooLarge
from providers.git.ignore import IGNORE_FILE, MAX_RULES, IgnoreFile, ignored, parse_ignore

YAML = (".yaml", ".yml")


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
class Files:
    """The files found: path from the repository's root, sorted, to content."""

    files: Mapping[str, bytes]


@dataclass
class _Walk:
    """A walk in progress: what was found, and what is left of the limits."""

    limits: FileLimits
    files: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    entries: int = 0
    bytes: int = 0
    rules: int = 0

    def counted(self, children: Iterable[FolderEntry]) -> Iterator[FolderEntry]:
        """The same entries; raises RepositoryTooLarge beyond as many as are allowed."""
        for child in children:
            self.entries += 1
            if self.entries > self.limits.max_entries:
                raise RepositoryTooLarge(f"there are more than {self.limits.max_entries} entries")
            yield child

    def add(self, path: str, entry: FolderEntry) -> None:
        """Keep the content of a file; raises RepositoryTooLarge beyond as much as is allowed."""
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
        """The rules of an ignore file in a folder that deep; raises RepositoryTooLarge."""
        content = entry.read(self.limits.max_file_bytes)
        if content is None:
            raise RepositoryTooLarge(f"a {IGNORE_FILE} is larger than {self.limits.max_file_bytes} bytes")
        rules = parse_ignore(content)
        self.rules += len(rules)
        if self.rules > MAX_RULES:
            raise RepositoryTooLarge(f"the {IGNORE_FILE} files have more than {MAX_RULES} rules together")
        return IgnoreFile(depth, rules)


def collect(root: FolderEntry, prefix: tuple[str, ...], limits: FileLimits) -> Files:
    """The files below the folder `root`, whose path is `prefix`. `.musterignore` counts from `root` down.

    Errors: RepositoryTooLarge, EntryNotRead with all that is in the way.
    """
    walk = _Walk(limits)
    _folder(walk, root, prefix, len(prefix), ())
    if walk.refused:
        raise EntryNotRead(dict(sorted(walk.refused.items())))
    return Files(MappingProxyType(dict(sorted(walk.files.items()))))


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
        # A disk lists in any order; what is found or too much must not depend on it.
        entries = sorted(walk.counted(folder.children()), key=lambda one: one.raw_name)
        own = [walk.ignore_file(entry, len(parts)) for entry in entries if _is_ignore_file(walk, entry, parts)]
        for entry in entries:
            if not entry.raw_name.startswith(b"."):
                _entry(walk, entry, (*parts, os.fsdecode(entry.raw_name)), root, (*above, *own))
    finally:
        folder.close()


def _is_ignore_file(walk: _Walk, entry: FolderEntry, parts: tuple[str, ...]) -> bool:
    if entry.raw_name != IGNORE_FILE.encode() or entry.kind is EntryKind.FILE:
        return entry.raw_name == IGNORE_FILE.encode()
    walk.refused["/".join((*parts, IGNORE_FILE))] = f"it is a {entry.kind.value}, and its rules are not read"
    return False


def _entry(walk: _Walk, entry: FolderEntry, parts: tuple[str, ...], root: int, rules: tuple[IgnoreFile, ...]) -> None:
    if ignored(rules, parts, folder=entry.kind is EntryKind.FOLDER):
        return
    path = "/".join(parts)
    declares = path.endswith(walk.limits.suffixes)
    if entry.kind in {EntryKind.FILE, EntryKind.OTHER} and not declares:
        return
    reason = _unreadable(entry.raw_name) or _not_followed(entry.kind)
    if reason:
        walk.refused[repr(os.fsencode(path))[2:-1] if _unreadable(entry.raw_name) else path] = reason
    elif entry.kind is EntryKind.FOLDER:
        _folder(walk, entry, parts, root, rules)
    else:
        walk.add(path, entry)


def _not_followed(kind: EntryKind) -> str:
    return "" if kind in {EntryKind.FILE, EntryKind.FOLDER} else f"it is a {kind.value}, which is not followed"


def _unreadable(raw: bytes) -> str:
    """Why a name cannot be shown, or could deceive; empty where it is fine."""
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        return "the name is not UTF-8"
    if not name.isprintable() or "\\" in name:
        return "the name has characters that do not print, or a backslash"
    return "the name is not that of an entry" if not name or "/" in name else ""
