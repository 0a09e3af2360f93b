"""One round of disruption over single pods: the first method that finds something to do ends it (reference 4.1, 4.5).

Emptiness, drift of fixed pools, drift, consolidation of several machines, of one. This is what Karpenter decides, where
no gang has a say; for gangs see `consolidation`. Orders end in the name of the machine.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from bench.reference.karpenter.disrupt.cheaper import ReplacementOptions
from bench.reference.karpenter.disrupt.eligibility import DisruptionClass, not_disruptable
from bench.reference.karpenter.disrupt.ground import DisruptionCandidate, DisruptionWorld, NoCommand, without
from bench.reference.karpenter.disrupt.moves import KarpenterCommand, ReplacementPurchase, agreeable, choice_of, move
from fleet.disruption.budgets import allowed
from fleet.disruption.drift import staged
from fleet.disruption.eligibility import CONSOLIDATES
from fleet.reasons import Reason
from model import labels
from model.kinds import NodePool

MOST_AT_ONCE: Final = 100
"""Machines that one move of several may take."""


@dataclass(frozen=True, slots=True)
class DisruptionRound:
    """What a round decides, and what it had to say of machines that stay."""

    moves: tuple[KarpenterCommand, ...] = ()
    reason: Reason = Reason.UNDERUTILIZED
    refusals: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Pass:
    ground: DisruptionWorld
    refusals: dict[str, str] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)

    def candidates(
        self, disruption_class: DisruptionClass, wanted: Callable[[DisruptionCandidate, NodePool], bool]
    ) -> list[DisruptionCandidate]:
        """Machines a method may look at: of a pool, wanted by it, and with nothing in the way; by name."""
        found = []
        for machine in sorted(self.ground.machines, key=lambda machine: machine.name):
            pool = self.ground.pools.get(machine.pool)
            if pool is None or not wanted(machine, pool):
                continue
            barred = not_disruptable(machine.post, disruption_class, self.ground.now_s)
            if barred is None:
                found.append(machine)
            else:
                self.refusals[machine.name] = barred
        return found

    def left(self, pool: str, reason: Reason) -> int:
        """How many machines of a pool may still go."""
        counted = [m for m in self.ground.machines if m.pool == pool and m.post.claimed and m.post.initialized]
        hit = sum(1 for machine in counted if machine.post.leaving)
        most = allowed(self.ground.pools[pool], reason, len(counted), hit, self.ground.now_s)
        return most - self.spent.get(pool, 0)

    def within(self, machines: Iterable[DisruptionCandidate], reason: Reason) -> list[DisruptionCandidate]:
        """Those the budgets let go, in the order given."""
        kept = []
        for machine in machines:
            if self.left(machine.pool, reason) > 0:
                self.spent[machine.pool] = self.spent.get(machine.pool, 0) + 1
                kept.append(machine)
        return kept

    def ranked(self, machines: Iterable[DisruptionCandidate]) -> list[DisruptionCandidate]:
        """Most savings for the least disruption first."""
        return sorted(machines, key=lambda machine: (-self.ground.ratio(machine), machine.name))


def decide(ground: DisruptionWorld) -> DisruptionRound:
    """The commands of this moment; they are independent of each other."""
    refusals: dict[str, str] = {}
    for reason, method in METHODS:
        now = _Pass(ground, refusals)
        moves = method(now)
        if moves:
            return DisruptionRound(tuple(moves), reason, refusals)
    return DisruptionRound((), Reason.UNDERUTILIZED, refusals)


# -- emptiness --------------------------------------------------------------------------------------------------------


def is_idle(machine: DisruptionCandidate, pool: NodePool) -> bool:
    """Whether a machine may go for being empty, as far as its pool is concerned."""
    after = pool.spec.disruption.consolidate_after
    return pool.spec.replicas is None and machine.empty and machine.settled and after < inf


def _empty(now: _Pass) -> list[KarpenterCommand]:
    """All that are empty, in one command."""
    going = now.within(now.ranked(now.candidates(DisruptionClass.GRACEFUL, is_idle)), Reason.EMPTY)
    saving = sum(now.ground.price_usd_h(machine) or 0.0 for machine in going)
    return [KarpenterCommand(tuple(going), (), saving)] if going else []


# -- drift ------------------------------------------------------------------------------------------------------------


def _fixed_drift(now: _Pass) -> list[KarpenterCommand]:
    found = now.candidates(
        DisruptionClass.EVENTUAL, lambda m, pool: bool(m.drifted_at_s) and pool.spec.replicas is not None
    )
    moves: list[KarpenterCommand] = []
    for name in sorted({machine.pool for machine in found}):
        pool = now.ground.pools[name]
        mine = sorted((m for m in found if m.pool == name), key=lambda m: (m.drifted_at_s, m.name))
        running = sum(1 for machine in now.ground.machines if machine.pool == name)
        limit = inf if pool.spec.limits.nodes is None else pool.spec.limits.nodes
        count = staged(pool.spec.replicas or 0, running, len(mine), now.left(name, Reason.DRIFTED), limit)
        moves += [KarpenterCommand((machine,), _like(now.ground, name)) for machine in mine[:count]]
    return moves


def _like(ground: DisruptionWorld, pool: str) -> tuple[ReplacementPurchase, ...]:
    """Another machine of a fixed pool: whatever the pool may buy, cheapest first."""
    [template] = [each for each in ground.templates if each.name == pool]
    anything = ReplacementOptions(template.machines, template.requirements)
    offers = {machine.name: anything.offers(machine) for machine in template.machines}
    prices = {name: min(offer.price_usd_h for offer in found) for name, found in offers.items() if found}
    able = sorted((m for m in template.machines if m.name in prices), key=lambda m: (prices[m.name], m.name))
    return (ReplacementPurchase(pool, ReplacementOptions(tuple(able), template.requirements), ()),)


def _drift(now: _Pass) -> list[KarpenterCommand]:
    """The machine that drifted first, empty ones before others, for which there is another place at any price."""
    found = now.candidates(
        DisruptionClass.EVENTUAL, lambda m, pool: bool(m.drifted_at_s) and pool.spec.replicas is None
    )
    ranked = sorted(found, key=lambda machine: (machine.drifted_at_s, machine.name))
    idle = now.within([machine for machine in ranked if machine.empty], Reason.DRIFTED)
    if idle:
        return [KarpenterCommand(tuple(idle))]
    for machine in ranked:
        if machine.empty or now.left(machine.pool, Reason.DRIFTED) <= 0:
            continue
        outcome = without(now.ground, [machine.name])
        if isinstance(outcome, NoCommand):
            now.refusals[machine.name] = outcome.message
            continue
        bought = (
            ReplacementPurchase(claim.template, choice_of(now.ground, claim), claim.pods) for claim in outcome.claims
        )
        return [KarpenterCommand((machine,), tuple(bought))]
    return []


# -- consolidation ----------------------------------------------------------------------------------------------------


def is_movable(machine: DisruptionCandidate, pool: NodePool) -> bool:
    """Whether consolidation may look at a machine, as far as its pool and what it is are concerned."""
    wanted = pool.spec.disruption
    told = (labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE)
    return (
        wanted.consolidation_policy in CONSOLIDATES
        and wanted.consolidate_after < inf
        and pool.spec.replicas is None
        and machine.settled
        and not machine.empty
        and all(key in machine.node.labels for key in told)
    )


def _several(now: _Pass) -> list[KarpenterCommand]:
    """The longest prefix of the ranking that one machine, or none, can stand in for; by bisection."""
    ranked = now.ranked(_known(now, now.candidates(DisruptionClass.GRACEFUL, is_movable)))
    within = now.within(ranked, Reason.UNDERUTILIZED)[:MOST_AT_ONCE]
    low, high, best = 2, len(within), None
    while low <= high:
        count = (low + high) // 2
        found = move(now.ground, within[:count])
        if isinstance(found, KarpenterCommand) and agreeable(now.ground, found).approved:
            best, low = found, count + 1
        else:
            high = count - 1
    return [best] if best else []


def _one(now: _Pass) -> list[KarpenterCommand]:
    """The first machine of the ranking, each pool in turn, that can go or be replaced by a cheaper one."""
    ranked = _in_turns(now.ranked(_known(now, now.candidates(DisruptionClass.GRACEFUL, is_movable))))
    for machine in ranked:
        if now.left(machine.pool, Reason.UNDERUTILIZED) <= 0:
            continue
        found = move(now.ground, [machine])
        if isinstance(found, NoCommand):
            now.refusals[machine.name] = found.message
        elif agreeable(now.ground, found).approved:
            return [found]
        else:
            now.refusals[machine.name] = "the saving is too small for the disruption"
    return []


def _known(now: _Pass, machines: Iterable[DisruptionCandidate]) -> list[DisruptionCandidate]:
    """Machines whose type is still known to their pool."""
    types = {each.name: {machine.name for machine in each.machines} for each in now.ground.templates}
    return [m for m in machines if m.node.labels[labels.INSTANCE_TYPE] in types.get(m.pool, ())]


def _in_turns(ranked: Sequence[DisruptionCandidate]) -> list[DisruptionCandidate]:
    """The best of each pool, then the second of each, and so on: no pool waits for another to be done."""
    place: dict[str, int] = {}
    keyed = []
    for rank, machine in enumerate(ranked):
        turn = place[machine.pool] = place.get(machine.pool, -1) + 1
        keyed.append((turn, rank, machine))
    return [machine for _, _, machine in sorted(keyed, key=lambda entry: entry[:2])]


METHODS: Sequence[tuple[Reason, Callable[[_Pass], list[KarpenterCommand]]]] = (
    (Reason.EMPTY, _empty),
    (Reason.DRIFTED, _fixed_drift),
    (Reason.DRIFTED, _drift),
    (Reason.UNDERUTILIZED, _several),
    (Reason.UNDERUTILIZED, _one),
)
