"""`launch` for the agent, as far as pods wait: some pools are short, and the machines are those of EC2.

A shortage is known from the start; what a launch that fails puts out of reach is asked in `launches`.
"""

from dataclasses import replace
from typing import Any

from bench.reference.karpenter.buy import solve
from fleet.snapshot import CapacityPool
from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs, launches
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
    """The pods that run in the end, and what Karpenter's order pays for their machines among what is not short."""
    given, short = case["given"], launches.short_pools(case["given"])
    sold = (
        replace(it, offerings=tuple(o for o in it.offerings if (o.capacity_type, it.name, o.zone) not in short))
        for it in launches.market(_names(given))
    )
    pods = [catalogs.pod(number, each) for number, each in enumerate(given["pods"])]
    pool = {"requirements": given.get("node_pool_requirements", [_ON_DEMAND])}
    claims = solve(pods, catalogs.templates([pool], tuple(it for it in sold if it.offerings))).claims
    return UpstreamAnswer(sum(len(it.pods) for it in claims), sum(it.price_usd_h for it in claims))
