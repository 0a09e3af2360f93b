"""What pods ask for, in canonical integers: what kube-scheduler counts on nodes and quotas count in namespaces."""

from collections.abc import Callable, Mapping
from functools import lru_cache

from model.quantity import InvalidQuantity, canonical_amount
from providers.sim.store.objects import Obj

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
    total = _of_containers(spec, _container_requests)
    if spec.get("resources"):
        total.update(_pod_level(spec["resources"], total))
    add_amounts(total, amounts(spec.get("overhead")))
    total["pods"] = 1
    return total


def limits_of(pod: Obj) -> dict[str, int]:
    """What a pod may take at most, of what it says so (component-helpers `resource.PodLimits`)."""
    spec = pod["spec"]
    total = _of_containers(spec, _container_limits)
    total.update(amounts((spec.get("resources") or {}).get("limits")))
    found = {name: most for name, most in total.items() if most}
    add_amounts(found, {name: it for name, it in amounts(spec.get("overhead")).items() if name in found})
    return found


def _of_containers(spec: Obj, of_one: Callable[[Obj], Amounts]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        add_amounts(total, of_one(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = of_one(container)
        if container.get("restartPolicy") == "Always":
            add_amounts(sidecars, wanted)
            _raise_to(peak, sidecars)
        else:
            _raise_to(peak, _sum(wanted, sidecars))
    add_amounts(total, sidecars)
    _raise_to(total, peak)
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


def _container_limits(container: Obj) -> dict[str, int]:
    return amounts((container.get("resources") or {}).get("limits"))


def add_amounts(total: dict[str, int], more: Amounts) -> None:
    """Add `more` to `total`, in place."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _sum(a: Amounts, b: Amounts) -> dict[str, int]:
    total = dict(a)
    add_amounts(total, b)
    return total


def _raise_to(total: dict[str, int], floor: Amounts) -> None:
    for name, amount in floor.items():
        total[name] = max(total.get(name, 0), amount)
