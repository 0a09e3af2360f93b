"""The reader of the fleet repository: answers questions about it from the mirror. Runs in a process of its own."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import singledispatchmethod
from typing import Any

import structlog
from pygit2.enums import ObjectType

from providers.clock import Clock
from providers.git.errors import CorruptRepository, RepositoryTooLarge, RevisionNotFound
from providers.git.files import FileLimits, Files
from providers.git.messages import (
    Answer,
    FetchRef,
    FilesRead,
    FindRevision,
    KeepRevision,
    ObjectNamed,
    Question,
    ReaderStart,
    ReadFiles,
    ReadKept,
    ResolveRevision,
    RevisionRead,
    SuspectObject,
    Tip,
    Unmoved,
)
from providers.git.opening import reading
from providers.git.repository import BareMirror
from providers.git.selector import TAGS, Commit, Ref, Selector, Tag, Target
from providers.git.snapshot import history_of, read_snapshot, resolve_revision
from providers.git.tree import merge_tree, scan_tree, scratch

_log = structlog.get_logger(__name__)
_MAX_SIGNED = 1024 * 1024
"""Longest commit or tag object, in bytes."""


class RepositoryReader:
    """One mirror and the questions about it. `report` gets what is known before an answer: the tip, a suspect."""

    def __init__(self, start: ReaderStart, clock: Clock, report: Callable[[Tip | SuspectObject], None]) -> None:
        self._report = report
        self._shown = start.remote.shown
        self._mirror = BareMirror(
            start.remote,
            start.cache_dir,
            clock,
            start.mirror,
            any_owner=start.any_owner,
            suspect=lambda words: report(SuspectObject(words)),
        )

    def close(self) -> None:
        """Give the cache folder free."""
        self._mirror.close()

    @singledispatchmethod
    def answer(self, question: Question) -> Answer:
        """The answer to a question. Errors: any SourceError."""
        raise TypeError(f"{type(question).__name__} is no question")

    @answer.register
    def _look(self, question: FindRevision) -> Answer:
        try:
            return self._looked(question)
        except CorruptRepository as error:
            _log.warning("git.source.damaged", remote=self._shown, error=str(error))
            self._mirror.reclone(self._names(question.selector))
            return self._looked(question)

    def _looked(self, question: FindRevision) -> Answer:
        tip = self._tip(question)
        if tip in question.known:
            return Unmoved(tip)
        return self._read(tip, question.sub_path, question.files)

    @answer.register
    def _read_kept(self, question: ReadKept) -> Answer:
        """A commit from the mirror alone."""
        tip = question.tip if question.tip.raw else self._named(question)
        repo = self._mirror.repository()
        if tip.oid not in repo:
            raise RevisionNotFound(f"there is no commit {tip.oid}")
        found = self._read(tip, question.sub_path, question.files)
        with suppress(RevisionNotFound):
            newest = question.selector.resolve(self._mirror.heads()).oid
            on_ref = newest in repo and (newest == tip.oid or bool(repo.descendant_of(newest, tip.oid)))
            return RevisionRead(
                **{**{name: getattr(found, name) for name in found.__struct_fields__}, "on_ref": on_ref}
            )
        return found

    def _named(self, question: ReadKept) -> Tip:
        """The tip with the object that its ref names: a tag of another version than the newest has to be fetched."""
        asked = question.tip
        if not asked.ref.startswith(TAGS):
            return Tip(asked.ref, asked.oid, asked.oid)
        if asked.ref not in self._mirror.heads():
            self._mirror.fetch((*self._names(question.selector), asked.ref))
        heads = self._mirror.heads()
        if Tag(asked.ref.removeprefix(TAGS)).resolve(heads).oid != asked.oid:
            raise RevisionNotFound(f"{asked.ref} does not name {asked.oid}")
        return Tip(asked.ref, asked.oid, heads[asked.ref])

    @answer.register
    def _keep(self, question: KeepRevision) -> Answer:
        self._mirror.keep(question.raw)
        return ObjectNamed(question.raw)

    @answer.register
    def _resolve(self, question: ResolveRevision) -> Answer:
        return ObjectNamed(resolve_revision(self._mirror.repository(), question.text, question.head))

    @answer.register
    def _files(self, question: ReadFiles) -> Answer:
        repo = self._mirror.repository()
        if not question.onto:
            return _files_read(scan_tree(repo, question.oid, question.sub_path, question.files))
        with scratch(repo, self._mirror.root) as area:
            merged = merge_tree(area, question.onto, question.oid)
            return _files_read(scan_tree(area, merged, question.sub_path, question.files))

    @answer.register
    def _fetch_ref(self, question: FetchRef) -> Answer:
        wanted = Ref(question.name)
        listed = self._mirror.list_remote()
        wanted.resolve(listed)
        self._mirror.fetch((*self._names(question.selector, listed), question.name))
        return ObjectNamed(wanted.resolve(self._mirror.heads()).oid)

    def _tip(self, question: FindRevision) -> Tip:
        """What the selector means on the remote, with the mirror brought up to date unless it is known."""
        selector = question.selector
        if isinstance(selector, Commit):
            target = selector.resolve({})
            tip = Tip(target.ref, target.oid, target.oid)
            if tip not in question.known:
                self._ensure_commit(selector)
            return tip
        tip = _tip_among(selector, self._mirror.list_remote())
        # The ref itself is compared, not only its commit: a tag may have been signed again.
        if tip in question.known or self._mirror.heads().get(tip.ref) == tip.raw:
            return tip
        self._report(tip)
        self._mirror.fetch([tip.ref])
        # Now the mirror decides: the remote may have moved on between the two questions.
        return _tip_among(selector, self._mirror.heads())

    def _ensure_commit(self, selector: Commit) -> None:
        """A pinned commit needs the network only until we have it; its branch may lead to it if nothing else does."""
        if self._has(selector.oid):
            return
        self._report(Tip("", selector.oid, selector.oid))
        try:
            self._mirror.fetch_commit(selector.oid)
        except RevisionNotFound:
            self._mirror.fetch(self._names(selector))
            if not self._has(selector.oid):
                raise

    def _has(self, oid: str) -> bool:
        try:
            return oid in self._mirror.repository()
        except CorruptRepository:
            return False

    def _names(self, selector: Selector, listed: dict[str, str] | None = None) -> Sequence[str]:
        """The refs that the selector needs of the remote, and no others."""
        if isinstance(selector, Commit):
            label = selector.resolve({}).ref
            return [label] if label else []
        return [selector.resolve(self._mirror.list_remote() if listed is None else listed).ref]

    def _read(self, tip: Tip, sub_path: str, limits: FileLimits) -> RevisionRead:
        self._report(tip)
        repo = self._mirror.repository()
        if tip.oid not in repo:
            # It was fetched, and libgit2 passes over a pack it cannot read.
            raise CorruptRepository(f"the mirror lost the commit {tip.oid}")
        commit = _object(repo, tip.oid, ObjectType.COMMIT)
        tag = _object(repo, tip.raw, ObjectType.TAG) if tip.raw != tip.oid and tip.ref.startswith(TAGS) else b""
        found = read_snapshot(repo, tip.target, sub_path, limits)
        ancestors, whole = history_of(repo, tip.oid)
        return RevisionRead(
            tip,
            found.tree_oid,
            dict(found.files),
            commit,
            tag,
            found.committed_at.timestamp(),
            found.author,
            ancestors,
            whole,
            on_ref=True,
        )


def _tip_among(selector: Selector, heads: dict[str, str]) -> Tip:
    target: Target = selector.resolve(heads)
    return Tip(target.ref, target.oid, heads[target.ref])


def _files_read(found: Files) -> FilesRead:
    return FilesRead(dict(found.files))


def _object(repo: Any, oid: str, wanted: ObjectType) -> bytes:
    """The bytes of a commit or tag. Errors: RevisionNotFound, RepositoryTooLarge."""
    with reading(f"object {oid[:10]}"):
        kind, size = repo.odb.read_header(oid)
        if kind != wanted:
            raise RevisionNotFound(f"{oid} is not a {wanted.name.lower()}")
        if size > _MAX_SIGNED:
            raise RepositoryTooLarge(
                f"the {wanted.name.lower()} {oid} takes {size:,} bytes; {_MAX_SIGNED:,} are allowed"
            )
        content: bytes = repo.odb.read(oid)[1]
        return content
