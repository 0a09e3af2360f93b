"""What has become of the machines a gang counts on, and how long pods stay on one that is taken away.

An interruption has a deadline: the cloud's, less a margin (`fleet.nodeclaims.interruption`). The places on that machine
are replaced at once, but a pod leaves it only when its gang has all of its other places, or when what time is left is
what the pod needs to end well. Where no machine would be ready by then there is nothing to wait for.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high
from typing import Final, NamedTuple

from fleet.actions import claim_subject
from fleet.gangs.taken_places import lacks_pods, taken_place
from fleet.mig.layouts import gpu_part, slices_gone
from fleet.placement.flavor_nodes import tolerations_of
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, CutOrder, Gang, Job, Node, NodeDisruption, Pin, Pod, Snapshot
from fleet.snapshot.affinity import OWN_KEYS, is_ephemeral, tolerates
from fleet.snapshot.lookups import claims_by_node, claims_whatever_runs
from fleet.snapshot.seats import pods_of, seats_of
from model.fleet import Fleet
from model.index import TableChanges, differing, followed, followed_each
from model.kinds import NodeTemplate, Taint

NODE_FAILURE_AFTER_S: Final = 60.0
"""A node counts as lost when it has not been ready for this long (Kueue waits 30 s, Kubernetes 300 s)."""
UNPLANNED: Final = frozenset(
    {Reason.NODE_FAILURE, Reason.INTERRUPTED, Reason.INSTANCE_GONE, Reason.DELETED, Reason.PLACE_TAKEN}
)
"""Losses that hit one machine, or a place there. Where one leaves by plan (drift, expiry, consolidation) its
replacement is bought first, for the gang as a whole (`fleet.disruption.replacement`)."""


class LostPlace(NamedTuple):
    """The loss of a gang's place: why pods can stay there no longer, or will never get there."""

    reason: Reason
    message: str
    at_s: float
    """Since when, as far as that is known (epoch seconds)."""


def at_risk(snapshot: Snapshot, among: Iterable[Gang] | None = None) -> Collection[str]:
    """Returns the uids of the gangs with a pin whose machine is unwell, tainted, leaving, gone or still to come.

    Of a gang that is none of them no machine is lost. `among`: the gangs that are asked about, where they are few.
    """
    if among is not None:
        few = [gang for gang in among if gang.holds_capacity]
        leaving = frozenset(leaving_claims(snapshot).values()) if few else frozenset()
        return frozenset(gang.uid for gang in few if _is_at_risk(snapshot, gang, leaving))
    carried = snapshot.index.take(_CarriedRisks)
    risks = carried if isinstance(carried, _CarriedRisks) else _CarriedRisks()
    found = risks.update(snapshot)
    snapshot.index.hand_on(_CarriedRisks, risks)
    return found


def _is_at_risk(snapshot: Snapshot, gang: Gang, leaving: Container[str]) -> bool:
    """`leaving`: the nodes of machines that leave."""
    nodes, claims = snapshot.nodes, snapshot.claims
    for pin in _pins(gang):
        node = nodes.get(pin.node)
        if node is None or _is_unsafe(node) or pin.node in leaving:
            return True
        if pin.claim and _is_lost(claims.get(pin.claim)):
            return True
    return False


def _is_lost(claim: Claim | None) -> bool:
    return claim is None or _is_leaving(claim)


@dataclass(slots=True)
class _CarriedRisks:
    """The gangs at risk, and who is pinned where. Only those are looked at again whom a change concerns."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)
    """The tables that it was last brought up to date with."""
    by_node: dict[str, set[str]] = field(default_factory=dict)
    by_claim: dict[str, set[str]] = field(default_factory=dict)
    found: frozenset[str] = frozenset()

    def update(self, snapshot: Snapshot) -> frozenset[str]:
        """Brings all up to date; returns the uids of the gangs at risk."""
        leaving, claims = leaving_claims(snapshot), claims_whatever_runs(snapshot)
        asked = {*differing(self.gangs, snapshot.gangs)}
        for uid in asked:
            self._count(uid, snapshot.gangs)
        for name in differing(self.nodes, snapshot.nodes):
            if _bad(self.nodes.get(name)) is not _bad(snapshot.nodes.get(name)):
                asked |= self.by_node.get(name, set())
        for name in differing(self.claims, claims):
            if (name in self.claims) is not (name in claims):
                asked |= self.by_claim.get(name, set())
        for name in differing(self.leaving, leaving):
            asked |= self.by_claim.get(name, set())
            for table in (self.leaving, leaving):
                asked |= self.by_node.get(table.get(name, ""), set())
        if asked:
            there, left = (it for uid in asked if (it := snapshot.gangs.get(uid))), frozenset(leaving.values())
            self.found = self.found - asked | {gang.uid for gang in there if _is_at_risk(snapshot, gang, left)}
        self.nodes, self.claims, self.gangs, self.leaving = snapshot.nodes, claims, snapshot.gangs, leaving
        return self.found

    def _count(self, uid: str, gangs: Mapping[str, Gang]) -> None:
        """Notes where a gang is pinned now, and where it is no more."""
        before, now = _pins(self.gangs.get(uid)), _pins(gangs.get(uid))
        if before is now:
            return
        for table, name in self._where(before):
            table[name].discard(uid)
            if not table[name]:
                del table[name]
        for table, name in self._where(now):
            table.setdefault(name, set()).add(uid)

    def _where(self, pins: Sequence[Pin]) -> Iterator[tuple[dict[str, set[str]], str]]:
        yield from ((self.by_node, name) for name in {pin.node for pin in pins})
        yield from ((self.by_claim, name) for name in {pin.claim for pin in pins if pin.claim})


def _pins(gang: Gang | None) -> Sequence[Pin]:
    """Returns the pins of a gang that holds capacity."""
    return gang.pins if gang is not None and gang.holds_capacity else ()


def _bad(node: Node | None) -> bool:
    return node is None or _is_unsafe(node)


def _is_unsafe(node: Node) -> bool:
    return not node.ready or node.unschedulable or bool(node.taints)


def leaving_claims(snapshot: Snapshot) -> Mapping[str, str]:
    """Returns claim -> node of the machines that leave."""
    return _leaving_claims(snapshot.index, claims_whatever_runs(snapshot))


@followed_each()
def _leaving_claims(claim: Claim) -> str | None:
    return claim.node if _is_leaving(claim) else None


def _is_leaving(claim: Claim) -> bool:
    return claim.disruption is not None or claim.deleting


def lost_place(fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job, pin: Pin) -> LostPlace | None:
    """Returns why a gang that has started can use a place no longer; None while its machine is well, or on its way."""
    if pin.node:
        return _lost_machine(fleet, snapshot, gang, job, pin)
    lost = lost_claim(fleet, snapshot, gang, pin.claim)
    return None if lost is None else LostPlace(Reason.NODE_FAILURE, lost[1], snapshot.now_s)


def _lost_machine(fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job, pin: Pin) -> LostPlace | None:
    claim, node = snapshot.claims.get(pin.claim), snapshot.nodes.get(pin.node)
    if claim is not None and node is not None and _is_well(claim, node):  # as most are
        return _taken_from(snapshot, gang, job, pin, node)
    if claim is not None and (leaving := _leaving_machine(claim, node, snapshot.now_s)) is not None:
        return leaving
    if node is None or (pin.claim and claim is None):
        return LostPlace(Reason.NODE_FAILURE, f"node {pin.node} is gone", snapshot.now_s)
    return _lost_slices(gang, claim, node, pin) or _driven_from(fleet, snapshot, gang, job, pin, node, claim)


def _is_well(claim: Claim, node: Node) -> bool:
    return claim.cut is None and not _is_leaving(claim) and not _is_unsafe(node)


def _leaving_machine(claim: Claim, node: Node | None, now_s: float) -> LostPlace | None:
    why = claim.disruption
    if why is not None:
        return LostPlace(Reason(why.reason), f"machine {claim.node} leaves: {why.message}", min(why.at_s, now_s))
    if node is not None and claim.deleting:  # why it goes is being written down
        return LostPlace(Reason.DELETED, f"machine {node.name} leaves: somebody deleted NodeClaim {claim.name}", now_s)
    return None


def _driven_from(
    fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job, pin: Pin, node: Node, claim: Claim | None
) -> LostPlace | None:
    """Returns why pods cannot stay on a machine that stands: it is not ready, is closed to them, or is taken."""
    now = snapshot.now_s
    if not node.ready and now - node.ready_changed_at_s >= NODE_FAILURE_AFTER_S:
        message = f"node {pin.node} has not been ready for {NODE_FAILURE_AFTER_S:.0f} s"
        return LostPlace(Reason.NODE_FAILURE, message, node.ready_changed_at_s)
    if not job.suspended and (closed := closed_to(fleet, gang, node, claim)) and _driven_off(snapshot, gang, node):
        return LostPlace(Reason.NODE_FAILURE, f"node {pin.node} {closed} and a pod has left it", now)
    return _taken_from(snapshot, gang, job, pin, node)


def _taken_from(snapshot: Snapshot, gang: Gang, job: Job, pin: Pin, node: Node) -> LostPlace | None:
    taken = taken_place(snapshot, gang, pin, node) if lacks_pods(snapshot, gang, job) else None
    return LostPlace(Reason.PLACE_TAKEN, *taken) if taken is not None else None


def _order_under_way(claim: Claim | None, node: Node) -> CutOrder | None:
    """Returns the order by which a ready machine is cut for a reason, once its slices are no longer what pods had."""
    order = claim.cut if claim is not None else None
    if claim is None or order is None or not order.reason or not node.ready or not slices_gone(claim, node):
        return None
    return order


def _lost_slices(gang: Gang, claim: Claim | None, node: Node, pin: Pin) -> LostPlace | None:
    """Returns that pods which use GPUs have to leave a machine for its cut: a roll-out, or their slices are gone."""
    order = _order_under_way(claim, node)
    if order is None or not any(gpu_part(pods.requests) for pods in gang.pod_sets if pods.name == pin.pod_set):
        return None
    why = order.message.partition(";")[0] if order.former else order.message
    return LostPlace(Reason(order.reason), f"the GPUs of {node.name} are cut anew: {why}", order.since_s)


def closed_to(fleet: Fleet, gang: Gang, node: Node, claim: Claim | None) -> str:
    """Returns why a node takes no new pod of the gang whose pins name it, though it may be well; empty where it does.

    It is cordoned, or tainted since: pods were planned only where they tolerate all. What passes by itself is waited
    for, and not told: Muster's own taints, those of a node that is not ready, start-up taints.
    """
    if node.unschedulable:
        return "is cordoned"
    if not node.taints:
        return ""
    here = {
        pin.pod_set for pin in gang.pins if pin.node == node.name or (claim is not None and pin.claim == claim.name)
    }
    lasting = _lasting(fleet, node, claim)
    for pods in gang.pod_sets if lasting else ():
        tolerations = (*pods.tolerations, *tolerations_of(fleet, gang.flavors.get(pods.name, ())))
        repels = next((it for it in lasting if not tolerates((it,), tolerations)), None)
        if repels is not None and pods.name in here:
            return f"is tainted {repels.key}:{repels.effect}"
    return ""


def _lasting(fleet: Fleet, node: Node, claim: Claim | None) -> Sequence[Taint]:
    """Returns the taints of a node that nobody but a person takes away."""
    starting: set[str] = set()
    if claim is not None:
        pool = fleet.node_pools.get(claim.node_pool)
        template = pool.spec.template if pool is not None else NodeTemplate()
        starting = {taint.key for taint in claim.startup_taints_by(template)}
    return [taint for taint in node.taints if taint.key not in OWN_KEYS | starting and not is_ephemeral(taint)]


def _driven_off(snapshot: Snapshot, gang: Gang, node: Node) -> bool:
    """Returns whether a pod of the gang has left a node that takes none now, or was never there.

    The pods tell it: the job's own count says for up to 20 s that all are ready (the Job controller backs off).
    """
    there = [pod for pod in pods_of(snapshot, gang) if pod.node == node.name]
    here = sum(not pod.deleting and pod.phase != "Failed" for pod in there)
    return here < _pods_on(seats_of(snapshot, gang), node.name) - _pods_on(gang.leaving, node.name)


def _pods_on(pins: Iterable[Pin], node: str) -> int:
    return sum(pin.count for pin in pins if pin.node == node)


def lost_claim(fleet: Fleet, snapshot: Snapshot, gang: Gang, name: str) -> tuple[Reason, str] | None:
    """Returns why a machine that the gang waits for will not come, or not with the MIG layout it needs."""
    claim = snapshot.claims.get(name)
    if claim is None:
        return Reason.MACHINE_LOST, f"machine {name} is gone before it was used"
    if claim.disruption and claim.disruption.reason == Reason.LAUNCH_FAILED:
        return Reason.NO_CAPACITY, f"machine {name} cannot be had: {claim.disruption.message}"
    if claim.deleting or claim.disruption:
        why = f": {claim.disruption.message}" if claim.disruption else ""
        return Reason.MACHINE_LOST, f"machine {name} leaves before it was used{why}"
    if awaits_recut(gang, claim) and claim_subject(name) not in snapshot.busy:
        return Reason.MACHINE_LOST, f"machine {name} is not being cut to the MIG layout planned for the gang"
    if not claim.ready_at_s > claim.recut_at_s:  # whoever cuts a machine anew may cordon it meanwhile
        return None
    return lost_node(fleet, gang, snapshot.nodes.get(claim.node), claim)


def lost_node(fleet: Fleet, gang: Gang, node: Node | None, claim: Claim | None = None) -> tuple[Reason, str] | None:
    """Returns that somebody has cordoned or tainted a node that a gang waits to use; None where nobody has."""
    closed = closed_to(fleet, gang, node, claim) if node is not None else ""
    return (Reason.MACHINE_LOST, f"node {node.name} {closed}, and was not used yet") if node and closed else None


def awaits_recut(gang: Gang, claim: Claim) -> bool:
    """Returns whether the machine is to be cut to another MIG layout for the gang and its claim does not say so yet."""
    return gang.recuts.get(claim.name, claim.layout) != claim.layout


POLITE_S: Final = 10.0
"""A pod that has lost its seat is evicted by the API for this long, which tells its job that it is a disruption, not a
failure. After that a disruption budget holds it no longer: it is deleted. Short, as every refusal doubles the pause
before the next attempt, and a spot machine may go two minutes after its notice."""


def leaves_since_s(snapshot: Snapshot, gang: Gang, pod: Pod) -> float | None:
    """Returns since when a pod without a seat has had to leave its place (epoch seconds); None while it may run on."""
    why = _taken_away(snapshot, claims_by_node(snapshot).get(pod.node))
    if why is None:
        return gang.replacing_since_s
    last_s = why.deadline_s - pod.deletion_grace_s - POLITE_S
    if snapshot.now_s >= last_s:
        return max(last_s, gang.replacing_since_s)
    if _may_come_by(snapshot, gang, last_s):
        return None
    return max([gang.replacing_since_s, *_settled_s(snapshot, gang)])


def _may_come_by(snapshot: Snapshot, gang: Gang, last_s: float) -> bool:
    """Returns whether all machines that the gang waits for can be ready by `last_s`; False when it waits for none.

    Where one of them is lost it is True: another is found in this pass, or the gang leaves as a whole.
    """
    awaited = [snapshot.claims.get(pin.claim) for pin in gang.pins if not pin.node]
    coming = [claim for claim in awaited if claim is not None and claim.disruption is None and not claim.deleting]
    if len(coming) < len(awaited):
        return True
    return bool(coming) and max(ready_at_s(snapshot, claim) for claim in coming) <= last_s


def in_time(snapshot: Snapshot, gang: Gang, lost: Iterable[Pin]) -> bool:
    """Returns whether a machine bought now for each lost place would be ready before the pods there have to leave.

    Asked where a gang loses all it has: it is kept only if somebody goes on meanwhile.
    """
    pods = pods_of(snapshot, gang)
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


def _taken_away(snapshot: Snapshot, claim: Claim | None) -> NodeDisruption | None:
    """Returns why a machine is interrupted whose node is still ready; None for any other machine."""
    if claim is None or claim.disruption is None or claim.disruption.reason != Reason.INTERRUPTED:
        return None
    node = snapshot.nodes.get(claim.node)
    return claim.disruption if node is not None and node.ready else None


def _settled_s(snapshot: Snapshot, gang: Gang) -> Iterable[float]:
    """Yields when each machine of the gang was bought or became ready (epoch seconds); the last one ended the wait."""
    claims = (snapshot.claims.get(pin.claim) for pin in gang.pins if pin.claim)
    return (max(claim.created_at_s, claim.ready_at_s) for claim in claims if claim is not None)


BOOT_S: Final = 240.0
"""Where no machine of the pool is known to have come up: image, join, drivers and device plug-in of a GPU node."""


def boot_s(snapshot: Snapshot, node_pool: str, instance_type: str) -> float:
    """Returns seconds from launch to ready: the median of the pool's machines of this type, else of all the pool's."""
    known = _boot_times(snapshot.index, claims_whatever_runs(snapshot))
    taken = known.get((node_pool, instance_type)) or known.get((node_pool, ""), {})
    return median_high(taken.values()) if taken else BOOT_S


def ready_at_s(snapshot: Snapshot, claim: Claim) -> float:
    """Returns when a machine on its way is expected to be ready (epoch seconds, not in the past).

    One that is being cut anew counts as one that boots: that too ends with a device plug-in.
    """
    now = snapshot.now_s
    begun_s = max(claim.launched_at_s, claim.recut_at_s) or now
    return max(now, begun_s + boot_s(snapshot, claim.node_pool, claim.capacity_pool.instance_type))


_BootTimes = dict[tuple[str, str], dict[str, float]]
"""(pool, type) and (pool, "") -> claim -> seconds that its machine took from launch to ready."""


@followed(_BootTimes)
def _boot_times(before: _BootTimes, changes: TableChanges[Claim]) -> _BootTimes:
    gone, came = changes.gone(), [(name, claim) for name, claim in changes.came() if _has_booted(claim)]
    kinds = dict.fromkeys(kind for _, claim in (*gone, *came) for kind in _kinds(claim))
    own = {kind: before.get(kind, {}).copy() for kind in kinds}
    for name, claim in gone:
        for kind in _kinds(claim):
            own[kind].pop(name, None)
    for name, claim in came:
        for kind in _kinds(claim):
            own[kind][name] = claim.ready_at_s - claim.launched_at_s
    return {**before, **own}


def _kinds(claim: Claim) -> tuple[tuple[str, str], tuple[str, str]]:
    return (claim.node_pool, claim.capacity_pool.instance_type), (claim.node_pool, "")


def _has_booted(claim: Claim) -> bool:
    """Returns whether it shows how long a machine takes to boot; a cut moves the instant at which it was ready."""
    came = claim.state in {ClaimState.READY, ClaimState.TERMINATING} and claim.ready_at_s > claim.launched_at_s > 0
    return came and not claim.recut_at_s
