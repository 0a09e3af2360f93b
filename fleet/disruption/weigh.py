"""Whether machines may go for what it saves: one of them or several, with the gangs on them moved whole.

Karpenter's conditions (nothing, or something cheaper, comes in their place; spot for spot only where there is much to
choose from; a Balanced pool agrees) and one more: the saving over `PAYBACK_S` must exceed the value of the work lost
since the last checkpoints. Whoever searches for machines to give back asks here, whatever set was found.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from fleet.cost.lost import PAYBACK_S, lost_work_usd
from fleet.disruption.balanced import Part, Totals, agreed
from fleet.disruption.command import Command
from fleet.disruption.prospects import Prospects
from fleet.disruption.replace import Unit, claims_of, move
from fleet.disruption.savings import SPOT_TYPES, disruption_cost, eviction_cost
from fleet.disruption.verdict import Held, Obstacle, no_reason
from fleet.disruption.yard import Yard
from fleet.offerings.offerings import Offering
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang, Snapshot
from fleet.snapshot.memo import remembered


@dataclass(frozen=True, slots=True)
class Move:
    """Machines that may go, where their gangs find room then, and what that saves."""

    unit: Unit
    plans: Mapping[str, PlacementPlan]
    """Gang (uid) -> its places, with what has to be bought for it."""
    saving_usd_h: float
    shared: bool = False
    """Whether what is bought is for all of the gangs; else each plan's lots are its gang's."""

    @property
    def cost_usd_h(self) -> float:
        """What is bought costs."""
        return sum(plan.cost_usd_h for _, plan in sorted(self.plans.items()))

    @property
    def lots(self) -> Sequence[PlannedNodeClaims]:
        """Machines to buy first."""
        return [lot for _, plan in sorted(self.plans.items()) for lot in plan.purchases]


def weigh(
    yard: Yard,
    claims: Iterable[Claim],
    *,
    most_bought: int = 1,
    bought: Sequence[Offering] | None = None,
    avoid: Collection[str] = (),
) -> Move | None:
    """What comes of taking these machines away together, None when it is not worth it or somebody may not move.

    At most `most_bought` machines come in their place, or none but those `bought`; machines to `avoid` are no place to
    move to. Budgets are not asked, see `granted`.
    """
    found = weighed(yard, claims, most_bought=most_bought, bought=bought, avoid=avoid)
    return found if isinstance(found, Move) else None


def weighed(
    yard: Yard,
    claims: Iterable[Claim],
    *,
    most_bought: int = 1,
    bought: Sequence[Offering] | None = None,
    avoid: Collection[str] = (),
) -> Move | Held:
    """As `weigh`, and where nothing comes of it, why."""
    going = tuple(sorted(claims, key=lambda claim: claim.name))
    if any(claim.node_pool not in yard.fleet.node_pools or not _may_go(yard, claim) for claim in going):
        return Held(Obstacle.GANG, "somebody on it may not move")
    if (held := yard.pod_budget(going, Reason.UNDERUTILIZED)) is not None:
        return held
    gangs = {gang.uid: gang for claim in going for gang in yard.gangs_on(claim)}
    unit = Unit(going, tuple(gangs[uid] for uid in sorted(gangs)))
    plans = move(yard, unit, avoid=avoid, bought=bought)
    if isinstance(plans, Refusal):
        return Held(Obstacle.NO_PLACE, f"no place without it: {plans.message}")
    saving_usd_h = sum(claim.price_usd_h for claim in going) - sum(plan.cost_usd_h for plan in plans.values())
    found = Move(unit, plans, saving_usd_h, shared=bought is not None)
    return _declined(yard, found, most_bought if bought is None else len(bought)) or found


def _declined(yard: Yard, found: Move, most_bought: int) -> Held | None:
    """Why a move that is possible is not made; None when it is."""
    if sum(lot.count for lot in found.lots) > most_bought:
        return no_reason(Obstacle.NO_SAVING, f"it would take more than {most_bought} in its place")
    if _trades_spot(yard, found):
        return no_reason(Obstacle.NO_SAVING, "spot for cheaper spot only trades one risk of interruption for another")
    if _buys_its_own(found) or found.saving_usd_h <= 0:
        return no_reason(Obstacle.NO_SAVING, "what would hold its work instead costs as much or more")
    paid_usd, lost = found.saving_usd_h * PAYBACK_S / 3600, lost_usd(found.unit.gangs, yard.snapshot)
    if paid_usd <= lost:
        saving = f"it would save {found.saving_usd_h:.2f} USD/h, {paid_usd:.2f} USD in {PAYBACK_S / 3600:.0f} h"
        return Held(Obstacle.PAYBACK, f"{saving}, and lose work worth {lost:.2f} USD")
    if not _agreed(yard, found):
        words = f"it would save {found.saving_usd_h:.2f} USD/h, too little for what it disturbs"
        return Held(Obstacle.BALANCE, f"{words} (Balanced)")
    return None


def _may_go(yard: Yard, claim: Claim) -> bool:
    return claim.name not in yard.hosts and not yard.spared(claim) and yard.unit(claim) is not None


def granted(yard: Yard, found: Move) -> bool:
    """Take a move from the budgets, and its places; False, and nothing is taken, where the budgets do not allow it."""
    if not yard.may_take(found.unit.claims, Reason.UNDERUTILIZED):
        return False
    yard.promise(found.unit.gangs, found.plans)
    return True


def command(yard: Yard, found: Move) -> Command:
    """The command to carry out a move that was granted."""
    bought = claims_of(found.plans, found.unit, yard.snapshot.now_s, shared=found.shared) if found.lots else ()
    return Command(found.unit.claims, Reason.UNDERUTILIZED, sentence(found), bought)


def sentence(found: Move) -> str:
    """What a move is for."""
    one = len(found.unit.claims) == 1
    what = "its work fits elsewhere" if one else f"the work of {len(found.unit.claims)} machines fits elsewhere"
    return f"{what}, saving {found.saving_usd_h:.2f} USD/h"


def disturbed(gangs: Iterable[Gang], only_on: str = "") -> float:
    """What it costs to move gangs off a machine (`savings`): whole, or counting their pods `only_on` a claim.

    A gang moves whole: wherever its pods are, all of them stop.
    """
    return disruption_cost(
        eviction_cost(priority=gang.effective_priority) * pin.count
        for gang in gangs
        for pin in gang.pins
        if not only_on or pin.claim == only_on
    )


def lost_usd(gangs: Iterable[Gang], snapshot: Snapshot) -> float:
    """The work an interruption of all these gangs would lose."""
    return sum(lost_work_usd(gang, snapshot) for gang in gangs)


def _trades_spot(yard: Yard, found: Move) -> bool:
    """Whether spot would give way to spot where that only trades one risk of interruption for another."""
    going = found.unit.claims
    if any(claim.capacity_pool.capacity_type != "spot" for claim in going):
        return False
    if all(lot.offering.offer.capacity_type != "spot" for lot in found.lots):
        return False
    if not all(yard.fleet.node_pools[claim.node_pool].spec.disruption.spot_to_spot for claim in going):
        return True
    prospects = Prospects.of(yard.fleet, yard.snapshot)
    return len(going) == 1 and prospects.cheaper_spot_types(going[0], found.unit.gangs) < SPOT_TYPES


def _buys_its_own(found: Move) -> bool:
    """Whether what is bought is what goes, and no cheaper: keeping that machine is the smaller change."""
    prices: dict[str, float] = {}
    for claim in found.unit.claims:
        kind = claim.capacity_pool.instance_type
        prices[kind] = min(claim.price_usd_h, prices.get(kind, inf))
    offers = [lot.offering.offer for lot in found.lots]
    return any(offer.price_usd_h >= prices.get(offer.instance_type.name, inf) for offer in offers)


def _agreed(yard: Yard, found: Move) -> bool:
    """Whether the saving is in proportion to the disruption, for every pool that asks for that."""
    by_pool: dict[str, list[Claim]] = {}
    for claim in found.unit.claims:
        by_pool.setdefault(claim.node_pool, []).append(claim)
    parts, totals = [], {}
    for name, mine in by_pool.items():
        threshold = yard.fleet.node_pools[name].spec.disruption.threshold
        gangs = {gang.uid: gang for claim in mine for gang in yard.gangs_on(claim)}
        disruption = disturbed(gangs.values()) + len(mine) - 1
        parts.append(Part(name, sum(claim.price_usd_h for claim in mine), disruption, threshold))
        if threshold is not None:
            totals[name] = _totals(yard.members[name], yard.held)
    return agreed(found.saving_usd_h, parts, totals).approved


@remembered()
def _totals(members: Sequence[Claim], held: Mapping[str, Sequence[Gang]]) -> Totals:
    """Of all machines of a pool that are ready."""
    ready = [one for one in members if one.ready_at_s]
    cost = sum(one.price_usd_h for one in ready)
    return Totals(cost, sum(disturbed(held.get(one.name, ()), one.name) for one in ready))
