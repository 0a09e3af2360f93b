"""What is refused before anything is sent: addresses, secrets, commits and numbers that cannot be."""

import hashlib
import ipaddress
import re
from urllib.parse import urlsplit

from providers.forge.port import Comment, ForgeError

_SECRET = re.compile(r"[!-~]{1,1024}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._/+@=-]{1,1024}(?<!/)")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def checked_secret(secret: str, forge: str) -> str:
    """Returns a token; ForgeError, which does not tell it, for what can be none in a header."""
    if not _SECRET.fullmatch(secret):
        raise ForgeError(f"{forge}'s token is empty, or holds signs that no token has: a space, the end of a line")
    return secret


def checked_url(url: str, forge: str, example: str) -> str:
    """Returns an address; ForgeError unless secrets may be sent there: TLS, or this machine."""
    try:
        parts = urlsplit(url)
        is_whole = bool(_HOST.fullmatch(parts.hostname or "")) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or parts.username is not None or parts.query or parts.fragment or not url.isascii():
        raise ForgeError(f"{forge}'s address is an URL without user, password and query, as {example}")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise ForgeError(f"{forge}'s address begins with https://, not {parts.scheme}://: a secret is sent there")
    return url


def checked_commit(commit: str) -> str:
    """Returns a full commit id; ForgeError for anything else, which could lead to another address."""
    if not _COMMIT.fullmatch(commit):
        raise ForgeError(f"{commit[:80]!r} is no full commit id")
    return commit


def checked_path(path: str) -> str:
    """Returns a file's path; ForgeError for one with signs that forges read otherwise in an address."""
    if not _PATH.fullmatch(path):
        raise ForgeError(f"{path[:80]!r} cannot be asked of a forge: letters, digits and ._/+@=- are taken")
    return path


def blob_id(content: bytes, like: str) -> str:
    """Returns the id that git gives to a file's content, in the form (SHA-1 or SHA-256) of another id."""
    digest = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


def checked_number(number: int) -> int:
    """Returns the number of a request or a comment; ForgeError unless it is positive."""
    if number < 1:
        raise ForgeError(f"{number} is no number of a pull request or comment")
    return number


def checked_ours(comment: Comment) -> int:
    """Returns the id of a comment of ours; ForgeError for that of another, which forges would let us change as well."""
    if not comment.ours:
        raise ForgeError(f"the comment {comment.id} is by {comment.author}: we change none but ours")
    return checked_number(comment.id)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
