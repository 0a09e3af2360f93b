"""A repository on this machine, for `muster plan --from --to`: a work tree, or a bare one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers.git.errors import CorruptRepository
from providers.git.files import FileLimits, Files
from providers.git.opening import open_repository
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


def open_local(path: Path, limits: FileLimits | None = None, *, any_owner: bool = False) -> LocalRepository:
    """The repository that `path` is, or lies in. Errors: OwnershipRejected, CorruptRepository where there is none."""
    start = path.absolute()
    for root in (start, *start.parents):
        if (root / ".git").exists() or ((root / "HEAD").is_file() and (root / "objects").is_dir()):
            repo = open_repository(root, any_owner=any_owner)
            inside = "" if repo.is_bare else start.relative_to(root).as_posix()
            return LocalRepository(root, "" if inside == "." else inside, limits or FileLimits(), repo)
    raise CorruptRepository(f"{path} is not in a git repository")
