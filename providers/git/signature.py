"""Is this commit, or this annotated tag, signed by somebody who may sign?

The time that counts is the one the signer wrote into the object, as with git: a key that has expired keeps its old
signatures valid. Whoever holds an expired key can back-date, so a key that leaked is removed from the file.
"""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pygit2.enums import ObjectType

from providers.git.allowed import AllowedSigners, parse_allowed_signers
from providers.git.errors import RepositoryTooLarge, SignatureRejected
from providers.git.opening import reading
from providers.git.selector import TAGS, Target
from providers.git.sshsig import BEGIN, check_signature, parse_signature

_MAX_OBJECT = 4 * 1024 * 1024
_PGP = b"-----BEGIN PGP "
_X509 = b"-----BEGIN SIGNED MESSAGE-----"
_WHO = re.compile(rb".* <.*> (\d{1,15}) [+-]\d{4}")


class Mode(Enum):
    """What must be signed, in the words of Flux (`GitRepository.spec.verify.mode`)."""

    HEAD = "HEAD"
    TAG = "Tag"
    TAG_AND_HEAD = "TagAndHEAD"


@dataclass(frozen=True)
class Verification:
    """Demand signatures: what of, and the file that says by whom. The file must lie outside the repository."""

    allowed_signers: Path
    mode: Mode = Mode.HEAD

    def load(self) -> AllowedSigners:
        """The signers as of now; read anew each time, so that a revoked key counts at once.

        Errors: SignatureRejected if the file cannot be read: no list, no trust.
        """
        try:
            content = self.allowed_signers.read_bytes()
        except OSError as error:
            raise SignatureRejected(f"the allowed signers cannot be read: {error.strerror}") from error
        return parse_allowed_signers(content)


@dataclass(frozen=True)
class SignedObject:
    """A commit or tag taken apart: the bytes that were signed, the signature, and when it says it was made."""

    payload: bytes
    signature: bytes
    signed_at_s: int


def verify_target(repo: Any, target: Target, mode: Mode, allowed: AllowedSigners) -> str:
    """The principal who signed what `mode` asks for at `target`; of a tag and a commit, the tag's.

    Errors: SignatureRejected, CorruptRepository.
    """
    signer = ""
    if mode in {Mode.HEAD, Mode.TAG_AND_HEAD}:
        signer = verify_commit(repo, target.oid, allowed)
    if mode in {Mode.TAG, Mode.TAG_AND_HEAD}:
        signer = verify_tag(repo, target, allowed)
    return signer


def verify_commit(repo: Any, oid: str, allowed: AllowedSigners) -> str:
    """The principal who signed the commit. Errors: SignatureRejected, CorruptRepository."""
    return _verify(split_commit(_read(repo, oid, ObjectType.COMMIT)), allowed, f"commit {oid[:10]}")


def verify_tag(repo: Any, target: Target, allowed: AllowedSigners) -> str:
    """The principal who signed the annotated tag of `target`.

    The tag's own name and commit must be those of the ref: else a signed `v1.0` could be put up as `v2.0`.
    Errors: SignatureRejected, CorruptRepository.
    """
    name = target.ref.removeprefix(TAGS)
    if not target.ref.startswith(TAGS):
        raise SignatureRejected(f"a signed tag is required, but {target.ref or target.oid[:10]} is not a tag")
    with reading(f"tag {name}"):
        reference = repo.references.get(target.ref)
        tag_oid = "" if reference is None else str(reference.target)
    if tag_oid in {"", target.oid}:
        raise SignatureRejected(f"tag {name} is not an annotated tag, so it carries no signature")
    raw = _read(repo, tag_oid, ObjectType.TAG)
    head = raw.partition(b"\n\n")[0].split(b"\n")
    if head[:3] != [b"object " + target.oid.encode(), b"type commit", b"tag " + name.encode()]:
        raise SignatureRejected(f"the tag object behind {name} was made for another name or commit")
    return _verify(split_tag(raw), allowed, f"tag {name}")


def _verify(signed: SignedObject, allowed: AllowedSigners, what: str) -> str:
    if not signed.signature:
        raise SignatureRejected(f"{what} is not signed")
    if signed.signature.startswith(_PGP):
        raise SignatureRejected("PGP signatures are not supported; sign with ssh")
    if not signed.signature.startswith(BEGIN):
        raise SignatureRejected("signatures of this kind are not supported; sign with ssh")
    signature = parse_signature(signed.signature)
    check_signature(signature, signed.payload)
    return allowed.principal(signature.key, signed.signed_at_s)


def split_commit(raw: bytes) -> SignedObject:
    """Take a commit apart: the payload is the commit without its `gpgsig` header and that header's continuations.

    More than one signature is refused: readers disagree on which of them counts. Errors: SignatureRejected.
    """
    head, blank, message = raw.partition(b"\n\n")
    kept: list[bytes] = []
    signature: list[bytes] = []
    inside = False
    for line in head.split(b"\n"):
        inside = line.startswith((b"gpgsig ", b"gpgsig-sha256 ")) or (inside and line.startswith(b" "))
        if inside and not line.startswith(b" ") and signature:
            raise SignatureRejected("the commit carries more than one signature")
        (signature if inside else kept).append(line)
    text = b"\n".join(line.partition(b" ")[2] for line in signature)
    return SignedObject(b"\n".join(kept) + blank + message, text, _stamp(kept, b"committer "))


def split_tag(raw: bytes) -> SignedObject:
    """Take an annotated tag apart: the signature is what follows the last line that begins one.

    Errors: SignatureRejected.
    """
    starts = [raw.rfind(b"\n" + mark) for mark in (BEGIN, _PGP, _X509)]
    cut = max(starts) + 1
    signature = raw[cut:] if cut else b""
    return SignedObject(
        raw[:cut] if cut else raw, signature, _stamp(raw.partition(b"\n\n")[0].split(b"\n"), b"tagger ")
    )


def _stamp(lines: list[bytes], header: bytes) -> int:
    """The one time in the header line; a second such line could be the one another reader believes."""
    found = [match for line in lines if line.startswith(header) and (match := _WHO.fullmatch(line[len(header) :]))]
    if len(found) != 1 or sum(line.startswith(header) for line in lines) != 1:
        raise SignatureRejected(f"the signed object has no single {header.decode().strip()} with a time")
    return int(found[0][1])


def _read(repo: Any, oid: str, wanted: ObjectType) -> bytes:
    with reading(f"object {oid[:10]}"):
        kind, size = repo.odb.read_header(oid)
        if size > _MAX_OBJECT:
            raise RepositoryTooLarge(f"object {oid[:10]} takes {size} bytes")
        if kind != wanted:
            raise SignatureRejected(f"object {oid[:10]} is not a {wanted.name.lower()}")
        content: bytes = repo.odb.read(oid)[1]
        return content
