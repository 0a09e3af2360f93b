"""Talking to a remote through libgit2: credentials, deadlines and size caps as callbacks, its errors as our types."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pygit2
from pygit2.enums import CredentialType

from model.addresses import without_secrets
from providers.clock import Clock
from providers.git.auth import Auth, Bearer, ForgeToken, Remote, SshKey, UserPassword, host_of
from providers.git.errors import (
    AuthenticationFailed,
    CacheUnavailable,
    CorruptRepository,
    HostKeyRejected,
    RemoteUnreachable,
    RepositoryTooLarge,
    SourceError,
    UnsupportedRepository,
)
from providers.git.opening import wants_memory

# A server that closes after each answer asks once for the list and once for the pack.
_TRIES = 3
# git_error_t (libgit2 include/git2/errors.h): which part of the library failed.
_REPOSITORY = 6
# reference, zlib, odb, object, tag, tree, indexer
_DAMAGED = frozenset({4, 5, 9, 11, 13, 14, 15})


@dataclass(frozen=True)
class TransferLimits:
    """What one transfer may cost: seconds in all, and bytes received."""

    deadline_s: float
    max_bytes: int


def callbacks(remote: Remote, limits: TransferLimits, clock: Clock) -> Any:
    """Fresh libgit2 callbacks for one operation on `remote`; they count tries and time from now."""
    made = pygit2.RemoteCallbacks()
    made.credentials = _credentials(remote)
    made.certificate_check = _trusted
    watch = _watch(limits, clock)
    made.transfer_progress = lambda stats: watch(stats.received_bytes)
    made.sideband_progress = lambda _text: watch(0)
    if isinstance(remote.auth, Bearer):
        header = f"Authorization: Bearer {remote.auth.token}"
        made.custom_headers = lambda: [header]
    return made


def _trusted(_certificate: None, valid: bool, _host: bytes) -> bool:  # noqa: FBT001 - libgit2 calls it so
    """Go on only with a host key or certificate that libgit2 found valid.

    Left to its default pygit2 passes the question through, and libgit2 then accepts **any** SSH host key (measured
    with pygit2 1.21, libgit2 1.9.7), so whoever sits in between would get our login.
    """
    return valid


def _watch(limits: TransferLimits, clock: Clock) -> Callable[[int], None]:
    """A check that raises once too much time or too many bytes went by: libgit2's time-out only bounds one read."""
    end = clock.monotonic() + limits.deadline_s

    def check(received_bytes: int) -> None:
        if clock.monotonic() > end:
            raise RemoteUnreachable(f"the transfer took longer than {limits.deadline_s:g} s")
        if received_bytes > limits.max_bytes:
            raise RepositoryTooLarge(f"the remote sent more than {limits.max_bytes} bytes")

    return check


def _credentials(remote: Remote) -> Callable[[str, str | None, CredentialType], Any]:
    """The credentials callback. libgit2 calls again after a rejection, for ever if we let it: so we raise."""
    calls = 0

    def answer(url: str, user: str | None, allowed: CredentialType) -> Any:
        """A credential of a kind that is allowed. AuthenticationFailed for another host, and where none is left."""
        nonlocal calls
        if host_of(url) != remote.host:
            raise AuthenticationFailed(f"{remote.shown} sent us to another host; credentials stay here")
        if user is None and allowed == CredentialType.USERNAME:
            return pygit2.Username(_user(remote.auth))
        calls += 1
        if calls > _TRIES:
            raise AuthenticationFailed(f"{remote.shown} rejected our credentials")
        made = _credential(remote.auth, user, allowed)
        if made is None:
            raise AuthenticationFailed(f"{remote.shown} wants credentials of a kind that is not configured")
        return made

    return answer


def _user(auth: Auth | None) -> str:
    return "git" if auth is None or isinstance(auth, Bearer) else auth.user


def _credential(auth: Auth | None, user: str | None, allowed: CredentialType) -> Any:
    match auth:
        case SshKey() if allowed & CredentialType.SSH_MEMORY:
            return pygit2.KeypairFromMemory(user or auth.user, auth.public or None, auth.private, auth.passphrase)
        case UserPassword() if allowed & CredentialType.USERPASS_PLAINTEXT:
            return pygit2.UserPass(auth.user, auth.password)
        case ForgeToken() if allowed & CredentialType.USERPASS_PLAINTEXT:
            return pygit2.UserPass(auth.user, auth.token)
        case _:
            return None


@contextmanager
def translated(remote: Remote) -> Iterator[None]:
    """Turn libgit2's errors into ours, by type and error class; its text is kept for people only."""
    try:
        yield
    except SourceError:
        raise
    except pygit2.AuthError as error:
        raise AuthenticationFailed(f"{remote.shown} wants other credentials ({_text(error, remote)})") from error
    except pygit2.CertificateError as error:
        raise HostKeyRejected(f"the host key or certificate of {remote.shown} is not trusted") from error
    except pygit2.GitError as error:
        raise _general(error, remote) from error
    except MemoryError as error:
        raise RepositoryTooLarge(f"{remote.shown} takes more memory than reading may") from error
    except KeyError as error:
        raise CorruptRepository(f"the cache of {remote.shown} lacks the object {_text(error, remote)}") from error
    except OSError as error:
        raise CacheUnavailable(f"the cache of {remote.shown} cannot be used: {_text(error, remote)}") from error


def _general(error: pygit2.GitError, remote: Remote) -> SourceError:
    text = _text(error, remote)
    kind: int = getattr(error, "error_class", 0)
    if wants_memory(error):
        return RepositoryTooLarge(f"{remote.shown} takes more memory than reading may")
    if kind == _REPOSITORY or isinstance(error, pygit2.InvalidError):
        return UnsupportedRepository(f"{remote.shown} cannot be read: {text}")
    if kind in _DAMAGED:
        return CorruptRepository(f"{remote.shown} or its cache is damaged: {text}")
    return RemoteUnreachable(f"{remote.shown} did not answer: {text}")


def _text(error: BaseException, remote: Remote) -> str:
    """The library's words without our address, which may carry a password, and on one line."""
    words = without_secrets(str(error).replace(remote.url, remote.shown))
    return " ".join(words.split())[:300]
