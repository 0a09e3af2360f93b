"""What a store answers to those who only read it: objects, lists, history."""

import threading
from collections.abc import Callable, Sequence

from providers.sim.store import scale as scaling
from providers.sim.store.builtins import builtin_resources
from providers.sim.store.endpoints import not_found
from providers.sim.store.errors import StoreExpired, StoreUnknownError
from providers.sim.store.ledger import Listener, ObjectTables
from providers.sim.store.objects import Obj
from providers.sim.store.paging import ListQuery, Page, malformed, read_page, too_large, well_formed
from providers.sim.store.registry import Registry, Resource
from providers.sim.store.releases import Release
from providers.sim.store.watchlog import LoggedChange, Revision

Objs = list[Obj]


class StoredObjects:
    """The reading half of a store. Thread-safe."""

    def __init__(self, release: Release, event_log_capacity: int) -> None:
        self.release = release
        self._lock = threading.RLock()
        self._registry = Registry(builtin_resources(release))
        self._ledger = ObjectTables(event_log_capacity)

    @property
    def resource_version(self) -> int:
        """The version of the last write."""
        return self._ledger.resource_version

    def resource(self, kind_or_plural: str, group: str | None = None) -> Resource:
        """The resource of that kind, plural or short name. KeyError when not served."""
        return self._registry.find(kind_or_plural, group)

    def resources(self) -> tuple[Resource, ...]:
        """Everything served, in the order it was added."""
        return tuple(self._registry)

    def served(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource behind a URL, or None."""
        return self._registry.served(group, version, plural)

    def read(self, resource: Resource, name: str, namespace: str = "") -> Revision:
        """The current revision, with its encoding. NotFound when there is none."""
        revision = self.held(resource, name, namespace)
        if revision is None:
            raise not_found(resource, name)
        return revision

    def held(self, resource: Resource, name: str, namespace: str = "") -> Revision | None:
        """The current revision; None when there is none."""
        return self._ledger.table(resource).get((namespace if resource.namespaced else "", name))

    def read_since(self, resource: Resource, name: str, namespace: str, resource_version: str) -> Revision:
        """The current revision, for a reader that has seen `resource_version`: Timeout where that is yet to come."""
        if not well_formed(resource_version):
            raise StoreUnknownError(malformed(resource_version))
        if int(resource_version or 0) > self.resource_version:
            raise too_large(int(resource_version), self.resource_version)
        return self.read(resource, name, namespace)

    def holds(self, resource: Resource, name: str, namespace: str = "") -> bool:
        """Whether there is such an object."""
        return self.held(resource, name, namespace) is not None

    def get(self, resource: Resource, name: str, namespace: str = "") -> Obj:
        """The object. NotFound when there is none."""
        return self.read(resource, name, namespace).obj

    def scale(self, resource: Resource, name: str, namespace: str = "") -> Obj:
        """The Scale of an object. NotFound when there is none or it does not scale."""
        return scaling.read_scale(resource, self.get(resource, name, namespace))

    def list(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Objs:
        """The selected objects of a namespace ("" is all), in order of namespace and name."""
        query = ListQuery(namespace, label_selector, field_selector)
        return [revision.obj for revision in self.page(resource, query).rows]

    def page(self, resource: Resource, query: ListQuery) -> Page:
        """One page of a list with the resource version to watch from. Expired, Timeout or BadRequest as in the API."""
        with self._lock:
            return read_page(self._ledger, resource, query)

    def changes(self, resource: Resource, since: int, *, established: bool = False) -> Sequence[LoggedChange]:
        """What happened to `resource` after version `since`. Expired when forgotten or no longer served.

        `established` says the caller has seen everything up to `since`, so that compaction alone does not end it.
        """
        with self._lock:
            if self._registry.served(resource.group, resource.version, resource.plural) is None:
                raise StoreExpired(f"{resource.key} is no longer served")
            return self._ledger.table(resource).log.since(since, established=established)

    def moved(self, since: int) -> set[str]:
        """Keys (`plural.group`) of the resources to which anything happened after version `since`."""
        with self._lock:
            return self._ledger.moved(since)

    def subscribe(self, callback: Listener, *, resource: Resource | None = None) -> Callable[[], None]:
        """Call `callback` inside each write, in order; it must only enqueue. Returns what ends it."""
        with self._lock:
            return self._ledger.listen(callback, resource)

    def compact(self, resource_version: int | None = None) -> None:
        """Forget history up to `resource_version` (the current one): older watches and pages get 410."""
        with self._lock:
            self._ledger.compact(self.resource_version if resource_version is None else resource_version)

    def _by_key(self, key: str) -> Resource:
        plural, _, group = key.partition(".")
        return self._registry.find(plural, group)
