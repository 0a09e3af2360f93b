"""Places pods that are each by themselves: all of them, or as many as there is a place for."""

from dataclasses import replace

from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
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


def of_pods(need: Need, count: int) -> Need:
    """Returns the need of so many of its pods."""
    return replace(need, pod_set=replace(need.pod_set, count=count))
