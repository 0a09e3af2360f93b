"""Pending commands: consolidation looks twice, `VALIDATE_AFTER_S` apart, before it moves anybody.

What it proposes waits in the agent's memory. It is withdrawn as soon as one of its machines is no longer a candidate,
or a gang has come to one or gone from it. When it has waited, it is evaluated once more, in the world of that moment:
only if the same purchase, or a cheaper one, still will do, it becomes a command. The wait is Karpenter's
(`validation.go`, consolidationTTL).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleet.actions import Consider, Withdrawal, claim_subject
from fleet.disruption.context import DisruptionContext
from fleet.disruption.evaluation import ConsolidationMove, command, evaluate, granted, sentence
from fleet.disruption.outcomes import Blocked, Command, Obstacle
from fleet.fence import concerning
from fleet.offerings.offerings import Offering, offerings_now
from fleet.reasons import Reason
from fleet.snapshot import Claim, Gang, Proposal, Snapshot
from model.fleet import Fleet

VALIDATE_AFTER_S: Final = 15.0
"""How long a proposal waits."""
EPSILON_USD_H: Final = 1e-6
"""Rounding is no higher price."""
_BUDGET: Final = "the budgets do not let them go any more"

Settled = Mapping[str, tuple[Claim, Sequence[Gang]]]
"""The machines that consolidation may look at in this pass, and the gangs on each."""


def keep_in_mind(context: DisruptionContext, found: ConsolidationMove) -> bool:
    """Keeps a move in mind, where budgets allow it; the context counts with it from then on."""
    if not granted(context, found):
        return False
    proposal = Proposal(
        found.group.names,
        tuple(gang.uid for gang in found.group.gangs),
        tuple(sorted(purchase.offering.key for purchase in found.purchases for _ in range(purchase.count))),
        found.cost_usd_h,
        found.saving_usd_h,
        sentence(found),
        context.snapshot.now_s,
        found.shared,
    )
    context.outlook = replace(context.outlook, proposals=(*context.outlook.proposals, proposal))
    return True


def validated(context: DisruptionContext, candidates: Settled) -> list[Command]:
    """Returns commands for proposals that have waited and still hold; others are withdrawn, or wait on."""
    proposals = context.outlook.proposals
    going = {name for proposal in proposals for name in proposal.claims}
    given: list[Command] = []
    waiting: list[Proposal] = []
    for proposal in proposals:
        with concerning(claim_subject(proposal.claims[0])):
            outcome = _withdrawn(proposal, candidates) or _in_time(context, proposal, candidates, going)
        if isinstance(outcome, Command):
            given.append(outcome)
        elif isinstance(outcome, Proposal):
            waiting.append(outcome)
        else:
            context.withdrawn.append(outcome)
    if len(waiting) < len(proposals):
        context.outlook = replace(context.outlook, proposals=tuple(waiting))
    return given


def _withdrawn(proposal: Proposal, candidates: Settled) -> Withdrawal | None:
    """Returns why a proposal need not even be looked at; None where it may still hold."""
    if missing := sorted(set(proposal.claims) - candidates.keys()):
        return Withdrawal(proposal, f"{missing[0]} is no candidate any more")
    now_there = {gang.uid for name in proposal.claims for gang in candidates[name][1]}
    if now_there != set(proposal.gangs):
        return Withdrawal(proposal, "gangs have come or gone")
    return None


def _in_time(
    context: DisruptionContext, proposal: Proposal, candidates: Settled, going: Collection[str]
) -> Command | Proposal | Withdrawal:
    claims = [candidates[name][0] for name in proposal.claims]
    if context.snapshot.now_s < due_s(proposal):
        return proposal if context.may_take(claims, Reason.UNDERUTILIZED) else Withdrawal(proposal, _BUDGET)
    found = _evaluated_again(context, proposal, claims, going)
    if isinstance(found, Blocked):
        return Withdrawal(proposal, found.message)
    if found.cost_usd_h > proposal.cost_usd_h + EPSILON_USD_H:
        words = f"the replacement costs {found.cost_usd_h:.2f} USD/h by now, not {proposal.cost_usd_h:.2f}"
        return Withdrawal(proposal, words)
    return command(context, found) if granted(context, found) else Withdrawal(proposal, _BUDGET)


def _evaluated_again(
    context: DisruptionContext, proposal: Proposal, claims: Sequence[Claim], going: Collection[str]
) -> ConsolidationMove | Blocked:
    """Evaluates a proposal as it was evaluated at first."""
    if not proposal.chosen:
        return evaluate(context, claims, avoid=going)
    bought = to_buy(context.fleet, context.snapshot, proposal)
    if bought is None:
        return Blocked(Obstacle.NO_PLACE, "what was to be bought for it is not sold any more")
    return evaluate(context, claims, bought=bought, avoid=going)


def to_buy(fleet: Fleet, snapshot: Snapshot, proposal: Proposal) -> list[Offering] | None:
    """Returns what is to be bought; None where some of it is not known any more."""
    offerings, pools = offerings_now(fleet, snapshot), fleet.node_pools
    wanted = {key[0]: pools[key[0]] for key in proposal.bought if key[0] in pools}
    known = {offering.key: offering for pool in wanted.values() for offering in offerings.of(pool)}
    return [known[key] for key in proposal.bought] if all(key in known for key in proposal.bought) else None


def due_s(proposal: Proposal) -> float:
    """Returns when a proposal is looked at again (epoch seconds)."""
    return proposal.since_s + VALIDATE_AFTER_S


def remembered(context: DisruptionContext) -> Iterator[Consider]:
    """Yields what is to be remembered of a pass, where that is news."""
    if context.outlook is not context.snapshot.outlook or context.withdrawn:
        yield Consider(context.outlook, tuple(context.withdrawn))


def withdraw_all(context: DisruptionContext, why: str) -> None:
    """Withdraws all proposals."""
    context.withdrawn += [Withdrawal(proposal, why) for proposal in context.outlook.proposals]
    if context.outlook.proposals:
        context.outlook = replace(context.outlook, proposals=())


def proposed(proposal: Proposal) -> Blocked:
    """Tells what a proposal means for its machines."""
    words = f"proposed: {told(proposal)}; it goes when that still holds then"
    return Blocked(Obstacle.PROPOSED, words, due_s(proposal))


def told(proposal: Proposal) -> str:
    """Says what a proposal comes to."""
    count = len(proposal.bought)
    return f"{proposal.message}; {count} machine{'s' if count > 1 else ''} bought first" if count else proposal.message
