"""Places pods that are each by themselves: all of them, or as many as have a place."""

from dataclasses import replace

from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState, NodeAssignment, planned_slot
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan, PlannedNodeClaims
from fleet.reasons import Refusal


def place_most(
    state: ClusterState, capacity: BuyableCapacity, uid: str, need: Need
) -> tuple[PlacementPlan | Refusal, int]:
    """Places all pods of a need that do not depend on each other, or as many of them as bisection finds.

    Returns the plan, which is taken on the state, and of how many; a refusal and 0 where there is no place for any.
    """
    count = need.pod_set.count
    found = place_gang(state, capacity, uid, [need])
    if isinstance(found, PlacementPlan):
        return found, count
    able, unable, refusal = 0, count, found
    while unable - able > 1:
        half = (able + unable) // 2
        mark = state.mark()
        found = place_gang(state, capacity, uid, [of_pods(need, half)])
        if isinstance(found, Refusal):
            unable, refusal = half, found
        else:
            state.undo(mark)
            capacity.give_back(found.purchases)
            able = half
    return (place_gang(state, capacity, uid, [of_pods(need, able)]), able) if able else (refusal, 0)


def place_first(
    state: ClusterState, capacity: BuyableCapacity, uid: str, need: Need, others: int
) -> PlacementPlan | Refusal:
    """Places the pods of a need where as many as possible of `others` like them would find a place beside them.

    Only what these pods stand on is taken and bought.
    """
    mark = state.mark()
    found, count = place_most(state, capacity, uid, of_pods(need, need.pod_set.count + others))
    if isinstance(found, PlacementPlan):
        state.undo(mark)
        capacity.give_back(found.purchases)
    if isinstance(found, Refusal) or found.recuts or count < need.pod_set.count:
        return place_gang(state, capacity, uid, [need])
    return _taken(state, capacity, _first_of(found, need, uid), need)


def _taken(state: ClusterState, capacity: BuyableCapacity, plan: PlacementPlan, need: Need) -> PlacementPlan:
    """Takes a plan for pods of one need, and returns it."""
    for it in plan.assignments:
        if it.slot.name not in state.slots:
            state.add(it.slot)
        state.place(it.slot, need.pod_set, it.count)
    capacity.spend(plan.purchases)
    return plan


def _first_of(plan: PlacementPlan, need: Need, uid: str) -> PlacementPlan:
    """Returns the part of a plan for many equal pods that is for the first of them, with what is bought for these."""
    left, assignments, purchases = need.pod_set.count, list[NodeAssignment](), list[PlannedNodeClaims]()
    for it in plan.assignments:
        count, slot = min(left, it.count), it.slot
        left -= count
        if count and slot.name.startswith("new/"):
            lot = plan.purchases[int(slot.name.split("/")[1])]
            slot = planned_slot(lot.offering, f"new/{len(purchases)}/0", uid, room=lot.room)
            purchases.append(replace(lot, count=1))
        if count:
            assignments.append(NodeAssignment(it.pod_set, slot, count))
    return PlacementPlan(tuple(assignments), purchases=tuple(purchases))


def of_pods(need: Need, count: int) -> Need:
    """Returns the need of so many of its pods."""
    return replace(need, pod_set=replace(need.pod_set, count=count))
