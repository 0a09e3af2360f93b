"""Room that is kept ahead: where the pods that CapacityBuffers stand for would be, beside all that is real.

Such pods are virtual, as in Karpenter (`pkg/state/virtualpods`): nobody sees them but who decides about machines. They
are placed anew whenever somebody asks, after everything real, and remembered nowhere. Room counts on machines of pools
that serve pods, ready or on their way. It takes no quota.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from fleet.fence import DecisionFailed
from fleet.mig.layouts import gpu_part
from fleet.nodeclaims.drift import drifted_claims
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.flavor_nodes import pools_for_pods
from fleet.placement.inventory import build_capacity, build_cluster_state, coming_machines
from fleet.placement.place_pods import of_pods, place_most
from fleet.placement.plan import Need, PlacementPlan
from fleet.reasons import Refusal
from fleet.snapshot import Claim, Gang, GangState, JobRef, Pin, PodSet, Snapshot
from fleet.snapshot.gangs import POD
from fleet.snapshot.lookups import holders
from model.fleet import Fleet
from model.index import Index, derived
from model.quantity import CPU

if TYPE_CHECKING:  # most fleets hold none of them
    from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate

REPLICAS: Final = "replicas"
"""Name of the set of pods that a buffer stands for."""
_WOULD_RATHER_GO: Final = -(1 << 31)
"""As `pod-deletion-cost`: moving what is not there disturbs nobody."""


@dataclass(frozen=True, slots=True)
class BufferRoom:
    """A `BufferRoom` says how much of the room of a CapacityBuffer there is, and on which machines."""

    key: str
    """`namespace/name` of the buffer."""
    shape: PodSet
    """What its pods ask for; `count` is how many there are to be room for."""
    tenants: tuple[Gang, ...]
    """Its pods of each machine, as those who move work see them: as ordinary pods that hold nothing."""
    failed: DecisionFailed | None = None
    """Why nobody knows where its room is; then it has some on every machine that it might be on."""

    @property
    def ready(self) -> int:
        """Returns for how many of them there is room on a machine that has joined."""
        return sum(pin.count for gang in self.tenants for pin in gang.pins if pin.node)

    @property
    def coming(self) -> int:
        """Returns for how many there will be room once a machine has come."""
        return sum(pin.count for gang in self.tenants for pin in gang.pins) - self.ready

    @property
    def missing(self) -> int:
        """Returns for how many of them there is no room, nor any on its way."""
        return self.shape.count - self.ready - self.coming


def buffer_of(gang: Gang) -> str:
    """Returns the CapacityBuffer (`namespace/name`) that pods seen as a gang are of; empty for real ones."""
    return gang.name if gang.ordinary and gang.uid.startswith(_UID) else ""


_UID: Final = "buffer/"


def buffer_uid(key: str) -> str:
    """Returns what names the pods of a buffer among what a pass places."""
    return f"{_UID}{key}"


def virtual_pods(fleet: Fleet) -> Sequence[tuple[str, PodSet]]:
    """Returns the pods that each buffer stands for, by its key; those that ask for most first."""
    if not fleet.capacity_buffers:
        return ()
    return _virtual_pods(fleet.index, fleet.capacity_buffers, fleet.pod_templates)


@derived()
def _virtual_pods(
    _index: Index, buffers: Mapping[str, "CapacityBuffer"], templates: Mapping[str, "CorePodTemplate"]
) -> Sequence[tuple[str, PodSet]]:
    shapes = [(key, _shape(buffer, templates[buffer.template])) for key, buffer in buffers.items()]
    return sorted(((key, shape) for key, shape in shapes if shape.count), key=_hardest_first)


def _hardest_first(named: tuple[str, PodSet]) -> tuple[object, ...]:
    key, shape = named
    return -sum(gpu_part(shape.requests).values()), -shape.requests.get(CPU, 0), -shape.requests.get("memory", 0), key


def _shape(buffer: "CapacityBuffer", template: "CorePodTemplate") -> PodSet:
    body, requests = template.template, template.requests
    return PodSet(
        REPLICAS,
        buffer.replicas(requests),
        requests,
        node_selector=body.spec.node_selector,
        tolerations=body.spec.tolerations,
        namespace=buffer.metadata.namespace,
        labels=tuple(sorted(body.metadata.labels.items())),
    )


def buffer_need(fleet: Fleet, capacity: BuyableCapacity, shape: PodSet, now_s: float) -> Need:
    """Returns what the pods of a buffer need: machines of pools that serve pods, and no others that happen to idle."""
    until_s = now_s if capacity.closing else 0.0
    return Need(shape, (), {}, pools_for_pods(fleet), ordinary=True, until_s=until_s)


def take_room(
    state: ClusterState, capacity: BuyableCapacity, key: str, need: Need
) -> tuple[PlacementPlan | Refusal, int]:
    """Takes room for as many pods of a buffer as one plan finds; no machine is cut anew for them (`place_most`)."""
    recuts, capacity.recuts = capacity.recuts, []
    try:
        return place_most(state, capacity, buffer_uid(key), need)
    finally:
        capacity.recuts = recuts


# -- where the room is now ---------------------------------------------------------------------------------------------

_FACTS: Final = (
    *("nodes", "claims", "gangs", "jobs", "gang_pods", "foreign_use", "node_pods", "ordinary_pods"),
    *("daemon_pods", "repelling_pods", "waiting_pods", "pod_verdicts", "namespaces", "volumes", "devices", "catalog"),
    *("reservations", "measured", "daemon_overheads", "resolved", "strays", "instances"),
)
"""All of a snapshot that says where there is room, beside the time."""
_ANY_TIME: Final = 0.0
_facts_of: Final = attrgetter(*_FACTS)


def buffer_rooms(fleet: Fleet, snapshot: Snapshot) -> Sequence[BufferRoom]:
    """Returns how much room there is for every buffer, beside all that stands, is promised, or waits for a machine."""
    if not fleet.capacity_buffers:
        return ()
    timed = any(known.ends_machines for known in snapshot.reservations.values()) or _moving(
        snapshot.index, snapshot.claims
    )
    return _rooms(snapshot.index, fleet, snapshot.now_s if timed else _ANY_TIME, *_facts_of(snapshot))


@derived()
def _moving(_index: Index, claims: Mapping[str, Claim]) -> bool:
    """Returns whether a machine is kept for a move, for a while: else room does not change by time alone."""
    return any(claim.replaces for claim in claims.values())


def pods_of_buffers(fleet: Fleet, snapshot: Snapshot) -> Iterator[Gang]:
    """Yields the pods of buffers on every machine that has room for them, as gangs in no queue."""
    return (gang for room in buffer_rooms(fleet, snapshot) for gang in room.tenants)


def buffer_tenants(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, tuple[Gang, ...]]:
    """Returns claim -> the pods of buffers that have room on its machine, as gangs in no queue."""
    return _by_claim(snapshot.index, buffer_rooms(fleet, snapshot))


@derived()
def _by_claim(_index: Index, rooms: Sequence[BufferRoom]) -> Mapping[str, tuple[Gang, ...]]:
    found: dict[str, tuple[Gang, ...]] = {}
    for gang in (gang for room in rooms for gang in room.tenants):
        found[gang.pins[0].claim] = (*found.get(gang.pins[0].claim, ()), gang)
    return found


def failed_buffers(fleet: Fleet, snapshot: Snapshot) -> Iterator[DecisionFailed]:
    """Yields the buffers of which nobody knows where their room is, with the cause, but those that are set aside."""
    failed = (room.failed for room in buffer_rooms(fleet, snapshot))
    return (it for it in failed if it is not None and it.subject not in snapshot.set_aside)


@derived(2)
def _rooms(index: Index, fleet: Fleet, now_s: float, *facts: Any) -> Sequence[BufferRoom]:
    seen = Snapshot(now_s, **dict(zip(_FACTS, facts, strict=True)), index=index)
    try:
        state = _beside_the_real(fleet, seen)
    except Exception as error:  # noqa: BLE001  the fence: whoever it was about is told of by those who decide about him
        return [_unknown(fleet, seen, key, shape, error) for key, shape in virtual_pods(fleet)]
    capacity = build_capacity(fleet, seen, may_buy=False)
    return [_room(fleet, seen, state, capacity, *named) for named in virtual_pods(fleet)]


def _beside_the_real(fleet: Fleet, snapshot: Snapshot) -> ClusterState:
    """Returns the machines with all that stands there, is promised, or waits for them."""
    leaving, coming = drifted_claims(fleet, snapshot), coming_machines(fleet, snapshot)
    state = build_cluster_state(snapshot, holders(snapshot), coming, fleet.node_pools, leaving)
    _keep_for_waiting_pods(state, snapshot)
    return state


def _room(
    fleet: Fleet, snapshot: Snapshot, state: ClusterState, capacity: BuyableCapacity, key: str, shape: PodSet
) -> BufferRoom:
    """Takes the room of one buffer; where that fails it has none, and those after it are none the worse."""
    mark, plans, left = state.mark(), list[PlacementPlan](), shape.count
    try:
        need = buffer_need(fleet, capacity, shape, snapshot.now_s)
        while left and not isinstance((plan := take_room(state, capacity, key, of_pods(need, left)))[0], Refusal):
            plans.append(plan[0])
            left -= plan[1]
    except Exception as error:  # noqa: BLE001  the fence: it is this buffer's alone
        state.undo(mark)
        return _unknown(fleet, snapshot, key, shape, error)
    counts = Counter[tuple[str, str]]()
    for it in (it for found in plans for it in found.assignments):
        counts[it.slot.claim, it.slot.node] += it.count
    return BufferRoom(key, shape, tuple(_tenants(snapshot, key, shape, counts)))


def _unknown(fleet: Fleet, snapshot: Snapshot, key: str, shape: PodSet, error: Exception) -> BufferRoom:
    """Returns a buffer of which nobody knows the room: a pod on every machine of its pools, so that none of them goes.

    They would be given back as idle and be bought anew, again and again.
    """
    pools = {pool.name for pool in pools_for_pods(fleet)}
    counts = {(name, claim.node): 1 for name, claim in snapshot.claims.items() if claim.node_pool in pools}
    tenants = tuple(_tenants(snapshot, key, shape, counts))
    return BufferRoom(key, shape, tenants, DecisionFailed(buffer_uid(key), error))


def _keep_for_waiting_pods(state: ClusterState, snapshot: Snapshot) -> None:
    """Takes the places that waiting pods of no gang were found, which no buffer may count on."""
    by_claim = {slot.claim: slot for slot in state.slots.values() if slot.claim}
    for _, pod in sorted(snapshot.waiting_pods.items()):
        verdict = snapshot.pod_verdicts.get(pod.uid)
        if verdict is None or pod.shape is None:
            continue
        slot: NodeSlot | None = by_claim.get(verdict.claim) or state.slots.get(verdict.node)
        if slot is not None:
            state.place(slot, pod.shape, 1)


def _tenants(snapshot: Snapshot, key: str, shape: PodSet, counts: Mapping[tuple[str, str], int]) -> Iterator[Gang]:
    """Yields the pods of a buffer machine by machine, by name; they have been there since the machine was ready."""
    namespace, _, name = key.partition("/")
    for (claim, node), count in sorted(counts.items()):
        yield Gang(
            uid=f"{buffer_uid(key)}/{claim}",
            namespace=namespace,
            workload="",
            job=JobRef("v1", POD, namespace, name, ""),
            queue="",
            priority_class="",
            priority=0,
            pod_sets=(replace(shape, count=count),),
            created_at_s=snapshot.claims[claim].created_at_s,
            state=GangState.ADMITTED,
            pins=(Pin(shape.name, node, claim, count),),
            admitted_at_s=snapshot.claims[claim].ready_at_s,
            deletion_cost=_WOULD_RATHER_GO,
        )
