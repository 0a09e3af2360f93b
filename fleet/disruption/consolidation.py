"""Consolidation: fewer or cheaper machines, when that pays for the work it interrupts.

All machines that have room to spare are looked at as one optimisation first (`merging`); what that leaves is tried one
by one. Whether machines may go is `weigh`'s to say, which packs their gangs anew. What is found is proposed, and
carried out when it still holds a while later (`proposals`). What was looked at in vain is left alone until something
changes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple, TypeVar

from fleet.cost.lost import PAYBACK_S, lost_work_usd
from fleet.disruption.budgets import allowed
from fleet.disruption.command import Command
from fleet.disruption.eligibility import CONSOLIDATES
from fleet.disruption.proposals import carried_out, propose
from fleet.disruption.prospects import Prospects
from fleet.disruption.replace import Unit, coming, complete, move
from fleet.disruption.savings import savings_ratio
from fleet.disruption.stay import stays_until_s
from fleet.disruption.verdict import Held
from fleet.disruption.weigh import disturbed, weigh
from fleet.disruption.yard import Yard
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, ClaimState, Gang
from fleet.snapshot.lookups import holders
from fleet.snapshot.memo import remembered
from model.kinds import NodePool

WHAT_IFS = 16
"""Machines tried in one pass: a bound in steps, so that the same input gives the same answer."""
ROUND_S = 10.0
"""A plan for many is sought no more often; of more machines than can be tried the next ones are, after this long."""
AGAIN_S = 300.0
"""What was looked at in vain is looked at again after this long, although nothing seems to have changed (Karpenter)."""
A_ROUND = 300
"""Of so many machines one is sought every `ROUND_S`; of more it takes longer, and is sought less often."""
MOST_MERGED = 1500
"""Machines that one plan may take."""
HELD_S = 15 * 60.0
"""Machines that were bought for gangs which a PodDisruptionBudget holds since then are paid for no longer than this."""
EPSILON_USD_H = 1e-6
"""Rounding must not rule out what the exact sum allows."""


T = TypeVar("T")


class _Quiet(NamedTuple):
    """A machine whose gangs have been there for the pool's quiet time."""

    claim: Claim
    gangs: Sequence[Gang]
    affordable_usd_h: float
    """What may be paid to do without it."""


def consolidate(yard: Yard) -> list[Command]:
    """Proposals that have waited, where they still hold; while none waits, new ones are looked for.

    First as one plan for many machines, of which those steps are proposed that budgets allow; where that finds nothing,
    one by one.
    """
    finished = _finish(yard)
    if finished:
        return finished
    quiet = list(_quiet(yard))
    begun = carried_out(yard, {it.claim.name: (it.claim, it.gangs) for it in quiet}) if yard.outlook.proposals else []
    if not begun and not yard.outlook.proposals and quiet:
        _look(yard, quiet)
    return begun


def _look(yard: Yard, quiet: Sequence[_Quiet]) -> None:
    """Look for something to propose among what has not been looked at since something changed."""
    now_s, before = yard.snapshot.now_s, yard.outlook
    seen = _seen(yard, quiet)
    if seen != before.seen or now_s >= before.seen_at_s + AGAIN_S:
        yard.outlook = replace(before, seen=seen, seen_at_s=now_s, sought=False, tried=frozenset(), done=False)
    if not yard.outlook.sought:
        if now_s < yard.outlook.rests_until_s:
            return
        _merge(yard, quiet)
    if not yard.outlook.proposals and not yard.outlook.done:
        _one_by_one(yard, quiet)


def _seen(yard: Yard, quiet: Sequence[_Quiet]) -> tuple[object, ...]:
    """All that a look depends on and that can change for the better: work to lose, in a world at rest, only grows."""
    snapshot = yard.snapshot
    pools = (yard.fleet.node_pools[name] for name in sorted({it.claim.node_pool for it in quiet}))
    budgets = [allowed(pool, Reason.UNDERUTILIZED, len(yard.members[pool.name]), 0, snapshot.now_s) for pool in pools]
    return (
        yard.fleet,
        snapshot.catalog,
        snapshot.claims,
        snapshot.nodes,
        snapshot.foreign_use,
        snapshot.shortages,
        snapshot.reservations,
        holders(snapshot),
        budgets,
        [it.claim.name for it in quiet],
    )


def _merge(yard: Yard, quiet: Sequence[_Quiet]) -> None:
    """Many machines at once. None while replacements are on their way: the plan would count on what they bring."""
    if any(claim.replaces for claim in yard.snapshot.claims.values() if not _done(yard, claim)):
        return
    spare = _with_room(yard, quiet)
    rest_s = ROUND_S * max(1, ceil(len(spare) / A_ROUND))
    yard.outlook = replace(yard.outlook, sought=True, rests_until_s=yard.snapshot.now_s + rest_s)
    if len(spare) < 2:
        return
    from fleet.disruption.merging import suggestions  # numpy with it, which most passes have no use for

    plan = suggestions(yard, spare)
    going = {claim.name for suggestion in plan for claim in suggestion.claims}
    for suggestion in plan:
        found = weigh(yard, suggestion.claims, bought=suggestion.bought, avoid=going)
        if found is not None:
            propose(yard, found)


def _one_by_one(yard: Yard, quiet: Sequence[_Quiet]) -> None:
    worth, tried = _worth_trying(yard, quiet), set(yard.outlook.tried)
    for claim in turn_of(worth, yard.snapshot.now_s):
        if claim.name not in tried:
            tried.add(claim.name)
            found = weigh(yard, [claim])
            if found is not None:
                propose(yard, found)
    done = all(claim.name in tried for claim in worth)
    if done or len(tried) > len(yard.outlook.tried):
        yard.outlook = replace(yard.outlook, tried=frozenset(tried), done=done)


def _finish(yard: Yard) -> list[Command]:
    """The machines that were bought for this are ready: all they replace may go at once.

    If one was lost, or the gangs would not find room any more (somebody has come since, quota has gone), they go
    instead; so they do when a PodDisruptionBudget has held the gangs for a while.
    """
    if not yard.successors:
        return []
    ready: dict[str, Claim] = {}
    for _, claim in yard.candidates():
        pending = coming(yard, [claim.name])
        if not pending or any(it.state is not ClaimState.READY for it in pending):
            continue
        if not complete(pending):
            return [Command(tuple(pending), Reason.NOT_NEEDED, "another machine of the purchase was lost")]
        if (held := _held_for_long(yard, claim, pending)) is not None:
            return [Command(tuple(pending), Reason.NOT_NEEDED, f"what it was bought for may not move: {held.message}")]
        if _may_leave(yard, claim):
            ready[claim.name] = claim
    if not ready:
        return []
    first = coming(yard, [next(iter(ready))])
    names = {name for it in first for name in it.replaces}
    going = _let_go(yard, [claim for name, claim in sorted(ready.items()) if name in names])
    gangs = {gang.uid: gang for claim in going for gang in yard.gangs_on(claim)}
    if gangs and isinstance(
        moved := move(yard, Unit(going, tuple(gangs[uid] for uid in sorted(gangs))), bought=()), Refusal
    ):
        return [
            Command(tuple(first), Reason.NOT_NEEDED, f"what it was bought for has no room any more: {moved.message}")
        ]
    yard.gone.update(claim.name for claim in going)
    came = f"{len(first)} cheaper machines are" if len(first) > 1 else "a cheaper machine is"
    saving_usd_h = sum(claim.price_usd_h for claim in going) - sum(it.price_usd_h for it in first)
    return [Command(going, Reason.UNDERUTILIZED, f"{came} ready, saving {saving_usd_h:.2f} USD/h")]


def _held_for_long(yard: Yard, claim: Claim, bought: Sequence[Claim]) -> Held | None:
    """The PodDisruptionBudget for which machines have stood ready, and empty, for too long."""
    since_s = max(it.ready_at_s for it in bought)
    if yard.snapshot.now_s < since_s + HELD_S or not all(map(yard.is_empty, bought)):
        return None
    return yard.pod_budget([claim], Reason.UNDERUTILIZED)


def _let_go(yard: Yard, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Those of the machines that PodDisruptionBudgets let go together; the others follow when they may."""
    going: list[Claim] = []
    for claim in claims:
        if yard.pod_budget([*going, claim], Reason.UNDERUTILIZED) is None:
            going.append(claim)
    return tuple(going)


def _may_leave(yard: Yard, claim: Claim) -> bool:
    """Whether nothing that runs on a machine keeps it."""
    return yard.unit(claim) is not None and yard.pod_budget([claim], Reason.UNDERUTILIZED) is None


def _worth_trying(yard: Yard, quiet: Iterable[_Quiet]) -> list[Claim]:
    """Machines whose gangs may move, with a saving that could pay for it and room that could be there.

    Those that bring most for what they disturb come first. The tests come in order of cost: what most fail is asked
    first.
    """
    prospects: Prospects | None = None
    found = []
    for claim, gangs, affordable_usd_h in quiet:
        prospects = prospects or Prospects.of(yard.fleet, yard.snapshot)
        if not prospects.hopeless(claim, gangs, affordable_usd_h + EPSILON_USD_H) and _may_leave(yard, claim):
            found.append(claim)
    ratios = {claim.name: savings_ratio(claim.price_usd_h, disturbed(yard.gangs_on(claim))) for claim in found}
    return sorted(found, key=lambda claim: (-ratios[claim.name], claim.name))


def _quiet(yard: Yard) -> Iterator[_Quiet]:
    """Machines whose gangs have been there for the pool's quiet time, with what may be paid to do without (USD/h)."""
    pools = {name for name, pool in yard.fleet.node_pools.items() if _consolidates(pool)}
    lost: dict[str, float] = {}
    for pool, claim in yard.volunteers():
        gangs = yard.gangs_on(claim)
        if not gangs or pool is None or pool.name not in pools or claim.name in yard.successors:
            continue
        quiet_since_s = max(gang.admitted_at_s for gang in gangs)
        free_s = max(quiet_since_s + pool.spec.disruption.consolidate_after, stays_until_s(pool, claim))
        if yard.snapshot.now_s < free_s:
            continue
        affordable_usd_h = claim.price_usd_h - _lost(yard, gangs, lost) * 3600 / PAYBACK_S
        if affordable_usd_h > -EPSILON_USD_H:
            yield _Quiet(claim, gangs, affordable_usd_h)


def _with_room(yard: Yard, quiet: Iterable[_Quiet]) -> list[Claim]:
    """Machines that are not full, those with the dearest idle part first."""
    found: list[tuple[float, str, Claim]] = []
    full = _fullness(yard.snapshot.claims, yard.held)
    for claim, _, _ in quiet:
        idle = 1.0 - full.get(claim.name, 0.0)
        if idle > 0 and _may_leave(yard, claim):
            found.append((-idle * claim.price_usd_h, claim.name, claim))
    return [claim for _, _, claim in sorted(found, key=lambda it: it[:2])[:MOST_MERGED]]


@remembered()
def _fullness(claims: Mapping[str, Claim], held: Mapping[str, Sequence[Gang]]) -> Mapping[str, float]:
    """Claim -> the part in use of what is used most on its machine, of 1."""
    return {name: _full(claims[name], gangs) for name, gangs in held.items() if name in claims}


def _full(claim: Claim, gangs: Sequence[Gang]) -> float:
    """The part in use of what is used most, of 1."""
    used: Counter[str] = Counter()
    for gang in gangs:
        for pin in gang.pins:
            if pin.claim == claim.name:
                for resource, amount in gang.pod_set(pin.pod_set).requests.items():
                    used[resource] += amount * pin.count
    offered = claim.resources
    return max((amount / offered[name] for name, amount in used.items() if offered.get(name)), default=0.0)


def _done(yard: Yard, claim: Claim) -> bool:
    """Whether a replacement has taken over: what it replaces is gone, and its gangs have come."""
    return claim.disruption is not None or not yard.awaits_move(claim)


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
