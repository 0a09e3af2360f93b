"""Fleets on this machine: a work tree or bare repository for `muster plan --from --to`, or a plain folder."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.git.errors import CorruptRepository, PathNotFound
from providers.git.files import EntryKind, FileLimits, Files, collect
from providers.git.opening import open_repository
from providers.git.selector import Target
from providers.git.snapshot import RevisionSnapshot, read_snapshot, resolve_revision
from providers.git.tree import merge_tree, scan_tree, scratch

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not make us wait


@dataclass(frozen=True)
class LocalRepository:
    """A repository of the user's: read only, never fetched, its configuration and hooks never run.

    `root` is where it is, `sub_path` where in it the user stands; files are read from there down.
    """

    root: Path
    sub_path: str
    limits: FileLimits
    repo: Any

    def resolve(self, revision: str = "HEAD") -> str:
        """The oid of a commit (`HEAD~1`, a branch, a tag, a short oid). Errors: RevisionNotFound."""
        return resolve_revision(self.repo, revision)

    def snapshot(self, revision: str = "HEAD") -> RevisionSnapshot:
        """The files at a revision. Errors: RevisionNotFound, PathNotFound, RepositoryTooLarge, CorruptRepository."""
        return read_snapshot(self.repo, Target("", self.resolve(revision)), self.sub_path, self.limits)

    def merged_files(self, base: str, head: str) -> Files:
        """The files after merging `head` into `base`, without writing to the repository.

        Errors: MergeConflict, and those of `snapshot`.
        """
        with scratch(self.repo) as area:
            merged = merge_tree(area, self.resolve(base), self.resolve(head))
            return scan_tree(area, merged, self.sub_path, self.limits)

    def working_files(self) -> Files:
        """The files as they lie on disk, committed or not. Errors: PathNotFound in a bare repository."""
        if self.repo.is_bare:
            raise PathNotFound(f"{self.root} is a bare repository; it has no work tree")
        return read_directory(self.root, self.sub_path, self.limits)


def open_local(path: Path, limits: FileLimits | None = None, *, any_owner: bool = False) -> LocalRepository:
    """The repository that `path` is, or lies in. Errors: OwnershipRejected, CorruptRepository where there is none."""
    start = path.absolute()
    for root in (start, *start.parents):
        if (root / ".git").exists() or ((root / "HEAD").is_file() and (root / "objects").is_dir()):
            repo = open_repository(root, any_owner=any_owner)
            inside = "" if repo.is_bare else start.relative_to(root).as_posix()
            return LocalRepository(root, "" if inside == "." else inside, limits or FileLimits(), repo)
    raise CorruptRepository(f"{path} is not in a git repository")


def read_directory(path: Path, sub_path: str = "", limits: FileLimits | None = None) -> Files:
    """The files of a plain folder, under the rules and limits of `files`; paths start at `path`.

    Links are not followed: a folder is opened from its parent's handle, so one that is swapped for a link while we
    read leads nowhere. Errors: PathNotFound, RepositoryTooLarge.
    """
    parts = tuple(part for part in sub_path.split("/") if part not in {"", "."})
    start = path.joinpath(*parts)
    if ".." in parts or not start.is_dir():
        raise PathNotFound(f"there is no folder {start}")
    try:
        return collect(_DiskEntry(None, os.fsencode(start.resolve()), EntryKind.FOLDER), parts, limits or FileLimits())
    except OSError as error:
        raise PathNotFound(f"{error.filename or start} cannot be read: {error.strerror}") from error


class _DiskEntry:
    """An entry of a folder on disk as `files.Entry`, opened through its parent's handle."""

    def __init__(self, parent: int | None, raw_name: bytes, kind: EntryKind) -> None:
        self._parent = parent
        self._handle: int | None = None
        self.raw_name = raw_name
        self.kind = kind

    def children(self) -> Iterator["_DiskEntry"]:
        self._handle = os.open(self.raw_name, _FOLDER_FLAGS, dir_fd=self._parent)
        with os.scandir(self._handle) as entries:
            for entry in entries:
                yield _DiskEntry(self._handle, os.fsencode(entry.name), _kind(entry))

    def read(self, max_bytes: int) -> bytes | None:
        handle = os.open(self.raw_name, _FILE_FLAGS, dir_fd=self._parent)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return b""  # it was a file when we looked; what took its place declares nothing
            content = file.read(max_bytes + 1)
        return content if len(content) <= max_bytes else None

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_symlink():
        return EntryKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.FOLDER
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER
