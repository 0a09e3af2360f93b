"""Single-node consolidation: one machine less, or one cheaper machine, when it pays for the work it interrupts.

Karpenter's rule (delete if all fits elsewhere, replace by at most one cheaper machine) on whole gangs, with one more
condition: the saving over `PAYBACK_S` must exceed the value of the work lost since the last checkpoint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.capacity.disrupt.balanced import Part, Totals, agreed
from fleet.capacity.disrupt.cheaper import SPOT_TYPES
from fleet.capacity.disrupt.command import Command
from fleet.capacity.disrupt.prospects import Prospects
from fleet.capacity.disrupt.replace import Unit, move
from fleet.capacity.disrupt.rounds import CONSOLIDATES
from fleet.capacity.disrupt.savings import disruption_cost, eviction_cost, savings_ratio
from fleet.capacity.disrupt.yard import Yard
from fleet.capacity.intent import write_claims
from fleet.capacity.provision import Plan
from fleet.cost.lost import lost_work_usd
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, ClaimState, Gang
from model.kinds import NodePool

PAYBACK_S = 4 * 3600.0
"""The saving of this long must pay for the interruption."""
WHAT_IFS = 16
"""Machines tried in one pass: a bound in steps, so that the same input gives the same answer."""
ROUND_S = 10.0
"""Where there are more of them, the next ones are tried after this long."""
EPSILON_USD_H = 1e-6
"""Rounding must not rule out what the exact sum allows."""


@dataclass(frozen=True, slots=True)
class _Move:
    unit: Unit
    plans: dict[str, Plan]
    saving_usd_h: float


def consolidate(yard: Yard) -> list[Command]:
    """At most one command a pass: the world after it is looked at anew."""
    finished = _finish(yard)
    if finished:
        return finished
    for claim in _turn_of(_worth_trying(yard), yard.snapshot.now_s):
        found = _best(yard, claim)
        if found is None or not _agreed(yard, claim, found) or not yard.may_take([claim], Reason.UNDERUTILIZED):
            continue
        lots = [lot for plan in found.plans.values() for lot in plan.lots]
        message = f"its work fits elsewhere, saving {found.saving_usd_h:.2f} USD/h"
        if not lots:
            return [Command((claim,), Reason.UNDERUTILIZED, message)]
        uid, plan = next((uid, plan) for uid, plan in sorted(found.plans.items()) if plan.lots)
        bought = write_claims(plan, uid, yard.snapshot.now_s, gang=uid, replaces=(claim.name,)).claims
        return [Command((claim,), Reason.UNDERUTILIZED, message, bought)]
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
        if yard.snapshot.now_s - quiet_since_s < pool.spec.disruption.consolidate_after:
            continue
        affordable_usd_h = claim.price_usd_h - _lost(yard, gangs, lost) * 3600 / PAYBACK_S
        if affordable_usd_h <= -EPSILON_USD_H:
            continue
        prospects = prospects or Prospects.of(yard.fleet, yard.snapshot)
        if not prospects.hopeless(claim, gangs, affordable_usd_h + EPSILON_USD_H) and yard.unit(claim) is not None:
            found.append(claim)
    ratios = {claim.name: savings_ratio(claim.price_usd_h, _disturbed(yard.gangs_on(claim))) for claim in found}
    return sorted(found, key=lambda claim: (-ratios[claim.name], claim.name))


def _disturbed(gangs: Iterable[Gang], only_on: str = "") -> float:
    """What it costs to move gangs off a machine (`savings`): whole, or counting their pods `only_on` a claim.

    A gang moves whole: wherever its pods are, all of them stop.
    """
    return disruption_cost(
        eviction_cost(priority=gang.effective_priority) * pin.count
        for gang in gangs
        for pin in gang.pins
        if not only_on or pin.claim == only_on
    )


def _agreed(yard: Yard, claim: Claim, found: "_Move") -> bool:
    """Whether the saving is in proportion to the disruption, where the pool asks for that."""
    threshold = yard.fleet.node_pools[claim.node_pool].spec.disruption.threshold
    if threshold is None:
        return True
    part = Part(claim.node_pool, claim.price_usd_h, _disturbed(found.unit.gangs), threshold)
    members = [one for one in yard.members[claim.node_pool] if one.ready_at_s]
    cost = sum(one.price_usd_h for one in members)
    disruption = sum(_disturbed(yard.gangs_on(one), one.name) for one in members)
    return agreed(found.saving_usd_h, [part], {claim.node_pool: Totals(cost, disruption)}).approved


def _consolidates(pool: NodePool) -> bool:
    return pool.spec.disruption.consolidation_policy in CONSOLIDATES and pool.spec.replicas is None


def _turn_of(ranked: list[Claim], now_s: float) -> list[Claim]:
    """The machines to try now: all, or where they are too many a window that moves with time."""
    if len(ranked) <= WHAT_IFS:
        return ranked
    start = int(now_s // ROUND_S) * WHAT_IFS % len(ranked)
    return (ranked[start:] + ranked[:start])[:WHAT_IFS]


def _best(yard: Yard, claim: Claim) -> _Move | None:
    unit = Unit((claim,), tuple(yard.gangs_on(claim)))
    plans = move(yard, unit)
    if isinstance(plans, Refusal):
        return None
    lots = [lot for plan in plans.values() for lot in plan.lots]
    if sum(lot.count for lot in lots) > 1:
        return None
    if claim.capacity_pool.capacity_type == "spot" and any(lot.shape.offer.capacity_type == "spot" for lot in lots):
        spared = not yard.fleet.node_pools[claim.node_pool].spec.disruption.spot_to_spot
        if spared or Prospects.of(yard.fleet, yard.snapshot).cheaper_spot_types(claim, unit.gangs) < SPOT_TYPES:
            return None  # spot for cheaper spot only trades interruption risk where there is little to choose from
    saving = claim.price_usd_h - sum(plan.cost_usd_h for plan in plans.values())
    if saving <= 0 or saving * PAYBACK_S / 3600 <= _lost(yard, unit.gangs, {}):
        return None
    return _Move(unit, plans, saving)


def _lost(yard: Yard, gangs: Sequence[Gang], known: dict[str, float]) -> float:
    for gang in gangs:
        if gang.uid not in known:
            known[gang.uid] = lost_work_usd(gang, yard.snapshot)
    return sum(known[gang.uid] for gang in gangs)
