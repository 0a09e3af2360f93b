"""What a reflector hands over: immutable batches, and what they say of each object."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class DeltaKind(Enum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Delta(Struct, Generic[T], frozen=True):
    """One change. The object of a DELETED is its last state; a delta may come twice, in the same order."""

    kind: DeltaKind
    key: str
    object: T


class Undecodable(Struct, frozen=True):
    """An object the decoder refuses, with as much of its identity as could be read; `raw` is the object's JSON."""

    namespace: str
    name: str
    uid: str
    raw: bytes
    error: str

    def keys(self) -> frozenset[str]:
        """What the object may be known as: `namespace/name`, `name` or its uid."""
        qualified = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return frozenset({qualified, self.name, self.uid} - {""})


class Replace(Struct, Generic[T], frozen=True):
    """Everything there is, after a list. What is neither in `objects` nor `undecodable` is gone."""

    objects: Mapping[str, T]
    resource_version: str
    undecodable: tuple[Undecodable, ...] = ()


class Changes(Struct, Generic[T], frozen=True):
    """What one read of the watch brought, in the order it happened."""

    deltas: tuple[Delta[T], ...]
    resource_version: str


Batch = Replace[T] | Changes[T]


def told(batch: Batch[T], known: AbstractSet[str]) -> Iterator[tuple[str, T | None]]:
    """What a batch says of each object, in order: key and state, None = gone. `known`: the keys held so far.

    Of an object that a list holds but cannot be decoded nothing is said, so the last good state stays: it exists, and
    to take it for deleted could cost a node. Keys are expected to be one of `Undecodable.keys()` for that.
    """
    if isinstance(batch, Changes):
        for delta in batch.deltas:
            yield delta.key, None if delta.kind is DeltaKind.DELETED else delta.object
        return
    unreadable = frozenset[str]().union(*(it.keys() for it in batch.undecodable))
    for key in sorted(known - batch.objects.keys() - unreadable):
        yield key, None
    yield from batch.objects.items()
