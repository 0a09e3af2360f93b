"""What disruption methods look at in one pass: machines that may go, what runs on them, and the budgets left."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fleet.actions import Withdrawal, claim_subject, pool_subject
from fleet.disruption.budgets import allowed, headcount, heeds, replacing
from fleet.disruption.outcomes import Blocked, Obstacle
from fleet.disruption.simulation import CandidateGroup, SchedulingSimulation
from fleet.fence import claims_among, claims_set_aside, concerning
from fleet.gangs.pod_budgets import closed_budget, pod_budget_refusal
from fleet.nodeclaims.capacity_buffers import buffer_tenants
from fleet.offerings.offerings import Offering
from fleet.offerings.reservations import reservation_of, terminates_s
from fleet.placement.inventory import comes_too_late
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason, Refusal
from fleet.scheduling.prefilter import readmission_refusal
from fleet.snapshot import Claim, ClaimState, Gang, GangState, Node, Outlook, Pod, PodBudget, Snapshot
from fleet.snapshot.lookups import awaited, claims_by_pool, claims_whatever_runs, holders, tenants
from fleet.snapshot.outlook import NOTHING
from model.fleet import Fleet
from model.index import Index, TableChanges, derived, followed, followed_each
from model.kinds import NodePool

T = TypeVar("T")
Candidate = tuple[NodePool | None, Claim]
"""A machine that may go, and its pool; None when that was removed."""


@dataclass(slots=True)
class DisruptionContext:
    """One pass over the machines: what a method takes, the methods after it see as taken."""

    fleet: Fleet
    snapshot: Snapshot
    held: Mapping[str, Sequence[Gang]]
    """Claim -> gangs with pods pinned to its machine, ordinary pods and those of CapacityBuffers as gangs."""
    members: Mapping[str, Sequence[Claim]]
    """Pool -> its claims."""
    successors: Mapping[str, Sequence[Claim]]
    """Claim -> the claims that name it as one they replace, whatever became of them."""
    taken: set[str] = field(default_factory=set)
    """Claims that an earlier method has taken already."""
    refused: set[str] = field(default_factory=set)
    """Claims that had to stay in this pass, as there was no place for what is on their machines."""
    spent: dict[str, int] = field(default_factory=dict)
    """Pool -> machines taken from its budgets in this pass."""
    promised: list[tuple[Gang, PlacementPlan]] = field(default_factory=list)
    """Gangs that will move, and the places found for them in this pass."""
    outlook: Outlook = NOTHING
    """What consolidation has in mind; each pass begins with what the one before has left."""
    withdrawn: list[Withdrawal] = field(default_factory=list)
    hosts: set[str] = field(init=False)
    """Claims on which places have been promised."""
    objecting: Mapping[str, bool] = field(init=False)
    """Nodes that may have something against being disrupted, or a pod of a DaemonSet on them: hardly any."""
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Pool -> ready machines, and how many of them count as disrupted already."""
    _undisturbed: Mapping[str, tuple[str, float]] = field(init=False)
    """The machines that could go (`_undisturbed`)."""
    _aside: set[str] = field(init=False)
    """Those of them that are left alone in this pass."""
    _simulation: SchedulingSimulation | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.hosts = {it.slot.claim for _, plan in self.promised for it in plan.assignments}
        seen = self.snapshot
        guarded = _guarded(seen.index, seen.pod_budgets)
        self.objecting = _objecting(seen.index, seen.nodes, seen.daemon_pods, guarded)
        lasting = claims_whatever_runs(seen)
        self._undisturbed = _undisturbed(seen.index, lasting)
        self._aside = {name for name in busy(seen) | claims_set_aside(seen) if name in self._undisturbed}
        new = [name for name in replacing(seen.index, lasting) if name in self._undisturbed]
        self._aside |= {name for name in new if self.awaits_move(seen.claims[name])}

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "DisruptionContext":
        """Returns the context of a pass in which nothing has been taken yet."""
        held, members = _with_buffers(tenants(snapshot), buffer_tenants(fleet, snapshot)), claims_by_pool(snapshot)
        replaced = replacing(snapshot.index, claims_whatever_runs(snapshot))
        successors = _successors(snapshot.index, snapshot.claims) if replaced else {}
        return cls(fleet, snapshot, held, members, successors, outlook=snapshot.outlook)

    # -- machines and what runs on them --

    def candidates(self) -> Sequence[Candidate]:
        """Returns ready machines that nothing else is happening to, with their pool (None when it was removed)."""
        return self._left(_candidates)

    def idle(self) -> Sequence[Candidate]:
        """Returns the candidates on which nothing has run for a while, as their claims say."""
        return self._left(_idle)

    def advised(self) -> Sequence[Candidate]:
        """Returns the candidates that the cloud advises to leave."""
        return self._left(_advised)

    def older_than(self, age_s: Callable[[NodePool], float]) -> Sequence[Candidate]:
        """Returns the candidates of pools of which one has been there for longer than the pool's `age_s` (seconds)."""
        now_s, pools = self.snapshot.now_s, self.fleet.node_pools
        oldest = _oldest_s(self.snapshot.index, self._undisturbed)
        old = ((pools[name], launched_at_s) for name, launched_at_s in oldest.items() if name in pools)
        found = {pool.name for pool, launched_at_s in old if now_s >= launched_at_s + age_s(pool)}
        return [it for it in self.candidates() if it[1].node_pool in found] if found else ()

    def _left(self, view: "_Machines") -> Sequence[Candidate]:
        found = view(self.snapshot.index, claims_by_pool(self.snapshot), self._undisturbed, self.fleet.node_pools)
        away = self.taken | self._aside if self._aside else self.taken
        return [it for it in found if it[1].name not in away] if away else found

    def awaits_move(self, claim: Claim) -> bool:
        """Returns whether a gang that a replacement is for has not moved in yet, and is still waited for."""
        if any(name in self.snapshot.claims for name in claim.replaces):
            return True
        gangs = [gang for uid in claim.gangs if (gang := self.snapshot.gangs.get(uid)) is not None]
        moving = [gang for gang in gangs if gang.state in {GangState.PENDING, GangState.EVICTING}]
        return any(not self._stays_away(claim, gang) for gang in moving)

    def _stays_away(self, claim: Claim, gang: Gang) -> bool:
        """Returns whether a gang that was to move to a machine will not: it was free to for long, or may not start."""
        if comes_too_late(self.snapshot, claim, gang):
            return True
        return gang.state is GangState.PENDING and readmission_refusal(self.fleet, self.snapshot, gang) is not None

    def pool_of(self, claim: Claim) -> NodePool | None:
        """Returns the machine's pool; None when it was removed."""
        return self.fleet.node_pools.get(claim.node_pool)

    def gangs_on(self, claim: Claim) -> Sequence[Gang]:
        """Returns the gangs with pods pinned to the machine."""
        return self.held.get(claim.name, ())

    def group(self, claims: Sequence[Claim]) -> CandidateGroup:
        """Returns these machines and all gangs on them."""
        gangs = {gang.uid: gang for claim in claims for gang in self.gangs_on(claim)}
        return CandidateGroup(tuple(claims), tuple(gangs[uid] for uid in sorted(gangs)))

    def is_empty(self, claim: Claim) -> bool:
        """Returns whether no gang is on the machine, and no pod but those of DaemonSets, nor any expected there."""
        if self.gangs_on(claim) or self.snapshot.node_pods.get(claim.node):
            return False
        return claim.name not in awaited(self.snapshot)

    # -- budgets --

    def budget(self, pool_name: str, reason: Reason) -> int:
        """Returns how many more machines of the pool may go for this reason in this pass."""
        pool = self.fleet.node_pools.get(pool_name)
        if pool is None:
            return 1 << 31  # the guard rails have let the pool's removal pass
        with concerning(pool_subject(pool_name)):
            if pool_name not in self._counts:
                self._counts[pool_name] = headcount(self.members.get(pool_name, ()), self.snapshot)
            ready_count, leaving = self._counts[pool_name]
            taken = self.spent.get(pool_name, 0)
            return allowed(pool, reason, ready_count, leaving + taken, self.snapshot.now_s)

    def may_take(self, claims: Iterable[Claim], reason: Reason) -> bool:
        """Takes these machines from their pools' budgets; False, and none is taken, where those do not allow it."""
        by_pool: dict[str, int] = {}
        for claim in claims:
            by_pool[claim.node_pool] = by_pool.get(claim.node_pool, 0) + 1
        if any(count > self.budget(pool, reason) for pool, count in by_pool.items()):
            return False
        for pool, count in by_pool.items():
            self.spent[pool] = self.spent.get(pool, 0) + count
        self.taken.update(claim.name for claim in claims)
        return True

    def let_be(self, claims: Sequence[Claim], *, budgeted: bool) -> None:
        """Undoes that these machines were taken: they stay, and others may have what the budgets allow."""
        self.taken -= {claim.name for claim in claims}
        for claim in claims if budgeted else ():
            self.spent[claim.node_pool] -= 1

    def in_the_end(self, claim: Claim, reason: Reason) -> bool:
        """Returns whether a machine goes for this reason whatever its pods say, as its drain has to end some time."""
        return reason is Reason.DRIFTED and not heeds(reason, self._grace_s(claim))

    def closed_budget(self, pod: Pod) -> str:
        """Returns the PodDisruptionBudget, by key, that allows no eviction of a pod now; empty where there is none."""
        return closed_budget(self.snapshot, pod) if self.snapshot.pod_budgets else ""

    def pod_budget(self, claims: Sequence[Claim], reason: Reason) -> Blocked | None:
        """Returns what PodDisruptionBudgets have against the gangs on these machines leaving now, all at once."""
        if not self.snapshot.pod_budgets or not any(heeds(reason, self._grace_s(claim)) for claim in claims):
            return None
        gangs = {gang.uid: gang for claim in claims for gang in self.gangs_on(claim)}
        found = pod_budget_refusal(self.snapshot, gangs, lambda: self._on_their_way(claims))
        if found is None:
            return None
        return Blocked(Obstacle.SEVERAL_POD_BUDGETS if found.contested else Obstacle.POD_BUDGET, found.words)

    def _on_their_way(self, claims: Sequence[Claim]) -> Mapping[str, Gang]:
        """Returns the gangs (by uid) that leave, or will when what replaces their machines is ready.

        Of two moves that have begun neither counts the other's: the first to be ready goes.
        """
        names, index = {claim.name for claim in claims}, self.snapshot.index
        replaced = _replaced(index, self.successors, self.held)
        begun = not names.isdisjoint(replaced)
        found = dict(_leaving(index, self.snapshot.claims, holders(self.snapshot), self.held))
        for gangs in () if begun else replaced.values():
            found |= {gang.uid: gang for gang in gangs}
        for name in self.taken - names:
            found |= {gang.uid: gang for gang in self.held.get(name, ())}
        return found

    def deadline_s(self, claim: Claim) -> float:
        """Returns until when the drain may take (epoch s), by the pool's grace period and the end of its block."""
        ends_s = self.snapshot.now_s + self._grace_s(claim)
        return min(ends_s, terminates_s(reservation_of(self.snapshot, claim)))

    def _grace_s(self, claim: Claim) -> float:
        """Returns the pool's termination grace period; infinite for a pool that is not declared any more."""
        pool = self.pool_of(claim)
        return pool.spec.template.termination_grace_period if pool else math.inf

    # -- places elsewhere --

    def simulate(
        self, group: CandidateGroup, *, avoid: Collection[str] = (), bought: Sequence[Offering] | None = None
    ) -> dict[str, PlacementPlan] | Refusal:
        """Finds a place for every gang (uid) of a group without its machines (`SchedulingSimulation.schedule`).

        Machines that this pass has told to go, and those to `avoid`, are no place to move to, nor are places that were
        promised to others.
        """
        if self._simulation is None:
            self._simulation = SchedulingSimulation.of(self.fleet, self.snapshot)
        self._simulation.prepare(self.taken, self.promised, avoid)
        return self._simulation.schedule(group, bought)

    def promise(self, gangs: Iterable[Gang], plans: Mapping[str, PlacementPlan]) -> None:
        """Notes that these gangs will move, to the places of their plans (by uid)."""
        for gang in gangs:
            self.promised.append((gang, plans[gang.uid]))
            self.hosts |= {it.slot.claim for it in plans[gang.uid].assignments}


def _with_buffers(
    held: Mapping[str, Sequence[Gang]], spare: Mapping[str, Sequence[Gang]]
) -> Mapping[str, Sequence[Gang]]:
    """Returns also the pods that CapacityBuffers stand for: they have to have a place elsewhere as others do."""
    return {**held, **{name: (*held.get(name, ()), *gangs) for name, gangs in spare.items()}} if spare else held


def found_at(candidates: Iterable[Candidate], look: Callable[[NodePool | None, Claim], T | None]) -> list[T]:
    """Returns what `look` finds at each of the candidates; what it raises is about the one it looked at."""
    found: list[T] = []
    subject = ""
    try:
        for pool, claim in candidates:
            subject = claim.name
            if (one := look(pool, claim)) is not None:
                found.append(one)
    except Exception:
        with concerning(claim_subject(subject)):  # here, as entering it for every one of ten thousand takes its time
            raise
    return found


def busy(snapshot: Snapshot) -> frozenset[str]:
    """Returns the claims on which an action is under way."""
    return claims_among(snapshot.busy)


@followed_each()
def _undisturbed(claim: Claim) -> tuple[str, float] | None:
    """Returns of a ready machine that is not leaving nor being cut anew its pool, and when it was launched."""
    able = claim.state is ClaimState.READY and claim.disruption is None and claim.recut_at_s <= claim.ready_at_s
    return (claim.node_pool, claim.launched_at_s) if able else None


_Members = Mapping[str, Sequence[Claim]]
_Machines = Callable[[Index, _Members, Mapping[str, tuple[str, float]], Mapping[str, NodePool]], Sequence[Candidate]]
"""A view of the undisturbed machines, by pool and name: all of them, or those of which something is so."""


@derived()
def _candidates(
    _index: Index, members: _Members, undisturbed: Mapping[str, tuple[str, float]], pools: Mapping[str, NodePool]
) -> Sequence[Candidate]:
    return [(pools.get(pool), it) for pool, claims in members.items() for it in claims if it.name in undisturbed]


@derived()
def _idle(
    _index: Index, members: _Members, undisturbed: Mapping[str, tuple[str, float]], pools: Mapping[str, NodePool]
) -> Sequence[Candidate]:
    idle = [(pool, it) for pool, claims in members.items() for it in claims if it.emptied_at_s]
    return [(pools.get(pool), it) for pool, it in idle if it.name in undisturbed]


@derived()
def _advised(
    _index: Index, members: _Members, undisturbed: Mapping[str, tuple[str, float]], pools: Mapping[str, NodePool]
) -> Sequence[Candidate]:
    advised = [(pool, it) for pool, claims in members.items() for it in claims if it.advised_at_s]
    return [(pools.get(pool), it) for pool, it in advised if it.name in undisturbed]


@followed(dict[str, float])
def _oldest_s(before: dict[str, float], changes: TableChanges[tuple[str, float]]) -> dict[str, float]:
    """Returns pool -> when the oldest of the undisturbed machines was launched (epoch seconds)."""
    found = before.copy()
    for _, (pool, launched_at_s) in changes.came():
        found[pool] = min(launched_at_s, found.get(pool, launched_at_s))
    for pool in {pool for _, (pool, launched_at_s) in changes.gone() if launched_at_s <= before[pool]}:
        left = [launched_at_s for its, launched_at_s in changes.now.values() if its == pool]
        found.pop(pool, None)
        if left:
            found[pool] = min(left)
    return found


@derived()
def _leaving(
    _index: Index, claims: Mapping[str, Claim], gangs: Sequence[Gang], held: Mapping[str, Sequence[Gang]]
) -> Mapping[str, Gang]:
    """Returns the gangs (by uid) that are told to go, or stand on a machine that is."""
    going = [claim.name for claim in claims.values() if claim.deleting or claim.disruption is not None]
    found = {gang.uid: gang for gang in gangs if gang.state is GangState.EVICTING}
    return found | {gang.uid: gang for name in going for gang in held.get(name, ())}


@derived()
def _replaced(
    _index: Index, successors: Mapping[str, Sequence[Claim]], held: Mapping[str, Sequence[Gang]]
) -> Mapping[str, Sequence[Gang]]:
    """Returns for each claim that a machine comes or stands in place of the gangs on it."""
    alive = (name for name, bought in successors.items() if any(not it.disruption and not it.deleting for it in bought))
    return {name: held.get(name, ()) for name in alive}


@followed_each(2)
def _objecting(node: Node, daemons: Sequence[Pod] | None, guarded: frozenset[str]) -> bool | None:
    """Returns True for a node that is not to be disrupted, or of which a pod of a DaemonSet may have to stay."""
    if node.do_not_disrupt:
        return True
    objects = any(pod.do_not_disrupt or pod.namespace in guarded for pod in daemons or ())
    return True if objects else None


@derived(steady=True)
def _guarded(_index: Index, budgets: Mapping[str, PodBudget]) -> frozenset[str]:
    """Returns the namespaces with PodDisruptionBudgets."""
    return frozenset(budget.namespace for budget in budgets.values())


@derived()
def _successors(_index: Index, claims: Mapping[str, Claim]) -> Mapping[str, Sequence[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims.values():
        if claim.replaces:
            for name in claim.replaces:
                found.setdefault(name, []).append(claim)
    return found
