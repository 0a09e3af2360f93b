"""Rolling a layout out (`sharing.mig.rollout`): which machine with another layout is drained and cut next.

Who is cut is cordoned and emptied by `fleet.nodeclaims.cutting`, whole gangs by their own life cycle. Machines that are
idle go first, then those whose work would lose least; work that says how often it writes checkpoints may wait for the
next one, until the deadline.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from fleet.actions import SaveClaim, claim_subject
from fleet.cost.lost_work import lost_since_s, lost_work_usd
from fleet.disruption.context import DisruptionContext
from fleet.disruption.eligibility import keeps, spared
from fleet.disruption.outcomes import Blocked, Obstacle
from fleet.fence import Decided, each
from fleet.mig.layouts import TAKES_OVER, cut, cut_anew, layout_name, pool_layouts
from fleet.reasons import Reason, some_of
from fleet.scheduling.prefilter import frozen
from fleet.snapshot import Claim, CutOrder, Gang, Snapshot
from model.fleet import Fleet
from model.kinds import NodePool
from model.kinds.node_pool import LayoutRollout
from model.plain_text import age, number_of
from model.quantity import Resources

FRESH_S: Final = 60.0
"""Work whose last checkpoint is no older than this loses next to nothing."""


class _Target(NamedTuple):
    layout: str
    gpus: Resources


@dataclass(frozen=True, slots=True)
class LayoutTurn:
    """The `LayoutTurn` is what a roll-out looks at in one pass over one pool."""

    context: DisruptionContext
    pool: NodePool
    rollout: LayoutRollout
    stale: Sequence[Claim]
    """Ready machines of the pool that have a layout which it does not declare."""

    @property
    def deadline_s(self) -> float:
        """Returns from when on work waits for no checkpoint (epoch seconds)."""
        record = self.context.snapshot.layout_records.get(self.pool.name)
        declared = tuple(pool_layouts(self.context.fleet, self.pool))
        known = record is not None and (record.rolled_back or record.declared == declared)
        began_s = record.since_s if record is not None and known else self.context.snapshot.now_s
        return began_s + self.rollout.deadline

    def left(self) -> int:
        """Returns how many more machines may be cut now."""
        members = self.context.members.get(self.pool.name, ())
        cutting = sum(it.recut_at_s > it.ready_at_s > 0 for it in members)
        return max(0, _most(self.rollout.budget, len(members)) - cutting)

    def why_not(self, claim: Claim) -> Blocked | None:
        """Returns what keeps a machine from being drained now; None where nothing does."""
        context, reason = self.context, Reason.LAYOUT_ROLLOUT
        blocked, now_s = spared(context, claim, reason) or keeps(context, claim, reason), context.snapshot.now_s
        if blocked is not None or now_s >= self.deadline_s:
            return blocked
        for gang in self.context.gangs_on(claim):
            if (until_s := next_checkpoint_s(gang, now_s)) > now_s:
                words = f"{gang.name} writes its next checkpoint in {age(until_s - now_s)}"
                return Blocked(Obstacle.TURN, words, min(until_s, self.deadline_s))
        return None

    def lost_usd(self, claim: Claim) -> float:
        """Returns what the work on a machine would lose (USD) if it left now."""
        return sum(lost_work_usd(gang, self.context.snapshot) for gang in self.context.gangs_on(claim))

    def next(self) -> Iterator[Claim]:
        """Yields the machines that are cut now: idle ones, then those whose work loses least."""
        left = self.left()
        order = sorted(self.stale, key=lambda it: (not self.context.is_empty(it), self.lost_usd(it), it.name))
        for claim in order:
            if left < 1:
                return
            if self.context.is_empty(claim) or self.why_not(claim) is None:
                left -= 1
                yield claim


def next_checkpoint_s(gang: Gang, now_s: float) -> float:
    """Returns until when a gang had better run on (epoch s): its next checkpoint; now, where it has just written one.

    Of who does not say how often it writes them nothing is to be waited for.
    """
    interval_s = gang.checkpoint_interval_s
    if not interval_s or not gang.admitted_at_s:
        return now_s
    since_s = lost_since_s(gang, now_s)
    return now_s if now_s - since_s <= FRESH_S or now_s - since_s > 2 * interval_s else since_s + interval_s


def turns(fleet: Fleet, snapshot: Snapshot, stale: Mapping[str, Claim]) -> Iterator[LayoutTurn]:
    """Yields for each pool that rolls layouts out and has machines of another one what is looked at."""
    pools = {claim.node_pool for claim in stale.values()}
    rollouts = {name: found for name in sorted(pools) if (found := _rollout(fleet.node_pools[name])) is not None}
    if not rollouts:
        return
    context = DisruptionContext.of(fleet, snapshot)
    able: dict[str, list[Claim]] = {}
    for _, claim in context.candidates():
        if claim.name in stale:
            able.setdefault(claim.node_pool, []).append(claim)
    for name, rollout in rollouts.items():
        yield LayoutTurn(context, fleet.node_pools[name], rollout, able.get(name, []))


def roll_out(fleet: Fleet, snapshot: Snapshot, stale: Mapping[str, Claim]) -> Iterator[Decided]:
    """Yields the next machines to be drained and cut, pool by pool; none while a freeze window blocks disruption."""
    if frozen(fleet, snapshot.now_s, "Disruption"):
        return
    for turn in turns(fleet, snapshot, stale):
        subjects = ((claim_subject(claim.name), claim) for claim in turn.next())
        yield from each(snapshot, subjects, lambda claim, turn=turn: _cut(turn, claim))  # type: ignore[misc]


def _cut(turn: LayoutTurn, claim: Claim) -> Iterable[SaveClaim]:
    target = _target(turn, claim)
    if target is None:
        return ()
    now_s = turn.context.snapshot.now_s
    gangs = [gang.name for gang in turn.context.gangs_on(claim)]
    move = f"{some_of(gangs)} {number_of(len(gangs), 'moves', 'move')}"
    work = f"; {move}, {turn.lost_usd(claim):.2f} USD of work is lost" if gangs else ""
    words = f"node pool {turn.pool.name} {TAKES_OVER} {layout_name(target.layout)}{work}"
    order = CutOrder(Reason.LAYOUT_ROLLOUT, words, now_s, former=claim.layout)
    return [SaveClaim(cut_anew(claim, target.layout, target.gpus, now_s, order))]


def _target(turn: LayoutTurn, claim: Claim) -> _Target | None:
    """Returns the first layout of the pool that fits the machine."""
    machine = turn.context.snapshot.catalog.types.get(claim.capacity_pool.instance_type)
    if machine is None:
        return None
    for name, layout in pool_layouts(turn.context.fleet, turn.pool).items():
        if (gpus := cut(machine, layout)) is not None:
            return _Target(name, gpus)
    return None


def _rollout(pool: NodePool) -> LayoutRollout | None:
    return pool.spec.sharing.mig.rollout if pool.spec.sharing.mig is not None else None


def _most(budget: int | str, machines: int) -> int:
    if isinstance(budget, int):
        return budget
    return ceil(machines * int(budget.removesuffix("%")) / 100)
