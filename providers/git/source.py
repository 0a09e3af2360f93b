"""The source of the fleet's desired state: poll a remote, verify, hand out a `RevisionSnapshot`; keep the last good."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from providers.clock import Clock
from providers.git.auth import Remote
from providers.git.errors import CorruptRepository, RevisionNotFound, SourceError
from providers.git.files import FileLimits, Files
from providers.git.local import LocalRepository, open_local, read_directory
from providers.git.repository import BareMirror, MirrorLimits
from providers.git.selector import HEADS, TAGS, Branch, Commit, Ref, Selector, Target
from providers.git.signature import Verification, verify_target
from providers.git.snapshot import RevisionSnapshot, read_snapshot, resolve_revision
from providers.git.tree import merge_tree, scan_tree, scratch

__all__ = ["GitSettings", "GitSource", "LocalRepository", "RevisionSnapshot", "Rng", "open_local", "read_directory"]

_log = structlog.get_logger(__name__)
_LAST_GOOD = "last-good"


class Rng(Protocol):
    """The one draw we need; `random.Random` has it."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


@dataclass(frozen=True)
class GitSettings:
    """Where the fleet is declared and how it is fetched. Times in seconds.

    `jitter` spreads polls by that fraction of the interval; after failures the interval doubles up to `max_backoff_s`.
    Errors: ValueError for values that cannot work or cannot be safe.
    """

    remote: Remote
    cache_dir: Path
    selector: Selector = field(default_factory=Branch)
    sub_path: str = ""
    verification: Verification | None = None
    interval_s: float = 60.0
    jitter: float = 0.1
    max_backoff_s: float = 900.0
    mirror: MirrorLimits = field(default_factory=MirrorLimits)
    files: FileLimits = field(default_factory=FileLimits)
    any_owner: bool = False

    def __post_init__(self) -> None:
        if self.interval_s <= 0 or not 0 <= self.jitter < 1 or self.max_backoff_s < self.interval_s:
            raise ValueError("interval_s > 0, 0 <= jitter < 1 and max_backoff_s >= interval_s must hold")
        if self.verification is not None:
            self._check_outside(self.verification.allowed_signers.resolve())

    def _check_outside(self, signers: Path) -> None:
        """A list of signers that a push could change would let anybody sign."""
        places = [self.cache_dir, *([Path(self.remote.path)] if self.remote.scheme == "file" else [])]
        if any(signers.is_relative_to(place.resolve()) for place in places):
            raise ValueError(
                f"the allowed signers file {signers} lies inside the repository or its cache; keep it outside"
            )


class GitSource:
    """One fleet repository, polled. Owned by one thread; a read for a plan may come from another.

    A failed poll raises and changes nothing: `last_good` stays what it was, and `next_poll_s` grows.
    """

    def __init__(self, settings: GitSettings, clock: Clock, rng: Rng) -> None:
        self._settings = settings
        self._rng = rng
        self._mirror = BareMirror(
            settings.remote, settings.cache_dir, clock, settings.mirror, any_owner=settings.any_owner
        )
        self._failures = 0
        self._target: Target | None = None
        self.last_good: RevisionSnapshot | None = None
        self.next_poll_s = 0.0

    def close(self) -> None:
        """Give the cache folder free."""
        self._mirror.close()

    def poll(self) -> RevisionSnapshot | None:
        """The revision the selector means now, or None if it is the one already handed out.

        Errors: any SourceError; wait `next_poll_s` before the next poll in every case.
        """
        try:
            found = self._poll()
        except SourceError:
            self._failures += 1
            raise
        else:
            self._failures = 0
            return found
        finally:
            self.next_poll_s = self._wait()

    def restore(self) -> RevisionSnapshot | None:
        """The last good revision of an earlier process, from the cache alone, verified anew; None if there is none.

        For a start while the remote is away. Errors: SignatureRejected, CorruptRepository and the like.
        """
        target = self._remembered()
        if target is None or not _would_choose(self._settings.selector, target):
            return None
        return self._accept(target, self._read(target, forced=False))

    def resolve(self, text: str) -> str:
        """The commit that `text` means in the mirror; HEAD is the last good revision. Errors: RevisionNotFound."""
        head = self._target or self._remembered()
        return resolve_revision(self._mirror.repository(), text, head.oid if head else "")

    def revision_files(self, oid: str) -> Mapping[str, bytes]:
        """The files at any commit of the mirror, for a plan: **not** verified. Errors: RevisionNotFound and others."""
        return self.revision(oid).files

    def revision(self, oid: str) -> Files:
        """As `revision_files`, with what was left out."""
        return scan_tree(self._mirror.repository(), oid, self._settings.sub_path, self._settings.files)

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        """The files after merging a proposed commit into another; nothing is kept. Errors: MergeConflict and others."""
        with scratch(self._mirror.repository(), self._mirror.root) as area:
            merged = merge_tree(area, base_oid, head_oid)
            return scan_tree(area, merged, self._settings.sub_path, self._settings.files)

    def fetch_ref(self, name: str) -> str:
        """Fetch a ref by full name (`refs/pull/42/head`) for a plan and return its commit. Errors: RevisionNotFound."""
        wanted = Ref(name)
        wanted.resolve(self._mirror.list_remote())
        self._mirror.fetch((*self._extra(), *_beyond_branches(wanted)))
        return wanted.resolve(self._mirror.heads()).oid

    def _poll(self) -> RevisionSnapshot | None:
        try:
            return self._poll_once()
        except CorruptRepository as error:
            _log.warning("git.source.damaged", remote=self._settings.remote.shown, error=str(error))
            self._mirror.reclone(self._extra())
            return self._poll_once()

    def _poll_once(self) -> RevisionSnapshot | None:
        target = self._fetched_target()
        if target == self._target:
            return None
        forced = self._is_forced(self._target or self._remembered(), target)
        return self._accept(target, self._read(target, forced=forced))

    def _fetched_target(self) -> Target:
        """What the selector means on the remote, with the mirror brought up to date if it has moved."""
        selector = self._settings.selector
        if isinstance(selector, Commit):
            self._ensure_commit()
            return selector.resolve({})
        remote = self._mirror.list_remote()
        target = selector.resolve(remote)
        if target == self._target:
            return target
        # The ref itself is compared, not only its commit: a tag may have been signed again.
        if self._mirror.heads().get(target.ref) == remote[target.ref]:
            return target
        self._mirror.fetch(self._extra())
        # Now the mirror decides: the remote may have moved on between the two questions.
        return selector.resolve(self._mirror.heads())

    def _ensure_commit(self) -> None:
        """A pinned commit needs the network only until we have it."""
        selector = self._settings.selector
        if not isinstance(selector, Commit) or self._has(selector.oid):
            return
        self._mirror.fetch()
        if not self._has(selector.oid):
            self._mirror.fetch_commit(selector.oid)

    def _has(self, oid: str) -> bool:
        try:
            return oid in self._mirror.repository()
        except CorruptRepository:
            return False

    def _extra(self) -> tuple[str, ...]:
        return _beyond_branches(self._settings.selector)

    def _read(self, target: Target, *, forced: bool) -> RevisionSnapshot:
        repo = self._mirror.repository()
        if target.oid not in repo:
            # It was fetched, and libgit2 passes over a pack it cannot read.
            raise CorruptRepository(f"the mirror lost the commit {target.oid}")
        demanded = self._settings.verification
        signer = None if demanded is None else verify_target(repo, target, demanded.mode, demanded.load())
        return read_snapshot(repo, target, self._settings.sub_path, self._settings.files, signer, forced=forced)

    def _accept(self, target: Target, snapshot: RevisionSnapshot) -> RevisionSnapshot:
        if snapshot.forced:
            _log.warning("git.source.forced", remote=self._settings.remote.shown, revision=snapshot.revision)
        try:
            self._mirror.remember(_LAST_GOOD, f"{target.ref} {target.oid}")
        except SourceError as error:
            # A full disk must not keep back a revision that was read; only the next restart will miss the line.
            _log.warning("git.source.not_remembered", remote=self._settings.remote.shown, error=str(error))
        self._target = target
        self.last_good = snapshot
        return snapshot

    def _remembered(self) -> Target | None:
        ref, _, oid = self._mirror.recall(_LAST_GOOD).rpartition(" ")
        return Target(ref, oid) if len(oid) == 40 else None

    def _is_forced(self, previous: Target | None, target: Target) -> bool:
        return (
            previous is not None and previous.ref == target.ref and not self._mirror.descends(target.oid, previous.oid)
        )

    def _wait(self) -> float:
        """Seconds until the next poll: the interval give or take the jitter; doubled for each failure in a row."""
        settings = self._settings
        base = min(settings.interval_s * 2.0 ** min(self._failures, 30), settings.max_backoff_s)
        spread = max(settings.jitter, 0.25) if self._failures else settings.jitter
        return base * (1 + spread * (2 * self._rng.random() - 1))


def _beyond_branches(selector: Selector) -> tuple[str, ...]:
    """The refs a fetch must name because they are neither branches nor tags."""
    return (selector.name,) if isinstance(selector, Ref) and not selector.name.startswith((HEADS, TAGS)) else ()


def _would_choose(selector: Selector, target: Target) -> bool:
    """Whether the selector could have led to `target`: the settings may have changed since it was remembered."""
    try:
        return selector.resolve({target.ref: target.oid}) == target
    except RevisionNotFound:
        return False
