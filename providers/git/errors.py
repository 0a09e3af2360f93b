"""What can go wrong with a source. The type decides what the agent does; the text is only for people."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

_TOLD = 5
"""Entries of a repository that one message names."""


class SourceError(Exception):
    """The source could not deliver a revision; the last good one stays in force.

    `transient` says whether waiting may help on its own. Every source error is tried again with back-off, but one
    that is not transient is reported as stalled: somebody has to change something.
    """

    transient: ClassVar[bool] = False


class RemoteUnreachable(SourceError):
    """The remote did not answer in time, refused the connection or answered with an HTTP error."""

    transient = True


class CacheUnavailable(SourceError):
    """The cache folder cannot be used: another process holds it, the disk is full, it cannot be written."""

    transient = True


class AuthenticationFailed(SourceError):
    """The remote wants other credentials than the ones we have."""


class CredentialsMissing(SourceError):
    """What the settings name to get in with (a variable, a file) is not there."""


class HostKeyRejected(SourceError):
    """The remote's SSH host key or TLS certificate is not one we trust."""


class OwnershipRejected(SourceError):
    """The repository on disk belongs to another user, so its content could have been planted."""


class RevisionNotFound(SourceError):
    """No branch, tag, version or commit matches what was asked for."""


class PathNotFound(SourceError):
    """The folder to read is not there. An error, since an absent folder would read as an empty fleet."""


class InvalidSelector(SourceError):
    """A branch, tag, version range or commit is not written as it must be."""


class SignatureRejected(SourceError):
    """The commit or tag is not signed by anybody who may sign; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RepositoryTooLarge(SourceError):
    """A limit on files, bytes, objects or depth was passed; limits protect the agent from a hostile repository."""


class EntryNotRead(SourceError):
    """Files or folders that could declare something cannot be read; `entries` are their paths and why, fit to print.

    An error, since what is left out would read as a wish to delete what it declares.
    """

    def __init__(self, entries: Mapping[str, str] | str) -> None:
        """`entries`, or the message of another process."""
        self.entries = entries if isinstance(entries, Mapping) else {}
        told = [f"{path}: {reason}" for path, reason in list(self.entries.items())[:_TOLD]]
        more = f" (and {len(self.entries) - _TOLD} more)" if len(self.entries) > _TOLD else ""
        remedy = "commit a plain file or folder in its place, or list it in .musterignore"
        super().__init__(entries if isinstance(entries, str) else f"{'; '.join(told)}{more}. {remedy.capitalize()}")


class UnsupportedRepository(SourceError):
    """The repository uses a feature libgit2 cannot read (SHA-256 objects, for instance)."""


class CorruptRepository(SourceError):
    """Objects are missing or damaged. The cache is cloned afresh once before this reaches the caller."""


class MergeConflict(SourceError):
    """Two revisions do not merge; `paths` are the files in conflict, empty where they share no ancestor."""

    def __init__(self, message: str, paths: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.paths = tuple(paths)
