"""Whether `minValues` holds for what was bought, reckoned anew from the row: how many values each machine could have.

Counted are the types of the row that the pool and the pods on the machine allow and that hold these pods.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.conformance.cases import Case
from tests.conformance.karpenter import prices
from tests.conformance.karpenter.manifests import Given, pool_name
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
    asked = prices.wanted(pool, aboard)
    options = [offer for each in types if prices.holds(each, aboard) for offer, _ in prices.offers(each, asked)]
    for term in pool.get("requirements", ()):
        values = {offer.get(term["key"]) for offer in options} - {None}
        if len(values) < term.get("minValues", 0):
            yield f"{claim.capacity_pool}: {len(values)} of {term['minValues']} values of {term['key']}"
