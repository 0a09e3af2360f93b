"""The files of a commit, read from the object store without a checkout, and the merge of two commits in memory."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import FileMode

from providers.git.errors import CacheUnavailable, MergeConflict, PathNotFound, RepositoryTooLarge, RevisionNotFound
from providers.git.files import EntryKind, FileLimits, Files, collect, split_path
from providers.git.opening import open_repository, reading

_MAX_TREE_BYTES = 16 * 1024 * 1024
_KINDS = {
    FileMode.BLOB: EntryKind.FILE,
    FileMode.BLOB_EXECUTABLE: EntryKind.FILE,
    FileMode.TREE: EntryKind.FOLDER,
    FileMode.LINK: EntryKind.LINK,
    FileMode.COMMIT: EntryKind.MODULE,
}


class _GitEntry:
    """A tree entry as `files.Entry`; objects are loaded only once their size is known to be sane."""

    def __init__(self, repo: Any, oid: Any, raw_name: bytes, kind: EntryKind) -> None:
        self._repo = repo
        self._oid = oid
        self.raw_name = raw_name
        self.kind = kind

    def children(self) -> Iterator["_GitEntry"]:
        """What the folder holds; raises RepositoryTooLarge for one that is not worth reading."""
        if self._repo.odb.read_header(self._oid)[1] > _MAX_TREE_BYTES:
            raise RepositoryTooLarge(f"a folder takes more than {_MAX_TREE_BYTES} bytes")
        for entry in self._repo[self._oid]:
            yield _GitEntry(self._repo, entry.id, entry.raw_name, _KINDS.get(entry.filemode, EntryKind.FILE))

    def read(self, max_bytes: int) -> bytes | None:
        """The file's content; None where it is larger than that."""
        if self._repo.odb.read_header(self._oid)[1] > max_bytes:
            return None
        data: bytes = self._repo[self._oid].data
        return data

    def close(self) -> None:
        """Nothing is held open."""


def scan_tree(repo: Any, oid: str, sub_path: str = "", limits: FileLimits | None = None) -> Files:
    """The files below `sub_path` at the commit or tree `oid`, and what was left out.

    Errors: RevisionNotFound, PathNotFound, RepositoryTooLarge, CorruptRepository.
    """
    parts = split_path(sub_path)
    with reading(f"the tree of {oid[:10]}"):
        tree = _GitEntry(repo, pygit2.Oid(hex=tree_oid(repo, oid, sub_path)), b"", EntryKind.FOLDER)
        return collect(tree, parts, limits or FileLimits())


def tree_oid(repo: Any, oid: str, sub_path: str = "") -> str:
    """The oid of the folder `sub_path` at `oid`: equal oids mean equal content.

    Errors: RevisionNotFound, PathNotFound.
    """
    if oid not in repo:
        raise RevisionNotFound(f"there is no commit {oid}")
    with reading(f"the tree of {oid[:10]}"):
        tree = _peel(repo, oid, pygit2.Tree)
        for part in split_path(sub_path):
            if part not in tree or not isinstance(tree[part], pygit2.Tree):
                raise PathNotFound(f"there is no folder {sub_path!r} at {oid[:10]}")
            tree = tree[part]
        return str(tree.id)


def merge_tree(repo: Any, base_branch_oid: str, head_oid: str) -> str:
    """The tree oid of merging `head_oid` into `base_branch_oid`, as git would; new objects go into `repo`.

    Use `scratch` to keep them out of it. Errors: MergeConflict with the paths, RevisionNotFound.
    """
    with reading(f"the merge of {head_oid[:10]}"):
        ours, theirs = (_peel(repo, oid, pygit2.Commit) for oid in (base_branch_oid, head_oid))
        if repo.merge_base(ours.id, theirs.id) is None:
            raise MergeConflict(f"{head_oid[:10]} and {base_branch_oid[:10]} share no history")
        index = repo.merge_commits(ours, theirs)
        paths = _conflicts(index)
        if paths:
            raise MergeConflict(f"{head_oid[:10]} conflicts in {', '.join(paths[:10])}", paths)
        return str(index.write_tree(repo))


@contextmanager
def scratch(repo: Any, place: Path | None = None) -> Iterator[Any]:
    """A throw-away repository that sees the objects of `repo`; what is written to it never reaches `repo`.

    It lies in `place`, or where the machine keeps temporary files. Errors: CacheUnavailable.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="merge-", dir=place)
    except OSError as error:
        raise CacheUnavailable(f"there is no place to merge in: {error.strerror}") from error
    with folder as path, reading("the merge area"):
        pygit2.init_repository(path, bare=True)
        made = open_repository(Path(path))
        made.odb.add_disk_alternate(str(_objects(Path(repo.path))))
        yield made


def _objects(git_dir: Path) -> Path:
    """Where a repository keeps its objects; a linked work tree names the main repository in the file `commondir`."""
    common = git_dir / "commondir"
    return (git_dir / common.read_text().strip() if common.is_file() else git_dir) / "objects"


def _peel(repo: Any, oid: str, wanted: type) -> Any:
    found = repo.get(oid)
    if found is None:
        raise RevisionNotFound(f"there is no commit {oid}")
    try:
        return found.peel(wanted)
    except pygit2.GitError as error:
        raise RevisionNotFound(f"{oid} is not a commit") from error


def _conflicts(index: Any) -> list[str]:
    """The paths in conflict, sorted; names that are not text come escaped."""
    sides = (side for conflict in index.conflicts or () for side in conflict if side is not None)
    return sorted({side.path.encode("utf-8", "backslashreplace").decode() for side in sides})
