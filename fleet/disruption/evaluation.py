"""Whether machines may go for what it saves: one of them or several, with the gangs on them moved whole.

Karpenter's conditions (nothing, or something cheaper, comes in their place; spot for spot only where there is much to
choose from; a Balanced pool agrees) and one more: the saving over `PAYBACK_S` must exceed the value of the work lost
since the last checkpoints. Whoever searches for machines to give back asks here, whatever set was found.

With `consolidationPolicy: Balanced` a move must be worth its disruption, in proportion to its pool: a move that saves a
tenth of what a pool costs may disturb a fifth of what runs there, at the threshold 2 that pools have unless they say
otherwise (Karpenter `balanced.go`, designs/balanced-consolidation.md; reference 4.5). What moving pods costs is a plain
number without a unit, an ordinary pod counts 1 (reference 4.3); prices are USD an hour.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import Final

from fleet.cost.lost_work import PAYBACK_S, lost_work_usd
from fleet.disruption.context import DisruptionContext
from fleet.disruption.eligibility import immovable, spared, undeclared
from fleet.disruption.outcomes import Blocked, Command, Obstacle, no_reason
from fleet.disruption.prefilter import Prefilter
from fleet.disruption.replacement import claims_of
from fleet.disruption.simulation import CandidateGroup
from fleet.offerings.offerings import Offering, offerings_now
from fleet.placement.cluster_state import PODS, planned_slot
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang, Snapshot
from model.index import Index, derived
from model.kinds import NEVER

SPOT_TYPES: Final = 15
"""Cheaper types there must be before one spot machine gives way to another (reference 4.5)."""
DELETION_COST_SCALE: Final = 2.0**27
"""The annotation `controller.kubernetes.io/pod-deletion-cost` reaches from -2^31 to 2^31: it moves a cost by 16."""
PRIORITY_SCALE: Final = 2.0**25
"""Priorities of users end at 10^9: they move a cost by 30."""
MOST_EVICTION_COST: Final = 10.0
MOST_TRIED: Final = 4
"""Machines of which each is tried for all that several would come for."""
BASE_COST: Final = 1.0
"""What a machine costs to move whatever runs on it."""


@dataclass(frozen=True, slots=True)
class ConsolidationMove:
    """A move takes machines away whose gangs find room elsewhere (Karpenter's Balanced design calls it so)."""

    group: CandidateGroup
    plans: Mapping[str, PlacementPlan]
    """Gang (uid) -> its places, with what has to be bought for it."""
    shared: bool = False
    """Whether what is bought is for all of the gangs; else each plan's purchases are its gang's."""
    idle_usd_h: float = 0.0
    """What idle machines cost that would be given back, and stay because gangs move to them."""
    machine_usd_h: float = 0.0
    """What any machine costs beside its price, by the FleetPolicy."""

    @property
    def cost_usd_h(self) -> float:
        """Returns what the machines that are bought cost."""
        return sum(plan.cost_usd_h for _, plan in sorted(self.plans.items()))

    @property
    def saving_usd_h(self) -> float:
        """Returns what the machines that go cost, less what is bought, and what is idle and could go instead.

        Several machines for one save what each costs beside its price, too.
        """
        paid_usd_h = sum(claim.price_usd_h for claim in self.group.claims)
        fewer = len(self.group.claims) - sum(bought.count for bought in self.purchases)
        beside_usd_h = fewer * self.machine_usd_h if self.purchases else 0.0
        return paid_usd_h + beside_usd_h - self.cost_usd_h - self.idle_usd_h

    @property
    def purchases(self) -> Sequence[PlannedNodeClaims]:
        """Returns the machines to buy first."""
        return [purchase for _, plan in sorted(self.plans.items()) for purchase in plan.purchases]


def evaluate(
    context: DisruptionContext,
    claims: Iterable[Claim],
    *,
    most_bought: int = 1,
    bought: Sequence[Offering] | None = None,
    avoid: Collection[str] = (),
) -> ConsolidationMove | Blocked:
    """Returns what comes of taking these machines away together; or why it is not worth it, or who may not move.

    At most `most_bought` machines come in their place, or none but those `bought`; machines to `avoid` are no place to
    move to. Budgets are not asked, see `granted`.
    """
    going = tuple(sorted(claims, key=lambda claim: claim.name))
    held = next(filter(None, (_kept(context, claim) for claim in going)), None)
    held = held or context.pod_budget(going, Reason.UNDERUTILIZED)
    if held is not None:
        return held
    group = context.group(going)
    plans = context.simulate(group, avoid=avoid, bought=bought)
    if isinstance(plans, Refusal):
        return Blocked(Obstacle.NO_PLACE, f"its gangs would find no other place: {plans.message}")
    if bought is None and most_bought == 1 and _machines_bought(plans) > 1:
        for one in _ones_for_all(context, group, plans):
            if not isinstance(together := context.simulate(group, avoid=avoid, bought=(one,)), Refusal):
                plans, bought = together, (one,)
                break
    beside_usd_h = context.fleet.policy.spec.usd_per_hour_per_machine
    found = ConsolidationMove(group, plans, bought is not None, _idle_usd_h(context, plans.values()), beside_usd_h)
    return _declined(context, found, most_bought if bought is None else len(bought)) or found


def _machines_bought(plans: Mapping[str, PlacementPlan]) -> int:
    return sum(purchase.count for plan in plans.values() for purchase in plan.purchases)


def _ones_for_all(
    context: DisruptionContext, group: CandidateGroup, plans: Mapping[str, PlacementPlan]
) -> Sequence[Offering]:
    """Returns the cheapest machines for less than what goes of which one holds all that several would be bought for.

    Gang by gang the first gets the cheapest that holds it, and the next finds no room there.
    """
    gangs, asked = {gang.uid: gang for gang in group.gangs}, Counter[str]()
    for uid, plan in plans.items():
        for each in plan.assignments:
            if "new/" in each.slot.name:
                requests = gangs[uid].pod_set(each.pod_set).requests
                asked.update({name: each.count * amount for name, amount in {**requests, PODS: 1}.items()})
    pools = {purchase.offering.pool.name: purchase.offering.pool for it in plans.values() for purchase in it.purchases}
    paid_usd_h = sum(claim.price_usd_h for claim in group.claims)
    offerings = offerings_now(context.fleet, context.snapshot)
    able = [
        offering
        for _, pool in sorted(pools.items())
        for offering in offerings.of(pool)
        if offering.offer.price_usd_h < paid_usd_h and planned_slot(offering, "probe").room_for(asked)
    ]
    return sorted(able, key=lambda it: (it.offer.price_usd_h, it.key))[:MOST_TRIED]


def _idle_usd_h(context: DisruptionContext, plans: Iterable[PlacementPlan]) -> float:
    """Returns what idle machines cost that emptiness would give back, and that places are on.

    To move there from a machine of the same price saves nothing: the idle one goes soon, and disturbs nobody.
    """
    hosts = {it.slot.claim for plan in plans for it in plan.assignments} - context.hosts - {""}
    claims = (context.snapshot.claims.get(name) for name in sorted(hosts))
    return sum(claim.price_usd_h for claim in claims if claim is not None and _would_go(context, claim))


def _would_go(context: DisruptionContext, claim: Claim) -> bool:
    pool = context.pool_of(claim)
    if pool is None or pool.spec.replicas is not None or pool.spec.disruption.consolidate_after == NEVER:
        return False
    return bool(claim.emptied_at_s) and context.is_empty(claim) and spared(context, claim) is None


def _kept(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Tells why a machine may not go, whatever that would save."""
    if context.pool_of(claim) is None:
        return Blocked(Obstacle.GANG, f"{claim.name} may not go: {undeclared(claim).message}")
    if claim.name in context.hosts:
        return Blocked(Obstacle.GANG, f"{claim.name} may not go: gangs that move are promised places on it")
    held = spared(context, claim) or immovable(context, claim)
    return Blocked(Obstacle.GANG, f"work on {claim.name} may not move: {held.message}") if held else None


def _declined(context: DisruptionContext, found: ConsolidationMove, most_bought: int) -> Blocked | None:
    """Tells why a move that is possible is not made."""
    if sum(purchase.count for purchase in found.purchases) > most_bought:
        return no_reason(
            Obstacle.NO_SAVING,
            f"more than {most_bought} machine{'s' if most_bought > 1 else ''} would have to come in its place",
        )
    if _trades_spot(context, found):
        return no_reason(Obstacle.NO_SAVING, "spot for cheaper spot only trades one risk of interruption for another")
    if (nothing := _saves_nothing(found)) is not None:
        return nothing
    paid_usd, lost = found.saving_usd_h * PAYBACK_S / 3600, lost_usd(found.group.gangs, context.snapshot)
    if paid_usd <= lost:
        saving = f"it would save {found.saving_usd_h:.2f} USD/h, {paid_usd:.2f} USD in {PAYBACK_S / 3600:.0f} h"
        return Blocked(Obstacle.PAYBACK, f"{saving}, and lose work worth {lost:.2f} USD")
    if not _in_proportion(context, found):
        words = f"it would save {found.saving_usd_h:.2f} USD/h, too little for what it disturbs"
        return Blocked(Obstacle.BALANCE, f"{words} (Balanced)")
    return None


def _saves_nothing(found: ConsolidationMove) -> Blocked | None:
    if 0 < found.idle_usd_h >= found.saving_usd_h + found.idle_usd_h:
        return no_reason(Obstacle.NO_SAVING, "its work would go to a machine that is idle, would go, and is no cheaper")
    if _buys_its_own(found) or found.saving_usd_h <= 0:
        return no_reason(Obstacle.NO_SAVING, "what would hold its work instead costs as much or more")
    return None


def granted(context: DisruptionContext, found: ConsolidationMove) -> bool:
    """Takes a move from the budgets, and its places; False, and nothing is taken, where those do not allow it."""
    if not context.may_take(found.group.claims, Reason.UNDERUTILIZED):
        return False
    context.promise(found.group.gangs, found.plans)
    return True


def command(context: DisruptionContext, found: ConsolidationMove) -> Command:
    """Returns the command to carry out a move that was granted."""
    bought = claims_of(found.plans, found.group, context.snapshot.now_s, shared=found.shared) if found.purchases else ()
    return Command(found.group.claims, Reason.UNDERUTILIZED, sentence(found), bought)


def sentence(found: ConsolidationMove) -> str:
    """Says what a move is for."""
    one = len(found.group.claims) == 1
    what = "its work fits elsewhere" if one else f"the work of {len(found.group.claims)} machines fits elsewhere"
    return f"{what}, saving {found.saving_usd_h:.2f} USD/h"


def _trades_spot(context: DisruptionContext, found: ConsolidationMove) -> bool:
    """Returns whether spot would give way to spot where that only trades one risk of interruption for another."""
    going = found.group.claims
    if any(claim.capacity_pool.capacity_type != "spot" for claim in going):
        return False
    if all(purchase.offering.offer.capacity_type != "spot" for purchase in found.purchases):
        return False
    if not all(context.fleet.node_pools[claim.node_pool].spec.disruption.spot_to_spot for claim in going):
        return True
    prefilter = Prefilter.of(context.fleet, context.snapshot)
    return len(going) == 1 and prefilter.cheaper_spot_types(going[0], found.group.gangs) < SPOT_TYPES


def _buys_its_own(found: ConsolidationMove) -> bool:
    """Returns whether what is bought is what goes, and no cheaper: keeping that machine is the smaller change."""
    prices: dict[str, float] = {}
    for claim in found.group.claims:
        kind = claim.capacity_pool.instance_type
        prices[kind] = min(claim.price_usd_h, prices.get(kind, inf))
    offers = [purchase.offering.offer for purchase in found.purchases]
    return any(offer.price_usd_h >= prices.get(offer.instance_type.name, inf) for offer in offers)


# -- what moving work costs ------------------------------------------------------------------------------------------


def lost_usd(gangs: Iterable[Gang], snapshot: Snapshot) -> float:
    """Returns the worth (USD) of the work that an interruption of all these gangs would lose."""
    return sum(lost_work_usd(gang, snapshot) for gang in gangs)


def disturbed(gangs: Iterable[Gang], only_on: str = "") -> float:
    """Returns what it costs to move gangs off a machine: whole, or counting their pods `only_on` a claim.

    A gang moves whole: wherever its pods are, all of them stop.
    """
    return disruption_cost(_evictions(gangs, only_on))


def _evictions(gangs: Iterable[Gang], only_on: str) -> Iterator[float]:
    for gang in gangs:
        cost = eviction_cost(gang.deletion_cost, gang.effective_priority)
        yield from (cost * pin.count for pin in gang.pins if not only_on or pin.claim == only_on)


def eviction_cost(deletion_cost: float = 0.0, priority: float = 0.0) -> float:
    """Returns what it costs to evict one pod, -10 to 10."""
    raw = 1.0 + deletion_cost / DELETION_COST_SCALE + priority / PRIORITY_SCALE
    return min(MOST_EVICTION_COST, max(-MOST_EVICTION_COST, raw))


def disruption_cost(evictions: Iterable[float]) -> float:
    """Returns what it costs to move everything off one machine. Pods that would rather go make nothing cheaper."""
    return BASE_COST + sum(max(0.0, each) for each in evictions)


def savings_ratio(price_usd_h: float | None, cost: float) -> float:
    """Returns USD an hour for each unit of disruption: 0 for an unknown price, infinite where it costs nothing."""
    if not price_usd_h:
        return 0.0
    return price_usd_h / cost if cost > 0 else float("inf")


def by_ratio(ratios: Iterable[tuple[str, float]]) -> list[str]:
    """Orders machines by name: most savings for the least disruption first."""
    return [name for name, _ in sorted(sorted(ratios), key=itemgetter(1), reverse=True)]


# -- consolidationPolicy: Balanced ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodePoolTotals:
    """What all machines of a pool cost and disturb, movable or not."""

    cost_usd_h: float = 0.0
    disruption: float = 0.0

    @classmethod
    def of(cls, machines: Iterable[tuple[float | None, Iterable[float]]]) -> "NodePoolTotals":
        """Sums machines up (price, eviction costs of its pods): one of unknown price costs nothing, but disturbs."""
        priced = [(price or 0.0, disruption_cost(evictions)) for price, evictions in machines]
        return cls(sum(price for price, _ in priced), sum(cost for _, cost in priced))


@dataclass(frozen=True, slots=True)
class BalancedScore:
    """The share of the savings for each share of the disruption, and whether that is enough."""

    score: float
    approved: bool


@dataclass(frozen=True, slots=True)
class PoolContribution:
    """What one pool gives to a move: the price of its machines, and what it costs to move what runs on them."""

    pool: str
    price_usd_h: float
    disruption: float
    threshold: int | None = None
    """Of a pool whose policy is Balanced; None = it has no say."""


def judged(savings_usd_h: float, disruption: float, pool: NodePoolTotals, threshold: int) -> BalancedScore:
    """Returns whether a pool agrees to lose machines for so much."""
    if pool.cost_usd_h <= 0 or savings_usd_h <= 0:
        return BalancedScore(0.0, approved=False)
    if pool.disruption <= 0 or disruption <= 0:
        return BalancedScore(float("inf"), approved=True)
    score = (savings_usd_h / pool.cost_usd_h) / (disruption / pool.disruption)
    return BalancedScore(score, approved=score >= 1 / threshold)


def agreed(
    savings_usd_h: float, parts: Iterable[PoolContribution], totals: Mapping[str, NodePoolTotals]
) -> BalancedScore:
    """Returns whether every Balanced pool agrees to a move; its savings are split by what the pools give.

    The score is the least of theirs, that of the first refusal by name where one refuses. Nothing moved is refused.
    """
    given = sorted(parts, key=lambda part: part.pool)
    if not given:
        return BalancedScore(0.0, approved=False)
    whole = sum(part.price_usd_h for part in given)
    least = BalancedScore(float("inf"), approved=True)
    for part in given:
        if part.threshold is None:
            continue
        share = part.price_usd_h / whole if whole > 0 and len(given) > 1 else 1.0
        mine = judged(savings_usd_h * share, part.disruption, totals.get(part.pool, NodePoolTotals()), part.threshold)
        if not mine.approved:
            return mine
        least = min(least, mine, key=lambda score: score.score)
    return least


def _in_proportion(context: DisruptionContext, found: ConsolidationMove) -> bool:
    """Returns whether the saving is in proportion to the disruption, for every pool that asks for that."""
    by_pool: dict[str, list[Claim]] = {}
    for claim in found.group.claims:
        by_pool.setdefault(claim.node_pool, []).append(claim)
    parts, totals = [], {}
    for name, mine in by_pool.items():
        threshold = context.fleet.node_pools[name].spec.disruption.threshold
        gangs = {gang.uid: gang for claim in mine for gang in context.gangs_on(claim)}
        disruption = disturbed(gangs.values()) + len(mine) - 1
        parts.append(PoolContribution(name, sum(claim.price_usd_h for claim in mine), disruption, threshold))
        if threshold is not None:
            totals[name] = _totals(context.snapshot.index, context.members[name], context.held)
    return agreed(found.saving_usd_h, parts, totals).approved


@derived()
def _totals(_index: Index, members: Sequence[Claim], held: Mapping[str, Sequence[Gang]]) -> NodePoolTotals:
    """Returns what all machines of a pool that are ready cost and disturb."""
    ready = (one for one in members if one.ready_at_s)
    return NodePoolTotals.of((one.price_usd_h, _evictions(held.get(one.name, ()), one.name)) for one in ready)
