"""What a reflector hands over: immutable batches, and the fold that turns them into the current objects."""

from collections.abc import Mapping
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


def fold(objects: dict[str, T], batch: Batch[T]) -> set[str]:
    """Bring `objects` (key to object) up to date in place and return the keys that changed or went.

    Of an object that a list holds but cannot be decoded the last good state stays: it exists, and to take it for
    deleted could cost a node. Keys are expected to be one of `Undecodable.keys()` for that.
    """
    if isinstance(batch, Replace):
        return _replace(objects, batch)
    for delta in batch.deltas:
        if delta.kind is DeltaKind.DELETED:
            objects.pop(delta.key, None)
        else:
            objects[delta.key] = delta.object
    return {delta.key for delta in batch.deltas}


def _replace(objects: dict[str, T], batch: Replace[T]) -> set[str]:
    unreadable = frozenset[str]().union(*(it.keys() for it in batch.undecodable))
    gone = objects.keys() - batch.objects.keys() - unreadable
    changed = {key for key, found in batch.objects.items() if key not in objects or objects[key] != found}
    for key in gone:
        del objects[key]
    objects.update(batch.objects)
    return gone | changed
