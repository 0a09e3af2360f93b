"""Pods of a machine that is taken away run on until the next machine is there, where that comes in time.

An interruption has a deadline: EC2's, less a margin (`fleet.nodeclaims.interruption`). The seats on that machine are
replaced at once, but a pod leaves it only when its gang has all of its other seats, or when what time is left is what
the pod needs to end well. Where no machine would be ready by then there is nothing to wait for.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median_high
from typing import Final

from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Disruption, Gang, Pin, Pod, Snapshot
from fleet.snapshot.lookups import claims_by_node
from model.index import Index, derived

POLITE_S: Final = 10.0
"""A pod that has lost its seat is evicted by the API for this long, which tells its job that it is a disruption, not a
failure. After that a disruption budget holds it no longer: it is deleted. Short, as every refusal doubles the pause
before the next attempt, and EC2 takes a spot machine two minutes after its notice."""


def leaves_since_s(snapshot: Snapshot, gang: Gang, pod: Pod) -> float | None:
    """Since when a pod without a seat has had to leave its place (epoch seconds); None while it may run on there."""
    why = _taken_away(snapshot, claims_by_node(snapshot).get(pod.node))
    if why is None:
        return gang.replacing_since_s
    last_s = why.deadline_s - pod.deletion_grace_s - POLITE_S
    if snapshot.now_s >= last_s:
        return max(last_s, gang.replacing_since_s)
    awaited = [snapshot.claims.get(pin.claim) for pin in gang.pins if not pin.node]
    coming = [claim for claim in awaited if claim is not None and claim.disruption is None and not claim.deleting]
    if len(coming) < len(awaited):
        return None  # another one is found in this pass, or the gang leaves as a whole
    if coming and max(ready_at_s(snapshot, claim) for claim in coming) <= last_s:
        return None
    return max([gang.replacing_since_s, *_settled_s(snapshot, gang)])


def in_time(snapshot: Snapshot, gang: Gang, lost: Iterable[Pin]) -> bool:
    """Whether a machine bought now for each of the lost places would be ready before the pods there have to leave.

    Asked where a gang loses all it has: it is kept only if somebody goes on meanwhile.
    """
    pods = snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ())
    for pin in lost:
        claim = snapshot.claims.get(pin.claim)
        why = _taken_away(snapshot, claim)
        if claim is None or why is None:
            return False
        grace_s = max((pod.deletion_grace_s for pod in pods if pod.node == pin.node), default=0.0)
        boots_s = boot_s(snapshot, claim.node_pool, claim.capacity_pool.instance_type)
        if snapshot.now_s + boots_s > why.deadline_s - grace_s - POLITE_S:
            return False
    return True


def _taken_away(snapshot: Snapshot, claim: Claim | None) -> Disruption | None:
    """Why a machine leaves that is well until its deadline; None for any other."""
    if claim is None or claim.disruption is None or claim.disruption.reason != Reason.INTERRUPTED:
        return None
    node = snapshot.nodes.get(claim.node)
    return claim.disruption if node is not None and node.ready else None


def _settled_s(snapshot: Snapshot, gang: Gang) -> Iterable[float]:
    """When the machines that the gang has were bought and became ready: the last of it ended the waiting."""
    claims = (snapshot.claims.get(pin.claim) for pin in gang.pins if pin.claim)
    return (max(claim.created_at_s, claim.ready_at_s) for claim in claims if claim is not None)


BOOT_S: Final = 240.0
"""Where no machine of the pool is known to have come up: image, join, drivers and device plug-in of a GPU node."""


def boot_s(snapshot: Snapshot, node_pool: str, instance_type: str) -> float:
    """Seconds from launch to ready: the median of the pool's machines of this type, else of all the pool's."""
    known = _boot_times(snapshot.index, snapshot.claims)
    taken = known.get((node_pool, instance_type)) or known.get((node_pool, ""), ())
    return median_high(taken) if taken else BOOT_S


def ready_at_s(snapshot: Snapshot, claim: Claim) -> float:
    """When a machine on its way is expected to be ready (epoch seconds, not in the past).

    One that is being cut anew counts as one that boots: that too ends with a device plug-in.
    """
    now = snapshot.now_s
    begun_s = max(claim.launched_at_s, claim.recut_at_s) or now
    return max(now, begun_s + boot_s(snapshot, claim.node_pool, claim.capacity_pool.instance_type))


@derived()
def _boot_times(_index: Index, claims: Mapping[str, Claim]) -> Mapping[tuple[str, str], Sequence[float]]:
    """(pool, type) and (pool, "") -> what machines that are there have taken."""
    found: dict[tuple[str, str], list[float]] = {}
    for claim in claims.values():
        came = claim.state in {ClaimState.READY, ClaimState.TERMINATING} and claim.ready_at_s > claim.launched_at_s > 0
        if came and not claim.recut_at_s:  # a cut moves the instant at which it was ready
            for kind in (claim.capacity_pool.instance_type, ""):
                found.setdefault((claim.node_pool, kind), []).append(claim.ready_at_s - claim.launched_at_s)
    return found
