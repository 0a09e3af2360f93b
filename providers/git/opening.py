"""Opening a repository on disk, safely: whose it is, that it is one, and what its damage looks like."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import RepositoryOpenFlag

from providers.git import library
from providers.git.errors import (
    CorruptRepository,
    OwnershipRejected,
    RepositoryTooLarge,
    SourceError,
    UnsupportedRepository,
)

_NO_MEMORY = 1  # GIT_ERROR_NOMEMORY of git_error_t (libgit2 include/git2/errors.h)


def open_repository(path: Path, *, any_owner: bool = False) -> Any:
    """The repository at exactly `path` (no search upwards), one object per call: they must not be shared by threads.

    Errors: OwnershipRejected, UnsupportedRepository, CorruptRepository where there is none.
    """
    library.isolate()
    if any_owner:
        library.trust_any_owner()
    else:
        check_owner(path)
    try:
        return pygit2.Repository(str(path), RepositoryOpenFlag.NO_SEARCH)
    except pygit2.InvalidError as error:
        raise UnsupportedRepository(f"{path} cannot be read: {error}") from error
    except (pygit2.GitError, OSError, KeyError) as error:
        raise CorruptRepository(f"{path} is not a repository that can be read: {error}") from error


def check_owner(path: Path) -> None:
    """Refuse a folder, or the `.git` in it, that belongs to somebody else.

    libgit2 refuses too, but says so only in words; asking first gives the refusal a type. Its exception for `sudo`
    is kept. Errors: OwnershipRejected; a path that is not there passes, opening it will tell.
    """
    ours = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdigit():
        ours.add(int(os.environ["SUDO_UID"]))
    for candidate in (path, path / ".git"):
        if candidate.exists() and candidate.stat().st_uid not in ours:
            raise OwnershipRejected(
                f"{candidate} belongs to user {candidate.stat().st_uid}, we are user {os.geteuid()}: give it to us "
                "with chown (or fsGroup and an init container), or allow repositories of any owner in the settings"
            )


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what libgit2 raises on a missing or damaged object into CorruptRepository, want of memory into its own."""
    try:
        yield
    except SourceError:
        raise
    except MemoryError as error:
        raise RepositoryTooLarge(f"{what} takes more memory than reading may") from error
    except (pygit2.GitError, KeyError, ValueError, OSError) as error:
        if wants_memory(error):
            raise RepositoryTooLarge(f"{what} takes more memory than reading may") from error
        raise CorruptRepository(f"{what} cannot be read: {' '.join(str(error).split())[:300]}") from error


def wants_memory(error: BaseException) -> bool:
    """Whether libgit2 failed because the process may not have more memory."""
    return getattr(error, "error_class", 0) == _NO_MEMORY or "out of memory" in str(error)
