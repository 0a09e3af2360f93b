"""Computes the seats of a gang: the pods of its pins that it still needs, pods elsewhere, and which pod is where."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from fleet.snapshot import Claim, Gang, GangState, Pin, Pod, Snapshot
from fleet.snapshot.lookups import machines_held
from model import labels
from model.index import derived_each


def pods_of(snapshot: Snapshot, gang: Gang) -> tuple[Pod, ...]:
    """Returns the pods of a gang that still exist, ended ones included."""
    return snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ())


def active_pods(snapshot: Snapshot, gang: Gang) -> tuple[Pod, ...]:
    """Returns the pods of a gang that have not ended."""
    key, known = f"{gang.namespace}/{gang.workload}", snapshot.gang_pods
    return _active(snapshot.index, None, known, key) if key in known else ()


@derived_each
def _active(_context: None, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if pod.active)


def unplaced_pods(snapshot: Snapshot, gang: Gang) -> tuple[Pod, ...]:
    """Returns those of a gang's active pods that kube-scheduler has found no place for."""
    key, known = f"{gang.namespace}/{gang.workload}", snapshot.gang_pods
    return _unplaced(snapshot.index, None, known, key) if key in known else ()


@derived_each
def _unplaced(_context: None, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if pod.active and pod.waits_since_s and not pod.node)


def gated_pods(snapshot: Snapshot, gang: Gang) -> tuple[Pod, ...]:
    """Returns those of a gang's active pods that wait for their release."""
    key, known = f"{gang.namespace}/{gang.workload}", snapshot.gang_pods
    return _gated(snapshot.index, None, known, key) if key in known else ()


@derived_each
def _gated(_context: None, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if pod.active and pod.gated)


def seats_of(snapshot: Snapshot, gang: Gang) -> tuple[Pin, ...]:
    """Returns the gang's pins without the pods that have succeeded and will not be replaced.

    A place is given back where a pod has succeeded, unless another pod stands there or is still to come. Quota is given
    back by what the job says alone (`Gang.reclaimable`).
    """
    spare = _spare(gang)
    if not spare:
        return gang.pins
    pods, node_of_host = pods_of(snapshot, gang), nodes_by_host(snapshot, gang)
    done = Counter((pod.pod_set, pod.node) for pod in pods if pod.phase == "Succeeded")
    released = (pod for pod in pods if pod.active and not pod.gated)
    here = Counter((pod.pod_set, pod.node or node_of_host.get(pod.pinned_host, "")) for pod in released)
    kept: list[Pin] = []
    for pin in gang.pins:
        place = pin.pod_set, pin.node
        left = max(0, min(spare.get(pin.pod_set, 0), done[place], pin.count - here[place]))
        spare[pin.pod_set] = spare.get(pin.pod_set, 0) - left
        if left < pin.count:
            kept.append(replace(pin, count=pin.count - left) if left else pin)
    return tuple(kept)


def _spare(gang: Gang) -> dict[str, int]:
    """Returns pod set -> places that the gang has beyond the pods that its job still needs."""
    if not gang.remaining:
        return {}
    places = Counter[str]()
    for pin in gang.pins:
        places[pin.pod_set] += pin.count
    return {name: places[name] - left for name, left in gang.remaining.items() if places[name] > left}


def given_back(snapshot: Snapshot, gang: Gang) -> Gang | None:
    """Returns the gang without its places on machines where it has no seat any more; None where there are none.

    That has to be written down: once such a machine is gone, its pods are gone with it, and nobody could tell that they
    had done their part from having lost them.
    """
    if not gang.remaining or gang.replacing_since_s:
        return None
    machines = {pin.node for pin in seats_of(snapshot, gang)}
    kept = tuple(pin for pin in gang.pins if pin.node in machines)
    return replace(gang, pins=kept) if machines and len(kept) < len(gang.pins) else None


def strays_of(snapshot: Snapshot, gang: Gang) -> tuple[Pod, ...]:
    """Returns the active pods that are on, or were released to, nodes where the gang has no seats any more.

    There are none unless the gang is getting other places for a lost machine.
    """
    if not gang.replacing_since_s:
        return ()
    seats = {(pin.pod_set, pin.node) for pin in gang.pins if pin.node}
    node_of_host = nodes_by_host(snapshot, gang)
    pods = (pod for pod in active_pods(snapshot, gang) if not pod.gated)
    places = ((pod, pod.node or node_of_host.get(pod.pinned_host, pod.pinned_host)) for pod in pods)
    return tuple(pod for pod, place in places if place and (pod.pod_set, place) not in seats)


def seated(snapshot: Snapshot, gang: Gang) -> Gang:
    """Returns the gang with pins for its seats alone, and for pods that still run on nodes where it lost its seats."""
    seats = seats_of(snapshot, gang)
    if not gang.replacing_since_s:
        return gang if seats is gang.pins else replace(gang, pins=seats)
    strays = Counter((pod.pod_set, pod.node) for pod in strays_of(snapshot, gang) if pod.node)
    stood = (Pin(name, node, "", count) for (name, node), count in sorted(strays.items()))
    return replace(gang, pins=(*seats, *stood))


def place_of(snapshot: Snapshot, gang: Gang, pod: Pod) -> str:
    """Returns the node that a pod of the gang is on or was released to; empty when it has none."""
    if pod.node or not pod.pinned_host:
        return pod.node
    hosts = (pin.node for pin in gang.pins if hostname_of(snapshot, pin.node) == pod.pinned_host)
    return next(hosts, "")


def nodes_by_host(snapshot: Snapshot, gang: Gang) -> Mapping[str, str]:
    """Returns label `kubernetes.io/hostname` -> node, of the nodes that the gang is pinned to."""
    return {hostname_of(snapshot, pin.node): pin.node for pin in gang.pins if pin.node}


def hostname_of(snapshot: Snapshot, node: str) -> str:
    """Returns what pods are pinned to a node by: its label `kubernetes.io/hostname`, or its name where it has none."""
    observed = snapshot.nodes.get(node)
    return observed.labels.get(labels.HOSTNAME, node) if observed else node


def starting_gang(snapshot: Snapshot, claim: Claim) -> bool:
    """Returns whether a gang has places on the machine that its pods have not taken yet."""
    return any(_to_start(snapshot, gang, claim) for gang in machines_held(snapshot).get(claim.name, ()))


def _to_start(snapshot: Snapshot, gang: Gang, claim: Claim) -> bool:
    if gang.state is not GangState.ADMITTED:
        return gang.state is GangState.RESERVED
    there = sum(pod.node == claim.node and not pod.deleting for pod in active_pods(snapshot, gang))
    going = sum(pin.count for pin in gang.leaving if pin.claim == claim.name)
    return there < sum(pin.count for pin in seats_of(snapshot, gang) if pin.claim == claim.name) - going
