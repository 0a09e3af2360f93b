"""The garbage collector: dependants of what was deleted go a moment later, not within the deletion."""

from providers.sim.store import Store


class GarbageCollector:
    """Collects what the store keeps for it, whenever anything was written."""

    name = "garbage"

    def __init__(self, store: Store) -> None:
        self._collect = store.defer_garbage()

    def step(self, _now: float) -> float | None:
        """Delete, orphan and let go until nothing is left to do."""
        self._collect()
        return None
