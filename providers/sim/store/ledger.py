"""The committed state: tables of revisions, one resource version for all, the event logs and who listens."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import groupby, takewhile

from providers.sim.store.objects import Obj
from providers.sim.store.registry import Resource
from providers.sim.store.watchlog import EventType, LoggedChange, Revision, StoreEvent, WatchLog

Key = tuple[str, str]  # namespace ("" when cluster-scoped), name
Address = tuple[str, Key]  # resource key, object key
Listener = Callable[[StoreEvent], None]


class Table:
    """The objects of one resource, in the order of etcd (namespace, then name), with their log."""

    def __init__(self, log_capacity: int, floor: int) -> None:
        self._rows: dict[Key, Revision] = {}
        self._order: list[Key] = []
        self.log = WatchLog(log_capacity, floor)

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: Key) -> Revision | None:
        """The current revision, or None."""
        return self._rows.get(key)

    def scan(self, namespace: str = "", after: Key = ("", "")) -> Iterator[tuple[Key, Revision]]:
        """Rows of one namespace ("" means all) behind the key `after`; take a list before writing."""
        start = max(after, (namespace, ""))
        for position in range(bisect_left(self._order, start), len(self._order)):
            key = self._order[position]
            if namespace and key[0] != namespace:
                return
            if key > after:
                yield key, self._rows[key]

    def scan_at(
        self, resource_version: int, namespace: str = "", after: Key = ("", "")
    ) -> Iterator[tuple[Key, Revision]]:
        """`scan` as of `resource_version`, by undoing what came later. Expired when that is forgotten."""
        undone = {entry.key: entry.previous for entry in reversed(self.log.since(resource_version))}
        if not undone:
            yield from self.scan(namespace, after)
            return
        now = (key for key, _ in self.scan(namespace, after))
        moved = sorted(key for key in undone if key > after and (not namespace or key[0] == namespace))
        for key, _ in groupby(merge(now, moved)):
            revision = undone[key] if key in undone else self._rows[key]
            if revision is not None:
                yield key, revision

    def put(self, key: Key, revision: Revision) -> Revision | None:
        """Write a row; the one before it, if any."""
        previous = self._rows.get(key)
        if previous is None:
            insort(self._order, key)
        self._rows[key] = revision
        return previous

    def drop(self, key: Key) -> Revision:
        """Take a row away. KeyError when there is none."""
        revision = self._rows.pop(key)
        del self._order[bisect_left(self._order, key)]
        return revision


class ObjectTables:
    """All tables. Every write goes through `put` or `drop`, which count, log and tell, in that order."""

    def __init__(self, log_capacity: int) -> None:
        self._log_capacity = log_capacity
        self._tables: dict[str, Table] = {}
        self._listeners: list[tuple[str | None, Listener]] = []
        self._alive: dict[str, Address] = {}
        self._dependants: dict[str, set[Address]] = {}
        self._moved: dict[str, int] = {}
        """Resource key -> version of its last change, the latest last."""
        self.resource_version = 0
        self.floor = 0

    def table(self, resource: Resource) -> Table:
        """The table of `resource`, made when first asked for."""
        held = self._tables.get(resource.key)
        if held is None:
            held = self._tables[resource.key] = Table(self._log_capacity, self.floor)
        return held

    def moved(self, since: int) -> set[str]:
        """Keys of the resources of which something changed after version `since`."""
        return {key for key, _ in takewhile(lambda moved: moved[1] > since, reversed(self._moved.items()))}

    def forget(self, resource: Resource) -> None:
        """Drop the (empty) table of a resource that is no longer served, so that its watches end with 410."""
        held = self._tables.pop(resource.key, None)
        if held is not None:
            held.log.compact(self.resource_version + 1)

    def listen(self, listener: Listener, resource: Resource | None) -> Callable[[], None]:
        """Call `listener` after each write (of `resource`, or of any); returns what ends it."""
        entry = (resource.key if resource else None, listener)
        self._listeners = [*self._listeners, entry]

        def stop() -> None:
            self._listeners = [held for held in self._listeners if held is not entry]

        return stop

    def compact(self, resource_version: int) -> None:
        """Forget the history up to `resource_version` everywhere: older watches, exact lists and pages get 410."""
        self.floor = max(self.floor, min(resource_version, self.resource_version))
        for table in self._tables.values():
            table.log.compact(self.floor)

    def put(self, resource: Resource, key: Key, obj: Obj) -> Revision:
        """Commit `obj`, whose top level and `metadata` belong to the ledger from here on."""
        revision = self._stamped(obj)
        previous = self.table(resource).put(key, revision)
        self._reindex(resource, key, previous, revision)
        self._tell("MODIFIED" if previous else "ADDED", resource, key, revision, previous)
        return revision

    def drop(self, resource: Resource, key: Key, final: Obj) -> Revision:
        """Commit the removal of `key`; `final` is its last state and is handed over like in `put`."""
        revision = self._stamped(final)
        previous = self.table(resource).drop(key)
        self._reindex(resource, key, previous, None)
        self._tell("DELETED", resource, key, revision, previous)
        return revision

    def content(self, namespace: str, find: Callable[[str], Resource]) -> list[tuple[Resource, Key, Obj]]:
        """Every object in the namespace."""
        return [
            (find(name), key, revision.obj)
            for name, table in self._tables.items()
            for key, revision in table.scan(namespace)
        ]

    def owner_alive(self, uid: str) -> Address | None:
        """Where the object with that uid is, or None."""
        return self._alive.get(uid)

    def dependants(self, uid: str) -> list[Address]:
        """The objects that name `uid` as an owner, in order."""
        return sorted(self._dependants.get(uid, ()))

    def _stamped(self, obj: Obj) -> Revision:
        self.resource_version += 1
        obj["metadata"]["resourceVersion"] = str(self.resource_version)
        return Revision(obj, self.resource_version)

    def _tell(
        self, kind: EventType, resource: Resource, key: Key, revision: Revision, previous: Revision | None
    ) -> None:
        self.table(resource).log.append(LoggedChange(kind, key, revision, previous))
        self._moved.pop(resource.key, None)
        self._moved[resource.key] = revision.resource_version
        event = StoreEvent(kind, resource, revision, previous)
        for wanted, listener in self._listeners:
            if wanted is None or wanted == resource.key:
                listener(event)

    def _reindex(self, resource: Resource, key: Key, old: Revision | None, new: Revision | None) -> None:
        address = (resource.key, key)
        if new is None and old is not None:
            self._alive.pop(old.obj["metadata"]["uid"], None)
        elif old is None and new is not None:
            self._alive[new.obj["metadata"]["uid"]] = address
        before, after = _owners(old), _owners(new)
        if before == after:
            return
        for uid in before:
            holders = self._dependants.get(uid, set())
            holders.discard(address)
            if not holders:
                self._dependants.pop(uid, None)
        for uid in after:
            self._dependants.setdefault(uid, set()).add(address)


def _owners(revision: Revision | None) -> list[str]:
    references = revision.obj["metadata"].get("ownerReferences") if revision else None
    return [reference["uid"] for reference in references] if references else []
