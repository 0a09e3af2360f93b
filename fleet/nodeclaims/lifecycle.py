"""The life of a claim: launched or adopted, registered, ready, drained, terminated, forgotten.

Level-triggered like the gang's. Time limits are Karpenter's (`pkg/controllers/nodeclaim/lifecycle`, reference 3).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fleet.actions import Action, CloseClaim, LaunchMachines, PatchNode, SaveClaim, claim_subject, node_subject
from fleet.fence import Decided, each
from fleet.nodeclaims.capacity_buffers import buffer_tenants, failed_buffers
from fleet.nodeclaims.cutting import drifted_layout, drifted_layouts, recut
from fleet.nodeclaims.garbage_collection import collect
from fleet.nodeclaims.launch import launch_groups, launch_request
from fleet.nodeclaims.registration import is_unregistered, launched, registered, registration
from fleet.nodeclaims.repair import (
    READY,
    node_failure,
    repair_policies,
    told_of_gpus,
    unrecorded,
)
from fleet.nodeclaims.termination import close, gone_words, instance_gone, terminating
from fleet.offerings.reservations import RESERVATION_LABELS, RESERVED, converted_to_on_demand
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Gang, GangState, Instance, MachineEvent, Node, Pod, Snapshot
from fleet.snapshot.affinity import FOR_GANGS, RECUTTING, UNREGISTERED
from fleet.snapshot.lookups import awaited, machines_held, node_names, node_of
from fleet.snapshot.seats import starting_gang
from model import labels
from model.changed import changed
from model.fleet import Fleet
from model.index import Index, derived, followed_each
from model.kinds import REPAIRS, NodePool

INTENT_TIMEOUT_S = 30.0
"""A launch group that is still incomplete, or wanted by nobody, after this long is dropped: nothing was bought."""
LAUNCH_TIMEOUT_S = 5 * 60.0
"""A launch whose outcome stays unknown is given up; garbage collection finds what it may have bought."""


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Decided]:
    """Returns the next step of every claim, then of every machine and node that no claim answers for."""
    steps = decide_among(fleet, snapshot, _unsettled(fleet, snapshot))
    return [*steps, *collect(snapshot), *failed_buffers(fleet, snapshot)]


def decide_among(fleet: Fleet, snapshot: Snapshot, claims: Iterable[Claim]) -> list[Decided]:
    """Returns the next step of these claims, for who knows where something has changed."""
    named = ((claim_subject(claim.name), claim) for claim in claims)
    free = ((subject, claim) for subject, claim in named if subject not in snapshot.busy)
    occupied: list[_Occupied] = []

    def step(claim: Claim) -> Iterator[Action]:
        if claim.state is not ClaimState.READY:
            return _STEPS[claim.state](fleet, snapshot, claim)
        if not occupied:  # what raises there raises in the fence of each
            occupied.append(_Occupied.of(fleet, snapshot))
        return _ready(fleet, snapshot, claim, occupied[0])

    return list(each(snapshot, free, step))


def _unsettled(fleet: Fleet, snapshot: Snapshot) -> Sequence[Claim]:
    """Returns the claims, by name, without those at rest: ready, and they stay as they are however much time passes.

    What can be said of one table is worked out when that changes: one node that changes is looked at with the others,
    but not with ten thousand claims and their instances.
    """
    index, claims = snapshot.index, _claims_at_rest(snapshot.index, snapshot.claims)
    unwell = _unwell(index, snapshot.nodes, _watched(fleet.index, fleet.node_pools))
    names = {
        *_stirring(index, claims),
        *_on_unwell(index, claims, node_names(snapshot), unwell),
        *_without_instance(index, claims, _standing(index, snapshot.instances)),
        *drifted_layouts(fleet, snapshot),
        *_misjudged(
            index,
            claims,
            machines_held(snapshot),
            buffer_tenants(fleet, snapshot),
            _with_pods(index, snapshot.ordinary_pods),
        ),
    }
    return [snapshot.claims[name] for name in sorted(names)]


@derived()
def _watched(_index: Index, pools: Mapping[str, NodePool]) -> frozenset[tuple[str, str]]:
    """Returns each (condition, status) for which some pool repairs nodes; without Ready, which has its own field."""
    policies = (*REPAIRS, *(policy for pool in pools.values() for policy in pool.spec.repair))
    return frozenset((one.condition, status) for one in policies for status in one.statuses if one.condition != READY)


class _AtRest(NamedTuple):
    """What has to be so for a claim that is ready to stay as it is."""

    ready: bool
    """Whether it is, and nothing of its own says that it will be otherwise."""
    node: str
    instance: tuple[str, bool]
    """Id, and whether it has to be in a reservation."""
    emptied: bool
    """Whether the machine is known to be empty."""


@followed_each()
def _claims_at_rest(claim: Claim) -> _AtRest:
    well = claim.disruption is None and claim.node_ready and not claim.gpu_conditions
    ready = well and claim.state is ClaimState.READY
    instance = claim.instance_id, claim.capacity_pool.capacity_type == RESERVED
    return _AtRest(ready and claim.recut_at_s <= claim.ready_at_s, claim.node, instance, bool(claim.emptied_at_s))


@followed_each()
def _stirring(claim: _AtRest) -> bool | None:
    return None if claim.ready else True


@followed_each()
def _on_unwell(claim: _AtRest, nodes: Mapping[str, bool], unwell: Mapping[str, bool]) -> bool | None:
    """Returns True for a claim whose node is not there, or is one with which something is to be done."""
    return True if claim.node in unwell or claim.node not in nodes else None


@derived()
def _without_instance(
    _index: Index, claims: Mapping[str, _AtRest], standing: frozenset[tuple[str, bool]]
) -> Sequence[str]:
    return [name for name, it in claims.items() if it.instance not in standing]


@followed_each(3)
def _misjudged(
    claim: _AtRest, held: Sequence[Gang] | None, spare: Sequence[Gang] | None, ordinary: Mapping[str, object]
) -> bool | None:
    """Returns True for a claim that is said to be empty and is not, or the other way round."""
    occupied = held is not None or spare is not None or claim.node in ordinary
    return True if claim.emptied is occupied else None


@followed_each()
def _with_pods(_pods: Sequence[Pod]) -> bool:
    """Returns True for a node with ordinary pods."""
    return True


@followed_each()
def _unwell(node: Node, watched: frozenset[tuple[str, str]]) -> bool | None:
    """Returns True for a node with which something is to be done."""
    well = (
        node.ready
        and not node.deleting
        and node.has_finalizer
        and not (node.taints and any(taint.key in _PASSING for taint in node.taints))
        and not node.gpu_faults
        and not any((condition, found.status) in watched for condition, found in node.conditions.items())
    )
    return None if well else True


@derived()
def _standing(_index: Index, instances: Mapping[str, Instance]) -> frozenset[tuple[str, bool]]:
    """Returns (id, False) of each instance that is not gone, and (id, True) of those in a reservation as well."""
    there = [(name, instance) for name, instance in instances.items() if not instance.gone]
    return frozenset([*((name, False) for name, _ in there), *((name, True) for name, it in there if it.reservation)])


# -- intent: nothing is bought yet -----------------------------------------------------------------------------------


def _pending(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    group, age_s = launch_groups(snapshot)[claim.launch.group], snapshot.now_s - claim.created_at_s
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif not _complete(group, claim.launch.size) or not _wanted(fleet, snapshot, claim):
        if age_s >= INTENT_TIMEOUT_S or any(member.disruption for member in group):
            yield from close(snapshot, claim, Reason.NOT_NEEDED, "nobody waits for it any more")
    elif age_s >= LAUNCH_TIMEOUT_S:
        message = f"the cloud has not said within {LAUNCH_TIMEOUT_S / 60:.0f} min whether it was bought"
        yield from close(snapshot, claim, Reason.LAUNCH_TIMEOUT, message)
    else:
        lot = [member for member in group if member.launch.lot == claim.launch.lot]
        if claim is next(member for member in lot if not member.launched_at_s):
            yield from _launch(fleet, snapshot, lot)


def _complete(group: Sequence[Claim], size: int) -> bool:
    """Returns whether all claims of a launch group are there, and none of them is given up."""
    return len(group) == size and not any(member.deleting or member.disruption for member in group)


def _launch(fleet: Fleet, snapshot: Snapshot, lot: Sequence[Claim]) -> Iterator[Action]:
    """Launches a lot, once all of its claims are written and no action on one is under way."""
    names = tuple(member.name for member in lot)
    if all(member.uid for member in lot) and snapshot.busy.isdisjoint(map(claim_subject, names)):
        yield LaunchMachines(launch_request(fleet, snapshot, lot), names)


def _wanted(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> bool:
    """Returns whether the gang, pool or old machine that the new one is for still waits for it."""
    if claim.node_pool not in fleet.node_pools or claim.capacity_pool.instance_type not in snapshot.catalog.types:
        return False  # no longer declared, or no longer sold
    if claim.replaces:
        return any(name in snapshot.claims for name in claim.replaces)
    if any(gang.state in _WAITING for gang in machines_held(snapshot).get(claim.name, ())):
        return True
    fixed = fleet.node_pools[claim.node_pool].spec.replicas is not None
    if claim.gang:
        return False
    return fixed or claim.name in awaited(snapshot) or claim.name in buffer_tenants(fleet, snapshot)


_WAITING = frozenset({GangState.RESERVED, GangState.ADMITTED})
"""An admitted gang waits for a machine that has not come when it has lost another."""


# -- ready: in use, empty, unwell, or being cut anew -----------------------------------------------------------------


class _Occupied(NamedTuple):
    """Where anybody has pods, or is to have, looked up once for all ready machines."""

    held: Mapping[str, object]
    """Claims with gangs."""
    spare: Mapping[str, object]
    """Claims with room for the pods of CapacityBuffers."""
    ordinary: Mapping[str, object]
    """Nodes with ordinary pods."""

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "_Occupied":
        return cls(machines_held(snapshot), buffer_tenants(fleet, snapshot), snapshot.ordinary_pods)

    def has(self, claim: Claim) -> bool:
        return claim.name in self.held or claim.node in self.ordinary or claim.name in self.spare


def _ready(fleet: Fleet, snapshot: Snapshot, claim: Claim, occupied: _Occupied) -> Iterator[Action]:
    node, held = node_of(snapshot, claim), occupied.has(claim)
    if claim.disruption is not None:
        yield CloseClaim(claim)
    elif node is None or instance_gone(snapshot, claim):
        yield from close(snapshot, claim, Reason.INSTANCE_GONE, gone_words(snapshot, claim))
    elif node.deleting:
        yield from close(snapshot, claim, Reason.DELETED, f"somebody deleted node {node.name}")
    elif (complained := _complained(fleet, snapshot, claim, node)) is not claim:
        yield SaveClaim(complained)
    elif is_unregistered(node) or not node.has_finalizer:
        if node_subject(node.name) not in snapshot.busy:
            yield _joined_anew(fleet, snapshot, claim, node)
    elif (plain := converted_to_on_demand(snapshot, claim)) is not None:
        yield from _relabelled(snapshot, plain, node)
    elif claim.recut_at_s > claim.ready_at_s or drifted_layout(fleet, snapshot, claim):
        yield from recut(fleet, snapshot, claim, node)
    elif (over := _over(snapshot, claim, node)) and node_subject(node.name) not in snapshot.busy:
        yield PatchNode(node.name, remove_taints=over)
    elif node.ready is not claim.node_ready:
        said = "NodeReady" if node.ready else "NodeNotReady"
        event = MachineEvent(node.ready_changed_at_s, said, f"node {node.name}")
        yield SaveClaim(changed(claim, node_ready=node.ready).remembering(event))
    elif held is bool(claim.emptied_at_s):
        yield SaveClaim(changed(claim, emptied_at_s=0.0 if held else snapshot.now_s))


def _complained(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> Claim:
    """Returns the claim with what has been found of its machine, and leaving where that is not borne; or itself."""
    if node.ready and not (node.conditions or node.gpu_faults or claim.gpu_conditions):
        return claim  # as of most: no policy repairs a node for being ready
    told = told_of_gpus(claim, node).remembering(*unrecorded(claim, node, repair_policies(fleet, claim.node_pool)))
    failure = node_failure(fleet, snapshot, claim, node)
    return told if failure is None else told.with_disruption(failure)


def _joined_anew(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> PatchNode:
    """Returns what a node of ours lacks: its kubelet has registered it anew, or an older agent knew no finalizer."""
    return (
        registration(fleet, snapshot, claim, node)
        if is_unregistered(node)
        else PatchNode(node.name, add_finalizer=True)
    )


_PASSING = frozenset({RECUTTING.key, FOR_GANGS.key, UNREGISTERED.key})


def _over(snapshot: Snapshot, claim: Claim, node: Node) -> tuple[str, ...]:
    """Returns the taints of ours for which there is no reason any more."""
    if not node.taints:
        return ()
    found = sorted({taint.key for taint in node.taints} & _PASSING)
    return tuple(key for key in found if key != FOR_GANGS.key or not starting_gang(snapshot, claim))


def _relabelled(snapshot: Snapshot, plain: Claim, node: Node) -> Iterator[Action]:
    """Relabels a machine that outlives its reservation, as Karpenter does: it runs on at the price of on-demand."""
    if node_subject(node.name) in snapshot.busy:
        return
    on_demand = {labels.CAPACITY_TYPE: plain.capacity_pool.capacity_type}
    if any(node.labels.get(key) != value for key, value in on_demand.items()):
        yield PatchNode(node.name, on_demand, remove_labels=RESERVATION_LABELS)
    else:
        yield SaveClaim(plain)


_STEPS: dict[ClaimState, Callable[[Fleet, Snapshot, Claim], Iterator[Action]]] = {
    ClaimState.PENDING: _pending,
    ClaimState.LAUNCHED: launched,
    ClaimState.REGISTERED: registered,
    ClaimState.TERMINATING: terminating,
}
