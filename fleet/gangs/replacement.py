"""A gang that has lost a machine: its pods there get other places, and the rest of it goes on.

Source: Kueue's node replacement (`TASFailedNodeReplacement`, reference 3), with the purchase of a machine added. The
gang stays admitted and keeps its quota and its other seats. The pass looks for seats for the lost pods alone; seats on
machines that are still to come are pins without a node, which become pins on the node when it is ready. Level-triggered
like everything else: what is missing follows from the pins and the machines as they are seen.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fleet.actions import Action, EvictPod, gang_subject, pod_subject
from fleet.fence import concerning
from fleet.gangs.lost_machines import (
    NODE_FAILURE_AFTER_S,
    POLITE_S,
    UNPLANNED,
    LostPlace,
    at_risk,
    awaits_recut,
    in_time,
    leaves_since_s,
    leaving_claims,
    lost_place,
)
from fleet.gangs.taken_places import has_been_ready
from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.placement.inventory import usable
from fleet.placement.plan import PlacementPlan
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Job, Node, Pin, Pod, PodSet, Snapshot
from fleet.snapshot.affinity import tolerates
from fleet.snapshot.elastic_parts import core_of, together
from fleet.snapshot.seats import active_pods, place_of, pods_of, seats_of, strays_of
from model import labels
from model.fleet import Fleet
from model.index import followed_each

_SHOWN: Final = 4
"""Names in a sentence."""


@dataclass(frozen=True, slots=True)
class PodsToReplace:
    """Seats of an admitted gang to be filled again."""

    vacated: tuple[Pin, ...]
    """Seats it has there no longer, or gives up for better ones."""
    missing: Mapping[str, int]
    """Pod set -> how many of its pods want a place."""
    reason: Reason
    message: str
    """What was lost, with numbers."""
    at_s: float
    bound_to: Mapping[str, Mapping[str, str]]
    """Pod set -> labels that tie it to the domain which its other pods stand in."""
    zone: str = ""
    """The one zone the rest of the gang stands in; empty where there are several."""
    idle_only: bool = False
    """Nothing is lost: a machine is on its way, and a seat that stands idle by now would do better."""

    def keeps(self, pin: Pin) -> bool:
        """Returns whether the gang keeps a pin, whatever number of its pods is left there."""
        return _place(pin) not in {_place(vacated) for vacated in self.vacated}


def _place(pin: Pin) -> tuple[str, str, str]:
    return pin.pod_set, pin.node, pin.claim


def must_go(fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job) -> tuple[Reason, str] | None:
    """Returns why an admitted gang leaves as a whole; None where it lost nothing, or what it lost may be replaced."""
    lost = _lost(fleet, snapshot, gang, job)
    if not lost:
        return None
    why = _as_a_whole(fleet, snapshot, gang, job, lost)
    if why is None:
        return None
    first = next(iter(lost.values()))
    return first.reason, f"{first.message}{why}"


def _lost(fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job) -> Mapping[Pin, LostPlace]:
    found = ((pin, lost_place(fleet, snapshot, gang, job, pin)) for pin in seats_of(snapshot, gang))
    return {pin: loss for pin, loss in found if loss is not None}


def _as_a_whole(fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job, lost: Mapping[Pin, LostPlace]) -> str | None:
    """Returns why the gang cannot stay without its lost places, as the end of a sentence; None where it can."""
    if not _may_replace(fleet, gang, job) or any(loss.reason not in UNPLANNED for loss in lost.values()):
        return ""
    if any(nodes_of_flavor(fleet, flavor) is None for given in gang.flavors.values() for flavor in given):
        return ", and a flavor of the gang is no longer declared"
    if not has_been_ready(gang) and any(loss.reason == Reason.PLACE_TAKEN for loss in lost.values()):
        return ""  # nothing is lost by it, and no failure charged to the job
    goes_on = {pin for pin in seats_of(snapshot, gang) if pin.node} - lost.keys()
    if not goes_on and not in_time(snapshot, gang, lost):
        return ""
    ended = _for_good(snapshot, gang, job, {pin.node for pin in lost if pin.node})
    return f", and {job.ref} does not make lost pods of {ended} anew" if ended else None


def _may_replace(fleet: Fleet, gang: Gang, job: Job) -> bool:
    """Returns whether the job, or else its queue, wants lost machines replaced (`Replace`), and the job runs."""
    line = binding_of(fleet, gang.namespace, gang.queue)
    return line is not None and (job.on_node_failure or line.on_node_failure) == "Replace" and not job.suspended


def _for_good(snapshot: Snapshot, gang: Gang, job: Job, nodes: set[str]) -> str:
    """Returns a pod set whose pods on these nodes the job would not make anew; empty when there is none.

    It is empty, too, where the job's user asks for replacement. Pods that have ended or are ending do not count: the
    job has noticed them, and goes on. But each uses up one of the failures that the job may have, also while its
    controller has not counted it, which takes it up to 20 s while it backs off.
    """
    if job.on_node_failure == "Replace":
        return ""
    standing_pods = (pod for pod in active_pods(snapshot, gang) if not pod.gated and not pod.deleting)
    here = (pod for pod in standing_pods if place_of(snapshot, gang, pod) in nodes)
    standing = Counter(pod.pod_set for pod in here)
    uncounted = Counter(pod.pod_set for pod in pods_of(snapshot, gang) if pod.tracked and _is_lost(pod))
    left = {name: max(0, pods - uncounted[name]) for name, pods in job.restarts.items()}
    may_go = {pods.name: pods.count - core_of(pods).count + left.get(pods.name, 0) for pods in gang.pod_sets}
    return next((name for name in sorted(standing) if standing[name] > may_go.get(name, 0)), "")


def _is_lost(pod: Pod) -> bool:
    return pod.phase == "Failed" or (pod.deleting and pod.active)


# -- what the pass has to find ----------------------------------------------------------------------------------------


def pods_to_replace(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, PodsToReplace]:
    """Returns uid -> the seats that an admitted gang lacks, or waits for while better ones may be free.

    Gangs with an action under way have none, nor has one whose pods could not be let onto another machine.
    """
    found = {}
    for gang in _unsettled(snapshot):
        subject = gang_subject(gang.uid)
        if subject in snapshot.busy or subject in snapshot.set_aside or subject in snapshot.refused:
            continue
        with concerning(subject):
            if (wanted := _to_replace(fleet, snapshot, gang)) is not None:
                found[gang.uid] = wanted
    return found


def _to_replace(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> PodsToReplace | None:
    job = snapshot.jobs.get(gang.uid)
    if job is None or job.deleting or job.result:
        return None
    lost = _lost(fleet, snapshot, gang, job)
    if not lost:
        return _waiting(snapshot, gang) if any(not pin.node for pin in gang.pins) else None
    return _vacancy(snapshot, gang, lost) if _as_a_whole(fleet, snapshot, gang, job, lost) is None else None


def _unsettled(snapshot: Snapshot) -> Sequence[Gang]:
    """Returns the admitted gangs that have a pin whose machine is unwell, leaving, still to come, or repels them.

    So have those that lack pods which were ready: others may have taken their places.
    """
    names = {*at_risk(snapshot), *_not_ready(snapshot.index, snapshot.gangs)}
    if not names:
        return ()
    leaving = frozenset(leaving_claims(snapshot).values())
    return [
        gang
        for gang in (snapshot.gangs[uid] for uid in sorted(names))
        if gang.state is GangState.ADMITTED
        and (gang.not_ready_since_s or any(_is_unsettled(snapshot, gang, pin, leaving) for pin in gang.pins))
    ]


@followed_each()
def _not_ready(gang: Gang) -> bool | None:
    """Returns True for a gang that lacks pods which were ready."""
    return True if gang.not_ready_since_s else None


def _is_unsettled(snapshot: Snapshot, gang: Gang, pin: Pin, leaving: Collection[str]) -> bool:
    node = snapshot.nodes.get(pin.node)
    if node is None or not node.ready or node.unschedulable or pin.node in leaving:
        return True
    return bool(pin.claim and pin.claim not in snapshot.claims) or _repels(node, gang, pin)


def _repels(node: Node, gang: Gang, pin: Pin) -> bool:
    """Returns whether pods of a pin may not tolerate its node, going by what they tolerate without their flavor."""
    return bool(node.taints) and not any(
        pods.name == pin.pod_set and tolerates(node.taints, pods.tolerations) for pods in gang.pod_sets
    )


def _vacancy(snapshot: Snapshot, gang: Gang, lost: Mapping[Pin, LostPlace]) -> PodsToReplace:
    first = next(iter(lost.values()))
    nodes, machines = {pin.node for pin in lost if pin.node}, {pin.claim for pin in lost if not pin.node}
    where = " and ".join(_listed(*one) for one in (("node", nodes), ("machine", machines)) if one[1])
    message = f"{_part_of(gang, lost)} lost {where} ({first.message})"
    return _open(snapshot, gang, tuple(lost), first.reason, message, min(loss.at_s for loss in lost.values()))


def _waiting(snapshot: Snapshot, gang: Gang) -> PodsToReplace:
    """Returns the seats on machines that are still to come: free ones elsewhere would be had at once."""
    waiting = tuple(pin for pin in seats_of(snapshot, gang) if not pin.node)
    found = _open(
        snapshot,
        gang,
        waiting,
        Reason.REPLACING,
        f"{_part_of(gang, waiting)} no longer need to wait for a machine",
        0.0,
    )
    return replace(found, idle_only=True)


def _part_of(gang: Gang, pins: Iterable[Pin]) -> str:
    """Returns how many of the gang's pods have these pins, as in `3 of 8 pods`."""
    return f"{sum(pin.count for pin in pins)} of {sum(pod_set.count for pod_set in gang.pod_sets)} pods"


def _listed(noun: str, names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f"{noun}{'s' if len(ordered) > 1 else ''} {', '.join(ordered[:_SHOWN])}{more}"


def _open(
    snapshot: Snapshot, gang: Gang, vacated: tuple[Pin, ...], reason: Reason, message: str, at_s: float
) -> PodsToReplace:
    gone = set(vacated)
    kept = [pin for pin in seats_of(snapshot, gang) if pin not in gone]
    zones = {_label(snapshot, pin, labels.ZONE) for pin in kept}
    missing = _missing(gang, vacated, kept)
    bound_to = {name: tie for name in missing if (tie := _tie(snapshot, gang, name, kept))}
    return PodsToReplace(vacated, missing, reason, message, at_s, bound_to, zones.pop() if len(zones) == 1 else "")


def _missing(gang: Gang, vacated: Sequence[Pin], kept: Sequence[Pin]) -> Mapping[str, int]:
    """Returns pod set -> core pods without a seat that need one; those that have succeeded for good do not."""
    missing, spare = {}, gang.reclaimable
    leaving = Counter({_place(pin): pin.count for pin in gang.leaving})
    for pod_set in gang.pod_sets:
        lost = sum(pin.count for pin in vacated if pin.pod_set == pod_set.name)
        seats = sum(pin.count - leaving[_place(pin)] for pin in kept if pin.pod_set == pod_set.name)
        wanted = core_of(pod_set).count - spare.get(pod_set.name, 0) - seats
        if min(lost, wanted) > 0:
            missing[pod_set.name] = min(lost, wanted)
    return missing


def _tie(snapshot: Snapshot, gang: Gang, name: str, kept: Sequence[Pin]) -> Mapping[str, str]:
    """Returns the domain that the other pods of the set, or of its group, stand in, where all have to share one.

    A domain that is not known is nowhere: no node has an empty label of that name.
    """
    pod_set = gang.pod_set(name)
    if not pod_set.required_topology:
        return {}
    mates = {one.name for one in gang.pod_sets if pod_set.group and one.group == pod_set.group} | {name}
    values = [_label(snapshot, pin, pod_set.required_topology) for pin in kept if pin.pod_set in mates]
    if pod_set.required_topology == labels.GPU_CLIQUE and (block := _shared_block(snapshot, kept, mates)):
        return {labels.CAPACITY_RESERVATION_ID: block}
    return {pod_set.required_topology: max(values)} if values else {}


def _shared_block(snapshot: Snapshot, kept: Sequence[Pin], mates: Container[str]) -> str:
    """Returns the one capacity block that is an NVLink domain and has all machines of some pod sets; else nothing."""
    claims = [snapshot.claims.get(pin.claim) for pin in kept if pin.pod_set in mates]
    blocks = {claim.capacity_pool if claim is not None else None for claim in claims}
    where = blocks.pop() if len(blocks) == 1 else None
    known = snapshot.reservations.get(where.reservation) if where is not None else None
    machine = snapshot.catalog.types.get(where.instance_type) if where is not None else None
    return known.id if known and machine and known.joined_by_nvlink(machine) else ""


def _label(snapshot: Snapshot, pin: Pin, label: str) -> str:
    node, claim = snapshot.nodes.get(pin.node), snapshot.claims.get(pin.claim)
    if node is not None:
        return node.labels.get(label, "")
    return claim.capacity_pool.zone if claim is not None and label == labels.ZONE else ""


# -- what was found ---------------------------------------------------------------------------------------------------


def refilled(gang: Gang, vacancy: PodsToReplace, plan: PlacementPlan, pins: Sequence[Pin], now_s: float) -> Gang:
    """Returns the gang with its new seats. If all of its pods were ready before, recovery is timed from the loss.

    A loss that happened while no agent ran counts from when an agent would have noticed it.
    """
    had_all = gang.pods_ready and not vacancy.idle_only
    return gang.moved(
        gang.state,
        Reason.REPLACING,
        f"{vacancy.message}; {_how(plan)}",
        now_s,
        pins=tuple(pins),
        pod_sets=tuple(_shrunk(pod_set, pins) for pod_set in gang.pod_sets),
        leaving=tuple(pin for pin in gang.leaving if vacancy.keeps(pin)),
        recuts=_awaited_recuts(gang, pins) | {recut.claim: recut.layout for recut in plan.recuts},
        pods_ready=gang.pods_ready and vacancy.idle_only,
        not_ready_since_s=max(vacancy.at_s, now_s - NODE_FAILURE_AFTER_S) if had_all else gang.not_ready_since_s,
        replacing_since_s=gang.replacing_since_s or now_s,
    )


def _awaited_recuts(gang: Gang, pins: Iterable[Pin]) -> dict[str, str]:
    """Returns the recuts (claim -> layout) that pins without a node still wait for."""
    waiting = {pin.claim for pin in pins if not pin.node}
    return {claim: layout for claim, layout in gang.recuts.items() if claim in waiting}


def _shrunk(pod_set: PodSet, pins: Iterable[Pin]) -> PodSet:
    """Returns the set without surplus pods that have lost their seats; they may join again."""
    seats = sum(pin.count for pin in pins if pin.pod_set == pod_set.name)
    return pod_set if core_of(pod_set) is pod_set else replace(pod_set, count=seats)


def _how(plan: PlacementPlan) -> str:
    """Returns where the lost pods go, in words."""
    nodes = {seat.slot.node for seat in plan.assignments if seat.slot.name == seat.slot.node}
    parts = [f"replacing on {', '.join(sorted(nodes)[:_SHOWN])}"] if nodes else []
    if plan.purchases:
        bought = ", ".join(
            f"{lot.count} x {lot.offering.offer.instance_type.name} "
            f"({lot.offering.offer.capacity_type}, {lot.offering.offer.zone})"
            for lot in plan.purchases
        )
        parts.append(f"buying {bought} at {plan.cost_usd_h:.2f} USD/h")
    if plan.recuts:
        parts.append(f"waiting for a new MIG layout on {', '.join(recut.slot.node for recut in plan.recuts)}")
    coming = {seat.slot.claim for seat in plan.assignments if seat.slot.name.startswith("coming/")}
    if coming:
        parts.append(f"waiting for {_listed('machine', coming)} on the way")
    return " and ".join(parts) if parts else "no other place is needed"


# -- while it goes on -------------------------------------------------------------------------------------------------


def arrived(snapshot: Snapshot, gang: Gang) -> Gang | None:
    """Returns the gang pinned to the nodes of awaited machines that are ready now; None where none is."""
    came = {pin: node for pin in gang.pins if not pin.node and (node := _ready_node(snapshot, gang, pin.claim))}
    if not came:
        return None
    pins = together(replace(pin, node=came.get(pin, pin.node)) for pin in gang.pins)
    nodes = _listed("node", set(came.values()))
    message = f"{_part_of(gang, came)} go to {nodes}, which took the place of a lost one"
    facts: dict[str, object] = {"pins": pins, "recuts": _awaited_recuts(gang, pins)}
    if any(not pod.deleting for pod in strays_of(snapshot, gang)):
        facts["not_ready_since_s"] = snapshot.now_s  # they have run until now: recovery begins here
    return gang.moved(gang.state, Reason.REPLACING, message, snapshot.now_s, **facts)


def _ready_node(snapshot: Snapshot, gang: Gang, name: str) -> str:
    claim = snapshot.claims.get(name)
    node = snapshot.nodes.get(claim.node) if claim is not None else None
    if claim is None or node is None or awaits_recut(gang, claim):
        return ""
    return node.name if usable(node, claim) else ""


def moved_out(snapshot: Snapshot, gang: Gang) -> Iterator[Action]:
    """Ends the pods that have lost their seats, each with its own grace period, so that their job makes them anew.

    A pod whose machine has time left runs on until the replacement is ready (`fleet.gangs.lost_machines`).
    """
    for pod in strays_of(snapshot, gang):
        since_s = leaves_since_s(snapshot, gang, pod)
        if since_s is not None and not pod.deleting and pod_subject(pod.uid) not in snapshot.busy:
            polite = snapshot.now_s - since_s < POLITE_S
            yield EvictPod(pod, force_grace_s=None if polite else int(pod.deletion_grace_s))


def under_way(snapshot: Snapshot, gang: Gang) -> bool:
    """Returns whether a machine is still to come, or a pod still to leave its old one: the gang is not whole before."""
    if not gang.replacing_since_s:
        return False
    return any(not pin.node for pin in gang.pins) or any(not pod.deleting for pod in strays_of(snapshot, gang))
