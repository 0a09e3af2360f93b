"""Plans places for pods that a gang has lost, beside those it keeps: idle machines, new MIG layouts, purchases.

A purchase stays in the zone of the rest of the gang where it can, and always in the topology domain that its pods have
to share: the lost pods then require the domain's label, so that only machines that promise it are considered.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fleet.gangs.replacement import PodsToReplace
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState
from fleet.placement.followers import place_company
from fleet.placement.plan import Need, PlacementPlan
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.gang_planner import GangPlanner
from fleet.snapshot import Pin, PodSet
from fleet.snapshot.elastic_parts import fitted
from model import labels


def plan_replacement(
    planner: GangPlanner,
    state: ClusterState,
    workload: Workload,
    given: Sequence[PodSetAssignment],
    lost_pods: PodsToReplace,
    pins: Iterable[Pin],
) -> PlacementPlan | Refusal:
    """Plans the pods that are missing beside those on `pins`, taking state and limits; returns a refusal else."""
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    lost = [(one, _in_same_domain(pod_sets[one.name], lost_pods)) for one in given if lost_pods.missing.get(one.name)]
    if any(pod_set.wishes for _, pod_set in lost):
        kept = [pin for pin in pins if pin.node and pin not in lost_pods.vacated]
        found = _on_topology(planner, state, workload, lost, lost_pods, kept)
        if isinstance(found, PlacementPlan) or any(
            s.slices or s.group or s.required_topology for _, s in lost if s.wishes
        ):
            return found  # the domain of a machine that is not there yet is unknown
    needs = [planner.need(workload, one, _lost_only(pod_set, lost_pods)) for one, pod_set in lost]
    return _buy_if_needed(planner.capacity, state, workload.uid, needs, lost_pods)


def _in_same_domain(pod_set: PodSet, lost_pods: PodsToReplace) -> PodSet:
    """Returns a pod set whose nodes must carry the labels of the domain that its other pods are in."""
    tie, pod_set = lost_pods.bound_to.get(pod_set.name), fitted(pod_set)
    return replace(pod_set, node_selector={**pod_set.node_selector, **tie}) if tie else pod_set


def _lost_only(pod_set: PodSet, lost_pods: PodsToReplace) -> PodSet:
    """Returns a pod set of the lost pods alone.

    Where a label binds them to the domain of the others, they need not ask for a common domain as well.
    """
    tied = pod_set.name in lost_pods.bound_to
    topology = "" if tied else pod_set.required_topology
    return replace(pod_set, count=lost_pods.missing[pod_set.name], required_topology=topology)


def _on_topology(
    planner: GangPlanner,
    state: ClusterState,
    workload: Workload,
    lost: Sequence[tuple[PodSetAssignment, PodSet]],
    lost_pods: PodsToReplace,
    kept: Iterable[Pin],
) -> PlacementPlan | Refusal:
    """Plans the lost pods on standing machines within the topology domains of those that are kept."""
    standing: dict[str, dict[str, int]] = {}
    for pin in kept:
        pods = standing.setdefault(pin.pod_set, {})
        pods[pin.node] = pods.get(pin.node, 0) + pin.count
    asked = [(pods, planner.flavors_of(workload, one), lost_pods.missing[one.name]) for one, pods in lost]
    found = planner.topology(state).find_replacements(asked, standing)
    if isinstance(found, Refusal):
        return found
    by_name = {pod_set.name: pod_set for _, pod_set in lost}
    for assignment in found:
        state.place(assignment.slot, by_name[assignment.pod_set], assignment.count)
    return PlacementPlan(tuple(found))


def _buy_if_needed(
    capacity: BuyableCapacity, state: ClusterState, uid: str, needs: Sequence[Need], lost_pods: PodsToReplace
) -> PlacementPlan | Refusal:
    """Plans the lost pods on whatever machines `place_company` finds; purchases are the last resort."""
    refusal = Refusal(Reason.NO_OFFER, "nothing is asked for")
    for allowed, tied in _attempts(capacity, needs, lost_pods):
        mark = state.mark()
        found = place_company(state, allowed, uid, tied)
        if isinstance(found, PlacementPlan) and (found.ready or not lost_pods.idle_only):
            return found
        if isinstance(found, Refusal):
            refusal = found
        else:
            state.undo(mark)
            refusal = Refusal(Reason.NO_OFFER, "no idle machine has room for it")
    return refusal


def _attempts(
    capacity: BuyableCapacity, needs: Sequence[Need], lost_pods: PodsToReplace
) -> Iterator[tuple[BuyableCapacity, Sequence[Need]]]:
    """Yields (capacity, needs) in the order to try: no purchase, a purchase in the gang's zone, a purchase anywhere."""
    if lost_pods.idle_only:
        yield replace(capacity, may_buy=False, recuts=[]), needs
        return
    yield replace(capacity, may_buy=False), needs
    if lost_pods.zone:
        tie = {labels.ZONE: lost_pods.zone}
        selects = [replace(it.pod_set, node_selector={**tie, **it.pod_set.node_selector}) for it in needs]
        yield capacity, [replace(it, pod_set=pod_set) for it, pod_set in zip(needs, selects, strict=True)]
    yield capacity, needs
