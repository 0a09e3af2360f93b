"""`provision` for the agent: pods that wait, pools and machine types; nothing stands."""

from tests.conformance.cases import Case
from tests.conformance.karpenter import prices
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
    """The pods that run, what their machines cost by the row, and whether a rule leaves pods without one."""
    pods, placed = case["given"]["pods"], case["expect"].get("scheduled", len(case["given"]["pods"]))
    return UpstreamAnswer(placed, _cost_usd_h(case) if placed else 0.0, placed < len(pods))


def _cost_usd_h(case: Case) -> float | None:
    """What the row says a machine costs, or the least for the machines that it names or counts."""
    given, expect = case["given"], case["expect"]
    stated = expect.get("launch_price", expect.get("cheapest_fitting_price"))
    if stated is not None:
        return float(stated * expect.get("nodes", 1))
    types = types_of(given.get("instance_types", {"catalog": "default"}), case["folder"])
    pool = (given.get("node_pools") or [{}])[0]
    if "launched" in expect:
        return sum(prices.of_one([it for it in types if it["name"] == name], [], pool) for name in expect["launched"])
    return prices.of_nodes(types, given["pods"], expect["nodes"], pool) if "nodes" in expect else None
