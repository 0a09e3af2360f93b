"""What a case says of workloads that hold their quota and come again: for a place, or instead of a lost one."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from tests.conformance.cases import Case
from tests.conformance.kueue.topology import is_one_pod

FAILED = "SecondPassFailed"
"""Why a holder waits that found no place."""


def states_of(entry: Case) -> dict[str, str]:
    """Admission check -> state."""
    return {check["name"]: check.get("state") or "Pending" for check in entry.get("admission_check_states") or ()}


def checks_failed(entry: Case) -> bool:
    """Whether a check says that it must not, or not yet, be admitted."""
    return bool({"Retry", "Rejected"} & set(states_of(entry).values()))


def starts_at_once(entry: Case, checks: AbstractSet[str]) -> bool:
    """Whether nothing stands between its reservation and its start: all checks are there and ready."""
    states = states_of(entry)
    return checks <= set(states) and set(states.values()) <= {"Ready"}


def delayed(entry: Case) -> dict[str, str]:
    """Pod set -> how far the place is that is decided only after the reservation."""
    admitted = (entry.get("admission") or {}).get("pod_sets", ())
    return {pods["name"]: pods["delayed_topology"] for pods in admitted if pods.get("delayed_topology")}


def awaits_place(entry: Case) -> bool:
    """Whether its nodes are there now, and its pods have no place on them yet."""
    states = states_of(entry)
    return bool(states) and set(states.values()) <= {"Ready"} and "Pending" in delayed(entry).values()


def lost_node(entry: Case, gates: Mapping[str, bool]) -> str:
    """The first node that failed under its pods; empty when none did."""
    if not entry.get("admission") or gates.get("TASFailedNodeReplacement") is False:
        return ""
    stands_on = {
        domain["values"][-1]
        for pods in entry["admission"]["pod_sets"]
        for domain in (pods.get("topology") or {}).get("domains", ())
    }
    return next((name for name in map(_name, entry.get("unhealthy_nodes") or ()) if name in stands_on), "")


def comes_again(entry: Case) -> bool:
    """Whether it holds quota already and is looked at all the same: it has not started, or a node failed."""
    admission = entry.get("admission")
    return bool(admission) and (not admission.get("admitted") or bool(entry.get("unhealthy_nodes")))


def movable(entry: Case, gates: Mapping[str, bool]) -> bool:
    """Whether its pods can go elsewhere: a pod that is its own workload cannot outlive its node."""
    return not (gates.get("SkipReassignmentForPodOwnedWorkloads", True) and is_one_pod(entry))


def _name(node: str | Case) -> str:
    return node if isinstance(node, str) else str(node["name"])
