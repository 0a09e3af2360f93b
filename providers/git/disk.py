"""The files of a plain folder on disk, read by the rules that hold for a commit. Needs no libgit2."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from providers.git.errors import PathNotFound
from providers.git.files import EntryKind, FileLimits, Files, collect

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not make us wait


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
        """What the folder holds, itself not followed where it is a link."""
        self._handle = os.open(self.raw_name, _FOLDER_FLAGS, dir_fd=self._parent)
        with os.scandir(self._handle) as entries:
            for entry in entries:
                yield _DiskEntry(self._handle, os.fsencode(entry.name), _kind(entry, self._handle))

    def read(self, max_bytes: int) -> bytes | None:
        """The file's content; None where it is larger than that."""
        handle = os.open(self.raw_name, _FILE_FLAGS, dir_fd=self._parent)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "is no file any more", os.fsdecode(self.raw_name))
            content = file.read(max_bytes + 1)
        return content if len(content) <= max_bytes else None

    def close(self) -> None:
        """Close the folder, if `children` has opened it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _kind(entry: "os.DirEntry[str]", folder: int) -> EntryKind:
    if entry.is_symlink():
        return EntryKind.LINK
    if entry.is_dir(follow_symlinks=False):
        return EntryKind.MODULE if _is_repository(entry.name, folder) else EntryKind.FOLDER
    return EntryKind.FILE if entry.is_file(follow_symlinks=False) else EntryKind.OTHER


def _is_repository(name: str, folder: int) -> bool:
    """Whether a folder is a repository of its own: git commits it as a submodule, without what is in it."""
    try:
        os.stat(f"{name}/.git", dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
