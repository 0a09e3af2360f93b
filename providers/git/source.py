"""The source of the fleet's desired state: poll a remote, verify, hand out a `RevisionSnapshot`; keep the last good.

Everything that touches the repository happens in a reader process with bounds; what is believed of it is decided here.
"""

from contextlib import suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

import structlog

from providers.clock import Clock
from providers.git.child import ReaderProcess
from providers.git.errors import (
    EntryNotRead,
    PathNotFound,
    RepositoryTooLarge,
    RevisionNotFound,
    SignatureRejected,
    SourceError,
    UnsupportedRepository,
)
from providers.git.files import Files
from providers.git.history import Ancestors, HistoryRule, Lineage, confirmations
from providers.git.messages import (
    Answer,
    FetchRef,
    FilesRead,
    FindRevision,
    KeepRevision,
    ObjectNamed,
    Question,
    ReadFiles,
    ReadKept,
    ResolveRevision,
    RevisionRead,
    Tip,
    Unmoved,
)
from providers.git.record import SourceRecord
from providers.git.selector import Target, revision_target
from providers.git.settings import GitSettings, mirror_root
from providers.git.signature import Evidence, Mode, Signers, Verified, verify_revision
from providers.git.snapshot import RevisionSnapshot
from providers.git.trust import SignerFiles

_log = structlog.get_logger(__name__)
_REST = 4.0
"""After a poll that failed, the remote and the processor rest this many times as long as it took."""
_OF_THE_TIP = (RepositoryTooLarge, PathNotFound, EntryNotRead, SignatureRejected, UnsupportedRepository)
"""Errors that stay the same until the tip moves."""
_REMEMBERED = 8

Answered = TypeVar("Answered")


class Rng(Protocol):
    """The one draw we need; `random.Random` has it."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class _Refusal(NamedTuple):
    """A tip that was refused for what it is, and by which list of signers."""

    tip: Tip
    error: SourceError
    signers: SignerFiles


class TrustStanding(NamedTuple):
    """Whether the revision in force is still vouched for: by whom, or why by nobody any more."""

    revision: str
    signer: str
    distrust: str


class GitSource:
    """One fleet repository, polled. Owned by one thread; a read for a plan may come from another.

    A failed poll raises and changes nothing: `last_good` stays what it was, and `next_poll_s` grows.
    """

    def __init__(self, settings: GitSettings, clock: Clock, rng: Rng) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        root = mirror_root(settings.cache_dir, settings.remote)
        self._record = SourceRecord(root / "record.json", clock.now)
        self._reader = ReaderProcess(settings.start(settings.remote))
        self._every_s = settings.interval_s
        self._failures = 0
        self._rest_until_s = 0.0
        self._error: SourceError | None = None
        self._tip: Tip | None = None
        self._kept: Tip | None = None
        self._refused: _Refusal | None = None
        self._handed_out: dict[str, tuple[Tip, Evidence]] = {}
        self._in_force = ""
        self._judged: tuple[str, SignerFiles | None] = ("", None)
        self._standing = TrustStanding("", "", "")
        self.last_good: RevisionSnapshot | None = None
        self.next_poll_s = 0.0

    def look_every(self, interval_s: float) -> bool:
        """Poll this often from the next poll on; returns whether that is another interval than before."""
        before, self._every_s = self._every_s, interval_s
        return before != interval_s

    def close(self) -> None:
        """End the reader process and give the cache folder free."""
        self._reader.close()

    def poll(self) -> RevisionSnapshot | None:
        """The revision the selector means now, or None if it is the one already handed out.

        Errors: any SourceError; wait `next_poll_s` before the next poll in every case. A tip that was refused for what
        it is raises the same error, at the price of asking where the ref stands, until it moves.
        """
        began_s = self._clock.monotonic()
        if began_s < self._rest_until_s and self._error is not None:
            raise self._error.with_traceback(None)
        try:
            found = self._poll()
        except SourceError as error:
            self._failed(error, began_s)
            raise
        else:
            self._failures, self._error = 0, None
            return found
        finally:
            self.next_poll_s = max(self._wait(), self._rest_until_s - self._clock.monotonic())

    def expected(self, hint: str) -> str:
        """The revision to restore at a start: what our own record says, else what the cluster's status hints at."""
        own = self._record.in_force
        return hint or (own.target.revision if own else "")

    def restore(self, hint: str = "") -> RevisionSnapshot:
        """The revision that was in force before this process, from the mirror, verified anew.

        Our own record counts, `hint` (from the FleetSync's status) only where it proves itself: on the selected ref,
        and forward of the record. Errors: RevisionNotFound, SignatureRejected and the like.
        """
        own = self._record.in_force
        hinted = revision_target(self._settings.selector, hint) if hint else None
        if own is not None and (hinted is None or hinted.oid == own.oid):
            return self._restored(self._read_kept(own))
        if own is None:
            return self._restored(self._proven(hint, hinted))
        try:
            found = self._proven(hint, hinted)
            if refusal := self._lineage(found, frozenset(), tag_signed=False).refusal(own.target.revision):
                raise RevisionNotFound(refusal)
            return self._restored(found)
        except SourceError as error:
            _log.warning("git.source.status_not_believed", status=hint, record=own.target.revision, why=str(error))
            return self._restored(self._read_kept(own))

    def adopted(self, revision: str) -> None:
        """Note in our own record that `revision` is in force now."""
        known = self._handed_out.get(revision)
        if known is None:
            return
        self._record.bring_into_force(known[0])
        self._in_force = revision

    def standing(self) -> TrustStanding:
        """Whether the revision in force is vouched for by the signers as they are listed now."""
        verification, known = self._settings.verification, self._handed_out.get(self._in_force)
        if verification is None or known is None:
            return TrustStanding(self._in_force, "", "")
        try:
            listed = verification.read()
            if (self._in_force, listed) != self._judged:
                signer = self._verify(known[1], listed.parse()).signer
                self._standing = TrustStanding(self._in_force, signer, "")
                self._judged = self._in_force, listed
        except SourceError as error:
            self._judged = ("", None)
            self._standing = TrustStanding(self._in_force, "", str(error))
        return self._standing

    def resolve(self, text: str) -> str:
        """The commit that `text` means in the mirror; HEAD is the last good revision. Errors: RevisionNotFound."""
        head = self._tip or self._record.in_force
        return self._asked(ResolveRevision(text, head.oid if head else ""), ObjectNamed).oid

    def revision(self, oid: str) -> Files:
        """The files at any commit of the mirror, for a plan: **not** verified. Errors: RevisionNotFound and others."""
        return _files(self._asked(ReadFiles(oid, self._settings.sub_path, self._settings.files), FilesRead))

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        """The files after merging a proposed commit into another; nothing is kept. Errors: MergeConflict and others."""
        question = ReadFiles(head_oid, self._settings.sub_path, self._settings.files, onto=base_oid)
        return _files(self._asked(question, FilesRead))

    def fetch_ref(self, name: str) -> str:
        """Fetch a ref by full name (`refs/pull/42/head`) for a plan and return its commit. Errors: RevisionNotFound."""
        return self._asked(FetchRef(name, selector=self._settings.selector), ObjectNamed).oid

    # -- polling ------------------------------------------------------------------------------------------------

    def _poll(self) -> RevisionSnapshot | None:
        settings = self._settings
        listed = self._listed()
        refused = self._refused if self._refused and self._refused.signers == listed else None
        known = [tip for tip in (self._tip, refused.tip if refused else None) if tip is not None]
        self._keep_in_force()
        answer = self._ask(FindRevision(settings.selector, settings.sub_path, settings.files, known))
        if isinstance(answer, RevisionRead):
            return self._accept(answer, listed)
        if refused is not None and answer == Unmoved(refused.tip):
            raise refused.error.with_traceback(None)
        return None

    def _failed(self, error: SourceError, began_s: float) -> None:
        """Remember what failed, so that the same is not tried again at the same price."""
        now_s = self._clock.monotonic()
        self._rest_until_s = now_s + min(_REST * (now_s - began_s), self._settings.max_backoff_s)
        self._error = error
        known = self._refused is not None and error is self._refused.error
        self._failures = 0 if known else self._failures + 1
        tip = self._reader.tip
        if not known and tip is not None and isinstance(error, _OF_THE_TIP):
            with suppress(SignatureRejected):
                self._refused = _Refusal(tip, error, self._listed())

    def _keep_in_force(self) -> None:
        """Let the mirror hold on to the revision in force, before a fetch drops its ref."""
        own = self._record.in_force
        if own is not None and own != self._kept:
            self._ask(KeepRevision(own.raw))
            self._kept = own

    def _ask(self, question: Question) -> Answer:
        settings = self._settings
        return self._reader.ask(question, settings.start(settings.credentials()) if settings.credentials else None)

    def _asked(self, question: Question, expected: type[Answered]) -> Answered:
        answer = self._ask(question)
        if not isinstance(answer, expected):
            raise SourceError(f"the reader answered {type(question).__name__} with {type(answer).__name__}")
        return answer

    # -- what is believed ---------------------------------------------------------------------------------------

    def _listed(self) -> SignerFiles:
        verification = self._settings.verification
        return SignerFiles() if verification is None else verification.read()

    def _accept(self, found: RevisionRead, listed: SignerFiles) -> RevisionSnapshot:
        snapshot = self._snapshot(found, listed)
        self._tip, self._refused = found.tip, None
        self.last_good = snapshot
        return snapshot

    def _snapshot(self, found: RevisionRead, listed: SignerFiles) -> RevisionSnapshot:
        settings, target = self._settings, found.tip.target
        evidence = Evidence(target, found.tip.raw, found.commit, found.tag)
        signer, leaves = None, frozenset[str]()
        confirms = confirmations(found.commit) | confirmations(found.tag)
        if settings.verification is not None:
            done = self._verify(evidence, listed.parse())
            signer, leaves, confirms = done.signer, done.leaves, done.confirms
        self._remember(target.revision, found.tip, evidence)
        tag_signed = settings.verification is not None and settings.verification.mode is not Mode.HEAD
        any_order = settings.history is HistoryRule.ANY
        lineage = None if any_order else self._lineage(found, leaves, tag_signed=tag_signed)
        return RevisionSnapshot(
            target.revision,
            target.oid,
            found.tree_oid,
            MappingProxyType(found.files),
            datetime.fromtimestamp(found.committed_at_s, UTC),
            found.author,
            signer,
            lineage=lineage,
            confirms=confirms,
        )

    def _verify(self, evidence: Evidence, signers: Signers) -> Verified:
        verification = self._settings.verification
        mode = Mode.HEAD if verification is None else verification.mode
        seen_s = self._record.first_seen(evidence.target.oid if mode is Mode.HEAD else evidence.raw)
        return verify_revision(evidence, mode, signers, seen_s)

    def _lineage(self, found: RevisionRead, leaves: frozenset[str], *, tag_signed: bool) -> Lineage:
        allowed = leaves | self._settings.allow_rewind
        return Lineage(found.tip.target, Ancestors(found.ancestors), allowed, tag_signed, found.whole)

    def _remember(self, revision: str, tip: Tip, evidence: Evidence) -> None:
        self._handed_out[revision] = (tip, evidence)
        while len(self._handed_out) > _REMEMBERED:
            del self._handed_out[next(name for name in self._handed_out if name != self._in_force)]

    def _read_kept(self, tip: Tip) -> RevisionRead:
        settings = self._settings
        return self._asked(ReadKept(tip, settings.selector, settings.sub_path, settings.files), RevisionRead)

    def _proven(self, hint: str, hinted: Target | None) -> RevisionRead:
        """The revision that a status hints at, if it is one that the selector could have led to."""
        if hinted is None:
            raise RevisionNotFound(f"{hint} is not a revision of what the settings select")
        found = self._read_kept(Tip(hinted.ref, hinted.oid, ""))
        if not found.on_ref:
            raise RevisionNotFound(f"{hint} is not in the history of what the settings select")
        return found

    def _restored(self, found: RevisionRead) -> RevisionSnapshot:
        snapshot = self._snapshot(found, self._listed())
        self._in_force = snapshot.revision
        if self.last_good is None:
            self.last_good = snapshot
        return snapshot

    def _wait(self) -> float:
        """Seconds until the next poll: the interval give or take the jitter; doubled for each failure in a row."""
        settings = self._settings
        most_s = max(settings.max_backoff_s, self._every_s)
        base = min(self._every_s * 2.0 ** min(self._failures, 30), most_s)
        spread = max(settings.jitter, 0.25) if self._failures else settings.jitter
        return base * (1 + spread * (2 * self._rng.random() - 1))


def _files(found: FilesRead) -> Files:
    return Files(MappingProxyType(found.files))
