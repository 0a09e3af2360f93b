"""The deciders in the order of a turn: whoever runs them, the agent on the world or a plan on its model, runs these."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from fleet import clock_skew, disruption, hard_fence
from fleet.disruption import rollout
from fleet.fence import Decided
from fleet.gangs import lifecycle as gang_lifecycle
from fleet.nodeclaims import adoption, fixed, interruption
from fleet.nodeclaims import lifecycle as claim_lifecycle
from fleet.scheduling import cycle
from fleet.snapshot import Snapshot
from model.fleet import Fleet

Decider = Callable[[Fleet, Snapshot], Iterable[Decided]]
DECIDERS: Mapping[str, Decider] = MappingProxyType(
    {
        "clock-skew": clock_skew.decide,
        "gangs": gang_lifecycle.decide,
        "nodeclaims": claim_lifecycle.decide,
        "adoption": adoption.decide,
        "capacity-blocks": interruption.decide,
        "mig-layouts": rollout.decide,
        "hard-fences": hard_fence.decide,
        "scheduling": cycle.decide,
        "fixed-pools": fixed.decide,
        "disruption": disruption.decide,
    }
)
"""By name, in the order in which they run: each on what the ones before will have made of the world."""
