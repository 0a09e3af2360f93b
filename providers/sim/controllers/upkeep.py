"""What an API server forgets by itself: events after an hour, and history after a few minutes."""

from collections import deque

from providers.sim.store import Store, StoreNotFound

EVENTS_S = 3600.0
"""`--event-ttl` of kube-apiserver."""
HISTORY_S = 600.0
"""At least so much history is kept for watches: etcd is compacted every five minutes, to where it was five before."""


class Upkeep:
    """A controller that lets go of what has had its time, counted from when an event was last written."""

    name = "upkeep"

    def __init__(self, store: Store) -> None:
        self._store = store
        self._versions: deque[tuple[float, int]] = deque()
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        """Namespace and name of an event -> its resource version, and since when it is that."""
        self._next_s = 0.0

    def step(self, now: float) -> float | None:
        """Forget, every five minutes."""
        if now >= self._next_s:
            self._next_s = now + HISTORY_S / 2
            self._compact(now)
            self._drop_events(now)
        return self._next_s

    def _compact(self, now: float) -> None:
        self._versions.append((now, self._store.resource_version))
        while self._versions and self._versions[0][0] <= now - HISTORY_S:
            self._store.compact(self._versions.popleft()[1])

    def _drop_events(self, now: float) -> None:
        events = self._store.resource("events", "")
        there = {}
        for event in self._store.list(events):
            meta = event["metadata"]
            key, version = (meta["namespace"], meta["name"]), meta["resourceVersion"]
            known = self._seen.get(key)
            there[key] = known if known is not None and known[0] == version else (version, now)
        for (namespace, name), (_, since_s) in there.items():
            if now - since_s >= EVENTS_S:
                self._forget(namespace, name)
        self._seen = there

    def _forget(self, namespace: str, name: str) -> None:
        try:
            self._store.delete(self._store.resource("events", ""), name, namespace=namespace)
        except StoreNotFound:
            return
