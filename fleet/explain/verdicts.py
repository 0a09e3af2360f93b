"""What every way of losing a machine says of one machine now: whether it goes, and what keeps it.

The methods themselves say who goes: they run on a context as they do in a pass. What holds back a machine that they
have not taken they are then asked for, on the context as each of them found it. Interruption and repair ask nobody:
`fleet.nodeclaims` carries them out, and has the rules that are told here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fleet.disruption import METHODS
from fleet.disruption.context import DisruptionContext, busy
from fleet.disruption.outcomes import Blocked, Command, DisruptionOutcome, DisruptionVerdict, Obstacle, no_reason
from fleet.fence import claims_set_aside
from fleet.nodeclaims.repair import (
    conditions_of,
    look_again_s,
    overdue,
    repair_policies,
    too_many,
    unwell,
    unwell_in_pool,
)
from fleet.reasons import Reason
from fleet.scheduling.prefilter import frozen
from fleet.snapshot import Claim, ClaimState, Snapshot
from model.fleet import Fleet
from model.kinds import Repair


def verdicts(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> tuple[DisruptionVerdict, ...]:
    """Returns one verdict a method: the voluntary ones in the order of a pass, then the others."""
    others = (say(fleet, snapshot, claim) for say in INVOLUNTARY.values())
    return (*_voluntary(fleet, snapshot, claim), *others)


# -- methods that wait for budgets and windows ------------------------------------------------------------------------


def _voluntary(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> list[DisruptionVerdict]:
    context = DisruptionContext.of(fleet, snapshot)
    barred = _barred(context, claim)
    if barred is not None:
        return [barred.says(method.name) for method in METHODS]
    freeze = frozen(fleet, snapshot.now_s, "Disruption")
    found = list(_in_turn(context, claim))
    return [_behind(freeze, verdict) for verdict in found] if freeze else found


def _in_turn(context: DisruptionContext, claim: Claim) -> Iterator[DisruptionVerdict]:
    holder = ""
    for method in METHODS:
        if claim.name in context.taken:
            yield no_reason(Obstacle.TAKEN, f"{holder} takes it").says(method.name)
            continue
        before = replace(context, taken=set(context.taken), spent=dict(context.spent), promised=list(context.promised))
        holder = method.name
        taken = next((command for command in method.propose(context) if _takes(command, claim)), None)
        before.outlook = context.outlook  # what it has in mind now is what it says
        yield _goes(holder, taken) if taken is not None else method.why_not(before, claim).says(holder)


def _takes(command: Command, claim: Claim) -> bool:
    return any(taken.name == claim.name for taken in command.claims)


def _goes(method: str, command: Command) -> DisruptionVerdict:
    bought = len(command.replacements)
    first = f"; {bought} machine{'s' if bought > 1 else ''} bought first" if bought else ""
    return DisruptionVerdict(method, DisruptionOutcome.GOES, Obstacle.NONE, f"{command.message}{first}")


def _behind(freeze: str, verdict: DisruptionVerdict) -> DisruptionVerdict:
    """Says what would happen while nothing voluntary does, as a window has it."""
    if verdict.outcome is not DisruptionOutcome.GOES and verdict.obstacle is not Obstacle.PROPOSED:
        return verdict
    words = f"{freeze}; {verdict.message}"
    return DisruptionVerdict(verdict.method, DisruptionOutcome.WAITS, Obstacle.FREEZE, words)


def _barred(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Tells why no method looks at a machine; None when they all do (`DisruptionContext.candidates`)."""
    snapshot = context.snapshot
    bars: Sequence[tuple[bool, Obstacle, str]] = (
        (claim.deleting or claim.disruption is not None, Obstacle.LEAVING, f"it {_leaving(claim)}"),
        (claim.state is not ClaimState.READY, Obstacle.NOT_READY, f"it is {claim.state}, not ready"),
        (claim.recut_at_s > claim.ready_at_s, Obstacle.RECUTTING, f"its GPUs are being cut to {claim.layout}"),
        (claim.name in busy(snapshot), Obstacle.IN_HAND, "an action on it is under way"),
        (
            claim.name in claims_set_aside(snapshot),
            Obstacle.SET_ASIDE,
            "a decision about it or its pool has failed lately",
        ),
        (bool(claim.replaces) and context.awaits_move(claim), Obstacle.AWAITS_MOVE, _awaits(claim)),
    )
    return next((no_reason(obstacle, words) for holds, obstacle, words in bars if holds), None)


def _awaits(claim: Claim) -> str:
    return f"it replaces {', '.join(claim.replaces)}, and the gangs have not moved in yet"


def _leaving(claim: Claim) -> str:
    return f"leaves already: {claim.disruption.reason}" if claim.disruption else "is being deleted"


# -- what asks nobody: a notice of the cloud, and a node that stays unwell --------------------------------------------


def _interruption(_fleet: Fleet, _snapshot: Snapshot, claim: Claim) -> DisruptionVerdict:
    """Tells whether the cloud has announced the machine's end."""
    leaving = claim.disruption
    if leaving is not None and leaving.reason == Reason.INTERRUPTED:
        outcome, words = DisruptionOutcome.GOES, leaving.message
        return DisruptionVerdict("interruption", outcome, Obstacle.NONE, words, leaving.deadline_s)
    return no_reason(Obstacle.NOT_DUE, "the cloud has announced nothing").says("interruption")


def _repair(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> DisruptionVerdict:
    """Tells whether the node behind the machine has been unwell for too long (`fleet.nodeclaims.repair`)."""
    leaving = claim.disruption
    if leaving is not None and leaving.reason == Reason.NODE_FAILURE:
        return DisruptionVerdict("repair", DisruptionOutcome.GOES, Obstacle.NONE, leaving.message)
    found = _unwell(repair_policies(fleet, claim.node_pool), snapshot, claim)
    if isinstance(found, Blocked):
        return found.says("repair")
    return DisruptionVerdict("repair", DisruptionOutcome.GOES, Obstacle.NONE, found)


def _unwell(policies: Sequence[Repair], snapshot: Snapshot, claim: Claim) -> str | Blocked:
    """Returns what is wrong with the node for too long; or why it is not repaired."""
    node = snapshot.nodes.get(claim.node)
    if node is None:
        return no_reason(Obstacle.NOT_READY, "it has no node")
    conditions = conditions_of(node)
    if not unwell(policies, conditions):
        return no_reason(Obstacle.NOT_DUE, "its node is well")
    found = overdue(policies, conditions, snapshot.now_s)
    if found is None:
        until_s = snapshot.now_s + look_again_s(policies, conditions, snapshot.now_s)
        return Blocked(Obstacle.QUIET_TIME, "its node is unwell", until_s)
    sick, members = unwell_in_pool(snapshot, claim.node_pool, policies)
    if too_many(sick, members):
        words = f"{sick} of {members} nodes of {claim.node_pool} are unwell: the fault is likely somewhere else"
        return Blocked(Obstacle.POOL_UNWELL, words)
    return f"condition {found.condition} of its node was {conditions[found.condition].status} for too long"


INVOLUNTARY: dict[str, Callable[[Fleet, Snapshot, Claim], DisruptionVerdict]] = {
    "interruption": _interruption,
    "repair": _repair,
}
"""What neither budgets nor freeze windows hold back."""
