"""Seats of a gang that its pods have left for good: whoever has succeeded and will not be replaced needs none."""

from collections import Counter
from dataclasses import replace

from fleet.snapshot import Gang, Pin, Pod, Snapshot
from model import labels


def seats_of(snapshot: Snapshot, gang: Gang) -> tuple[Pin, ...]:
    """The gang's pins without what its pods no longer need.

    Given back is where a pod has succeeded, as much as there is neither a pod nor one to come: a seat whose next pod is
    not there yet stays taken. Quota is given back by the job's word alone (`Gang.reclaimable`).
    """
    spare = dict(gang.reclaimable)
    if not spare:
        return gang.pins
    pods = snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ())
    node_of_host = {hostname_of(snapshot, pin.node): pin.node for pin in gang.pins}
    done = Counter((pod.pod_set, pod.node) for pod in pods if pod.phase == "Succeeded")
    here = Counter(
        (pod.pod_set, pod.node or node_of_host.get(pod.pinned_host, "")) for pod in pods if pod.active and not pod.gated
    )
    kept: list[Pin] = []
    for pin in gang.pins:
        place = pin.pod_set, pin.node
        left = max(0, min(spare.get(pin.pod_set, 0), done[place], pin.count - here[place]))
        spare[pin.pod_set] = spare.get(pin.pod_set, 0) - left
        if left < pin.count:
            kept.append(replace(pin, count=pin.count - left) if left else pin)
    return tuple(kept)


def strays_of(snapshot: Snapshot, gang: Gang) -> tuple[Pod, ...]:
    """Pods that still stand, or were let go to, where the gang has lost its seats; only after a lost machine."""
    if not gang.replacing_since_s:
        return ()
    seats = {(pin.pod_set, pin.node) for pin in gang.pins if pin.node}
    node_of_host = {hostname_of(snapshot, node): node for _, node in seats}
    pods = (pod for pod in snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ()) if pod.active)
    places = ((pod, pod.node or node_of_host.get(pod.pinned_host, pod.pinned_host)) for pod in pods if not pod.gated)
    return tuple(pod for pod, place in places if place and (pod.pod_set, place) not in seats)


def seated(snapshot: Snapshot, gang: Gang) -> Gang:
    """The gang pinned to no more than its seats, and to the nodes on which pods still stand that have lost theirs."""
    seats = seats_of(snapshot, gang)
    if not gang.replacing_since_s:
        return gang if seats is gang.pins else replace(gang, pins=seats)
    strays = Counter((pod.pod_set, pod.node) for pod in strays_of(snapshot, gang) if pod.node)
    stood = (Pin(name, node, "", count) for (name, node), count in sorted(strays.items()))
    return replace(gang, pins=(*seats, *stood))


def place_of(snapshot: Snapshot, gang: Gang, pod: Pod) -> str:
    """The node a pod of the gang is on, or was released onto; empty when neither."""
    if pod.node or not pod.pinned_host:
        return pod.node
    hosts = (pin.node for pin in gang.pins if hostname_of(snapshot, pin.node) == pod.pinned_host)
    return next(hosts, "")


def hostname_of(snapshot: Snapshot, node: str) -> str:
    """What pods are pinned to a node by: its label `kubernetes.io/hostname`."""
    observed = snapshot.nodes.get(node)
    return observed.labels.get(labels.HOSTNAME, node) if observed else node
