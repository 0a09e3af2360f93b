"""Seats for the pods a gang has lost, beside those it keeps: what stands idle, then a re-cut, then a purchase.

A purchase stays in the zone the rest of the gang stands in where it can, and always in the domain that its pods have to
share: they are tied to it by its label, so that machines which cannot promise the domain do not come into question.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fleet.gangs.replacement import PodsToReplace
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.scheduling.gang_planner import GangPlanner
from fleet.snapshot import Pin, PodSet
from model import labels


def plan_replacement(
    planner: GangPlanner,
    state: ClusterState,
    workload: Workload,
    given: Sequence[PodSetAssignment],
    vacancy: PodsToReplace,
    pins: Iterable[Pin],
) -> PlacementPlan | Refusal:
    """A plan for what is missing beside what `pins` name, taken on the state and from the limits; else a refusal."""
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    lost = [(one, _tied(pod_sets[one.name], vacancy)) for one in given if vacancy.missing.get(one.name)]
    if any(pod_set.wishes for _, pod_set in lost):
        kept = [pin for pin in pins if pin.node and pin not in vacancy.vacated]
        found = _on_topology(planner, state, workload, lost, vacancy, kept)
        if isinstance(found, PlacementPlan) or any(
            s.slices or s.group or s.required_topology for _, s in lost if s.wishes
        ):
            return found  # a purchase could not promise it
    needs = [planner.need(workload, one, _alone(pod_set, vacancy)) for one, pod_set in lost]
    return _anywhere(planner.capacity, state, workload.uid, needs, vacancy)


def _tied(pod_set: PodSet, vacancy: PodsToReplace) -> PodSet:
    tie = vacancy.bound_to.get(pod_set.name)
    return replace(pod_set, node_selector={**pod_set.node_selector, **tie}) if tie else pod_set


def _alone(pod_set: PodSet, vacancy: PodsToReplace) -> PodSet:
    """Only the lost pods; a tie to the domain of the others stands for the wish to share one."""
    tied = pod_set.name in vacancy.bound_to
    topology = "" if tied else pod_set.required_topology
    return replace(pod_set, count=vacancy.missing[pod_set.name], required_topology=topology)


def _on_topology(
    planner: GangPlanner,
    state: ClusterState,
    workload: Workload,
    lost: Sequence[tuple[PodSetAssignment, PodSet]],
    vacancy: PodsToReplace,
    kept: Iterable[Pin],
) -> PlacementPlan | Refusal:
    standing: dict[str, dict[str, int]] = {}
    for pin in kept:
        pods = standing.setdefault(pin.pod_set, {})
        pods[pin.node] = pods.get(pin.node, 0) + pin.count
    asked = [(pods, planner.flavors_of(workload, one), vacancy.missing[one.name]) for one, pods in lost]
    found = planner.topology(state).find_replacements(asked, standing)
    if isinstance(found, Refusal):
        return found
    requests = {pod_set.name: pod_set.requests for _, pod_set in lost}
    for seat in found:
        state.take(seat.slot, requests[seat.pod_set], seat.count)
    return PlacementPlan(tuple(found))


def _anywhere(
    capacity: BuyableCapacity, state: ClusterState, uid: str, needs: Sequence[Need], vacancy: PodsToReplace
) -> PlacementPlan | Refusal:
    refusal = Refusal(Reason.NO_OFFER, "nothing is asked for")
    for supply, tied in _attempts(capacity, needs, vacancy):
        mark = state.mark()
        found = place_gang(state, supply, uid, tied)
        if isinstance(found, PlacementPlan) and (found.ready or not vacancy.idle_only):
            return found
        if isinstance(found, Refusal):
            refusal = found
        else:
            state.undo(mark)
            refusal = Refusal(Reason.NO_OFFER, "no machine stands idle")
    return refusal


def _attempts(
    supply: BuyableCapacity, needs: Sequence[Need], vacancy: PodsToReplace
) -> Iterator[tuple[BuyableCapacity, Sequence[Need]]]:
    """What there is, for nothing; then purchases beside the others; then anywhere."""
    if vacancy.idle_only:
        yield replace(supply, may_buy=False, recuts=[]), needs
        return
    yield replace(supply, may_buy=False), needs
    if vacancy.zone:
        tie = {labels.ZONE: vacancy.zone}
        selects = [replace(it.pod_set, node_selector={**tie, **it.pod_set.node_selector}) for it in needs]
        yield supply, [replace(it, pod_set=pod_set) for it, pod_set in zip(needs, selects, strict=True)]
    yield supply, needs
