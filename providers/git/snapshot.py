"""A revision as a value: what a source hands out, complete and immutable, so that nothing downstream touches git."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pygit2

from providers.git.errors import CorruptRepository, RevisionNotFound
from providers.git.files import FileLimits
from providers.git.history import Lineage, confirmations
from providers.git.opening import reading
from providers.git.selector import Target
from providers.git.tree import scan_tree, tree_oid

MAX_ANCESTORS = 200_000
"""Commits of a history that are looked at, newest first."""
_LAST_SECOND = 253_402_300_799  # of the year 9999
_REVISION = re.compile(r"[^\x00-\x20:?*\[\\]{1,200}")
_FLUX = re.compile(r"(?:.*@)?sha1:([0-9a-f]{7,40})")  # whole, or as `muster history` shows it
_HEAD = re.compile(r"(?:HEAD|@)(?=$|[~^])")


@dataclass(frozen=True)
class RevisionSnapshot:
    """The fleet's files at one commit.

    `revision` is Flux's text (`main@sha1:<oid>`); `tree_oid` is equal exactly where the files' folder is equal;
    `files` maps paths from the repository's root, sorted; `verified_signer` is None where no signature is demanded;
    `lineage` tells what this revision may follow, None where every order of revisions is allowed; `confirms` are the
    declarations (`nodepool/h100`) that its message says may be deleted, of a signed text where signatures are demanded.
    """

    revision: str
    oid: str
    tree_oid: str
    files: Mapping[str, bytes]
    committed_at: datetime
    author: str
    verified_signer: str | None = None
    lineage: Lineage | None = None
    confirms: frozenset[str] = frozenset()


def read_snapshot(repo: Any, target: Target, sub_path: str, limits: FileLimits) -> RevisionSnapshot:
    """The snapshot of `target`. Errors: RevisionNotFound, PathNotFound, RepositoryTooLarge, CorruptRepository."""
    folder = tree_oid(repo, target.oid, sub_path)
    found = scan_tree(repo, target.oid, sub_path, limits)
    with reading(f"commit {target.oid[:10]}"):
        commit = repo[target.oid]
        if not isinstance(commit, pygit2.Commit):
            raise RevisionNotFound(f"{target.oid} is not a commit")
        when = datetime.fromtimestamp(min(max(commit.commit_time, 0), _LAST_SECOND), UTC)
        author, confirms = _person(commit.author), confirmations(commit.read_raw())
    return RevisionSnapshot(target.revision, target.oid, folder, found.files, when, author, confirms=confirms)


def history_of(repo: Any, oid: str) -> tuple[bytes, bool]:
    """The commits in the history of `oid`, itself included, as 20 sorted bytes each, and whether these are all."""
    found: list[bytes] = []
    with reading(f"the history of {oid[:10]}"):
        for commit in repo.walk(oid):
            if len(found) == MAX_ANCESTORS:
                break
            found.append(commit.id.raw)
    return b"".join(sorted(found)), len(found) < MAX_ANCESTORS


def _person(signature: Any) -> str:
    """`Name <address>` as the commit claims it, without anything that does not print."""
    text = b"%s <%s>" % (signature.raw_name, signature.raw_email)
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text.decode("utf-8", "replace"))[:200]


def resolve_revision(repo: Any, text: str, head: str = "") -> str:
    """The commit that `text` means: `HEAD~1`, a branch, a tag, a (shortened) oid, or a Flux revision.

    `head` takes the place of HEAD, for a mirror, which has none of its own. Errors: RevisionNotFound.
    """
    flux = _FLUX.fullmatch(text)
    wanted = flux[1] if flux else _HEAD.sub(head, text, count=1) if head else text
    if not _REVISION.fullmatch(wanted):
        raise RevisionNotFound(f"{text!r} is not a revision")
    try:
        return str(repo.revparse_single(wanted).peel(pygit2.Commit).id)
    except pygit2.AmbiguousError as error:
        raise RevisionNotFound(f"{text!r} could be several commits; give more digits") from error
    except (pygit2.NotFoundError, pygit2.InvalidSpecError, KeyError, ValueError) as error:
        raise RevisionNotFound(f"there is no revision {text!r}") from error
    except pygit2.GitError as error:
        raise CorruptRepository(f"{text!r} cannot be read: {error}") from error
