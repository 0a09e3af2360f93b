"""Who may sign: OpenSSH's allowed_signers file (ssh-keygen(1), ALLOWED SIGNERS), kept outside the repository it guards.

One difference, on purpose: a time without `Z` is read as UTC, not in the zone of whatever machine runs the agent.
"""

import base64
import binascii
import calendar
import fnmatch
import re
import time
from dataclasses import dataclass

from providers.git.errors import SignatureRejected

_KEY_TYPE = re.compile(r"(sk-)?(ssh|ecdsa)-[a-z0-9@.-]+")
_TIME = re.compile(r"(\d{8})(\d{4})?(\d{2})?(Z?)")
_OPTION = re.compile(r'([A-Za-z-]+)(?:="((?:[^"\\]|\\.)*)")?(?:,|$)')
_FIELD = re.compile(r'\s*((?:"[^"]*"|[^\s"])+)')
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Signer:
    """One line: a key, whom it stands for, what for, and from when to when (UTC seconds since the epoch)."""

    principals: str
    key: bytes
    namespaces: str | None = None
    valid_after_s: int | None = None
    valid_before_s: int | None = None

    def rejects(self, namespace: str, at_s: float) -> str:
        """Why this line does not permit a signature, or an empty string if it does."""
        if self.namespaces is not None and not _in_list(namespace, self.namespaces):
            return f"the key of {self.principals} is not allowed to sign for {namespace}"
        if self.valid_after_s is not None and at_s < self.valid_after_s:
            return f"the key of {self.principals} was not valid yet when this was first seen"
        if self.valid_before_s is not None and at_s > self.valid_before_s:
            return f"the key of {self.principals} had expired when this was first seen"
        return ""


@dataclass(frozen=True)
class AllowedSigners:
    """The lines of an allowed_signers file, in order."""

    signers: tuple[Signer, ...]

    def principal(self, key: bytes, at_s: float, namespace: str = "git") -> str:
        """Whom `key` stands for at `at_s` (UTC seconds), by the first line that permits it.

        Errors: SignatureRejected, with the reason of the last line that has the key, or that none has.
        """
        reason = "it is signed by a key that is not among the allowed signers"
        for signer in self.signers:
            if signer.key == key:
                reason = signer.rejects(namespace, at_s)
                if not reason:
                    return signer.principals
        raise SignatureRejected(reason)


def parse_allowed_signers(content: bytes) -> AllowedSigners:
    """Read the file. Errors: SignatureRejected naming the line: a file that is half understood guards nothing."""
    if len(content) > _MAX_BYTES:
        raise SignatureRejected(f"the allowed signers file is larger than {_MAX_BYTES} bytes")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise SignatureRejected("the allowed signers file is not UTF-8") from error
    found: list[Signer] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            try:
                found.append(_signer(text))
            except _BadLine as error:
                raise SignatureRejected(f"allowed signers, line {number}: {error}") from error
    return AllowedSigners(tuple(found))


class _BadLine(ValueError):
    """A line that cannot be read."""


def _signer(line: str) -> Signer:
    principals, rest = _field(line)
    second, after = _field(rest)
    options = {} if _KEY_TYPE.fullmatch(second) else _options(second)
    if options:
        second, after = _field(after)
    if "cert-authority" in options:
        raise _BadLine("cert-authority is not supported; list the keys themselves")
    unknown = sorted(options.keys() - {"namespaces", "valid-after", "valid-before"})
    if unknown:
        raise _BadLine(f"unknown option {unknown[0]}")
    begin, end = _time(options, "valid-after"), _time(options, "valid-before")
    if begin is not None and end is not None and begin >= end:
        raise _BadLine("valid-after is not before valid-before")
    if not principals.strip('"'):
        raise _BadLine("no principal")
    return Signer(principals.strip('"'), _key(second, _field(after)[0]), _value(options, "namespaces"), begin, end)


def _field(text: str) -> tuple[str, str]:
    match = _FIELD.match(text)
    return (match[1], text[match.end() :]) if match else ("", "")


def _key(kind: str, encoded: str) -> bytes:
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _BadLine("the key is not base64") from error
    name = kind.encode()
    if blob[: 4 + len(name)] != len(name).to_bytes(4) + name or len(blob) <= 4 + len(name):
        raise _BadLine(f"the key is not of the kind {kind!r}")
    return blob


def _options(text: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    at = 0
    while at < len(text):
        match = _OPTION.match(text, at)
        if match is None:
            raise _BadLine("the options cannot be read")
        name = match[1].lower()
        if name in found:
            raise _BadLine(f"{name} is given twice")
        found[name] = None if match[2] is None else match[2].replace('\\"', '"')
        at = match.end()
    return found


def _value(options: dict[str, str | None], name: str) -> str | None:
    if name in options and not options[name]:
        raise _BadLine(f"{name} needs a value")
    return options.get(name)


def _time(options: dict[str, str | None], name: str) -> int | None:
    text = _value(options, name)
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise _BadLine(f"{name} is not YYYYMMDD[HHMM[SS]][Z]")
    digits = match[1] + (match[2] or "0000") + (match[3] or "00")
    try:
        return calendar.timegm(time.strptime(digits, "%Y%m%d%H%M%S"))
    except ValueError as error:
        raise _BadLine(f"{name} is not a time") from error


def _in_list(name: str, patterns: str) -> bool:
    """OpenSSH's match_pattern_list: one pattern must match (`*`, `?`), and none that starts with `!` may."""
    matched = False
    for pattern in patterns.split(","):
        text = pattern.strip().removeprefix("!").replace("[", "[[]")  # a bracket is a bracket in OpenSSH
        if fnmatch.fnmatchcase(name, text):
            if pattern.strip().startswith("!"):
                return False
            matched = True
    return matched
