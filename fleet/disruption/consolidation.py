"""Consolidation: fewer or cheaper machines, when that pays for the work it interrupts.

All machines that have room to spare are looked at by one integer programme first (`multi_node`); what that leaves is
tried one by one. Whether machines may go is for `evaluation` to say, which places their gangs anew. What is found is
proposed, and carried out when it still holds a while later (`pending`). What was looked at in vain is left alone until
something changes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final, NamedTuple

from fleet.actions import claim_subject
from fleet.cost.lost_work import PAYBACK_S, work_losses_usd
from fleet.disruption.budgets import allowed
from fleet.disruption.context import Candidate, DisruptionContext
from fleet.disruption.eligibility import (
    CONSOLIDATES,
    keeps,
    minimum_stay,
    out_of_budget,
    preferred_to,
    protections_over,
    quiet,
    spared,
    undeclared,
)
from fleet.disruption.evaluation import by_ratio, disturbed, evaluate, savings_ratio
from fleet.disruption.outcomes import Blocked, Command, Obstacle, first, no_reason
from fleet.disruption.pending import keep_in_mind, proposed, validated
from fleet.disruption.prefilter import Prefilter
from fleet.disruption.replacement import coming, complete, replacement, unready
from fleet.disruption.simulation import ROUND_S, turn_of
from fleet.fence import claims_set_aside, concerning
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Gang
from fleet.snapshot.lookups import holders, machines_held
from model.index import Index, TableChanges, derived, followed, followed_each
from model.kinds import NodePool
from model.plain_text import counted

AGAIN_S: Final = 300.0
"""Machines that were tried one by one in vain are tried again after this long, although nothing seems to have changed,
as upstream does: work loses less right after a checkpoint. A plan for many is sought again only once something has:
for a thousand machines it takes a second, and the plan of a revision looks a day ahead."""
A_ROUND: Final = 300
"""A plan for so many machines is sought every `ROUND_S`; one for more takes longer, and is sought less often."""
MOST_MERGED: Final = 1500
"""Machines that one plan may take."""
EPSILON_USD_H: Final = 1e-6
"""Rounding must not rule out what the exact sum allows."""


class Consolidation:
    """Proposals that have waited are carried out where they still hold; while none waits, new ones are looked for.

    First as one plan for many machines, of which those steps are proposed that budgets allow; where that finds nothing,
    one by one.
    """

    name = "consolidation"
    reason = Reason.UNDERUTILIZED

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns what is replaced by now, else what has waited; else only the outlook changes."""
        if finished := _finish(context):
            return finished
        settled = _settled(context)
        stays = {claim.name: (claim, gangs) for _, claim, gangs, _ in settled} if context.outlook.proposals else {}
        begun = validated(context, stays)
        if not begun and not context.outlook.proposals and settled:
            _look(context, settled)
        return begun

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why it does not pay, or is not allowed, to do without the machine; or that it is about to go."""
        if (proposal := context.outlook.of(claim.name)) is not None:
            return proposed(proposal)
        pool = context.pool_of(claim)
        if pool is None:
            return undeclared(claim)
        return first(self._conditions(context, pool, claim))

    def _conditions(self, context: DisruptionContext, pool: NodePool, claim: Claim) -> Iterator[Blocked | None]:
        gangs = context.gangs_on(claim)
        yield _unasked(pool, gangs)
        yield _empty(gangs)
        yield spared(context, claim)
        yield _begun(context, claim)
        yield _unsettled(context, pool, claim, gangs)
        yield keeps(context, claim, self.reason)
        yield _unpaid(context, claim)
        yield out_of_budget(context, pool, self.reason)


# -- which machines are looked at -------------------------------------------------------------------------------------


class _Stay(NamedTuple):
    """A `_Stay` is what is on a machine that consolidation may be asked to do without."""

    settles_s: float
    """When those on it, and the machine, will have been there for long enough (epoch seconds)."""
    claim: Claim
    gangs: Sequence[Gang]
    working: Sequence[Gang]
    """Those that lose work. Ordinary pods, which are many, lose nothing."""

    def affordable_usd_h(self, lost_usd: Callable[[Gang], float]) -> float:
        """Returns what may be paid to do without it: its price, less what the work costs that is lost."""
        return self.claim.price_usd_h - sum(map(lost_usd, self.working)) * 3600 / PAYBACK_S


def _settled(context: DisruptionContext) -> Sequence[_Stay]:
    """Returns the machines that may be consolidated: their gangs stay, and are cheaper to move than to leave there.

    Where that is so for all of them, which is asked once for all machines of the same gangs, it is the same object as
    long as nothing changes.
    """
    fleet, snapshot, index = context.fleet, context.snapshot, context.snapshot.index
    if context.held is machines_held(snapshot) and all(_unasked(pool, ()) for pool in fleet.node_pools.values()):
        return ()  # no ordinary pods anywhere, and no pool does without machines of gangs
    claims, aside = snapshot.claims, claims_set_aside(snapshot)
    claims = {name: claim for name, claim in claims.items() if name not in aside} if aside else claims
    if not (known := _stays(index, claims, context.held, machines_held(snapshot), fleet.node_pools)):
        return ()
    stays = _in_order(index, known, context.candidates())
    now_s, objecting, lost_usd = snapshot.now_s, context.objecting, _lost_usd(context)
    out = {name for name in context.successors if name in known}
    for work in _works(index, known).values():
        if now_s < work.settles_s or not _pays(work.cheapest, lost_usd):
            out |= {name for name, it in work.stays.items() if now_s < it.settles_s or not _pays(it, lost_usd)}
    if objecting:
        on = [it.claim for it in stays if it.claim.node in objecting and it.claim.name not in out]
        out |= {claim.name for claim in on if spared(context, claim)}
    return [it for it in stays if it.claim.name not in out] if out else stays


def _lost_usd(context: DisruptionContext) -> Callable[[Gang], float]:
    """Returns the function that says what work a gang loses (USD), asked once for each gang."""
    known, losses_usd = dict[str, float](), work_losses_usd(context.snapshot)

    def lost_usd(gang: Gang) -> float:
        if (found := known.get(gang.uid)) is None:
            found = known[gang.uid] = losses_usd(gang)
        return found

    return lost_usd


def _pays(stay: _Stay, lost_usd: Callable[[Gang], float]) -> bool:
    """Returns whether a machine is dearer than the work that is lost with it."""
    if not stay.working:
        return True
    with concerning(claim_subject(stay.claim.name)):
        return stay.affordable_usd_h(lost_usd) > -EPSILON_USD_H


@followed_each(3)
def _stays(
    claim: Claim, gangs: Sequence[Gang] | None, working: Sequence[Gang] | None, pools: Mapping[str, NodePool]
) -> _Stay | None:
    """Returns what stays on a machine; None where nothing does, or its pool does not ask for consolidation."""
    pool = pools.get(claim.node_pool)
    if not gangs or pool is None or _unasked(pool, gangs) is not None:
        return None
    with concerning(claim_subject(claim.name)):
        return _Stay(_settles_s(pool, claim, gangs), claim, gangs, working or ())


class _Work(NamedTuple):
    """A `_Work` is all machines on which the same gangs lose work."""

    stays: Mapping[str, _Stay]
    settles_s: float
    """When all of them are settled (epoch seconds)."""
    cheapest: _Stay


@followed(dict[tuple[str, ...], _Work])
def _works(before: dict[tuple[str, ...], _Work], changes: TableChanges[_Stay]) -> dict[tuple[str, ...], _Work]:
    """Returns uids of gangs -> the machines on which these lose work."""
    found, changed = before.copy(), dict[tuple[str, ...], dict[str, _Stay]]()

    def alike(stay: _Stay) -> dict[str, _Stay]:
        uids = tuple([gang.uid for gang in stay.working])
        if uids not in changed:
            changed[uids] = dict(found[uids].stays) if uids in found else {}
        return changed[uids]

    for name, stay in changes.gone():
        alike(stay).pop(name)
    for name, stay in changes.came():
        alike(stay)[name] = stay
    for uids, stays in changed.items():
        found.pop(uids, None)
        if stays:
            cheapest = min(stays.values(), key=lambda it: it.claim.price_usd_h)
            found[uids] = _Work(stays, max([it.settles_s for it in stays.values()]), cheapest)
    return found


def _settles_s(pool: NodePool, claim: Claim, gangs: Sequence[Gang]) -> float:
    """Returns when neither `quiet` nor `minimum_stay` blocks the machine any more (epoch seconds)."""
    settles_s = max([gang.admitted_at_s for gang in gangs]) + pool.spec.disruption.consolidate_after
    policy = pool.spec.disruption.return_to_preferred
    if policy is None or not preferred_to(pool, claim):
        return settles_s
    return max(settles_s, claim.ready_at_s + policy.after)


@derived(2)
def _in_order(_index: Index, stays: Mapping[str, _Stay], candidates: Sequence[Candidate]) -> Sequence[_Stay]:
    return [stay for _, claim in candidates if (stay := stays.get(claim.name)) is not None]


@derived(2)
def _names(_index: Index, stays: Sequence[_Stay]) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the names of machines, in order, and of their pools, sorted."""
    return [it.claim.name for it in stays], sorted({it.claim.node_pool for it in stays})


def _unasked(pool: NodePool, gangs: Sequence[Gang]) -> Blocked | None:
    """Blocks machines of fixed pools, and of pools that give back empty ones only, where what they are for is there."""
    if pool.spec.replicas is not None:
        return no_reason(Obstacle.FIXED_POOL, f"{pool.name} keeps {counted(pool.spec.replicas, 'machine')}")
    strays_only = "Pods" not in pool.spec.serves and gangs and all(gang.ordinary for gang in gangs)
    if not strays_only and pool.spec.disruption.consolidation_policy not in CONSOLIDATES:
        return no_reason(Obstacle.POLICY, f"{pool.name} gives back empty machines only (WhenEmpty)")
    return None


def _empty(gangs: Sequence[Gang]) -> Blocked | None:
    words = "no gang runs on it: the method emptiness takes idle machines"
    return None if gangs else no_reason(Obstacle.EMPTY, words)


def _unsettled(context: DisruptionContext, pool: NodePool, claim: Claim, gangs: Sequence[Gang]) -> Blocked | None:
    """Blocks a machine whose gangs were admitted too recently, or that became ready too recently itself."""
    since_s = max([gang.admitted_at_s for gang in gangs])
    moving = quiet(context.snapshot.now_s, since_s, pool.spec.disruption.consolidate_after)
    return moving or minimum_stay(context, pool, claim)


def _begun(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Tells what a move that has begun waits for: what was bought for it, and what still runs on the machine."""
    bought = replacement(context, claim)
    return None if bought is None else keeps(context, claim, Reason.UNDERUTILIZED) or bought


def _unpaid(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Tells why it is not worth it to do without the machine."""
    found = evaluate(context, [claim])
    return found if isinstance(found, Blocked) else None


# -- looking for something to propose ---------------------------------------------------------------------------------


def _look(context: DisruptionContext, settled: Sequence[_Stay]) -> None:
    """Looks for something to propose among what has not been looked at since something changed."""
    now_s, before = context.snapshot.now_s, context.outlook
    seen = _seen(context, settled)
    if seen != before.seen:
        context.outlook = replace(before, seen=seen, seen_at_s=now_s, sought=False, tried=frozenset(), done=False)
    elif now_s >= before.seen_at_s + AGAIN_S:
        context.outlook = replace(before, seen_at_s=now_s, tried=frozenset(), done=False)
    if not context.outlook.sought:
        if now_s < context.outlook.rests_until_s:
            return
        _all_at_once(context, settled)
    if not context.outlook.proposals and not context.outlook.done:
        _one_by_one(context, settled)


def _seen(context: DisruptionContext, settled: Sequence[_Stay]) -> tuple[object, ...]:
    """Returns all that a look depends on and that can change for the better: work to lose only grows at rest."""
    snapshot = context.snapshot
    names, used = _names(snapshot.index, settled)
    pools = (context.fleet.node_pools[name] for name in used)
    return (
        context.fleet,
        snapshot.catalog,
        snapshot.claims,
        snapshot.nodes,
        snapshot.foreign_use,
        snapshot.shortages,
        snapshot.reservations,
        snapshot.measured,
        snapshot.interruptions,
        snapshot.pod_budgets,
        snapshot.daemon_overheads,
        holders(snapshot),
        protections_over(snapshot),
        [allowed(pool, Reason.UNDERUTILIZED, len(context.members[pool.name]), 0, snapshot.now_s) for pool in pools],
        names,
    )


def _all_at_once(context: DisruptionContext, settled: Sequence[_Stay]) -> None:
    """Proposes a plan for many machines. While replacements are on their way it would count on what they bring."""
    if any(claim.replaces for claim in context.snapshot.claims.values() if not _done(context, claim)):
        return
    spare = _with_room(context, settled)
    rest_s = ROUND_S * max(1, ceil(len(spare) / A_ROUND))
    context.outlook = replace(context.outlook, sought=True, rests_until_s=context.snapshot.now_s + rest_s)
    if len(spare) < 2:
        return
    from fleet.disruption.multi_node import suggestions  # numpy with it, which most passes have no use for

    plan = suggestions(context, spare)
    going = {claim.name for suggestion in plan for claim in suggestion.claims}
    for suggestion in plan:
        with concerning(claim_subject(suggestion.claims[0].name)):
            found = evaluate(context, suggestion.claims, bought=suggestion.bought, avoid=going)
            if not isinstance(found, Blocked):
                keep_in_mind(context, found)


def _one_by_one(context: DisruptionContext, settled: Sequence[_Stay]) -> None:
    worth, tried = _worth_trying(context, settled), set(context.outlook.tried)
    for claim in turn_of(worth, context.snapshot.now_s):
        if claim.name not in tried:
            tried.add(claim.name)
            with concerning(claim_subject(claim.name)):
                found = evaluate(context, [claim])
                if not isinstance(found, Blocked):
                    keep_in_mind(context, found)
    done = all(claim.name in tried for claim in worth)
    if done or len(tried) > len(context.outlook.tried):
        context.outlook = replace(context.outlook, tried=frozenset(tried), done=done)


def _worth_trying(context: DisruptionContext, settled: Iterable[_Stay]) -> list[Claim]:
    """Returns machines whose gangs may move, with a saving that could pay for it and room that could be there.

    Those that bring most for what they disturb come first. The tests come in order of cost: what most fail is asked
    first.
    """
    prefilter: Prefilter | None = None
    ratios: dict[str, float] = {}
    found: dict[str, Claim] = {}
    lost_usd = _lost_usd(context)
    for stay in settled:
        claim, gangs = stay.claim, stay.gangs
        prefilter = prefilter or Prefilter.of(context.fleet, context.snapshot)
        with concerning(claim_subject(claim.name)):
            hopeless = prefilter.hopeless(claim, gangs, stay.affordable_usd_h(lost_usd) + EPSILON_USD_H)
            if not hopeless and keeps(context, claim, Reason.UNDERUTILIZED) is None:
                ratios[claim.name] = savings_ratio(claim.price_usd_h, disturbed(gangs))
                found[claim.name] = claim
    return [found[name] for name in by_ratio(ratios.items())]


def _with_room(context: DisruptionContext, settled: Iterable[_Stay]) -> list[Claim]:
    """Returns the machines that are not full, those with the dearest idle part first."""
    found: list[tuple[float, str, Claim]] = []
    full = _fullness(context.snapshot.index, context.snapshot.claims, context.held)
    for _, claim, _, _ in settled:
        idle = 1.0 - full.get(claim.name, 0.0)
        with concerning(claim_subject(claim.name)):
            if idle > 0 and keeps(context, claim, Reason.UNDERUTILIZED) is None:
                found.append((-idle * claim.price_usd_h, claim.name, claim))
    return [claim for _, _, claim in sorted(found, key=lambda it: it[:2])[:MOST_MERGED]]


@derived()
def _fullness(_index: Index, claims: Mapping[str, Claim], held: Mapping[str, Sequence[Gang]]) -> Mapping[str, float]:
    """Returns for every claim which part (of 1) of its machine's most used resource is in use."""
    return {name: _full(claims[name], gangs) for name, gangs in held.items() if name in claims}


def _full(claim: Claim, gangs: Sequence[Gang]) -> float:
    """Returns which part (of 1) of the machine's most used resource is in use."""
    used: Counter[str] = Counter()
    for gang in gangs:
        for pin in gang.pins:
            if pin.claim == claim.name:
                for resource, amount in gang.pod_set(pin.pod_set).requests.items():
                    used[resource] += amount * pin.count
    offered = claim.resources
    return max((amount / offered[name] for name, amount in used.items() if offered.get(name)), default=0.0)


def _done(context: DisruptionContext, claim: Claim) -> bool:
    """Returns whether a replacement has taken over: what it replaces is gone, and its gangs have come."""
    return claim.disruption is not None or not context.awaits_move(claim)


# -- what was bought is ready -----------------------------------------------------------------------------------------


def _finish(context: DisruptionContext) -> list[Command]:
    """Gives back what is replaced: once all machines that were bought are ready, all that they replace may go.

    If one was lost, or the gangs would not find room any more (somebody has come since, quota has gone), they go
    instead; so they do when the gangs have not come for a while, whatever holds them (`replacement.unused`).
    """
    if not context.successors:
        return []
    ready: dict[str, Claim] = {}
    for _, claim in context.candidates():
        bought = coming(context, [claim.name])
        if not bought:
            continue
        with concerning(claim_subject(claim.name)):
            if unready(context, [claim.name]):
                continue
            if not complete(bought):
                context.taken.update(it.name for it in bought)
                return [Command(tuple(bought), Reason.NOT_NEEDED, "another machine of the purchase was lost")]
            if keeps(context, claim, Reason.UNDERUTILIZED) is None:
                ready[claim.name] = claim
    return _finished(context, ready) if ready else []


def _finished(context: DisruptionContext, ready: Mapping[str, Claim]) -> list[Command]:
    """Gives back all machines that one purchase replaces; or the purchase, where the gangs would not fit any more."""
    bought = coming(context, [next(iter(ready))])
    names = {name for it in bought for name in it.replaces}
    going = _let_go(context, [claim for name, claim in sorted(ready.items()) if name in names])
    if (refused := _no_room_any_more(context, going)) is not None:
        why = f"what it was bought for has no room any more: {refused.message}"
        context.taken.update(claim.name for claim in bought)
        return [Command(tuple(bought), Reason.NOT_NEEDED, why)]
    context.taken.update(claim.name for claim in going)
    came = f"{len(bought)} cheaper machines are" if len(bought) > 1 else "a cheaper machine is"
    saving_usd_h = sum(claim.price_usd_h for claim in going) - sum(it.price_usd_h for it in bought)
    return [Command(going, Reason.UNDERUTILIZED, f"{came} ready, saving {saving_usd_h:.2f} USD/h")]


def _no_room_any_more(context: DisruptionContext, going: Sequence[Claim]) -> Refusal | None:
    group = context.group(going)
    if not group.gangs:
        return None
    with concerning(claim_subject(group.names[0])):
        plans = context.simulate(group, bought=())
    return plans if isinstance(plans, Refusal) else None


def _let_go(context: DisruptionContext, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Returns those of the machines that PodDisruptionBudgets let go together; the others follow when they may."""
    going: list[Claim] = []
    for claim in claims:
        with concerning(claim_subject(claim.name)):
            if context.pod_budget([*going, claim], Reason.UNDERUTILIZED) is None:
                going.append(claim)
    return tuple(going)
