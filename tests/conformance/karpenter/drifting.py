"""`drift` for the agent, as far as machines stand: those that have drifted, in the end.

Whether a single machine has drifted is asked of `fleet.nodeclaims.drift_facts` by the other adapter.
"""

from typing import Any

from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter import drifts, standing
from tests.conformance.karpenter.manifests import Declined, Given, Obj, only
from tests.conformance.karpenter.worlds import AgentWorld

_ROW = ("nodes", "drifted", "budget", "largest_type_cpu_m", "static_replicas", "limit_nodes", "running")
_PRICE_USD_H = 1.0
"""Of the only type there is."""


def play(case: Case) -> AgentWorld:
    """The row as a world that has come to rest."""
    given = case["given"]
    if not {"nodes", "static_replicas"} & given.keys():
        raise Declined(f"row: no machines ({', '.join(sorted(given))})")
    only("row", given, _ROW)
    types = [drifts.machine_type(given.get("largest_type_cpu_m", 64000))]
    told = {"nodes": [_node(each) for each in _nodes(given)], "node_pools": [_pool(given)]}
    return standing.settled(told, types)


def _nodes(given: Given) -> list[Given]:
    """Named, or so many of which the first have drifted."""
    nodes = given.get("nodes", given.get("running", given.get("static_replicas")))
    if not isinstance(nodes, int):
        return list(nodes)
    gone = given.get("drifted", nodes)
    return [{"name": f"n{number:02}", "drifted": number < gone} for number in range(nodes)]


def _node(given: Given) -> Given:
    """A pod that fits nowhere else selects its own machine."""
    alone = isinstance(given.get("pods"), str)
    told = drifts.standing_node(given)
    plain = {word: value for word, value in told.items() if word not in {"allocatable_cpu_m", "pods_cpu_m"}}
    return {**plain, "labels": drifts.NOWHERE_ELSE} if alone else plain


def _pool(given: Given) -> Obj:
    budget = given.get("budget", "100%")
    found: dict[str, Any] = {
        "name": "default",
        "consolidation_policy": "WhenEmpty",
        "consolidate_after": "Never",
        "budgets": [budget if isinstance(budget, dict) else {"nodes": budget}],
        "requirements": [{"key": labels.CAPACITY_TYPE, "op": "In", "values": ["on-demand"]}],
    }
    if "static_replicas" in given:
        found["replicas"] = given["static_replicas"]
    if "limit_nodes" in given:
        found["limits"] = {"nodes": given["limit_nodes"]}
    return found


def upstream(case: Case) -> tuple[int, float, bool]:
    """Pods that run after the round, and what the machines that are left cost (USD an hour)."""
    given, answer = case["given"], drifts.run(case)
    nodes = [_node(each) for each in _nodes(given)]
    left = answer.get("nodeclaims_after", len(nodes) - answer["terminated_count"] + len(answer.get("launched", ())))
    return sum(len(it["pods"]) for it in nodes), left * _PRICE_USD_H, False


def otherwise(case: Case, world: AgentWorld) -> str:
    """How many machines that had drifted are left, and how many upstream leaves after its round."""
    drifted = {it["name"] for it in _nodes(case["given"]) if it.get("drifted")}
    left = drifted & {it.name for it in world.snapshot.claims.values() if not it.deleting}
    theirs = len(drifted) - drifts.run(case)["terminated_count"]
    return "" if len(left) == theirs else f"{len(left)} drifted machines left at rest, upstream {theirs} after a round"
