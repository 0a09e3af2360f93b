"""Places of a gang that pods of no gang have taken before its own pods came, or whose devices a rule has tainted.

The agent decides where a gang goes, and kube-scheduler binds pods of no gang to whatever stands idle in that moment.
The gang's pods, which name their node, would wait there until their time is over. Where the gang ran already, and had
lost a pod for a moment, those who came into its place have to leave it again: they hold no quota, and the gang does.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from fleet.actions import EvictPod, PatchNode, node_subject, pod_subject
from fleet.mig.layouts import kept_off
from fleet.placement.device_allocator import tainted_devices
from fleet.snapshot import Claim, Gang, Job, Node, Pin, Pod, Snapshot
from fleet.snapshot.affinity import FOR_GANGS
from fleet.snapshot.device_claims import without_undecided
from fleet.snapshot.lookups import claims_by_node, machines_held
from fleet.snapshot.seats import active_pods, place_of, seats_of, starting_gang, unplaced_pods

TAKEN_AFTER_S: Final = 10.0
"""A place counts as taken by others when kube-scheduler has refused it for this long; it tries again within seconds."""
LEFT_AFTER_S: Final = 120.0
"""Who has come into a place of a gang that ran has so long to leave it; then the gang's pods go elsewhere."""


def lacks_pods(snapshot: Snapshot, gang: Gang, job: Job) -> bool:
    """Returns whether a gang that was started has lacked pods for so long that others may have come into its places."""
    lacks_s = snapshot.now_s - max(gang.admitted_at_s, gang.not_ready_since_s)
    return not (job.suspended or gang.pods_ready) and lacks_s >= TAKEN_AFTER_S


def taken_place(snapshot: Snapshot, gang: Gang, pin: Pin, node: Node) -> tuple[str, float] | None:
    """Returns that pods of no gang have room of a gang that `lacks_pods`, and since when (epoch s); None if not so.

    kube-scheduler's word that a pod has no place there is not enough: a volume that cannot be bound would have machines
    bought without end. Where others of the gang run beside it (some pods of the pin have come, and all were ready once)
    their work is worth waiting for until recovery has taken too long.
    """
    lacks_s = max(gang.admitted_at_s, gang.not_ready_since_s)
    told_s = min(
        (it.waits_since_s for it in unplaced_pods(snapshot, gang) if _is_sent(snapshot, gang, it, pin)),
        default=snapshot.now_s,
    )
    # of a pod that was gated before nobody knows since when: its condition keeps the time from before, or none
    since_s = max(told_s, lacks_s)
    if snapshot.now_s - since_s < TAKEN_AFTER_S:
        return None
    if has_been_ready(gang) and any(
        it.node and _is_sent(snapshot, gang, it, pin) for it in active_pods(snapshot, gang)
    ):
        return None
    if snapshot.now_s - since_s < LEFT_AFTER_S and any(True for _ in intruders(snapshot, gang, node)):
        return None
    if short := _overbooked(snapshot, node):
        return f"node {pin.node} has not enough {short} left: other pods came before those of the gang", since_s
    tainted = tainted_devices(snapshot, gang, node)
    return (f"node {pin.node} {tainted}", since_s) if tainted else None


def _is_sent(snapshot: Snapshot, gang: Gang, pod: Pod, pin: Pin) -> bool:
    """Returns whether a pod of the gang is at a place of it, or was released to it."""
    return pod.pod_set == pin.pod_set and place_of(snapshot, gang, pod) == pin.node


def kept(snapshot: Snapshot, gang: Gang) -> Iterator[PatchNode]:
    """Yields the taints of machines where a gang has empty places, while pods of no gang would be put there.

    The taint goes again once the gang's pods are there (`fleet.nodeclaims.lifecycle`).
    """
    if not gang.pods_ready and (snapshot.waiting_pods or snapshot.ordinary_pods):
        for name in sorted({pin.claim for pin in gang.pins} & snapshot.claims.keys()):
            claim = snapshot.claims[name]
            node = snapshot.nodes.get(claim.node)
            if node is not None and not _is_kept(node) and _may_be_taken(snapshot, gang, claim, node):
                yield PatchNode(node.name, add_taints=(FOR_GANGS,))


def _may_be_taken(snapshot: Snapshot, gang: Gang, claim: Claim, node: Node) -> bool:
    """Returns whether a gang lacks pods on a machine, and pods of no gang wait or have come already."""
    if node_subject(node.name) in snapshot.busy or kept_off(snapshot, claim, node):
        return False
    wanted = bool(snapshot.waiting_pods) or any(True for _ in intruders(snapshot, gang, node))
    return wanted and starting_gang(snapshot, claim)


def _is_kept(node: Node) -> bool:
    return any(taint.key == FOR_GANGS.key for taint in node.taints)


def reclaimed(snapshot: Snapshot, gang: Gang) -> Iterator[EvictPod]:
    """Yields the evictions of pods that stand in places of a gang which ran; by the API, so that budgets are heeded.

    The node has to be kept for the gang by its taint first, or others would come after them.
    """
    for name in sorted(set(_refused(snapshot, gang)) & snapshot.nodes.keys()):
        node = snapshot.nodes[name]
        for pod in intruders(snapshot, gang, node) if _is_kept(node) else ():
            if pod_subject(pod.uid) not in snapshot.busy:
                yield EvictPod(pod)


def _refused(snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields the nodes that kube-scheduler has refused to pods of the gang for a while."""
    for pod in unplaced_pods(snapshot, gang):
        if snapshot.now_s - max(pod.waits_since_s, gang.not_ready_since_s) >= TAKEN_AFTER_S:
            yield place_of(snapshot, gang, pod)


def intruders(snapshot: Snapshot, gang: Gang, node: Node) -> Iterator[Pod]:
    """Yields the pods of no gang, youngest first, without which the places of a gang that ran are its own again.

    They came after it, somebody makes them anew, and they do not say that they must not be disrupted.
    """
    there = snapshot.ordinary_pods.get(node.name, ())
    short = _shortfall(snapshot, node) if there and has_been_ready(gang) else {}
    for pod in sorted(there, key=lambda it: (not it.deleting, -it.started_at_s, it.name, it.uid)):
        helps = any(short.get(name, 0) > 0 and amount > 0 for name, amount in pod.requests.items())
        if helps and (pod.deleting or _may_be_told_to_go(gang, pod)):
            short = {name: amount - pod.requests.get(name, 0) for name, amount in short.items()}
            if not pod.deleting:
                yield pod


def _may_be_told_to_go(gang: Gang, pod: Pod) -> bool:
    return pod.controlled and not pod.do_not_disrupt and pod.started_at_s > gang.admitted_at_s


def has_been_ready(gang: Gang) -> bool:
    """Returns whether all pods of an admitted gang were ready at one time, so that it may have work to lose."""
    return gang.pods_ready or bool(gang.not_ready_since_s)


def _overbooked(snapshot: Snapshot, node: Node) -> str:
    """Returns a resource of which pods of no gang and the seats of gangs want more than the node has; else empty."""
    return min(_shortfall(snapshot, node), default="")


def _shortfall(snapshot: Snapshot, node: Node) -> dict[str, int]:
    """Returns by how much they want more, of the resources of which they do.

    Of devices that claims share nothing can be said by amounts: pods with parts count as more of them than there are.
    """
    asked = Counter(snapshot.foreign_use.get(node.name, {}))
    claim = claims_by_node(snapshot).get(node.name)
    for gang in machines_held(snapshot).get(claim.name if claim is not None else node.name, ()):
        for resource, amount in _asked_for(snapshot, gang, node):
            asked[resource] += amount
    devices = snapshot.devices.machines.get(node.name)
    shared = devices.amounts if devices is not None and devices.shares else {}
    more = {it: amount - node.allocatable.get(it, 0) for it, amount in asked.items() if it not in shared}
    return {it: amount for it, amount in more.items() if amount > 0}


def _asked_for(snapshot: Snapshot, gang: Gang, node: Node) -> Iterator[tuple[str, int]]:
    """Yields what the seats of a gang on a node want there."""
    requests = {pods.name: without_undecided(pods).requests for pods in gang.pod_sets}
    for seat in (it for it in seats_of(snapshot, gang) if it.node == node.name):
        yield from ((name, amount * seat.count) for name, amount in requests.get(seat.pod_set, {}).items())
