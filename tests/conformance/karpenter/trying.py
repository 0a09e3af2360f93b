"""What the agent launches for one pod, offer after offer, while the cloud is short of each that it tries."""

from collections.abc import Iterator

from fleet.actions import OpenClaims
from fleet.nodeclaims.launch_outcome import settle
from fleet.plan.simulated_run import simulate
from fleet.snapshot import CapacityPool, Claim, LaunchOutcome
from model.fleet import Fleet
from providers.aws.fleet_request import failure_of
from tests.conformance.karpenter.manifests import Obj
from tests.conformance.karpenter.worlds import AgentWorld

_NO_CAPACITY = "InsufficientInstanceCapacity"
_SOON_S = 30.0


def tried(fleet: Fleet, world: AgentWorld, pod: Obj) -> Iterator[CapacityPool]:
    """The offers in the order in which they are launched, until none is left; the world remembers shortages."""
    while claim := _bought(fleet, world, pod):
        outcome = LaunchOutcome((), (failure_of(_NO_CAPACITY, ""),))
        world.shortages = {**world.shortages, **settle(outcome, [claim], world.snapshot).shortages}
        yield claim.capacity_pool


def _bought(fleet: Fleet, world: AgentWorld, pod: Obj) -> Claim | None:
    """The machine that is bought for the pod; None if there is none to be had."""
    done = simulate(fleet, world.seen([pod]), horizon_s=_SOON_S)
    if done.failed:
        raise done.failed[0].error
    return next((it for each in done.actions if isinstance(each.action, OpenClaims) for it in each.action.claims), None)
