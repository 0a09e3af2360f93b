"""Fetching from a repository on this machine, object by object.

libgit2's own transport for paths packs every ref of the other repository, and loads all of it to do so. Here only what
the asked refs lead to is taken, and how large an object is comes from its header, before anything is inflated.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import FileMode, ObjectType

from providers.git.errors import RepositoryTooLarge, RevisionNotFound
from providers.git.limits import MirrorLimits
from providers.git.opening import reading

_MAX_TREE_BYTES = 16 * 1024 * 1024
_MAX_COMMIT_BYTES = 1024 * 1024


def fetch_local(theirs: Any, ours: Any, wanted: Mapping[str, str], limits: MirrorLimits) -> None:
    """Bring what the oids in `wanted` (our ref -> their oid) lead to, and point our refs there.

    Errors: RepositoryTooLarge with the object's path, RevisionNotFound for an oid that is not there.
    """
    with reading("the repository on this machine, or its mirror,"):
        pack = pygit2.PackBuilder(theirs)
        seen: set[Any] = set()
        for text in wanted.values():
            if text not in theirs:
                raise RevisionNotFound(f"there is no object {text}")
            for oid in _new_objects(theirs, ours, pygit2.Oid(hex=text), limits.max_object_bytes, seen):
                pack.add(oid)
        if len(pack):
            _write(pack, Path(ours.path) / "objects" / "pack", limits.max_bytes)
        for name, text in wanted.items():
            ours.references.create(name, text, force=True)


def _write(pack: Any, folder: Path, most: int) -> None:
    before = set(folder.iterdir())
    pack.write(str(folder))
    written = set(folder.iterdir()) - before
    if sum(file.stat().st_size for file in written) > most:
        for file in written:
            file.unlink()
        raise RepositoryTooLarge(f"the remote holds more than {most:,} bytes that are new to us")


def _new_objects(theirs: Any, ours: Any, oid: Any, most: int, seen: set[Any]) -> Iterator[Any]:
    """Every object that `oid` leads to and `ours` lacks, each once."""
    pending = [oid]
    while pending:
        at = pending.pop()
        if at in seen or at in ours:
            continue
        seen.add(at)
        kind, size = theirs.odb.read_header(at)
        if kind == ObjectType.BLOB:
            _check(at, "which a ref names", size, most)
        else:
            _check(at, f"a {ObjectType(kind).name.lower()}", size, min(most, _MAX_COMMIT_BYTES))
        yield at
        found = theirs[at]
        if isinstance(found, pygit2.Tag):
            pending.append(found.target)
        elif isinstance(found, pygit2.Commit):
            pending += found.parent_ids
            yield from _new_in_folder(theirs, ours, found.tree_id, most, seen)


def _new_in_folder(theirs: Any, ours: Any, oid: Any, most: int, seen: set[Any]) -> Iterator[Any]:
    pending = [(oid, "")]
    while pending:
        at, where = pending.pop()
        if at in seen or at in ours:
            continue
        seen.add(at)
        _check(at, where or "the root folder", theirs.odb.read_header(at)[1], min(most, _MAX_TREE_BYTES))
        yield at
        for entry in theirs[at]:
            path = where + repr(entry.raw_name)[2:-1]
            if entry.filemode == FileMode.TREE:
                pending.append((entry.id, f"{path}/"))
            elif entry.filemode != FileMode.COMMIT and entry.id not in seen and entry.id not in ours:
                seen.add(entry.id)
                _check(entry.id, path, theirs.odb.read_header(entry.id)[1], most)
                yield entry.id


def _check(oid: Any, what: str, size: int, most: int) -> None:
    if size > most:
        raise RepositoryTooLarge(f"{oid}, {what}, of {size:,} bytes is larger than an object may be ({most:,} bytes)")
