"""Whether `minValues` holds for what was bought, reckoned anew from the row: how many values each machine could have.

Counted are the types of the row that the pool and the pods on the machine allow and that hold these pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from model import labels
from model.requirements import STRICT, Requirements
from tests.conformance.cases import Case
from tests.conformance.karpenter.catalogs import amounts
from tests.conformance.karpenter.manifests import Given, pool_name
from tests.conformance.karpenter.requirements import requirements
from tests.conformance.karpenter.worlds import AgentWorld, types_of


def broken(case: Case, world: AgentWorld) -> list[str]:
    """One line for each machine and requirement of its pool that has too few values."""
    given = case["given"]
    pools = {pool_name(number, each): each for number, each in enumerate(given.get("node_pools") or [{}])}
    if not any("minValues" in it for pool in pools.values() for it in pool.get("requirements", ())):
        return []
    types = types_of(given.get("instance_types", {"catalog": "default"}), case["folder"])
    return [text for claim in world.snapshot.claims.values() for text in _of(claim, pools, types, world, given)]


def _of(claim: Any, pools: Mapping[str, Given], types: list[Given], world: AgentWorld, given: Given) -> Iterator[str]:
    aboard = [given["pods"][int(pod[-3:])] for pod, node in world.places().items() if node == claim.node]
    pool = pools[claim.node_pool]
    wanted = requirements(pool.get("requirements", []))
    for pod in aboard:
        wanted &= requirements(pod.get("node_affinity", []))
    options = [offer for each in types if _holds(each, aboard) for offer in _offers(each, wanted)]
    for term in pool.get("requirements", ()):
        values = {offer.get(term["key"]) for offer in options} - {None}
        if len(values) < term.get("minValues", 0):
            yield f"{claim.capacity_pool}: {len(values)} of {term['minValues']} values of {term['key']}"


def _holds(machine: Given, pods: Iterable[Given]) -> bool:
    room, overhead = amounts(machine["capacity"]), amounts(machine.get("overhead", {}))
    asked: dict[str, int] = {}
    for pod in pods:
        for name, amount in (*amounts({k: v for k, v in pod.items() if isinstance(v, int)}).items(), ("pods", 1)):
            asked[name] = asked.get(name, 0) + amount
    return all(amount <= room.get(name, 0) - overhead.get(name, 0) for name, amount in asked.items())


def _offers(machine: Given, wanted: Requirements) -> Iterator[dict[str, str]]:
    """The labels of each offer that is wanted."""
    for each in machine["offerings"]:
        own = {
            labels.INSTANCE_TYPE: machine["name"],
            labels.ARCH: machine["arch"],
            labels.ZONE: each["zone"],
            labels.CAPACITY_TYPE: each["capacity_type"],
            **machine.get("labels", {}),
        }
        systems = machine.get("os") or ["linux"]
        said = ({**own, labels.OS: system} for system in systems)
        if each.get("available", True):
            yield from (it for it in said if Requirements.from_labels(it).compatible(wanted, undefined=STRICT))
