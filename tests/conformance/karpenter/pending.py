"""`provision` for the agent: pods that wait, pools and machine types; nothing stands."""

from bench.reference.karpenter.buy import solve
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.manifests import Declined, only, pod_manifest
from tests.conformance.karpenter.rounds import UpstreamAnswer
from tests.conformance.karpenter.worlds import AgentWorld, catalog_of, shortages_of, types_of

_WORDS = ("instance_types", "node_pools", "pods", "max_instance_types", "min_values_policy", "preference_policy")


def play(case: Case) -> AgentWorld:
    """The row as a world that has come to rest."""
    given = case["given"]
    only("row", given, _WORDS)
    if given.get("min_values_policy", "Strict") != "Strict":
        raise Declined(f"min_values_policy: {given['min_values_policy']}")
    if "preference_policy" in given:
        raise Declined(f"preference_policy: {given['preference_policy']}")
    if "max_instance_types" in given:
        raise Declined("max_instance_types: a launch of the agent names one type")
    types = types_of(given.get("instance_types", {"catalog": "default"}), case["folder"])
    world = AgentWorld(catalog_of(types), shortages=shortages_of(types))
    pods = [pod_manifest(f"pod-{number:03}", each) for number, each in enumerate(given["pods"])]
    world.play(given.get("node_pools") or [{}], pods)
    return world


def upstream(case: Case) -> UpstreamAnswer:
    """The pods that run, what Karpenter's order pays for their machines, and whether a rule leaves pods without one."""
    given = case["given"]
    machines = catalogs.machines(types_of(given.get("instance_types", {"catalog": "default"}), case["folder"]))
    pods = [catalogs.pod(number, each) for number, each in enumerate(given["pods"])]
    claims = solve(pods, catalogs.templates(given.get("node_pools") or [{}], machines)).claims
    placed = case["expect"].get("scheduled", sum(len(it.pods) for it in claims))
    return UpstreamAnswer(placed, sum(it.price_usd_h for it in claims), placed < len(pods))
