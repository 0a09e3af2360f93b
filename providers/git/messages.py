"""What the agent and its reader process say to each other over two pipes: a length, then the message.

Questions go down pickled, from us to our own child. Answers come up as MessagePack of the types below, each
checked on arrival: the child handles what strangers pushed, so nothing it says is executed, and no answer is endless.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from providers.git.auth import Remote
from providers.git.files import FileLimits
from providers.git.limits import MirrorLimits, ReaderLimits
from providers.git.selector import Selector, Target

_LENGTH = 8


class Tip(msgspec.Struct, frozen=True, tag=True):
    """Where a ref stood on the remote: the commit, and the object that the ref itself names (a tag, if it is one)."""

    ref: str
    oid: str
    raw: str

    @property
    def target(self) -> Target:
        """The ref and its commit."""
        return Target(self.ref, self.oid)


class SuspectObject(msgspec.Struct, frozen=True, tag=True):
    """Said before the work on it: an object that may be the end of the process."""

    words: str


class Unmoved(msgspec.Struct, frozen=True, tag=True):
    """The selector still means a tip that was known."""

    tip: Tip


class RevisionRead(msgspec.Struct, frozen=True, tag=True):
    """One commit, read: its files, and the objects that a signature would be in (`tag` is empty where there is none).

    `ancestors` are the commits of its history as 20 bytes each, sorted; `whole` says whether that is all of them.
    `on_ref`: the commit is, or is in the history of, what the selector means.
    """

    tip: Tip
    tree_oid: str
    files: dict[str, bytes]
    commit: bytes
    tag: bytes
    committed_at_s: float
    author: str
    ancestors: bytes
    whole: bool
    on_ref: bool


class FilesRead(msgspec.Struct, frozen=True, tag=True):
    """The files of a commit or merge."""

    files: dict[str, bytes]


class ObjectNamed(msgspec.Struct, frozen=True, tag=True):
    """An oid."""

    oid: str


class QuestionRefused(msgspec.Struct, frozen=True, tag=True):
    """The question could not be answered: the class of the SourceError, and what it says."""

    error: str
    message: str
    paths: list[str] = msgspec.field(default_factory=list)


Answer = Tip | SuspectObject | Unmoved | RevisionRead | FilesRead | ObjectNamed | QuestionRefused
_decoder = msgspec.msgpack.Decoder(Answer)
_encoder = msgspec.msgpack.Encoder()


@dataclass(frozen=True)
class ReaderStart:
    """The first message: what the process works on, and within which bounds."""

    remote: Remote
    cache_dir: Path
    mirror: MirrorLimits
    reader: ReaderLimits
    any_owner: bool = False
    authorities: str = ""
    """Digest of the remote's `ca_file`."""


@dataclass(frozen=True)
class FindRevision:
    """What does the selector mean now? Read it, unless it is one of `known`."""

    selector: Selector
    sub_path: str
    files: FileLimits
    known: Sequence[Tip] = ()


@dataclass(frozen=True)
class ReadKept:
    """Read a commit that was in force before, from the mirror; a `tip` without `raw` is a hint to be looked up."""

    tip: Tip
    selector: Selector
    sub_path: str
    files: FileLimits


@dataclass(frozen=True)
class KeepRevision:
    """Hold on to the revision in force, whatever becomes of its ref on the remote."""

    raw: str


@dataclass(frozen=True)
class ResolveRevision:
    """Which commit does a person mean? `head` is what HEAD stands for."""

    text: str
    head: str


@dataclass(frozen=True)
class ReadFiles:
    """The files at a commit, or (with `onto`) after merging it into another."""

    oid: str
    sub_path: str
    files: FileLimits
    onto: str = ""


@dataclass(frozen=True)
class FetchRef:
    """Bring a ref by its full name, and keep it beside what the selector means."""

    name: str
    selector: Selector = field(kw_only=True)


Question = FindRevision | ReadKept | KeepRevision | ResolveRevision | ReadFiles | FetchRef


def encode_answer(answer: Answer) -> bytes:
    """The bytes that `decode_answer` reads."""
    return _encoder.encode(answer)


def decode_answer(content: bytes) -> Answer:
    """The answer in `content`. Errors: msgspec.DecodeError for anything else."""
    answer: Answer = _decoder.decode(content)
    return answer


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Send one message."""
    stream.write(len(content).to_bytes(_LENGTH) + content)
    stream.flush()


def read_frame(stream: IO[bytes], most: int) -> bytes | None:
    """The next message, None where the other side is gone. Errors: ValueError for one longer than `most`."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    length = int.from_bytes(head)
    if length > most:
        raise ValueError(f"a message of {length} bytes; {most} are allowed")
    content = stream.read(length)
    return content if len(content) == length else None
