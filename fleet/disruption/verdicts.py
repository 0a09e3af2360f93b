"""What every disruption method says of one machine now: whether it goes, and what keeps it.

The methods themselves say who goes: they run on a yard as they do in a pass. What holds back a machine that they have
not taken is then looked for in the order in which they look, on the yard as each of them found it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fleet.actions import claim_subject
from fleet.disruption import frozen
from fleet.disruption.command import Command
from fleet.disruption.consolidation import consolidate
from fleet.disruption.drift import drift
from fleet.disruption.emptiness import emptiness
from fleet.disruption.ending import ending
from fleet.disruption.expiry import expiry
from fleet.disruption.involuntary import interruption, repair
from fleet.disruption.obstacles import consolidation_held, drift_held, emptiness_held, ending_held, expiry_held
from fleet.disruption.preference import prefer
from fleet.disruption.rebalance import rebalance
from fleet.disruption.reluctance import preference_held, rebalance_held
from fleet.disruption.verdict import Held, Obstacle, Outcome, Verdict, no_reason
from fleet.disruption.yard import Yard
from fleet.snapshot import Claim, ClaimState, Snapshot
from model.fleet import Fleet

_Method = Callable[[Yard], Sequence[Command]]
VOLUNTARY: Mapping[str, tuple[_Method, Callable[[Yard, Claim], Held]]] = {
    "block": (ending, ending_held),
    "emptiness": (emptiness, emptiness_held),
    "rebalance": (rebalance, rebalance_held),
    "drift": (drift, drift_held),
    "expiry": (expiry, expiry_held),
    "preference": (prefer, preference_held),
    "consolidation": (consolidate, consolidation_held),
}
"""Method -> how it takes machines, and how it explains one that it has not taken; in the order of a pass."""


def verdicts(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> tuple[Verdict, ...]:
    """One verdict a method: the voluntary ones in the order of a pass, then interruption and repair."""
    return (*_voluntary(fleet, snapshot, claim), interruption(claim), repair(fleet, snapshot, claim))


def _voluntary(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> list[Verdict]:
    yard = Yard.of(fleet, snapshot)
    barrier = _barrier(yard, claim)
    if barrier is not None:
        return [barrier.says(name) for name in VOLUNTARY]
    freeze = frozen(fleet, snapshot.now_s, "Disruption")
    found = list(_in_turn(yard, claim))
    return [_behind(freeze, verdict) for verdict in found] if freeze else found


def _in_turn(yard: Yard, claim: Claim) -> Iterator[Verdict]:
    holder = ""
    for name, (method, held) in VOLUNTARY.items():
        if claim.name in yard.gone:
            yield Held(Obstacle.TAKEN, f"{holder} has it in hand", concerns=False).says(name)
            continue
        before = replace(yard, gone=set(yard.gone), spent=dict(yard.spent), promised=list(yard.promised))
        holder = name
        taken = next((command for command in method(yard) if claim.name in _names(command)), None)
        before.outlook = yard.outlook  # what it has in mind now is what it says
        yield _goes(name, taken) if taken is not None else held(before, claim).says(name)


def _names(command: Command) -> set[str]:
    return {claim.name for claim in command.claims}


def _goes(name: str, command: Command) -> Verdict:
    bought = len(command.replacements)
    first = f"; {bought} machine{'s' if bought > 1 else ''} bought first" if bought else ""
    return Verdict(name, Outcome.GOES, Obstacle.NONE, f"{command.message}{first}")


def _behind(freeze: str, verdict: Verdict) -> Verdict:
    """Nothing voluntary happens in a freeze window; what would happen is still told."""
    if verdict.outcome is not Outcome.GOES and verdict.obstacle is not Obstacle.PROPOSED:
        return verdict
    words = f"freeze window {freeze} is open; {verdict.message}"
    return Verdict(verdict.method, Outcome.WAITS, Obstacle.FREEZE, words)


def _barrier(yard: Yard, claim: Claim) -> Held | None:
    """Why no method looks at a machine; None when they all do (`Yard.candidates`)."""
    candidates = {other.name for _, other in yard.candidates()}
    barriers: Sequence[tuple[bool, Callable[[], Held]]] = (
        (claim.deleting or claim.disruption is not None, partial(_leaving, claim)),
        (
            claim.state is not ClaimState.READY,
            partial(no_reason, Obstacle.NOT_READY, f"it is {claim.state}, not ready"),
        ),
        (
            claim.recut_at_s > claim.ready_at_s,
            partial(no_reason, Obstacle.RECUTTING, f"its GPUs are being cut to {claim.layout}"),
        ),
        (
            claim_subject(claim.name) in yard.snapshot.busy,
            partial(no_reason, Obstacle.IN_HAND, "an action on it is under way"),
        ),
        (
            claim.name not in candidates,
            partial(no_reason, Obstacle.AWAITS_MOVE, f"it waits for what {', '.join(claim.replaces)} holds to move in"),
        ),
    )
    return next((held() for holds, held in barriers if holds), None)


def _leaving(claim: Claim) -> Held:
    why = f"leaves already: {claim.disruption.reason}" if claim.disruption else "is being deleted"
    return no_reason(Obstacle.LEAVING, f"it {why}")
