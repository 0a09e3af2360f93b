"""A read-your-writes picture of the store for controllers: mirrors per kind, with indexes and change handlers.

The store calls back synchronously on every write, which only appends to a queue; `MirroredCluster.sync` folds the
queue into the mirrors on the controllers' thread. A controller that syncs after a write therefore sees it: the stale
caches and expectations of real controllers are not needed.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator

from providers.sim.controllers.objects import Key, Obj, key_of
from providers.sim.store import Resource, Store, StoreEvent
from providers.sim.store.objects import copied

Handler = Callable[[Obj | None, Obj | None], None]
"""Called with (old, new): (None, x) for an addition, (x, None) for a removal."""
Keying = Callable[[Obj], Iterable[Hashable]]


class _Index:
    def __init__(self, keying: Keying) -> None:
        self._keying = keying
        self._buckets: dict[Hashable, dict[Key, Obj]] = {}

    def replace(self, key: Key, old: Obj | None, new: Obj | None) -> None:
        """The object of this key was `old` (None: not there) and is `new` (None: gone)."""
        values = tuple(self._keying(new)) if new is not None else ()
        if old is not None:
            for value in self._keying(old):
                if value not in values:
                    self._drop(value, key)
        for value in values:
            self._buckets.setdefault(value, {})[key] = new  # type: ignore[assignment]  # values are empty when new is None

    def _drop(self, value: Hashable, key: Key) -> None:
        bucket = self._buckets[value]
        del bucket[key]
        if not bucket:
            del self._buckets[value]

    def get(self, value: Hashable) -> list[Obj]:
        """The objects with this value, in order of their keys."""
        bucket = self._buckets.get(value)
        return [bucket[key] for key in sorted(bucket)] if bucket else []


class InformerCache:
    """All objects of one resource as of the last sync."""

    def __init__(self, store: Store, resource: Resource) -> None:
        self.store = store
        self.resource = resource
        self._objects: dict[Key, Obj] = {}
        self._indexes: dict[str, _Index] = {}
        self._handlers: list[Handler] = []

    def get(self, key: Key) -> Obj | None:
        """The object, or None."""
        return self._objects.get(key)

    def __iter__(self) -> Iterator[Obj]:
        """Every object, in the order of their keys."""
        return iter([self._objects[key] for key in sorted(self._objects)])

    def __len__(self) -> int:
        return len(self._objects)

    def by(self, index: str, value: Hashable) -> list[Obj]:
        """The objects an index files under `value`, in the order of their keys."""
        return self._indexes[index].get(value)

    def index(self, name: str, keying: Keying) -> None:
        """File every object under the values `keying` gives; the first definition of a name stays."""
        if name in self._indexes:
            return
        index = self._indexes[name] = _Index(keying)
        for key, obj in self._objects.items():
            index.replace(key, None, obj)

    def watch(self, handler: Handler) -> None:
        """Tell `handler` of every change, starting with what is already there."""
        self._handlers.append(handler)
        for obj in self:
            handler(None, obj)

    def apply(self, kind: str, obj: Obj, resource_version: int) -> None:
        """Fold one event in; what is older than the picture is ignored."""
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None and int(old["metadata"]["resourceVersion"]) >= resource_version:
            return
        self._replace(key, old, None if kind == "DELETED" else obj)

    def _replace(self, key: Key, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new
        for index in self._indexes.values():
            index.replace(key, old, new)
        if old is not None or new is not None:
            for handler in self._handlers:
                handler(old, new)

    # Writes are optimistic: a client's change in between is never overwritten (Conflict: the controller tries again).

    def create(self, obj: Obj) -> Obj:
        """Create; AlreadyExists and Invalid come through."""
        return self.store.create(self.resource, obj, namespace=obj["metadata"].get("namespace") or "")

    def update(self, obj: Obj) -> Obj:
        """Replace everything but the status; `obj` carries the resource version it was read at."""
        namespace, name = key_of(obj)
        return self.store.update(self.resource, obj, namespace=namespace, name=name)

    def update_metadata(self, obj: Obj, **metadata: object) -> Obj:
        """Replace some metadata fields (labels, annotations, finalizers); an empty one is dropped."""
        changed = {
            field: value for field, value in {**obj["metadata"], **metadata}.items() if value or field not in metadata
        }
        return self.update({**obj, "metadata": changed})

    def update_status(self, obj: Obj, status: Obj) -> Obj:
        """Replace the status."""
        namespace, name = key_of(obj)
        written = {**obj, "status": copied(status)}  # the rest is the store's own
        return self.store.update(
            self.resource, written, namespace=namespace, name=name, subresource="status", handed_over=True
        )

    def delete(self, obj: Obj, *, grace_period_s: int | None = None, propagation: str | None = None) -> None:
        """Delete this very object (its uid is a precondition)."""
        namespace, name = key_of(obj)
        self.store.delete(
            self.resource,
            name,
            namespace=namespace,
            grace_period_s=grace_period_s,
            propagation=propagation,  # type: ignore[arg-type]  # the three words of the API
            uid=obj["metadata"]["uid"],
        )


class MirroredCluster:
    """Holds the informer caches over one store, which all controllers of one kernel share."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._events: deque[StoreEvent] = deque()
        self._mirrors: dict[str, InformerCache] = {}
        self._unsubscribe = store.subscribe(self._events.append)

    def mirror(self, kind: str, group: str = "") -> InformerCache:
        """The mirror of a kind, filled from the store when first asked for."""
        resource = self.store.resource(kind, group)
        mirror = self._mirrors.get(resource.key)
        if mirror is None:
            mirror = self._mirrors[resource.key] = InformerCache(self.store, resource)
            for obj in self.store.list(resource):
                mirror.apply("ADDED", obj, int(obj["metadata"]["resourceVersion"]))
        return mirror

    def sync(self) -> None:
        """Fold in everything written so far, in the order of the writes."""
        events = self._events
        while events:
            event = events.popleft()
            mirror = self._mirrors.get(event.resource.key)
            if mirror is not None:
                mirror.apply(event.type, event.object, event.resource_version)

    def close(self) -> None:
        """Stop listening to the store."""
        self._unsubscribe()
