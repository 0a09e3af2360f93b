"""A repository on this machine, for `muster plan --from --to`: a work tree, or a bare one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.git.errors import CorruptRepository, MergeConflict, RevisionNotFound
from providers.git.files import FileLimits, Files
from providers.git.opening import open_repository, reading
from providers.git.selector import Target
from providers.git.snapshot import RevisionSnapshot, read_snapshot, resolve_revision
from providers.git.tree import merge_tree, scan_tree, scratch


@dataclass(frozen=True)
class LocalRepository:
    """A repository of the user's: read only, never fetched, its configuration and hooks never run.

    `root` is where it is, `sub_path` where in it the user stands; files are read from there down.
    """

    root: Path
    sub_path: str
    limits: FileLimits
    repo: Any

    @property
    def bare(self) -> bool:
        """Whether it has no work tree."""
        return bool(self.repo.is_bare)

    def resolve(self, revision: str = "HEAD") -> str:
        """The oid of a commit (`HEAD~1`, a branch, a tag, a short oid). Errors: RevisionNotFound."""
        try:
            return resolve_revision(self.repo, revision)
        except RevisionNotFound as error:
            raise RevisionNotFound(f"{error}{_SHALLOW if self.repo.is_shallow else ''}") from error

    def snapshot(self, revision: str = "HEAD") -> RevisionSnapshot:
        """The files at a revision. Errors: RevisionNotFound, PathNotFound, RepositoryTooLarge, CorruptRepository."""
        return read_snapshot(self.repo, Target("", self.resolve(revision)), self.sub_path, self.limits)

    def contains(self, base: str, head: str = "HEAD") -> bool:
        """Whether `base` is in the history of `head`. Errors: RevisionNotFound, CorruptRepository."""
        ours, theirs = self.resolve(base), self.resolve(head)
        return self._common(ours, theirs) == ours

    def merge_result(self, base: str, head: str) -> Files:
        """The files after merging `head` into `base`, without writing to the repository.

        Errors: MergeConflict with a remedy, also for histories that nothing joins, and those of `snapshot`.
        """
        ours, theirs = self.resolve(base), self.resolve(head)
        if self._common(ours, theirs) is None:
            raise MergeConflict(f"{head} and {base} share no history{_SHALLOW if self.repo.is_shallow else _UNJOINED}")
        with scratch(self.repo) as area:
            try:
                merged = merge_tree(area, ours, theirs)
            except MergeConflict as error:
                where = ", ".join(error.paths[:_TOLD]) + (", ..." if len(error.paths) > _TOLD else "")
                words = f"{head} does not merge into {base}: conflicts in {where}. Rebase it on {base}, and plan again"
                raise MergeConflict(words, error.paths) from error
            return scan_tree(area, merged, self.sub_path, self.limits)

    def _common(self, ours: str, theirs: str) -> str | None:
        """The newest commit in both histories."""
        with reading(f"the history of {theirs[:10]}"):
            found = self.repo.merge_base(ours, theirs)
            return None if found is None else str(found)


_TOLD = 10
"""Paths in conflict that a message names."""
_SHALLOW = " in this shallow clone: 'git fetch --unshallow' brings the rest of it (in CI: fetch-depth 0, GIT_DEPTH 0)"
_UNJOINED = ": there is nothing to merge. Name a base that the change comes from, or compare the two with --no-merge"


def open_local(path: Path, limits: FileLimits | None = None, *, any_owner: bool = False) -> LocalRepository:
    """The repository that `path` is, or lies in. Errors: OwnershipRejected, CorruptRepository where there is none."""
    start = path.absolute()
    for root in (start, *start.parents):
        if (root / ".git").exists() or ((root / "HEAD").is_file() and (root / "objects").is_dir()):
            repo = open_repository(root, any_owner=any_owner)
            inside = "" if repo.is_bare else start.relative_to(root).as_posix()
            return LocalRepository(root, "" if inside == "." else inside, limits or FileLimits(), repo)
    raise CorruptRepository(f"{path} is not in a git repository")
