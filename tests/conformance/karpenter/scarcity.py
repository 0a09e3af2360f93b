"""`launch` for the agent, as far as pods wait: some pools are short, and the machines are those of EC2.

A shortage is known from the start; what a launch that fails puts out of reach is asked in `launches`.
"""

from typing import Any

from fleet.snapshot import CapacityPool
from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter import launches, prices
from tests.conformance.karpenter.manifests import Declined, Given, only, pod_manifest
from tests.conformance.karpenter.rounds import UpstreamAnswer
from tests.conformance.karpenter.worlds import NOW_S, AgentWorld

_ROW = ("ice_pools", "pods", "allowed_types", "node_pool_requirements", "instance_types")
_ON_DEMAND = {"key": labels.CAPACITY_TYPE, "op": "In", "values": ["on-demand"]}


def play(case: Case) -> AgentWorld:
    """The row as a world that has come to rest."""
    given = case["given"]
    if "pods" not in given:
        raise Declined(f"row: no pods ({', '.join(sorted(given))})")
    only("row", given, _ROW)
    short = {CapacityPool(*_pool(it)): NOW_S + 1e6 for it in launches.short_pools(given)}
    world = AgentWorld(launches.every_offer(_names(given)), shortages=short)
    pods = [pod_manifest(f"pod-{number:03}", each) for number, each in enumerate(given["pods"])]
    world.play([{"requirements": given.get("node_pool_requirements", [_ON_DEMAND])}], pods)
    return world


def _pool(given: tuple[str, str, str]) -> Any:
    return given


def _names(given: Given) -> tuple[str, ...]:
    told = given.get("instance_types", given.get("allowed_types", launches.SOLD))
    if isinstance(told, str):
        if "only one" not in told:
            raise Declined(f"instance_types: {told}")
        return launches.SOLD
    return tuple(told)


def upstream(case: Case) -> UpstreamAnswer:
    """The pods that run in the end, and the least for the machines that the row counts or names among what is left."""
    given, expect = case["given"], case["expect"]
    told = expect.get("attempt_2", expect)
    nodes = told.get("nodes", expect.get("attempt_2_nodes", 1))
    terms = given.get("node_pool_requirements", [_ON_DEMAND])
    named = {labels.INSTANCE_TYPE: "instance_type", labels.ZONE: "zone", labels.CAPACITY_TYPE: "capacity_type"}
    terms = [*terms, *({"key": key, "op": "In", "values": [told[word]]} for key, word in named.items() if word in told)]
    pods = [{word: it for word, it in pod.items() if word != "preferred_zone"} for pod in given["pods"]]
    cost_usd_h = prices.of_nodes(_left(case), pods, nodes, {"requirements": terms})
    return UpstreamAnswer(len(pods), cost_usd_h)


def _left(case: Case) -> list[Given]:
    """What is sold and not short, in the words of rows."""
    short = launches.short_pools(case["given"])
    sold = launches.every_offer(_names(case["given"]))
    return [
        {
            "name": it.name,
            "arch": it.labels[labels.ARCH],
            "labels": it.labels,
            "capacity": it.allocatable,
            "offerings": [
                {"zone": offer.zone, "capacity_type": offer.capacity_type, "price": offer.price_usd_h}
                for offer in sold.offers
                if offer.instance_type is it and (offer.capacity_type, it.name, offer.zone) not in short
            ],
        }
        for it in sold.types.values()
    ]
