"""The mirror: a bare full clone on disk that is nothing but a cache, and may be thrown away at any time.

Layout below the cache folder, one folder per remote address (without the password, which may change):

    lock          held for life by the process that uses the mirror
    home/.ssh     known_hosts, the only host keys libgit2 gets to see
    mirror-<n>    a generation; libgit2 never collects garbage, so a new generation replaces one that grew
    current       a link to the generation in use, replaced atomically

Only the refs that are asked for are fetched; whatever else somebody pushes does not reach us. The revision in force is
kept under a ref of our own, so that it survives its branch.
The generation before the current one is kept until the next swap, so that a reader in another thread can finish.
"""

import fcntl
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pygit2
import structlog
from pygit2.enums import ObjectType

from providers.clock import Clock
from providers.git import library
from providers.git.auth import Remote
from providers.git.errors import CacheUnavailable, CorruptRepository, RemoteUnreachable, RevisionNotFound, SourceError
from providers.git.limits import MirrorLimits
from providers.git.local_fetch import fetch_local
from providers.git.opening import check_owner, open_repository, reading
from providers.git.packscan import PackScan
from providers.git.transport import TransferLimits, callbacks, translated

_log = structlog.get_logger(__name__)
_GENERATION = re.compile(r"mirror-(\d{1,9})")
_KEPT = "refs/muster/"
_IN_FORCE = f"{_KEPT}in-force"
_MAX_TAG = 1024 * 1024
_PIECE = 64 * 1024
# Only what can be no ref: `tmp_x` is a fine name for a branch, a name that ends in `.lock` is none.
_LEFTOVERS = ("objects/**/tmp_*", "objects/**/*_git2_*", "**/*.lock")


class BareMirror:
    """The cache of one remote. Owned by one thread; `repository()` gives other threads their own view to read.

    Errors: CacheUnavailable where another process holds the folder or it cannot be written.
    """

    def __init__(
        self,
        remote: Remote,
        cache_dir: Path,
        clock: Clock,
        limits: MirrorLimits | None = None,
        *,
        any_owner: bool = False,
        suspect: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self._suspect = suspect
        self._remote = remote
        self._clock = clock
        self._limits = limits or MirrorLimits()
        self._any_owner = any_owner
        self.root = cache_dir / hashlib.sha256(remote.shown.encode()).hexdigest()[:16]
        with translated(remote):
            self._lock = _hold(self.root)
            try:
                self._write_known_hosts()
                self._clean()
                self._ready()
            except BaseException:
                self._lock.close()
                raise

    def close(self) -> None:
        """Give the folder free for another process."""
        self._lock.close()

    def repository(self) -> Any:
        """The current generation, opened anew: a pygit2 Repository must stay within one thread."""
        return open_repository(self.root / "current", any_owner=self._any_owner)

    def list_remote(self) -> dict[str, str]:
        """Every ref of the remote (peeled tags as `<ref>^{}`) and its oid, without fetching. One round trip.

        Errors: Unreachable, AuthenticationFailed, HostKeyRejected, UnsupportedRepository.
        """
        with self._network() as calls:
            anonymous = self._ready().remotes.create_anonymous(self._remote.url)
            heads = anonymous.list_heads(callbacks=calls(), proxy=self._remote.proxy)
            return {head.name: str(head.oid) for head in heads if head.name}

    def fetch(self, names: Sequence[str]) -> None:
        """Bring the refs `names`, and no others, up to date; those the remote lost, and all that is not asked for, go.

        A damaged mirror is cloned afresh, once. Errors: those of `list_remote`, RepositoryTooLarge, CorruptRepository.
        """
        try:
            self._fetch_into(self._ready(), names)
        except CorruptRepository as error:
            _log.warning("git.mirror.damaged", remote=self._remote.shown, error=str(error))
            self.reclone(names)
        else:
            self._shrink(names)

    def fetch_commit(self, oid: str) -> None:
        """Fetch one commit that no branch or tag leads to. Errors: RevisionNotFound where the remote gives none."""
        try:
            with self._network() as calls:
                self._transfer(self._ready(), {f"{_KEPT}{oid}": oid}, calls())
        except (RemoteUnreachable, CorruptRepository) as error:
            # Servers refuse a bare commit in a dozen ways (uploadpack.allowReachableSHA1InWant), all in words only.
            raise RevisionNotFound(f"{self._remote.shown} does not give out the commit {oid}: {error}") from error
        if oid not in self.repository():
            raise RevisionNotFound(f"{self._remote.shown} has no commit {oid}")

    def heads(self) -> dict[str, str]:
        """Every ref of the mirror and its oid; annotated tags also peeled, under `<ref>^{}`, as a remote lists them."""
        with reading("the refs of the mirror"):
            repo = self.repository()
            found: dict[str, str] = {}
            for ref in repo.references.objects:
                found[ref.name] = str(ref.target)
                kind, size = repo.odb.read_header(ref.target) if ref.target in repo else (None, 0)
                if kind == ObjectType.TAG and size <= _MAX_TAG:
                    with suppress(pygit2.GitError):  # a tag of a tree or blob leads to no commit: it selects nothing
                        found[f"{ref.name}^{{}}"] = str(ref.peel(pygit2.Commit).id)
            return found

    def reclone(self, names: Sequence[str]) -> None:
        """Clone into a new folder and swap it in; until that has succeeded the old one stays in use."""
        fresh = self._generation(self._newest() + 1)
        try:
            repo = open_repository(fresh, any_owner=self._any_owner)
            self._fetch_into(repo, names)
            self._bring_along(repo)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        before = self._current()
        self._point_to(fresh)
        self._drop_generations(keep={fresh.name, before})

    def keep(self, oid: str) -> None:
        """Hold on to the commit or tag `oid` as the revision in force, whatever becomes of its ref."""
        repo = self._ready()
        with reading("the revision in force"):
            if oid in repo:
                repo.references.create(_IN_FORCE, oid, force=True)

    def _bring_along(self, repo: Any) -> None:
        """Take the revision in force over from the generation in use: the remote may not have it any more."""
        with suppress(pygit2.GitError, SourceError, KeyError, ValueError):
            old = self.repository()
            kept = old.references.get(_IN_FORCE)
            if kept is not None:
                fetch_local(old, repo, {_IN_FORCE: str(kept.target)}, self._limits)

    def packs(self) -> tuple[int, int]:
        """How many packs the current generation has, and how many bytes its objects take on disk."""
        objects = self.root / "current" / "objects"
        sizes = [entry.stat().st_size for entry in objects.rglob("*") if entry.is_file()]
        return len(list((objects / "pack").glob("*.pack"))), sum(sizes)

    def _fetch_into(self, repo: Any, names: Sequence[str]) -> None:
        with self._network() as calls:
            anonymous = repo.remotes.create_anonymous(self._remote.url)
            heads = anonymous.list_heads(callbacks=calls(), proxy=self._remote.proxy)
            listed = {head.name: str(head.oid) for head in heads}
            wanted = {name: listed[name] for name in names if name in listed}
            _prune(repo, keep=set(wanted))
            if wanted:
                self._transfer(repo, wanted, calls())

    def _transfer(self, repo: Any, wanted: Mapping[str, str], calls: Any) -> None:
        """Fetch refs (name -> where it stands), or commits into refs of ours; each object is looked at first."""
        if self._remote.scheme == "file":
            theirs = open_repository(Path(self._remote.path), any_owner=self._any_owner)
            fetch_local(theirs, repo, wanted, self._limits)
            return
        specs = [f"+{oid if name.startswith(_KEPT) else name}:{name}" for name, oid in wanted.items()]
        calls.transfer_progress = _looked_at(calls.transfer_progress, repo, self._scan())
        repo.remotes.create_anonymous(self._remote.url).fetch(specs, callbacks=calls, proxy=self._remote.proxy)

    def _scan(self) -> PackScan:
        return PackScan(self._limits.max_object_bytes, self._suspect)

    def _shrink(self, names: Sequence[str]) -> None:
        """Replace a generation that grew. It is only housekeeping: when it fails the old one serves on."""
        packs, size = self.packs()
        if packs < self._limits.max_packs and (size <= self._limits.max_bytes or packs <= 1):
            return
        try:
            self.reclone(names)
        except SourceError as error:
            _log.warning(
                "git.mirror.reclone_failed", remote=self._remote.shown, packs=packs, bytes=size, error=str(error)
            )
            if size > self._limits.max_bytes:
                raise

    @contextmanager
    def _network(self) -> Iterator[Callable[[], Any]]:
        """Talk to the remote: process settings in place, errors translated; yields a maker of fresh callbacks."""
        limits = self._limits
        settings = library.NetworkSettings(
            limits.connect_timeout_s, limits.read_timeout_s, self.root / "home", self._remote.ca_file
        )
        with translated(self._remote), library.network(settings):
            if self._remote.scheme == "file":
                self._check_path(Path(self._remote.path))
            transfer = TransferLimits(limits.deadline_s, limits.max_bytes)
            yield lambda: callbacks(self._remote, transfer, self._clock)

    def _check_path(self, path: Path) -> None:
        if not path.exists():
            raise RemoteUnreachable(f"there is no repository at {path}")
        if not self._any_owner:
            check_owner(path)

    def _ready(self) -> Any:
        """The current generation; an empty one takes the place of one that cannot even be opened."""
        try:
            return self.repository()
        except CorruptRepository:
            fresh = self._generation(self._newest() + 1)
            self._point_to(fresh)
            return self.repository()

    def _generation(self, number: int) -> Path:
        path = self.root / f"mirror-{number}"
        repo = pygit2.init_repository(str(path), bare=True)
        # libgit2 takes our bearer token along to wherever a redirect leads; better not to follow to another host.
        repo.config["http.followRedirects"] = "false"
        return path

    def _point_to(self, generation: Path) -> None:
        link = self.root / "current.new"
        link.unlink(missing_ok=True)
        link.symlink_to(generation.name)
        link.replace(self.root / "current")

    def _current(self) -> str:
        link = self.root / "current"
        return str(link.readlink()) if link.is_symlink() else ""

    def _newest(self) -> int:
        return max((int(match[1]) for match in map(_GENERATION.fullmatch, _names(self.root)) if match), default=0)

    def _drop_generations(self, keep: set[str]) -> None:
        for name in _names(self.root):
            if _GENERATION.fullmatch(name) and name not in keep:
                shutil.rmtree(self.root / name, ignore_errors=True)

    def _clean(self) -> None:
        """Remove what a crash left: half-made generations, partial packs, stale lock files. Nobody else is here."""
        current = self._current()
        self._drop_generations(keep={current})
        for unfinished in self.root.glob("*.new"):
            unfinished.unlink()
        for area in self.root.glob("merge-*"):
            shutil.rmtree(area, ignore_errors=True)
        for pattern in _LEFTOVERS if current else ():
            for leftover in (self.root / current).glob(pattern):
                if leftover.is_file():
                    leftover.unlink()

    def _write_known_hosts(self) -> None:
        folder = self.root / "home" / ".ssh"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "known_hosts").write_text(self._remote.known_hosts)


def _prune(repo: Any, keep: set[str]) -> None:
    """Drop every ref that is not asked for; a branch `a` that became `a/b` would else block every fetch."""
    for name in repo.listall_references():
        if not name.startswith(_KEPT) and name not in keep:
            repo.references.delete(name)


def _looked_at(check: Callable[[Any], None], repo: Any, scan: PackScan) -> Callable[[Any], None]:
    """Progress of a transfer: `check` first, then a look at what has arrived since; libgit2 keeps it in one file."""
    folder, seen = Path(repo.path) / "objects" / "pack", 0

    def progress(stats: Any) -> None:
        """Look at what has arrived since the last call. CorruptRepository where nothing can be found of what has."""
        nonlocal seen
        check(stats)
        for arriving in folder.glob("pack_git2_*"):
            with arriving.open("rb") as file:
                file.seek(seen)
                while piece := file.read(_PIECE):
                    seen += len(piece)
                    scan.feed(piece)
        if not seen and stats.received_objects:
            raise CorruptRepository("the pack that arrives cannot be looked at")

    return progress


def _names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def _hold(root: Path) -> IO[bytes]:
    """Take the folder for this process; the kernel frees it when the process ends, however it ends."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = (root / "lock").open("ab")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise CacheUnavailable(f"another process uses the cache folder {root}") from error
    return handle
