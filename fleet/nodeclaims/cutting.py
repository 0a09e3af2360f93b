"""From a label to a cut: what is written on a node until its GPUs are as its claim says, and when that has failed.

mig-manager acts on a changed label value alone, answers by a state that does not say which value it is of, and may
leave GPU clients paused (reference gpu-partitioning, 2.5 and 2.6). So the state is taken away with every write, which
makes the next one an answer, and to be told once more a node gets a name that no file has, which is answered at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from fleet.actions import Action, EvictPod, PatchNode, SaveClaim, node_subject, pod_subject
from fleet.catalog import InstanceType
from fleet.mig.layouts import (
    MIG_SUCCESS,
    REASSERT,
    cut_anew,
    departed,
    due_config,
    gpu_part,
    layout_name,
    owed,
    pool_layouts,
    slices_gone,
)
from fleet.mig.mixed_cuts import TOLD_WITHIN_S, as_before, changed_gpus, idle_gpus
from fleet.nodeclaims.repair import MOST_PERCENT
from fleet.nodeclaims.termination import close
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, CutOrder, Node, Pod, Snapshot
from fleet.snapshot.affinity import RECUTTING
from fleet.snapshot.lookups import claims_by_node, claims_by_pool, machines_held
from model import labels
from model.fleet import Fleet
from model.index import Index, derived, followed_each
from model.kinds import NodePool

MOST_TRIES: Final = 3
"""So often a node is told once more before its cut has failed."""
CUT_MOST_S: Final = 30 * 60.0
DRIFT_MOST_S: Final = 120.0
"""A drift that is not put right by then, counted from the first write for it, has its machine replaced."""
ANSWERED_AFTER_S: Final = 15.0
"""A state that is there sooner may be of what mig-manager was at when the label was written."""
SERVED_AFTER_S: Final = 60.0
"""The device plugin starts anew after a cut, and then shows what there is."""
SILENT_AFTER_S: Final = 120.0
"""Who waits for GPU clients for longer may have given up (gpu-operator#2833); who has not hears nothing."""
CORDONED_AFTER_S: Final = 5.0
"""By then a machine is tainted on which idle GPUs are to be cut; whoever was bound before is seen in readings later."""
LOOK_S: Final = 15.0
"""So often a machine that is being cut is looked at, whatever else happens."""
_FAILED: Final = "failed"
_PENDING: Final = "pending"
_PAUSED: Final = "paused-for-mig-change"
_DEPLOY: Final = "nvidia.com/gpu.deploy."


# -- drift ------------------------------------------------------------------------------------------------------------


def drifted_layouts(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, str]:
    """Returns for ready machines (by claim) how label, state or GPUs depart from what the claim says."""
    index = snapshot.index
    found = _departures(
        index, claims_by_node(snapshot), snapshot.nodes, fleet.node_pools, steady_types(index, snapshot.catalog.types)
    )
    return _by_claim(index, found)


def drifted_layout(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> str:
    """Returns what `drifted_layouts` says of one claim; empty where nothing departs."""
    found = departure(claim, snapshot.nodes.get(claim.node), fleet.node_pools, snapshot.catalog.types)
    owner = claims_by_node(snapshot).get(claim.node) if found is not None else None
    return found[1] if found is not None and owner is not None and owner.name == claim.name else ""


@derived(steady=True)
def steady_types(_index: Index, types: Mapping[str, InstanceType]) -> Mapping[str, InstanceType]:
    """Returns the types: the same object when prices alone have changed."""
    return dict(types)


def departure(
    claim: Claim, node: Node | None, pools: Mapping[str, NodePool], types: Mapping[str, InstanceType]
) -> tuple[str, str] | None:
    """Returns (claim, how it departs) for a ready machine on a ready node that is not being cut already."""
    if node is None or not node.ready or claim.state is not ClaimState.READY or claim.disruption is not None:
        return None
    if claim.recut_at_s > claim.ready_at_s:
        return None
    words = departed(claim, node, due_config(pools.get(claim.node_pool), claim, types))
    return (claim.name, words) if words else None


_departures = followed_each(2)(departure)


@derived()
def _by_claim(_index: Index, found: Mapping[str, tuple[str, str]]) -> Mapping[str, str]:
    return dict(found.values())


# -- a machine that is being cut --------------------------------------------------------------------------------------


def recut(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> Iterator[Action]:
    """Yields the next step of a ready machine whose GPUs are to be cut, or are cut otherwise than its claim says."""
    if claim.recut_at_s <= claim.ready_at_s:
        order = CutOrder(Reason.LAYOUT_DRIFT, drifted_layout(fleet, snapshot, claim), snapshot.now_s)
        yield SaveClaim(cut_anew(claim, claim.layout, gpu_part(claim.resources), snapshot.now_s, order, claim.gpu_cuts))
    elif node_subject(node.name) not in snapshot.busy:
        yield from _next_step(fleet, snapshot, claim, node)


def _next_step(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> Iterator[Action]:
    config = due_config(fleet.node_pools.get(claim.node_pool), claim, snapshot.catalog.types)
    missing, holders = _lacking(claim, node, config), _in_the_way(snapshot, claim, node)
    if not _is_cordoned(node):
        yield from _cordoned(snapshot, claim, node, config, label=not holders and not _is_beside_work(claim))
    elif not missing:
        yield SaveClaim(replace(claim, ready_at_s=max(snapshot.now_s, claim.recut_at_s), cut=None))
    elif _is_beside_work(claim) and (why_not := _not_beside(fleet, snapshot, claim, node)) is not None:
        if why_not:
            yield SaveClaim(as_before(claim, snapshot.now_s, why_not))
    else:
        yield from _cut_on(snapshot, claim, node, config, holders)


def _is_beside_work(claim: Claim) -> bool:
    """Returns whether idle GPUs are to be cut beside work, and that has not failed."""
    order = claim.cut
    return order is not None and order.before is not None and order.reason != Reason.LAYOUT_DRIFT


def _cut_on(snapshot: Snapshot, claim: Claim, node: Node, config: str, holders: list[Pod]) -> Iterator[Action]:
    """Yields the next step of a cordoned machine: it is given up, its pods go, or it is told to cut."""
    if why := _given_up(snapshot, claim, node, drains=bool(holders)):
        yield from close(snapshot, claim, *why)
    elif holders:
        yield from _evicted(snapshot, holders)
    else:
        yield from told_once_more(claim, node, config, snapshot.now_s)


def _not_beside(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> str | None:
    """Returns why idle GPUs are not cut beside the work of a machine; empty = not yet, None = nothing is against it.

    Between the decision and the taint a pod may have come to one of them: the exporter has to say once more who holds
    what, of an instant after both.
    """
    order, now_s = claim.cut, snapshot.now_s
    if order is None or order.began_s:
        failed = _given_up(snapshot, claim, node, drains=False)
        return failed[1] if failed is not None else None
    idle = idle_gpus(snapshot, node, order.since_s + CORDONED_AFTER_S)
    if idle is None:
        return "nobody has said which GPUs are idle" if now_s >= order.since_s + TOLD_WITHIN_S else ""
    taken = ", ".join(map(str, sorted(_to_be_changed(fleet, snapshot, claim) - idle)))
    return f"a pod has come to GPU {taken}" if taken else None


def _to_be_changed(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> frozenset[int]:
    pool, machine = fleet.node_pools.get(claim.node_pool), snapshot.catalog.types.get(claim.capacity_pool.instance_type)
    return changed_gpus(claim, machine, pool_layouts(fleet, pool) if pool is not None else {})


def _lacking(claim: Claim, node: Node, config: str) -> str:
    """Returns what the machine owes of its claim; of whole GPUs also that they are cut, or are to be."""
    return owed(claim, node) or departed(claim, node, config)


def _cordoned(snapshot: Snapshot, claim: Claim, node: Node, config: str, *, label: bool) -> Iterator[Action]:
    """Takes no new pods from now on; the label is written at once where no work has to leave first."""
    taint = PatchNode(node.name, add_taints=(RECUTTING,))
    if not label or node.labels.get(labels.MIG_CONFIG) == config:
        yield taint
    else:
        yield SaveClaim(_asked(claim, snapshot.now_s, 0))
        yield replace(_label(claim, node, config), add_taints=(RECUTTING,))


def _is_cordoned(node: Node) -> bool:
    return any(taint.key == RECUTTING.key for taint in node.taints)


def _in_the_way(snapshot: Snapshot, claim: Claim, node: Node) -> list[Pod]:
    """Returns the pods that have to leave before a cut; none while the slices are still what they had."""
    return _holders(snapshot, node) if slices_gone(claim, node) else []


def _holders(snapshot: Snapshot, node: Node) -> list[Pod]:
    """Returns the pods that hold GPUs of a node, or slices, but for those of DaemonSets: mig-manager pauses these."""
    return [pod for pod in snapshot.node_pods.get(node.name, ()) if gpu_part(pod.requests)]


def _evicted(snapshot: Snapshot, pods: list[Pod]) -> Iterator[Action]:
    """Asks those that belong to no gang to go; gangs leave as a whole, by their own life cycle."""
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        if not (pod.workload or pod.deleting or pod_subject(pod.uid) in snapshot.busy):
            yield EvictPod(pod)


def _given_up(snapshot: Snapshot, claim: Claim, node: Node, *, drains: bool) -> tuple[Reason, str] | None:
    """Returns why a machine that could not be cut is replaced; None while there is hope."""
    now_s, order = snapshot.now_s, claim.cut
    if order is not None and order.reason == Reason.LAYOUT_DRIFT:
        if order.before is not None and _holders(snapshot, node):
            return None  # idle GPUs alone are cut otherwise: the work on the others goes on to its end
        late = not drains and now_s >= max(order.since_s, order.began_s) + DRIFT_MOST_S
        late = late or now_s >= order.since_s + CUT_MOST_S
        if not late or (claim.name in machines_held(snapshot) and _too_many(snapshot, claim.node_pool)):
            return None
        return Reason.LAYOUT_DRIFT, f"not put right in {DRIFT_MOST_S / 60:.0f} min: {order.message}"
    if drains:
        return None  # its work has time to end well
    failed = cut_failed(claim, node, now_s)
    if not failed and now_s >= max(claim.recut_at_s, order.began_s if order else 0.0) + CUT_MOST_S:
        failed = f"cut to {claim.layout} failed: {owed(claim, node)}"
    return (Reason.LAYOUT_FAILED, failed) if failed else None


def _too_many(snapshot: Snapshot, pool: str) -> bool:
    """Returns whether so many machines of a pool drift that machines are not what is wrong."""
    members = claims_by_pool(snapshot).get(pool, ())
    drifting = sum(it.cut is not None and it.cut.reason == Reason.LAYOUT_DRIFT for it in members)
    return drifting > ceil(len(members) * MOST_PERCENT / 100)


# -- what is written on the node --------------------------------------------------------------------------------------


def told_once_more(claim: Claim, node: Node, config: str, now_s: float) -> Iterator[Action]:
    """Yields the next write on a node whose GPUs are not as its claim says; nothing while an answer is waited for."""
    label, state = node.labels.get(labels.MIG_CONFIG), node.labels.get(labels.MIG_CONFIG_STATE)
    if label == REASSERT:
        yield from _reasserted(claim, node, config, now_s)
    elif label != config:
        yield SaveClaim(_asked(claim, now_s, 0))
        yield _label(claim, node, config)
    elif state == MIG_SUCCESS and _clients(node):
        yield PatchNode(node.name, _clients(node))
    elif _unanswered(claim, node, now_s) and _tries(claim) < MOST_TRIES:
        yield SaveClaim(_asked(claim, now_s, 1))
        yield PatchNode(node.name, {labels.MIG_CONFIG: REASSERT}, remove_labels=(labels.MIG_CONFIG_STATE,))


def cut_failed(claim: Claim, node: Node, now_s: float) -> str:
    """Returns that a node was told often enough, in words; empty while it may be told once more."""
    if _tries(claim) < MOST_TRIES or node.labels.get(labels.MIG_CONFIG) == REASSERT:
        return ""
    if not _unanswered(claim, node, now_s):
        return ""
    return f"cut to {claim.layout} failed {MOST_TRIES + 1} times: {owed(claim, node)}"


def _tries(claim: Claim) -> int:
    return claim.cut.tries if claim.cut is not None else 0


def _reasserted(claim: Claim, node: Node, config: str, now_s: float) -> Iterator[Action]:
    if node.labels.get(labels.MIG_CONFIG_STATE) == _FAILED:  # it has heard: whoever it left paused may go on
        yield SaveClaim(_asked(claim, now_s, 0))
        yield _label(claim, node, config, resumes=True)


def _asked_at_s(claim: Claim) -> float:
    """Returns when mig-manager was last told what to do (epoch seconds)."""
    return claim.cut.asked_at_s if claim.cut is not None else max(claim.registered_at_s, claim.recut_at_s)


def _unanswered(claim: Claim, node: Node, now_s: float) -> bool:
    """Returns whether what mig-manager answered to the present label is no success, or no answer is to be expected."""
    asked_s = _asked_at_s(claim)
    state = node.labels.get(labels.MIG_CONFIG_STATE)
    if state == _FAILED:
        return now_s >= asked_s + ANSWERED_AFTER_S
    if state == MIG_SUCCESS:
        served_s = asked_s if gpu_part(node.allocatable) else max(asked_s, claim.recut_at_s)
        return now_s >= served_s + SERVED_AFTER_S
    awaited = state == _PENDING or claim.state is ClaimState.READY
    return awaited and bool(asked_s) and now_s >= asked_s + SILENT_AFTER_S


def _asked(claim: Claim, now_s: float, tries: int) -> Claim:
    """Returns the claim that says its label is written now."""
    order = claim.cut or CutOrder("", f"to be cut to {claim.layout}", now_s)
    began_s = order.began_s or now_s
    return replace(claim, cut=replace(order, began_s=began_s, asked_at_s=now_s, tries=order.tries + tries))


def _label(claim: Claim, node: Node, config: str, *, resumes: bool = False) -> PatchNode:
    """Returns the write of the label that takes the state of the one before away."""
    layout = {labels.MIG_LAYOUT: layout_name(claim.layout)} if claim.layout else {}
    clients = _clients(node) if resumes else {}
    return PatchNode(
        node.name, {labels.MIG_CONFIG: config, **layout, **clients}, remove_labels=(labels.MIG_CONFIG_STATE,)
    )


def _clients(node: Node) -> dict[str, str]:
    """Returns the labels that let the GPU clients go on which mig-manager has paused; empty where none is."""
    return {key: "true" for key, value in node.labels.items() if key.startswith(_DEPLOY) and value == _PAUSED}
