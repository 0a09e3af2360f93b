"""What disruption methods look at: machines that may go, what runs on them, and the budgets left."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.actions import Withdrawal, claim_subject, gang_subject
from fleet.disruption.budgets import allowed, headcount
from fleet.disruption.eligibility import Care, Post, Tenant, barrier, protected
from fleet.disruption.pod_budgets import heeds, held_by_pod_budget
from fleet.disruption.terrain import Terrain
from fleet.disruption.verdict import Held
from fleet.offerings.reservations import reservation_of, terminates_s
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Gang, GangState, Node, Outlook, Snapshot
from fleet.snapshot.lookups import claims_by_pool, holders, machines_held
from fleet.snapshot.memo import remembered
from fleet.snapshot.outlook import NOTHING
from model.fleet import Fleet
from model.kinds import NodePool


@dataclass(slots=True)
class Yard:
    """One pass over the machines. `spent` grows as methods take from the budgets."""

    fleet: Fleet
    snapshot: Snapshot
    held: Mapping[str, Sequence[Gang]]
    members: Mapping[str, Sequence[Claim]]
    successors: Mapping[str, Sequence[Claim]]
    """Claim -> the claims that name it as one they replace, whatever became of them."""
    gone: set[str] = field(default_factory=set)
    """Claims that an earlier method has taken already."""
    spent: dict[str, int] = field(default_factory=dict)
    promised: list[tuple[Gang, PlacementPlan]] = field(default_factory=list)
    """Gangs that will move, and the places found for them in this pass."""
    outlook: Outlook = NOTHING
    """What consolidation has in mind; each pass begins with what the one before has left."""
    withdrawn: list[Withdrawal] = field(default_factory=list)
    hosts: set[str] = field(init=False)
    """Claims on which places have been promised."""
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Pool -> ready machines, and how many of them count as disrupted already."""
    _terrain: Terrain | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.hosts = {seat.slot.claim for _, plan in self.promised for seat in plan.assignments}

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "Yard":
        """Claims by pool, in order of name."""
        held = machines_held(snapshot)
        members, successors = claims_by_pool(snapshot), _successors(snapshot.claims)
        return cls(fleet, snapshot, held, members, successors, outlook=snapshot.outlook)

    def terrain(self, avoid: Collection[str] = ()) -> Terrain:
        """Where gangs might move to: not to machines that are gone or to `avoid`, nor to places that are promised."""
        if self._terrain is None:
            self._terrain = Terrain.of(self.fleet, self.snapshot)
        self._terrain.prepare(self.gone, self.promised, avoid)
        return self._terrain

    def promise(self, gangs: Iterable[Gang], plans: Mapping[str, PlacementPlan]) -> None:
        """These gangs will move, to the places of their plans (by uid)."""
        for gang in gangs:
            self.promised.append((gang, plans[gang.uid]))
            self.hosts |= {seat.slot.claim for seat in plans[gang.uid].assignments}

    def volunteers(self) -> list[tuple[NodePool | None, Claim]]:
        """The candidates that are not spared."""
        if not _asks_to_be_spared(self.snapshot.nodes):
            return self.candidates()
        return [(pool, claim) for pool, claim in self.candidates() if not self.spared(claim)]

    def candidates(self) -> list[tuple[NodePool | None, Claim]]:
        """Ready machines that nothing else is happening to, with their pool (None when it was removed)."""
        pools = self.fleet.node_pools
        busy = {subject for subject in self.snapshot.busy if subject.startswith(claim_subject(""))}
        return [
            (pools.get(claim.node_pool), claim)
            for claim in _undisturbed(self.snapshot.claims)
            if claim.name not in self.gone
            and not (busy and claim_subject(claim.name) in busy)
            and not (claim.replaces and self.awaits_move(claim))
        ]

    def awaits_move(self, claim: Claim) -> bool:
        """Whether a gang that a replacement is for has not moved in yet."""
        if any(name in self.snapshot.claims for name in claim.replaces):
            return True
        gangs = (self.snapshot.gangs.get(uid) for uid in claim.gangs)
        return any(gang is not None and gang.state in {GangState.PENDING, GangState.EVICTING} for gang in gangs)

    def gangs_on(self, claim: Claim) -> Sequence[Gang]:
        """Gangs with pods pinned to the machine."""
        return self.held.get(claim.name, ())

    def is_empty(self, claim: Claim) -> bool:
        """No gang, and no pod but those of DaemonSets."""
        return not self.gangs_on(claim) and not self.snapshot.node_pods.get(claim.node)

    def unit(self, claim: Claim) -> tuple[list[Claim], list[Gang]] | None:
        """The machines and gangs that can only go together: gangs move whole. None when one of them may not move.

        Only the machines that satisfy `claim`'s own fate are the caller's business; this is the closure over gangs.
        """
        gangs = {gang.uid: gang for gang in self.gangs_on(claim)}
        pods = self.snapshot.node_pods.get(claim.node, ())
        tenants = tuple(Tenant(pod.key, "true" if pod.do_not_disrupt or not pod.workload else "") for pod in pods)
        if tenants and barrier(Post(tenants=tenants), Care.GRACEFUL, self.snapshot.now_s) is not None:
            return None  # what belongs to no gang has nobody who would find another place for it
        if any(not self._may_move(gang) for gang in gangs.values()):
            return None
        return [claim], [gangs[uid] for uid in sorted(gangs)]

    def spared(self, claim: Claim) -> bool:
        """Whether its node says do-not-disrupt: neither emptiness nor drift nor consolidation take it."""
        node = self.snapshot.nodes.get(claim.node)
        if node is None or not node.do_not_disrupt:
            return False
        return protected(node.do_not_disrupt, node.created_at_s, self.snapshot.now_s)

    def _may_move(self, gang: Gang) -> bool:
        return (
            gang.state is GangState.ADMITTED
            and not gang.replacing_since_s
            and not gang.do_not_disrupt
            and gang_subject(gang.uid) not in self.snapshot.busy
        )

    def pod_budget(self, claims: Sequence[Claim], reason: Reason) -> Held | None:
        """What PodDisruptionBudgets have against the gangs on these machines leaving now, all at once."""
        if not self.snapshot.pod_budgets or not any(heeds(reason, self._grace_s(claim)) for claim in claims):
            return None
        gangs = {gang.uid: gang for claim in claims for gang in self.gangs_on(claim)}
        return held_by_pod_budget(self.snapshot, gangs, lambda: self._on_their_way(claims))

    def _on_their_way(self, claims: Sequence[Claim]) -> Mapping[str, Gang]:
        """Gangs (by uid) that leave, or will when what replaces their machines is ready.

        Of two moves that have begun neither counts the other's: the first to be ready goes.
        """
        names = {claim.name for claim in claims}
        replaced = _replaced(self.successors, self.held)
        begun = not names.isdisjoint(replaced)
        found = dict(_leaving(self.snapshot.claims, holders(self.snapshot), self.held))
        for gangs in () if begun else replaced.values():
            found |= {gang.uid: gang for gang in gangs}
        for name in self.gone - names:
            found |= {gang.uid: gang for gang in self.held.get(name, ())}
        return found

    def may_take(self, claims: Iterable[Claim], reason: Reason) -> bool:
        """Whether the budgets of all pools concerned allow these machines to go together; takes them if so."""
        by_pool: dict[str, int] = {}
        for claim in claims:
            by_pool[claim.node_pool] = by_pool.get(claim.node_pool, 0) + 1
        if any(count > self.budget(pool, reason) for pool, count in by_pool.items()):
            return False
        for pool, count in by_pool.items():
            self.spent[pool] = self.spent.get(pool, 0) + count
        self.gone.update(claim.name for claim in claims)
        return True

    def budget(self, pool_name: str, reason: Reason) -> int:
        """How many more machines of the pool may go for this reason in this pass."""
        pool = self.fleet.node_pools.get(pool_name)
        if pool is None:
            return 1 << 31  # the guard rails have let the pool's removal pass
        if pool_name not in self._counts:
            self._counts[pool_name] = headcount(self.members.get(pool_name, ()), self.snapshot)
        ready_count, leaving = self._counts[pool_name]
        taken = self.spent.get(pool_name, 0)
        return allowed(pool, reason, ready_count, leaving + taken, self.snapshot.now_s)

    def deadline_s(self, claim: Claim) -> float:
        """Until when the drain may take, by the pool's termination grace period and the end of its capacity block."""
        ends_s = self.snapshot.now_s + self._grace_s(claim)
        return min(ends_s, terminates_s(reservation_of(self.snapshot, claim)))

    def _grace_s(self, claim: Claim) -> float:
        """The pool's termination grace period; infinite for a pool that is not declared any more."""
        pool = self.fleet.node_pools.get(claim.node_pool)
        return pool.spec.template.termination_grace_period if pool else math.inf


@remembered()
def _asks_to_be_spared(nodes: Mapping[str, Node]) -> bool:
    """Whether any node does."""
    return any(node.do_not_disrupt for node in nodes.values())


@remembered()
def _undisturbed(claims: Mapping[str, Claim]) -> Sequence[Claim]:
    """Ready machines that are not leaving nor being cut anew, by pool and name."""
    return [
        claim
        for claim in sorted(claims.values(), key=lambda claim: (claim.node_pool, claim.name))
        if claim.state is ClaimState.READY and claim.disruption is None and claim.recut_at_s <= claim.ready_at_s
    ]


@remembered()
def _leaving(
    claims: Mapping[str, Claim], gangs: Sequence[Gang], held: Mapping[str, Sequence[Gang]]
) -> Mapping[str, Gang]:
    """Gangs by uid that are told to go, or stand on a machine that is."""
    going = [claim.name for claim in claims.values() if claim.deleting or claim.disruption is not None]
    found = {gang.uid: gang for gang in gangs if gang.state is GangState.EVICTING}
    return found | {gang.uid: gang for name in going for gang in held.get(name, ())}


@remembered()
def _replaced(
    successors: Mapping[str, Sequence[Claim]], held: Mapping[str, Sequence[Gang]]
) -> Mapping[str, Sequence[Gang]]:
    """Claim -> the gangs on it, where a machine comes or stands in its place."""
    alive = (name for name, bought in successors.items() if any(not it.disruption and not it.deleting for it in bought))
    return {name: held.get(name, ()) for name in alive}


@remembered()
def _successors(claims: Mapping[str, Claim]) -> Mapping[str, Sequence[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims.values():
        for name in claim.replaces:
            found.setdefault(name, []).append(claim)
    return found
