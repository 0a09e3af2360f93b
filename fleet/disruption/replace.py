"""Replacement first: machines with gangs on them go only when there is another place for every gang, whole.

Level-triggered, in two steps that survive a crash between them: claims that name what they replace are bought; when
all of them are ready, the old machines are told to go, the gangs are requeued and find their new places reserved.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.disruption.command import Command
from fleet.disruption.terrain import Terrain
from fleet.disruption.yard import Yard
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import ClusterState, planned_slot
from fleet.placement.inventory import BuyableCapacity
from fleet.placement.place import place_gang
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, ClaimState, Gang, Launch
from model.labels import HOSTNAME

_TOGETHER = "together/{}"
_SHOWN = 3
"""Machines named in a claim's purpose."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Machines that go together because gangs span them, and those gangs."""

    claims: tuple[Claim, ...]
    gangs: tuple[Gang, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the machines."""
        return tuple(claim.name for claim in self.claims)


def replacing(
    yard: Yard, fates: Mapping[str, tuple[Reason, str]], *, budgeted: bool = True, insist: bool = False
) -> list[Command]:
    """Commands for the busy machines among `fates` (claim -> reason and sentence), unit by unit.

    `insist`: where no replacement can be had, the machines go all the same.
    """
    commands = []
    for unit in units(yard, fates):
        reason, why = fates[unit.names[0]]
        pending = coming(yard, unit.names)
        if any(claim.state is not ClaimState.READY for claim in pending) or yard.pod_budget(unit.claims, reason):
            continue
        if budgeted and not pending and not yard.may_take(unit.claims, reason):
            continue
        yard.gone.update(unit.names)
        plans = None if complete(pending) else move(yard, unit, avoid=fates)
        if isinstance(plans, Refusal) and not insist:
            continue
        if plans and not isinstance(plans, Refusal):
            yard.promise(unit.gangs, plans)
        if plans and not isinstance(plans, Refusal) and any(plan.purchases for plan in plans.values()):
            commands.append(Command(unit.claims, reason, why, claims_of(plans, unit, yard.snapshot.now_s)))
        else:
            commands.append(Command(unit.claims, reason, why))
    return commands


def coming(yard: Yard, names: Iterable[str]) -> list[Claim]:
    """Replacements of these machines that are, or will be, there; those given up do not count."""
    found = {claim.name: claim for name in names for claim in yard.successors.get(name, ())}
    return [claim for claim in found.values() if not claim.disruption and not claim.deleting]


def complete(pending: list[Claim]) -> bool:
    """Whether there are replacements and none of their launch group has been lost since."""
    groups = {claim.launch.group: claim.launch.size for claim in pending}
    return bool(pending) and sum(groups.values()) == len(pending)


def units(yard: Yard, fates: Mapping[str, tuple[Reason, str]]) -> list[Unit]:
    """The busy machines among `fates`, joined where a gang spans several; without those whose gangs may not move."""
    if not fates:
        return []
    by_name = {claim.name: claim for _, claim in yard.candidates() if claim.name in fates and not yard.is_empty(claim)}
    seen: set[str] = set()
    found = []
    for name in sorted(by_name):
        if name in seen:
            continue
        claims, gangs = _closure(yard, by_name, name)
        seen |= set(claims)
        if all(yard.unit(by_name[member]) is not None for member in claims):
            found.append(Unit(tuple(by_name[c] for c in sorted(claims)), tuple(gangs[uid] for uid in sorted(gangs))))
    return found


def _closure(yard: Yard, by_name: Mapping[str, Claim], start: str) -> tuple[set[str], dict[str, Gang]]:
    claims, gangs, todo = {start}, {}, [start]
    while todo:
        for gang in yard.gangs_on(by_name[todo.pop()]):
            gangs[gang.uid] = gang
            more = {pin.claim for pin in gang.pins if pin.claim in by_name} - claims
            claims |= more
            todo += sorted(more)
    return claims, gangs


def move(
    yard: Yard, unit: Unit, *, avoid: Collection[str] = (), bought: Sequence[Offering] | None = None
) -> dict[str, PlacementPlan] | Refusal:
    """A place for every gang of the unit on a world without the unit's machines; a refusal when one finds none.

    Machines that this pass has told to go, and those of `avoid`, are no place to move to. What is missing is bought
    gang by gang; or, where machines are `bought`, these are what all of them find, and those that stay empty are not
    bought. Then the first gang's plan has all lots.
    """
    terrain = yard.terrain(avoid)
    if refused := terrain.over_quota(unit.gangs):
        return refused
    spent: list[PlannedNodeClaims] = []
    terrain.supply.may_buy = bought is None
    try:
        with terrain.without(unit.names, unit.gangs):
            return _placed(terrain, unit, bought, spent)
    finally:
        terrain.supply.may_buy = True
        for lot in spent:
            terrain.supply.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)


def _placed(
    terrain: Terrain, unit: Unit, bought: Sequence[Offering] | None, spent: list[PlannedNodeClaims]
) -> dict[str, PlacementPlan] | Refusal:
    """As `move`, on the board as it is then; what is taken from the limits is added to `spent`."""
    board, supply, now_s = terrain.board, terrain.supply, terrain.snapshot.now_s
    theirs = [gang.uid for gang in unit.gangs]
    if bought is not None and (beyond := _put(board, supply, bought, theirs, spent)) is not None:
        return beyond
    plans: dict[str, PlacementPlan] = {}
    for number, gang in enumerate(unit.gangs):
        if not all(terrain.flavors.declared(given) for given in gang.flavors.values()):
            return Refusal(Reason.NO_MATCHING_FLAVOR, f"a flavor of {gang.name} is no longer declared")
        needs = [terrain.flavors.need(pod_set, gang.flavors[pod_set.name]) for pod_set in gang.pod_sets]
        needs = [replace(need, until_s=now_s) for need in needs] if supply.closing else needs
        plan = place_gang(board, supply, gang.uid, needs)
        if isinstance(plan, Refusal):
            return plan
        plans[gang.uid] = plan
        spent += plan.purchases
        if plan.purchases:
            _keep(board, number)
    return plans if bought is None else _with_lots(plans, bought)


def _put(
    board: ClusterState,
    supply: BuyableCapacity,
    bought: Sequence[Offering],
    only_for: Iterable[str],
    spent: list[PlannedNodeClaims],
) -> Refusal | None:
    """Machines to be bought, as if they were on their way; a refusal where limits or shortages forbid them."""
    for number, offering in enumerate(bought):
        headroom = supply.headroom[offering.pool.name]
        if offering.offer.pool_key in supply.shortages or headroom.most(offering) < 1:
            return Refusal(
                Reason.POOL_LIMIT, f"{offering.offer.instance_type.name} of {offering.pool.name} cannot be bought"
            )
        headroom.spend(offering, 1)
        spent.append(PlannedNodeClaims(offering, 1))
        name = _TOGETHER.format(number)
        board.add(replace(planned_slot(offering, name, *only_for), labels={**offering.labels, HOSTNAME: name}))
    return None


def _with_lots(plans: dict[str, PlacementPlan], bought: Sequence[Offering]) -> dict[str, PlacementPlan]:
    used = {seat.slot.name for plan in plans.values() for seat in plan.assignments}
    counted = Counter(offering.key for number, offering in enumerate(bought) if _TOGETHER.format(number) in used)
    offerings = {offering.key: offering for offering in bought}
    first = next(iter(plans))
    lots = tuple(PlannedNodeClaims(offerings[key], count) for key, count in sorted(counted.items()))
    return plans | {first: replace(plans[first], purchases=lots)}


def _keep(board: ClusterState, number: int) -> None:
    """Slots bought for one gang get a name of their own, so that the next gang of the unit may buy as well."""
    for name in [name for name in board.slots if name.startswith("new/")]:
        board.rename(board.slots[name], f"kept/{number}/{name}")


def claims_of(
    plans: Mapping[str, PlacementPlan], unit: Unit, now_s: float, *, shared: bool = False
) -> tuple[Claim, ...]:
    """Claims for everything the plans buy, in one launch group: the unit leaves whole or not at all.

    `shared`: each machine is for all gangs of the unit, not for the one whose plan has it.
    """
    bought: list[Claim] = []
    shown = ", ".join(unit.names[:_SHOWN]) + (
        f" and {len(unit.names) - _SHOWN} more" if len(unit.names) > _SHOWN else ""
    )
    for uid, plan in sorted(plans.items()):
        claims = write_claims(plan, uid, now_s, gang=uid, replaces=unit.names, purpose=f"in place of {shown}").claims
        others = tuple(gang.uid for gang in unit.gangs if gang.uid != uid) if shared else ()
        bought += [replace(claim, also_for=others) for claim in claims]
    lots = sorted({(claim.launch.group, claim.launch.lot) for claim in bought})
    group = lots[0][0]
    return tuple(
        replace(claim, launch=Launch(group, lots.index((claim.launch.group, claim.launch.lot)), len(bought)))
        for claim in bought
    )
