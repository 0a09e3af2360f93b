"""Single-node consolidation: one machine less, or one cheaper machine, when it pays for the work it interrupts.

Which machine is tried when; whether it may go is `weigh`'s to say.
"""

from collections.abc import Sequence
from typing import TypeVar

from fleet.capacity.disrupt.command import Command
from fleet.capacity.disrupt.prospects import Prospects
from fleet.capacity.disrupt.rounds import CONSOLIDATES
from fleet.capacity.disrupt.savings import savings_ratio
from fleet.capacity.disrupt.stay import stays_until_s
from fleet.capacity.disrupt.weigh import PAYBACK_S, command, disturbed, weigh
from fleet.capacity.disrupt.yard import Yard
from fleet.cost.lost import lost_work_usd
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Gang
from model.kinds import NodePool

WHAT_IFS = 16
"""Machines tried in one pass: a bound in steps, so that the same input gives the same answer."""
ROUND_S = 10.0
"""Where there are more of them, the next ones are tried after this long."""
EPSILON_USD_H = 1e-6
"""Rounding must not rule out what the exact sum allows."""


T = TypeVar("T")


def consolidate(yard: Yard) -> list[Command]:
    """At most one command a pass: the world after it is looked at anew."""
    finished = _finish(yard)
    if finished:
        return finished
    for claim in turn_of(_worth_trying(yard), yard.snapshot.now_s):
        found = weigh(yard, [claim])
        given = command(yard, found) if found is not None else None
        if given is not None:
            return [given]
    return []


def _finish(yard: Yard) -> list[Command]:
    """A cheaper machine that was bought for this is ready: the old one may go."""
    if not yard.successors:
        return []
    for _, claim in yard.candidates():
        coming = [other for other in yard.successors.get(claim.name, ()) if not other.disruption]
        if coming and all(other.state is ClaimState.READY for other in coming) and yard.unit(claim) is not None:
            saving = claim.price_usd_h - sum(other.price_usd_h for other in coming)
            yard.gone.add(claim.name)
            return [Command((claim,), Reason.UNDERUTILIZED, f"a cheaper machine is ready, saving {saving:.2f} USD/h")]
    return []


def _worth_trying(yard: Yard) -> list[Claim]:
    """Machines whose gangs may move, with a saving that could pay for it and room that could be there.

    Those that bring most for what they disturb come first. The tests come in order of cost: what most fail is asked
    first.
    """
    pools = {name for name, pool in yard.fleet.node_pools.items() if _consolidates(pool)}
    prospects: Prospects | None = None
    lost: dict[str, float] = {}
    found = []
    for pool, claim in yard.volunteers():
        gangs = yard.gangs_on(claim)
        if not gangs or pool is None or pool.name not in pools or claim.name in yard.successors:
            continue
        quiet_since_s = max(gang.admitted_at_s for gang in gangs)
        free_s = max(quiet_since_s + pool.spec.disruption.consolidate_after, stays_until_s(pool, claim))
        if yard.snapshot.now_s < free_s:
            continue
        affordable_usd_h = claim.price_usd_h - _lost(yard, gangs, lost) * 3600 / PAYBACK_S
        if affordable_usd_h <= -EPSILON_USD_H:
            continue
        prospects = prospects or Prospects.of(yard.fleet, yard.snapshot)
        if not prospects.hopeless(claim, gangs, affordable_usd_h + EPSILON_USD_H) and yard.unit(claim) is not None:
            found.append(claim)
    ratios = {claim.name: savings_ratio(claim.price_usd_h, disturbed(yard.gangs_on(claim))) for claim in found}
    return sorted(found, key=lambda claim: (-ratios[claim.name], claim.name))


def _consolidates(pool: NodePool) -> bool:
    return pool.spec.disruption.consolidation_policy in CONSOLIDATES and pool.spec.replicas is None


def turn_of(ranked: Sequence[T], now_s: float) -> Sequence[T]:
    """What to try now: all, or where that is too much a window that moves with time."""
    if len(ranked) <= WHAT_IFS:
        return ranked
    start = int(now_s // ROUND_S) * WHAT_IFS % len(ranked)
    return [*ranked[start:], *ranked[:start]][:WHAT_IFS]


def _lost(yard: Yard, gangs: Sequence[Gang], known: dict[str, float]) -> float:
    for gang in gangs:
        if gang.uid not in known:
            known[gang.uid] = lost_work_usd(gang, yard.snapshot)
    return sum(known[gang.uid] for gang in gangs)
