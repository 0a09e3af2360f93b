"""One move of consolidation: these machines go, and nothing, or one cheaper machine, comes (reference 4.5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.reference.karpenter.buy import PlannedClaim
from bench.reference.karpenter.disrupt.cheaper import (
    ReplacementOptions,
    TooDear,
    replacing,
    spot_for_spot,
    without_same,
)
from bench.reference.karpenter.disrupt.ground import DisruptionCandidate, DisruptionWorld, NoCommand, without
from fleet.disruption.evaluation import BalancedScore, NodePoolTotals, PoolContribution, agreed
from model import labels


@dataclass(frozen=True, slots=True)
class ReplacementPurchase:
    """A machine to buy before others go."""

    pool: str
    choice: ReplacementOptions
    pods: tuple[str, ...]

    @property
    def types(self) -> tuple[str, ...]:
        """Names of the types it may become, cheapest first."""
        return tuple(machine.name for machine in self.choice.machines)


@dataclass(frozen=True, slots=True)
class KarpenterCommand:
    """Machines that go, and what is bought first. Without a purchase they are deleted, with one replaced."""

    going: tuple[DisruptionCandidate, ...]
    bought: tuple[ReplacementPurchase, ...] = ()
    saving_usd_h: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the machines that go."""
        return tuple(machine.name for machine in self.going)


def move(ground: DisruptionWorld, going: Sequence[DisruptionCandidate]) -> KarpenterCommand | NoCommand:
    """What comes of taking machines away: nothing needed, one cheaper machine, or a refusal that says why."""
    outcome = without(ground, [machine.name for machine in going])
    if isinstance(outcome, NoCommand):
        return outcome
    if len(outcome.claims) > 1:
        return NoCommand(f"Can't remove without creating {len(outcome.claims)} candidates")
    prices = [ground.price_usd_h(machine) for machine in going]
    worth_usd_h = sum(price for price in prices if price is not None)
    if not outcome.claims:
        return KarpenterCommand(tuple(going), (), worth_usd_h)
    if any(price is None for price in prices):
        return NoCommand("the price of a machine to replace is not known")
    [claim] = outcome.claims
    choice = _cheaper(ground, claim, going, worth_usd_h)
    if isinstance(choice, TooDear):
        return NoCommand(choice.message)
    return KarpenterCommand(
        tuple(going), (ReplacementPurchase(claim.template, choice, claim.pods),), worth_usd_h - choice.price_usd_h()
    )


def _cheaper(
    ground: DisruptionWorld, claim: PlannedClaim, going: Sequence[DisruptionCandidate], below_usd_h: float
) -> ReplacementOptions | TooDear:
    given = choice_of(ground, claim)
    single = len(going) == 1
    if all(machine.node.labels.get(labels.CAPACITY_TYPE) == "spot" for machine in going) and given.may_be("spot"):
        enabled = all(machine.pool in ground.spot_to_spot for machine in going)
        found = spot_for_spot(given, below_usd_h, single=single, enabled=enabled)
    else:
        found = replacing(given, below_usd_h)
    if single or isinstance(found, TooDear):
        return found
    types = [(m.node.labels.get(labels.INSTANCE_TYPE, ""), ground.price_usd_h(m) or 0.0) for m in going]
    return without_same(found, types)


def choice_of(ground: DisruptionWorld, claim: PlannedClaim) -> ReplacementOptions:
    """What a claim of the greedy purchase may become."""
    [template] = [each for each in ground.templates if each.name == claim.template]
    known = {machine.name: machine for machine in template.machines}
    machines = tuple(known[option.machine] for option in claim.options)
    return ReplacementOptions(machines, claim.requirements, frozenset(claim.reservations))


def agreeable(ground: DisruptionWorld, found: KarpenterCommand) -> BalancedScore:
    """Whether every pool with the policy Balanced finds a move worth its disruption."""
    return agreed(found.saving_usd_h, _parts(ground, found.going), totals(ground, {m.pool for m in found.going}))


def totals(ground: DisruptionWorld, pools: Iterable[str]) -> Mapping[str, NodePoolTotals]:
    """What each of the pools has in all."""
    return {
        name: NodePoolTotals.of((ground.price_usd_h(m), m.evictions) for m in ground.machines if m.pool == name)
        for name in sorted(pools)
    }


def _parts(ground: DisruptionWorld, going: Sequence[DisruptionCandidate]) -> Iterable[PoolContribution]:
    for name in sorted({machine.pool for machine in going}):
        mine = [machine for machine in going if machine.pool == name]
        price = sum(ground.price_usd_h(machine) or 0.0 for machine in mine)
        threshold = ground.pools[name].spec.disruption.threshold
        yield PoolContribution(name, price, sum(machine.disruption for machine in mine), threshold)
