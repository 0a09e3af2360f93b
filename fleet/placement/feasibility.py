"""Says for every machine why a pod cannot stand on it, in the words of kube-scheduler and in its order."""

from collections import Counter
from collections.abc import Iterable, Iterator

from fleet.placement.cluster_state import PODS, ClusterState, NodeSlot
from fleet.placement.domains import NodeObstacle
from fleet.placement.plan import Need
from fleet.placement.pod_filter import NO_AFFINITY, PORT_TAKEN, PodFilter
from fleet.reasons import Reason, Refusal
from fleet.snapshot.affinity import near_each_other, selects, tolerates
from model.labels import HOSTNAME
from model.plain_text import counted, number_of
from model.quantity import Resources

CORDONED = NodeObstacle("", "were unschedulable")
TAINTED = NodeObstacle("spec.tolerations", "had untolerated taint(s)")
NOT_SELECTED = NodeObstacle("spec.affinity.nodeAffinity", "didn't match Pod's node affinity/selector")
CORDON = "node.kubernetes.io/unschedulable"
NOT_ITS_FLAVOR = NodeObstacle("", "did not belong to its flavors")


def obstacles(need: Need, rules: PodFilter | None, slot: NodeSlot) -> tuple[NodeObstacle, ...]:
    """Returns why one pod more of a need cannot stand on a slot; empty where it can."""
    pod_set = need.pod_set
    tolerations = (*pod_set.tolerations, *need.tolerations)
    if not tolerates(slot.taints, tolerations):
        cordon = (taint for taint in slot.taints if taint.key == CORDON)
        return (TAINTED if tolerates(cordon, tolerations) else CORDONED,)
    if not selects(pod_set, slot.labels):
        return (NOT_SELECTED,)
    if not need.accepts(slot):
        return (NOT_ITS_FLAVOR,)
    found = rules.obstacle(slot) if rules is not None else None
    if found is PORT_TAKEN:
        return (found,)
    return tuple(_short_of(slot.free, pod_set.requests)) or ((found,) if found is not None else ())


def _short_of(free: Resources, requests: Resources) -> Iterator[NodeObstacle]:
    if free.get(PODS, 0) < 1:
        yield NodeObstacle("", "Too many pods")
    for resource, amount in sorted(requests.items()):
        if amount and resource != PODS and free.get(resource, 0) < amount:
            yield NodeObstacle("spec.containers[].resources", f"Insufficient {resource}")


def no_place(
    state: ClusterState, need: Need, rules: PodFilter, missing: int, for_sale: Iterable[NodeSlot] = ()
) -> Refusal:
    """Returns the refusal of pods for which no machine is left: reasons with counts, and those of machines to buy."""
    standing = [slot for slot in state.slots.values() if slot.node]
    reasons = _counted(it.words for slot in standing for it in obstacles(need, rules, slot)[:1])
    has = number_of(missing, "has", "have")
    words = f"{counted(missing, 'pod')} of {need.pod_set.name} {has} no place: 0/{len(standing)} nodes are available"
    refused = dict.fromkeys(found.words for site in for_sale if (found := rules.obstacle(site)) is not None)
    more = f"; a machine to buy would not do: {', '.join(refused)}" if refused else ""
    if NO_AFFINITY.words in refused and any(it.topology_key == HOSTNAME for it in near_each_other(need.pod_set)):
        more += ", as pods like it keep to one machine, and theirs has no room for more"
    return Refusal(Reason.NO_OFFER, f"{words}: {reasons}{more}" if reasons else words + more)


def _counted(words: Iterable[str]) -> str:
    """Each of the words with its number, the most frequent first."""
    told = sorted(Counter(words).items(), key=lambda it: (-it[1], it[0]))
    return ", ".join(f"{count} {word}" for word, count in told)
