"""What nodes have left, in canonical integers (milli-CPU, bytes, devices, pods)."""

from providers.sim.controllers.objects import Obj, status_of
from providers.sim.store.podrequests import Amounts, add_amounts, amounts


def allocatable_of(node: Obj) -> dict[str, int]:
    """What pods may take of a node; its capacity where allocatable is not reported."""
    status = status_of(node)
    return amounts(status.get("allocatable") or status.get("capacity"))


def shortages(wanted: Amounts, allocatable: Amounts, used: Amounts) -> list[str]:
    """The resources of which a node has too little left, by name; `used` is without the pod in question."""
    return sorted(
        name
        for name, amount in wanted.items()
        if amount and amount + used.get(name, 0) > allocatable.get(name, _unlimited_pods(name, allocatable))
    )


def _unlimited_pods(name: str, allocatable: Amounts) -> int:
    """A node that reports no pod limit has none; every other resource it does not report it does not have."""
    return 1 << 62 if name == "pods" and name not in allocatable else 0


def fits(wanted: Amounts, allocatable: Amounts, used: Amounts) -> bool:
    """Whether `shortages` would be empty; the inner loop of scheduling."""
    for name, amount in wanted.items():
        if amount and amount + used.get(name, 0) > allocatable.get(name, _unlimited_pods(name, allocatable)):
            return False
    return True


class Occupancy:
    """The running total of what is taken on each node."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, int]] = {}
        self._held: dict[str, tuple[str, Amounts]] = {}

    def holds(self, uid: str) -> bool:
        """Whether the pod with that uid is accounted for."""
        return uid in self._held

    def hold(self, uid: str, node: str, wanted: Amounts) -> None:
        """Account for a pod on a node."""
        self._held[uid] = node, wanted
        add_amounts(self._used.setdefault(node, {}), wanted)

    def release(self, uid: str) -> bool:
        """Give back what a pod holds; whether it held anything."""
        node, wanted = self._held.pop(uid, ("", {}))
        if node:
            used = self._used[node]
            add_amounts(used, {name: -amount for name, amount in wanted.items()})
            if not any(used.values()):
                del self._used[node]  # nodes come and go for as long as a simulation runs
        return bool(node)

    def used(self, node: str) -> Amounts:
        """What is taken on a node."""
        return self._used.get(node, {})
