"""What happened, in order: the bounded event log behind watches and exact lists."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from providers.sim.store.errors import StoreExpired
from providers.sim.store.registry import Resource

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
_encode = msgspec.json.Encoder().encode


class Revision:
    """An object at one resource version, with its JSON encoded at most once however many readers want it."""

    __slots__ = ("_json", "obj", "resource_version")

    def __init__(self, obj: dict[str, Any], resource_version: int) -> None:
        self.obj = obj
        self.resource_version = resource_version
        self._json: bytes | None = None

    @property
    def json(self) -> bytes:
        """The encoded object. A race of two readers encodes twice and stores the same bytes."""
        encoded = self._json
        if encoded is None:
            encoded = self._json = _encode(self.obj)
        return encoded


class StoreEvent(NamedTuple):
    """One committed write. `before` is the revision that it follows, None when the object was created."""

    type: EventType
    resource: Resource
    revision: Revision
    before: Revision | None = None

    @property
    def object(self) -> dict[str, Any]:
        """The object as it is now, or was last."""
        return self.revision.obj

    @property
    def resource_version(self) -> int:
        """The version of the store with this write."""
        return self.revision.resource_version

    @property
    def previous(self) -> dict[str, Any] | None:
        """The object before the write."""
        return None if self.before is None else self.before.obj


class LoggedChange(NamedTuple):
    """A logged change of the object `key` (namespace, name)."""

    type: EventType
    key: tuple[str, str]
    revision: Revision
    previous: Revision | None


class WatchLog:
    """The last changes of one resource. Older ones are forgotten a quarter at a time, and `floor` says up to where."""

    def __init__(self, capacity: int, floor: int = 0) -> None:
        self._capacity = capacity
        self._versions: list[int] = []
        self._entries: list[LoggedChange] = []
        self._lost = 0
        self.floor = floor

    def append(self, entry: LoggedChange) -> None:
        """Record a change; resource versions only grow."""
        self._versions.append(entry.revision.resource_version)
        self._entries.append(entry)
        if len(self._entries) > self._capacity + self._capacity // 4:
            self._drop(len(self._entries) - self._capacity)

    def compact(self, resource_version: int) -> None:
        """Forget everything up to and including `resource_version`."""
        self._drop(bisect_right(self._versions, resource_version))
        self.floor = max(self.floor, resource_version)

    def since(self, resource_version: int, *, established: bool = False) -> Sequence[LoggedChange]:
        """The changes after `resource_version`, oldest first. Expired when they may be forgotten.

        An `established` reader has seen everything up to there, so only a change that it really missed ends it.
        """
        if resource_version < (self._lost if established else self.floor):
            raise StoreExpired(f"too old resource version: {resource_version} ({self.floor})")
        return self._entries[bisect_right(self._versions, resource_version) :]

    def _drop(self, count: int) -> None:
        if count:
            self._lost = self._versions[count - 1]
            self.floor = max(self.floor, self._lost)
            del self._versions[:count]
            del self._entries[:count]
