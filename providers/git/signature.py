"""Is this commit, or this annotated tag, signed by somebody who may sign?

The time that counts is when the agent first saw the object, never the one that is written in it: whoever holds an
expired key can write any time there.
"""

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from providers.git.errors import SignatureRejected
from providers.git.history import confirmations, statements
from providers.git.selector import TAGS, Target
from providers.git.sshsig import BEGIN

PGP = b"-----BEGIN PGP "
_X509 = b"-----BEGIN SIGNED MESSAGE-----"


class Mode(Enum):
    """What must be signed, in the words of Flux (`GitRepository.spec.verify.mode`)."""

    HEAD = "HEAD"
    TAG = "Tag"
    TAG_AND_HEAD = "TagAndHEAD"


@dataclass(frozen=True)
class SignedObject:
    """A commit or tag taken apart: the bytes that were signed, and the signature."""

    payload: bytes
    signature: bytes


class Signers(Protocol):
    """Those who may sign, as of when they were read."""

    def signer(self, signed: SignedObject, seen_s: float) -> str:
        """Who signed it, judged by when it was first seen (UTC seconds). Errors: SignatureRejected."""
        ...


@dataclass(frozen=True)
class Evidence:
    """What proves who vouches for a revision: its commit, and the tag that names it (empty where there is none)."""

    target: Target
    raw: str
    """The oid of the object that the ref names."""
    commit: bytes
    tag: bytes = b""


@dataclass(frozen=True)
class Verified:
    """Who vouches for a revision, and what the signed text says may be left behind (commits) and deleted."""

    signer: str
    leaves: frozenset[str] = frozenset()
    confirms: frozenset[str] = frozenset()


def verify_revision(found: Evidence, mode: Mode, signers: Signers, seen_s: float) -> Verified:
    """Who signed what `mode` asks for; of a tag and a commit, who signed the tag. Errors: SignatureRejected."""
    done: list[Verified] = []
    if mode in {Mode.HEAD, Mode.TAG_AND_HEAD}:
        done.append(verify_commit(found, signers, seen_s))
    if mode in {Mode.TAG, Mode.TAG_AND_HEAD}:
        done.append(verify_tag(found, signers, seen_s))
    leaves, confirms = ((one.leaves for one in done), (one.confirms for one in done))
    return Verified(done[-1].signer, frozenset().union(*leaves), frozenset().union(*confirms))


def verify_commit(found: Evidence, signers: Signers, seen_s: float) -> Verified:
    """Who signed the commit. Errors: SignatureRejected."""
    _check_oid("commit", found.commit, found.target.oid)
    return _verify(split_commit(found.commit), signers, f"commit {found.target.oid[:10]}", seen_s)


def verify_tag(found: Evidence, signers: Signers, seen_s: float) -> Verified:
    """Who signed the annotated tag.

    The tag's own name and commit must be those of the ref: else a signed `v1.0` could be put up as `v2.0`.
    Errors: SignatureRejected.
    """
    target = found.target
    name = target.ref.removeprefix(TAGS)
    if not target.ref.startswith(TAGS):
        raise SignatureRejected(f"a signed tag is required, but {target.ref or target.oid[:10]} is not a tag")
    if not found.tag:
        raise SignatureRejected(f"tag {name} is not an annotated tag, so it carries no signature")
    _check_oid("tag", found.tag, found.raw)
    head = found.tag.partition(b"\n\n")[0].split(b"\n")
    if head[:3] != [b"object " + target.oid.encode(), b"type commit", b"tag " + name.encode()]:
        raise SignatureRejected(f"the tag object behind {name} was made for another name or commit")
    return _verify(split_tag(found.tag), signers, f"tag {name}", seen_s)


def _check_oid(kind: str, content: bytes, oid: str) -> None:
    """What was read must be what its name says, whoever read it."""
    if hashlib.sha1(b"%s %d\0%s" % (kind.encode(), len(content), content), usedforsecurity=False).hexdigest() != oid:
        raise SignatureRejected(f"the {kind} that was read is not {oid}")


def _verify(signed: SignedObject, signers: Signers, what: str, seen_s: float) -> Verified:
    if not signed.signature:
        raise SignatureRejected(f"{what} is not signed")
    return Verified(signers.signer(signed, seen_s), statements(signed.payload), confirmations(signed.payload))


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
    return SignedObject(b"\n".join(kept) + blank + message, text)


def split_tag(raw: bytes) -> SignedObject:
    """Take an annotated tag apart: the signature is what follows the last line that begins one."""
    starts = [raw.rfind(b"\n" + mark) for mark in (BEGIN, PGP, _X509)]
    cut = max(starts) + 1
    return SignedObject(raw[:cut] if cut else raw, raw[cut:] if cut else b"")
