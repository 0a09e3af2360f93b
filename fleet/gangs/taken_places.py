"""Places of a gang that pods of no gang have taken before its own pods came.

The agent decides where a gang goes, and kube-scheduler binds pods of no gang to whatever stands idle in that moment.
The gang's pods, which name their node, would wait there until their time is over.
"""

from collections import Counter
from typing import Final

from fleet.snapshot import Gang, Node, Pin, Snapshot
from fleet.snapshot.lookups import claims_by_node, machines_held
from fleet.snapshot.seats import active_pods, place_of, seats_of

TAKEN_AFTER_S: Final = 10.0
"""A place counts as taken by others when kube-scheduler has refused it for this long; it tries again within seconds."""


def taken_place(snapshot: Snapshot, gang: Gang, pin: Pin, node: Node) -> tuple[str, float] | None:
    """Returns that pods of no gang have taken the room of the gang's own, and since when (epoch s); None if not so.

    Asked of a gang that has been started and lacks pods.

    kube-scheduler's word that a pod has no place there is not enough: a volume that cannot be bound would have machines
    bought without end. Where others of the gang run beside it (some pods of the pin have come, and all were ready once)
    their work is worth waiting for until recovery has taken too long.
    """
    mine = (it for it in active_pods(snapshot, gang) if it.pod_set == pin.pod_set)
    sent = [it for it in mine if place_of(snapshot, gang, it) == pin.node]
    told_s = min((it.waits_since_s for it in sent if it.waits_since_s and not it.node), default=snapshot.now_s)
    # of a pod that was gated before nobody knows since when: its condition keeps the time from before, or none
    since_s = max(told_s, gang.admitted_at_s, gang.not_ready_since_s)
    if snapshot.now_s - since_s < TAKEN_AFTER_S or (has_been_ready(gang) and any(it.node for it in sent)):
        return None
    short = _overbooked(snapshot, node)
    words = f"node {pin.node} has not enough {short} left: other pods came before those of the gang"
    return (words, since_s) if short else None


def has_been_ready(gang: Gang) -> bool:
    """Returns whether all pods of an admitted gang were ready at one time, so that it may have work to lose."""
    return gang.pods_ready or bool(gang.not_ready_since_s)


def _overbooked(snapshot: Snapshot, node: Node) -> str:
    """Returns a resource of which pods of no gang and the seats of gangs want more than the node has; else empty."""
    asked = Counter(snapshot.foreign_use.get(node.name, {}))
    claim = claims_by_node(snapshot).get(node.name)
    for gang in machines_held(snapshot).get(claim.name if claim is not None else node.name, ()):
        requests = {pods.name: pods.requests for pods in gang.pod_sets}
        for seat in (it for it in seats_of(snapshot, gang) if it.node == node.name):
            for resource, amount in requests.get(seat.pod_set, {}).items():
                asked[resource] += amount * seat.count
    return min((it for it, amount in asked.items() if amount > node.allocatable.get(it, 0)), default="")
