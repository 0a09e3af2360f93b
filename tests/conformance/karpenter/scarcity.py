"""`launch` for the agent, as far as pods wait: some pools are short, and the machines are those of EC2.

A shortage is known from the start: that a launch finds it out is for the suites of the launch. Single calls of EC2, and
what they put out of reach, are no rows about pods; they are declined.
"""

from typing import Any

from fleet.snapshot import CapacityPool, Catalog, InstanceOffer
from model import labels
from model.kinds import CapacityType
from providers.aws.catalog import package_catalog
from tests.conformance.cases import Case
from tests.conformance.karpenter import launches
from tests.conformance.karpenter.manifests import Declined, Given, only, pod_manifest
from tests.conformance.karpenter.rounds import UpstreamAnswer
from tests.conformance.karpenter.worlds import NOW_S, AgentWorld

_ROW = ("ice_pools", "pods", "allowed_types", "node_pool_requirements", "instance_types")
_CAPACITY_TYPES: tuple[CapacityType, ...] = ("on-demand", "spot")
_ON_DEMAND = {"key": labels.CAPACITY_TYPE, "op": "In", "values": ["on-demand"]}


def play(case: Case) -> AgentWorld:
    """The row as a world that has come to rest."""
    given = case["given"]
    if "pods" not in given:
        raise Declined(f"row: no pods ({', '.join(sorted(given))})")
    only("row", given, _ROW)
    short = {CapacityPool(*_pool(it)): NOW_S + 1e6 for it in launches.short_pools(given)}
    world = AgentWorld(_market(_names(given)), shortages=short)
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


def _market(names: tuple[str, ...]) -> Catalog:
    """The types at their prices in every zone."""
    whole = package_catalog(launches.REGION).catalog
    prices = {(it.instance_type.name, it.capacity_type): it for it in whole.offers}
    offers = [
        InstanceOffer(whole.types[name], zone, capacity_type, prices[name, capacity_type].price_usd_h)
        for name in sorted(names)
        for zone in launches.ZONES
        for capacity_type in _CAPACITY_TYPES
        if (name, capacity_type) in prices
    ]
    return Catalog(launches.REGION, {name: whole.types[name] for name in names}, tuple(offers), NOW_S, "rows")


def upstream(case: Case) -> UpstreamAnswer:
    """Pods that run in the end, and what their machines cost (USD an hour)."""
    answer = launches.run(case)
    return UpstreamAnswer(answer["scheduled"], answer["cost_usd_h"], False)
