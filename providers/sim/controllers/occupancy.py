"""What pods ask for and what nodes have left, in canonical integers (milli-CPU, bytes, devices, pods)."""

from collections.abc import Mapping
from functools import lru_cache

from model.quantity import InvalidQuantity, canonical_amount
from providers.sim.controllers.objects import Obj, status_of

Amounts = Mapping[str, int]


@lru_cache(maxsize=8192)
def _amount(resource: str, quantity: str | int) -> int:
    try:
        return canonical_amount(resource, quantity)
    except InvalidQuantity:
        return 0


def amounts(resource_list: Mapping[str, str | int] | None) -> dict[str, int]:
    """A resource list of the API as integers; what is no quantity counts as nothing."""
    return {name: _amount(name, value) for name, value in (resource_list or {}).items()}


def requests_of(pod: Obj) -> dict[str, int]:
    """What a pod takes on a node, `pods: 1` included (component-helpers `resource.PodRequests`).

    The larger of the sum of containers (with side-cars) and each init container; a limit stands in for a request.
    What is asked for the whole pod (KEP-2837) takes the place of that sum.
    """
    spec = pod["spec"]
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(total, _container_requests(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, wanted)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum(wanted, sidecars))
    _add(total, sidecars)
    _raise_to(total, peak)
    if spec.get("resources"):
        total.update(_pod_level(spec["resources"], total))
    _add(total, amounts(spec.get("overhead")))
    total["pods"] = 1
    return total


def _pod_level(resources: Obj, of_containers: Amounts) -> dict[str, int]:
    """What is requested for the whole pod; a limit stands in where no container asks (never less huge pages)."""
    limits = {
        name: amount
        for name, amount in amounts(resources.get("limits")).items()
        if name not in of_containers or name.startswith("hugepages-")
    }
    asked = {**limits, **amounts(resources.get("requests"))}
    return {name: n for name, n in asked.items() if name in ("cpu", "memory") or name.startswith("hugepages-")}


def _container_requests(container: Obj) -> dict[str, int]:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _add(total: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(a: Amounts, b: Amounts) -> dict[str, int]:
    total = dict(a)
    _add(total, b)
    return total


def _raise_to(total: dict[str, int], floor: Amounts) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)


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
        _add(self._used.setdefault(node, {}), wanted)

    def release(self, uid: str) -> bool:
        """Give back what a pod holds; whether it held anything."""
        node, wanted = self._held.pop(uid, ("", {}))
        if node:
            used = self._used[node]
            _add(used, {name: -amount for name, amount in wanted.items()})
            if not any(used.values()):
                del self._used[node]  # nodes come and go for as long as a simulation runs
        return bool(node)

    def used(self, node: str) -> Amounts:
        """What is taken on a node."""
        return self._used.get(node, {})
