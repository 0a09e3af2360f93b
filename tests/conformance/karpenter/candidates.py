"""`disruption-candidate`: whether a machine may be disrupted at all, answered by whether it leaves.

Beside it stands a node of nobody's with room for all its pods. A graceful method is consolidation, an eventual one is
drift.
"""

from typing import Any

from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter import standing
from tests.conformance.karpenter.drifting import machine_type, standing_node
from tests.conformance.karpenter.manifests import Declined, Given, Obj, only

_ROW = ("class", "pods", "termination_grace_period_s", "labels", "has_nodeclaim", "initialized", *("age_s",))
_MORE = ("node_age_s", "node_annotations", "do_not_disrupt", "node_do_not_disrupt")
_POOL = "default"


def run(case: Case) -> dict[str, Any]:
    """One machine, and whether it is gone when all is at rest."""
    given = case["given"]
    only("row", given, (*_ROW, *_MORE))
    eventual = given.get("class", "graceful") == "eventual"
    pool = {
        "name": _POOL,
        "consolidation_policy": "WhenEmpty" if eventual else "WhenEmptyOrUnderutilized",
        "consolidate_after": "Never" if eventual else "0s",
        "budgets": [{"nodes": "100%"}],
    }
    node = standing_node({"name": "n1", "drifted": eventual, **_facts(given)})
    room = {"name": "nobodys", "managed": False, "zone": node["zone"], "allocatable": node["allocatable"], "pods": []}
    told = {"node_pools": [pool], "nodes": [node, room]}
    world = standing.settled(told, [machine_type(64000)])
    return {"candidate": "n1" in standing.gone(told, world)}


def _facts(given: Given) -> Obj:
    """What the row says of the node, and of its pods."""
    if given.get("labels", {}).get(labels.KARPENTER_NODE_POOL, _POOL) != _POOL:
        raise Declined("labels: machines of a pool that is not declared leave, see docs/design/0009")
    marks = given.get("node_annotations", {}).get(labels.DO_NOT_DISRUPT)
    spared = given.get("do_not_disrupt", given.get("node_do_not_disrupt", marks))
    age_s = given.get("age_s", given.get("node_age_s"))
    told = {
        "managed": given.get("has_nodeclaim", True),
        "do_not_disrupt": "true" if spared is True else spared,
        "age_s": age_s,
        "initialized": given.get("initialized"),
        "termination_grace_period_s": given.get("termination_grace_period_s"),
        "pods": given.get("pods", ({},)),
    }
    return {name: value for name, value in told.items() if value is not None}
