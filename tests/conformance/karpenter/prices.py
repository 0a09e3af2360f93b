"""What upstream's machines cost at least, by a row's own words: its types, its prices, and how pods are to stand.

Where a row says how many machines there are and which pods share one, upstream is taken to have paid the least that any
of its types would have cost for that, so that it is taken to be no dearer than it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import inf

from model import labels
from model.requirements import STRICT, Requirements
from tests.conformance.karpenter.catalogs import amounts
from tests.conformance.karpenter.manifests import Given
from tests.conformance.karpenter.requirements import requirements


def wanted(pool: Given, pods: Iterable[Given]) -> Requirements:
    """What a pool and pods that share a machine ask of its labels."""
    asked = (_asked(pod) for pod in pods)
    return reduce(lambda both, each: both & each, asked, requirements(pool.get("requirements", [])))


def _asked(pod: Given) -> Requirements:
    chosen = {
        labels.ZONE: pod.get("zone"),
        labels.INSTANCE_TYPE: pod.get("instance_type"),
        labels.ARCH: pod.get("arch"),
    }
    chosen |= pod.get("node_selector", {})
    own = Requirements.from_labels({key: value for key, value in chosen.items() if value})
    return own & requirements(pod.get("node_affinity", []))


def holds(machine: Given, pods: Iterable[Given]) -> bool:
    """Whether a machine of a type has room for all of these pods."""
    room, overhead = amounts(machine["capacity"]), amounts(machine.get("overhead", {}))
    asked: dict[str, int] = {}
    for pod in pods:
        numbers = {word: amount for word, amount in pod.items() if isinstance(amount, int)}
        for name, amount in (*amounts(numbers).items(), ("pods", 1)):
            asked[name] = asked.get(name, 0) + amount
    return all(amount <= room.get(name, 0) - overhead.get(name, 0) for name, amount in asked.items())


def offers(machine: Given, asked: Requirements) -> Iterator[tuple[Mapping[str, str], float]]:
    """The labels and the price of each offer of a type that is available and has what is asked for."""
    for each in machine["offerings"]:
        own = {
            labels.INSTANCE_TYPE: machine["name"],
            labels.ARCH: machine["arch"],
            labels.ZONE: each["zone"],
            labels.CAPACITY_TYPE: each["capacity_type"],
            **machine.get("labels", {}),
        }
        said = ({**own, labels.OS: system} for system in machine.get("os") or ["linux"])
        if each.get("available", True):
            price_usd_h = each.get("price", 0.0)
            yield from (
                (it, price_usd_h) for it in said if Requirements.from_labels(it).compatible(asked, undefined=STRICT)
            )


def of_one(types: Iterable[Given], pods: Sequence[Given], pool: Given) -> float:
    """The least price of one machine that holds these pods; infinite where none does."""
    asked = wanted(pool, pods)
    able = (machine for machine in types if holds(machine, pods))
    return min((price_usd_h for machine in able for _, price_usd_h in offers(machine, asked)), default=inf)


def of_some(types: Iterable[Given], pod: Given, pods: int, pool: Given) -> float:
    """The least that machines for so many equal pods cost, however many machines these are."""
    known = list(types)
    sizes = [of_one(known, [pod] * size, pool) for size in range(1, pods + 1)]
    least = [0.0]
    for missing in range(1, pods + 1):
        least.append(min((price + least[max(0, missing - size)] for size, price in enumerate(sizes, 1)), default=inf))
    return least[pods]


def of_nodes(types: Sequence[Given], pods: Sequence[Given], nodes: int, pool: Given) -> float:
    """The least that so many machines cost: one for all pods, one for each, or as many with one pod at least."""
    if nodes == 1:
        return of_one(types, pods, pool)
    if nodes == len(pods):
        return sum(of_one(types, [pod], pool) for pod in pods)
    return nodes * min(of_one(types, [pod], pool) for pod in pods)
