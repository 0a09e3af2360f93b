"""Kubernetes events for what people wait for: admitted, evicted, bought, refused; one for each change of state."""

from collections.abc import Callable

from agent.mirror import Mirror
from agent.watch import Watcher
from fleet.actions import Action, Announce, SaveClaim, SaveGang
from fleet.reasons import Reason
from fleet.snapshot import Claim, Gang, GangState, JobRef

WARNINGS = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.MACHINE_LOST,
        Reason.NODE_FAILURE,
        Reason.REPLACING,
        Reason.MAX_RUN_TIME,
        Reason.REQUEUING_LIMIT,
        Reason.CHECK_REJECTED,
        Reason.INTERRUPTED,
        Reason.BLOCK_ENDS,
        Reason.LAUNCH_FAILED,
        Reason.REGISTRATION_TIMEOUT,
        Reason.INITIALIZATION_TIMEOUT,
        Reason.EXCEEDS_MAX_QUOTA,
        Reason.QUEUE_NOT_FOUND,
        Reason.NAMESPACE_NOT_ALLOWED,
    }
)


class Announcer(Watcher):
    """Turns writes of gangs and claims into events on their jobs and claims."""

    def __init__(self, say: Callable[[Announce], None]) -> None:
        self._say = say

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """Announce a change of state or reason before it is written."""
        if isinstance(action, SaveGang):
            before = mirror.gangs.current.get(f"{action.gang.namespace}/{action.gang.workload}")
            if before is None or (before.state, before.reason) != (action.gang.state, action.gang.reason):
                self._say(about_gang(action.gang))
        elif isinstance(action, SaveClaim):
            held = mirror.claims.current.get(action.claim.name)
            if held is not None and held.disruption != action.claim.disruption and action.claim.disruption:
                self._say(about_claim(action.claim))


def about_gang(gang: Gang) -> Announce:
    """The event on the job whose gang changed."""
    reason = "Evicted" if gang.state is GangState.EVICTING else str(gang.reason)
    message = f"{gang.state}: {gang.message}"
    return Announce(gang.job, reason, message, "Warning" if gang.reason in WARNINGS else "Normal")


def about_claim(claim: Claim) -> Announce:
    """The event on a machine that leaves."""
    disruption = claim.disruption
    reason = disruption.reason if disruption else str(claim.state)
    ref = JobRef("muster.dev/v1alpha1", "NodeClaim", "", claim.name, claim.uid)
    message = disruption.message if disruption else ""
    return Announce(ref, reason, message, "Warning" if reason in WARNINGS else "Normal")
