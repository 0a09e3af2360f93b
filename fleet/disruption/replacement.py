"""Replacement first: machines with gangs on them go only when there is another place for every gang, whole.

Level-triggered, in two steps that survive a crash between them: claims that name what they replace are bought; when
all of them are ready, the old machines are told to go, the gangs are requeued and find their new places reserved.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fleet.actions import claim_subject
from fleet.disruption.budgets import allowed
from fleet.disruption.context import DisruptionContext, busy
from fleet.disruption.eligibility import immovable, keeps, spared
from fleet.disruption.outcomes import Blocked, Command, Due, Obstacle
from fleet.disruption.simulation import WHAT_IFS, CandidateGroup, bought_for, in_turns
from fleet.fence import concerning
from fleet.nodeclaims.drift import drifts
from fleet.nodeclaims.drift_facts import DriftReason
from fleet.nodeclaims.launch import write_claims
from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason, Refusal, some_of
from fleet.snapshot import FOR_PODS, Claim, ClaimState, Launch
from model.index import Index, derived


@dataclass(slots=True)
class _StayingMachines:
    """`_StayingMachines` are those that are due and cannot leave either: looked for once, when something is bought."""

    context: DisruptionContext
    due: Due
    avoid: frozenset[str]
    _found: frozenset[str] | None = None
    _tries: int = 0

    def move_there(self, group: CandidateGroup) -> dict[str, PlacementPlan] | None:
        """Returns plans for a group that buy nothing, on machines that stay; None where there are none.

        Who moves there may have to move once more, when something has changed; a machine bought in vain costs more.
        """
        if self._found is None:
            self._found = frozenset(self._look())
        staying = (self._found | self.context.refused) - self.context.taken
        if not staying or self._tries >= WHAT_IFS:
            return None
        self._tries += 1
        plans = self.context.simulate(group, avoid=self.avoid - staying)
        return None if isinstance(plans, Refusal) or any(plan.purchases for plan in plans.values()) else plans

    def _look(self) -> Iterator[str]:
        """Yields machines whose work may not move, and those whose work has no place, if all can be tried."""
        for name, (reason, _) in self.due.items():
            claim = self.context.snapshot.claims[name]
            if not self.context.is_empty(claim) and immovable(self.context, claim, reason) is not None:
                yield name
        others = groups(self.context, self.due)
        for group in others if len(others) <= WHAT_IFS else ():
            if isinstance(self.context.simulate(group, avoid=self.avoid), Refusal):
                yield from group.names


def replacing(
    context: DisruptionContext, due: Due, *, avoid: Iterable[str] = (), budgeted: bool = True, insist: bool = False
) -> list[Command]:
    """Returns commands for the busy machines among those that are `due`, group by group.

    Nothing moves onto those, nor onto machines to `avoid`, which will be due once the action on them is done; unless
    these cannot leave either. `insist`: where no replacement can be had, the machines go all the same.
    """
    staying, tried = _StayingMachines(context, due, frozenset({*due, *avoid})), 0
    commands = []
    for group in in_turns(groups(context, due), context.snapshot.now_s):
        if tried >= WHAT_IFS:
            break
        with concerning(claim_subject(group.names[0])):
            command = _command(context, group, due, staying, budgeted=budgeted, insist=insist)
            tried += command is None and context.refused.issuperset(group.names)
        if command is not None:
            commands.append(command)
    return commands


def outdated(context: DisruptionContext) -> Iterator[Command]:
    """Gives back machines that were bought to replace others and are not what their pool declares any more.

    Asked before all methods: who moved there would have to move once more, for drift. Where somebody has moved already,
    or has to leave by an instant, it is too late. Karpenter lets the old machines go, and moves their pods twice.
    """
    purchases = _purchases(context.snapshot.index, context.snapshot.claims)
    changed = drifts(context.fleet, context.snapshot) if purchases else {}
    for bought in purchases:
        olds = [context.snapshot.claims.get(name) for name in bought[0].replaces]
        why = next((found for it in bought if (found := changed.get(it.name)) and found.reason in _DECLARED), None)
        if why is None or not all(old is not None and _may_stay(old) for old in olds):
            continue
        if all(_unmoved(context, claim) for claim in bought):
            context.taken.update((*bought[0].replaces, *(claim.name for claim in bought)))
            yield Command(bought, Reason.NOT_NEEDED, f"nobody has moved there yet, and one move is enough: {why.words}")


_DECLARED: Final = frozenset({DriftReason.TEMPLATE, DriftReason.REQUIREMENTS})
"""What a revision alone changes: no machine that is bought after it is so again."""


def _may_stay(old: Claim) -> bool:
    """Returns whether a machine that is to be replaced has no end of its own, and nothing has begun."""
    return not (old.deleting or old.disruption or old.advised_at_s or old.capacity_pool.reservation)


def _unmoved(context: DisruptionContext, claim: Claim) -> bool:
    """Returns whether nothing stands on a machine nor happens to it, and neither node nor DaemonSets keep it."""
    left_alone = claim_subject(claim.name) in (context.snapshot.busy | context.snapshot.set_aside)
    happens = left_alone or claim.disruption is not None or claim.deleting or claim.name in context.taken
    return not happens and context.is_empty(claim) and spared(context, claim, Reason.NOT_NEEDED) is None


def unused(context: DisruptionContext) -> Iterator[Command]:
    """Gives back machines that have been ready for long, and that what they were bought for has not moved to.

    Asked after all methods: whatever they let go now moves. What keeps the old machines (a PodDisruptionBudget, a
    do-not-disrupt, a queue that was stopped) keeps them; nobody buys for them again while it does. A do-not-disrupt on
    the machines themselves keeps these.
    """
    for bought in _purchases(context.snapshot.index, context.snapshot.claims):
        olds = [context.snapshot.claims.get(name) for name in bought[0].replaces]
        staying = [old for old in olds if old and not old.deleting and not old.disruption]
        names = [old.name for old in staying]
        if not names or not context.taken.isdisjoint(names) or unready(context, names):
            continue
        if _all_idle(context, bought):
            context.taken.update(claim.name for claim in bought)
            why = f"what it was bought for has stayed on {some_of(names)} for {MOVES_WITHIN_S / 60:.0f} min"
            held = context.pod_budget(staying, Reason.UNDERUTILIZED)
            yield Command(bought, Reason.NOT_NEEDED, f"{why}: {held.message}" if held is not None else why)


def _all_idle(context: DisruptionContext, bought: Sequence[Claim]) -> bool:
    """Returns whether machines have been ready for as long as is waited for a move, and nothing is on them."""
    ready_s = context.snapshot.now_s - MOVES_WITHIN_S
    ready = all(claim.state is ClaimState.READY and claim.ready_at_s <= ready_s for claim in bought)
    return ready and all(_unmoved(context, claim) for claim in bought)


@derived()
def _purchases(_index: Index, claims: Mapping[str, Claim]) -> Sequence[tuple[Claim, ...]]:
    """Returns the machines that were bought to replace others, by launch group."""
    groups: dict[str, list[Claim]] = {}
    replacing = [claim for claim in claims.values() if claim.replaces]
    for claim in sorted(replacing, key=lambda claim: claim.name):
        groups.setdefault(claim.launch.group, []).append(claim)
    return [tuple(group) for group in groups.values()]


def whatever_budgets_say(context: DisruptionContext, due: Due, *, insist: bool = False) -> list[Command]:
    """Returns commands for idle machines that are `due`, which go at once, then for busy ones; budgets count them."""
    if not due:
        return []
    idle = [claim for _, claim in context.candidates() if claim.name in due and context.is_empty(claim)]
    context.taken.update(claim.name for claim in idle)
    commands = [Command((claim,), *due[claim.name]) for claim in idle]
    return [*commands, *replacing(context, due, budgeted=False, insist=insist)]


def _command(
    context: DisruptionContext,
    group: CandidateGroup,
    due: Due,
    staying: _StayingMachines,
    *,
    budgeted: bool,
    insist: bool,
) -> Command | None:
    """Lets a group go where all that was bought for it is ready; else what it lacks is bought first."""
    reason, why = due[group.names[0]]
    wait = unready(context, group.names) or context.pod_budget(group.claims, reason)
    if wait or (not insist and _incomplete(context, group, staying.avoid)):
        return None
    bought = coming(context, group.names)
    if budgeted and not bought and not context.may_take(group.claims, reason):
        return None
    context.taken.update(group.names)
    if complete(bought):
        return Command(group.claims, reason, why)
    plans = context.simulate(group, avoid=staying.avoid)
    if isinstance(plans, Refusal):
        if insist:
            return Command(group.claims, reason, why)
        context.refused.update(group.names)
        context.let_be(group.claims, budgeted=budgeted and not bought)
        return None
    if not insist and any(plan.purchases for plan in plans.values()):
        plans = staying.move_there(group) or plans
    context.promise(group.gangs, plans)
    return Command(group.claims, reason, why, claims_of(plans, group, context.snapshot.now_s))


def _incomplete(context: DisruptionContext, group: CandidateGroup, avoid: Collection[str]) -> bool:
    """Returns whether a machine under these gangs is missing that is to leave as they are, only not at this moment.

    An action on it is under way, or the one that it replaced is not gone. Without it two are bought in place of one.
    """
    snapshot = context.snapshot
    others = {pin.claim for gang in group.gangs for pin in gang.pins}.intersection(avoid).difference(group.names)
    return any(
        name in busy(snapshot) or context.awaits_move(snapshot.claims[name])
        for name in others
        if name in snapshot.claims
    )


def why_not_replaced(
    context: DisruptionContext, claim: Claim, due: Due, *, avoid: Iterable[str] = (), budgeted: bool = True
) -> Blocked:
    """Tells what keeps a busy machine among those that are `due`; or that others go first. The rest as `replacing`."""
    reason, why = due[claim.name]
    blocked = (_never_in_budget(context, claim, due) or _out_of_budget(context, claim, due)) if budgeted else None
    blocked = blocked or keeps(context, claim, reason) or replacement(context, claim)
    return (blocked or _group_blocked(context, claim, due, frozenset({*due, *avoid}))).although(why)


def _never_in_budget(context: DisruptionContext, claim: Claim, due: Due) -> Blocked | None:
    words = _over_budget(context, due).get(claim.name)
    return Blocked(Obstacle.BUDGET, f"it {words}") if words else None


def _out_of_budget(context: DisruptionContext, claim: Claim, due: Due) -> Blocked | None:
    """Blocks where a gang spans more machines than the budgets let go now."""
    group = _group_of(context, claim, due)
    for name, count in _by_pool(group.claims) if group is not None else ():
        if count > (left := context.budget(name, due[claim.name][0])):
            words = f"{count} machines go together, the budgets of {name} let {left} go now"
            return Blocked(Obstacle.BUDGET, words)
    return None


def _group_blocked(context: DisruptionContext, claim: Claim, due: Due, avoid: Collection[str]) -> Blocked:
    """Tells what keeps the machines that go with this one."""
    group = _group_of(context, claim, due)
    if group is None:
        return Blocked(Obstacle.GANG, "machines that go with it carry work that may not move")
    if (held := context.pod_budget(group.claims, due[claim.name][0])) is not None:
        return held
    plans = context.simulate(group, avoid=avoid)
    if isinstance(plans, Refusal):
        return Blocked(Obstacle.NO_PLACE, plans.message)
    return Blocked(Obstacle.TURN, "others go first, its turn comes")


def _over_budget(context: DisruptionContext, due: Due) -> dict[str, str]:
    """Says of busy machines (by claim) why they stay until their gangs end: no budget ever lets their group go."""
    found: dict[str, str] = {}
    for group in groups(context, due):
        if words := _beyond(context, group, due[group.names[0]][0]):
            found |= dict.fromkeys(group.names, words)
    return found


def _beyond(context: DisruptionContext, group: CandidateGroup, reason: Reason) -> str:
    for name, count in _by_pool(group.claims):
        pool = context.fleet.node_pools.get(name)
        if pool is None:
            continue
        ready = sum(1 for claim in context.members.get(name, ()) if claim.ready_at_s)
        most = allowed(pool, reason, ready, 0, context.snapshot.now_s)
        if count > most:
            gangs = ", ".join(gang.name for gang in group.gangs[:3])
            return f"stays until {gangs} end: {count} machines go together, the budget of {name} allows {most}"
    return ""


def _by_pool(claims: Iterable[Claim]) -> Sequence[tuple[str, int]]:
    """Counts the machines of each pool, in order of its name."""
    return sorted(Counter(claim.node_pool for claim in claims).items())


# -- which machines go together ---------------------------------------------------------------------------------------


def groups(context: DisruptionContext, due: Due) -> list[CandidateGroup]:
    """Joins the busy machines that are `due` where a gang spans several; what may not move is left out."""
    if not due:
        return []
    able = [claim for _, claim in context.candidates() if claim.name in due]
    in_use = {claim.name: claim for claim in able if not context.is_empty(claim)}
    seen: set[str] = set()
    found = []
    for name in sorted(in_use):
        if name not in seen:
            with concerning(claim_subject(name)):
                group = _spanned(context, in_use, name)
                seen |= set(group.names)
                if not any(immovable(context, claim, due[claim.name][0]) for claim in group.claims):
                    found.append(group)
    return found


def _spanned(context: DisruptionContext, in_use: Mapping[str, Claim], start: str) -> CandidateGroup:
    """Returns the busy machines that gangs tie to `start`, directly or over others, and these gangs."""
    names, gangs, todo = {start}, {}, [start]
    while todo:
        for gang in context.gangs_on(in_use[todo.pop()]):
            gangs[gang.uid] = gang
            more = {pin.claim for pin in gang.pins if pin.claim in in_use} - names
            names |= more
            todo += sorted(more)
    return CandidateGroup(tuple(in_use[name] for name in sorted(names)), tuple(gangs[uid] for uid in sorted(gangs)))


def _group_of(context: DisruptionContext, claim: Claim, due: Due) -> CandidateGroup | None:
    """Returns the machines that go with this one, and their gangs; None when one of these may not move."""
    return next((group for group in groups(context, due) if claim.name in group.names), None)


# -- what was bought for them -----------------------------------------------------------------------------------------


def coming(context: DisruptionContext, names: Iterable[str]) -> list[Claim]:
    """Returns the replacements of these machines that are, or will be, there; those given up do not count."""
    found = {claim.name: claim for name in names for claim in context.successors.get(name, ())}
    return [claim for claim in found.values() if not claim.disruption and not claim.deleting]


def complete(bought: Sequence[Claim]) -> bool:
    """Returns whether there are replacements and none of their launch group has been lost since."""
    sizes = {claim.launch.group: claim.launch.size for claim in bought}
    return bool(bought) and sum(sizes.values()) == len(bought)


def unready(context: DisruptionContext, names: Iterable[str]) -> Blocked | None:
    """Blocks while machines that were bought to replace these are not ready yet."""
    waiting = sorted(other.name for other in coming(context, names) if other.state is not ClaimState.READY)
    return Blocked(Obstacle.REPLACEMENT, f"{', '.join(waiting)} has to be ready first") if waiting else None


def replacement(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Blocks where a machine was bought to replace this one, whether it is ready or not."""
    bought = coming(context, [claim.name])
    ready = Blocked(Obstacle.REPLACEMENT, f"{bought[0].name} stands ready for it") if bought else None
    return unready(context, [claim.name]) or ready


def claims_of(
    plans: Mapping[str, PlacementPlan], group: CandidateGroup, now_s: float, *, shared: bool = False
) -> tuple[Claim, ...]:
    """Writes claims for all that the plans buy, in one launch group: the machines leave together or not at all.

    A machine is for the gangs that find places on it; where the purchase is `shared`, each is for all gangs of the
    group. Empty where nothing is bought.
    """
    bought: list[Claim] = []
    purpose = f"in place of {some_of(group.names)}"
    everybody, users = frozenset(gang.uid for gang in group.gangs), bought_for(plans)
    ordinary = {gang.uid for gang in group.gangs if gang.ordinary}
    for uid, plan in sorted(plans.items()):
        owner = "" if uid in ordinary else uid
        claims = write_claims(plan, uid, now_s, gang=owner, replaces=group.names, purpose=purpose).claims
        for claim, gangs in zip(claims, users[uid], strict=True):
            others = {FOR_PODS if it in ordinary else it for it in (everybody if shared else gangs)} - {owner}
            bought.append(replace(claim, also_for=tuple(sorted(others))))
    lots = sorted({(claim.launch.group, claim.launch.lot) for claim in bought})
    return tuple(
        replace(claim, launch=Launch(lots[0][0], lots.index((claim.launch.group, claim.launch.lot)), len(bought)))
        for claim in bought
    )
