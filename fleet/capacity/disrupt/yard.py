"""What disruption methods look at: machines that may go, what runs on them, and the budgets left."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from fleet.actions import claim_subject, gang_subject
from fleet.capacity.disrupt.budgets import allowed, disrupted
from fleet.capacity.provision import Plan
from fleet.capacity.stock import holders, machines_held
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Gang, GangState, Snapshot
from model.fleet import Fleet
from model.kinds import NodePool


@dataclass(slots=True)
class Yard:
    """One pass over the machines. `spent` grows as methods take from the budgets."""

    fleet: Fleet
    snapshot: Snapshot
    held: dict[str, list[Gang]]
    members: dict[str, list[Claim]]
    gone: set[str] = field(default_factory=set)
    """Claims that an earlier method has taken already."""
    spent: dict[str, int] = field(default_factory=dict)
    promised: list[tuple[Gang, Plan]] = field(default_factory=list)
    """Gangs that will move, and the places found for them in this pass."""

    @classmethod
    def of(cls, fleet: Fleet, snapshot: Snapshot) -> "Yard":
        """Claims by pool, in order of name."""
        members: dict[str, list[Claim]] = {}
        for claim in sorted(snapshot.claims.values(), key=lambda claim: claim.name):
            members.setdefault(claim.node_pool, []).append(claim)
        return cls(fleet, snapshot, machines_held(holders(snapshot)), members)

    def candidates(self) -> list[tuple[NodePool | None, Claim]]:
        """Ready machines that nothing else is happening to, with their pool (None when it was removed)."""
        return [
            (self.fleet.node_pools.get(claim.node_pool), claim)
            for _, claims in sorted(self.members.items())
            for claim in claims
            if self._undisturbed(claim)
        ]

    def _undisturbed(self, claim: Claim) -> bool:
        return (
            claim.state is ClaimState.READY
            and claim.disruption is None
            and claim.recut_at_s <= claim.ready_at_s
            and claim.name not in self.gone
            and claim_subject(claim.name) not in self.snapshot.busy
            and not self._awaits_move(claim)
        )

    def _awaits_move(self, claim: Claim) -> bool:
        """A replacement whose gang has not moved in yet."""
        if any(name in self.snapshot.claims for name in claim.replaces):
            return True
        gang = self.snapshot.gangs.get(claim.gang)
        waiting = gang is not None and gang.state in {GangState.PENDING, GangState.EVICTING}
        return bool(claim.replaces) and waiting

    def gangs_on(self, claim: Claim) -> list[Gang]:
        """Gangs with pods pinned to the machine."""
        return self.held.get(claim.name, [])

    def is_empty(self, claim: Claim) -> bool:
        """No gang, and no pod but those of DaemonSets."""
        return not self.gangs_on(claim) and not self.snapshot.node_pods.get(claim.node)

    def unit(self, claim: Claim) -> tuple[list[Claim], list[Gang]] | None:
        """The machines and gangs that can only go together: gangs move whole. None when one of them may not move.

        Only the machines that satisfy `claim`'s own fate are the caller's business; this is the closure over gangs.
        """
        gangs = {gang.uid: gang for gang in self.gangs_on(claim)}
        if self.snapshot.node_pods.get(claim.node) and any(
            not pod.workload or pod.do_not_disrupt for pod in self.snapshot.node_pods[claim.node]
        ):
            return None
        if any(not self._may_move(gang) for gang in gangs.values()):
            return None
        return [claim], [gangs[uid] for uid in sorted(gangs)]

    def _may_move(self, gang: Gang) -> bool:
        return (
            gang.state is GangState.ADMITTED
            and not gang.do_not_disrupt
            and gang_subject(gang.uid) not in self.snapshot.busy
        )

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
        claims = self.members.get(pool_name, [])
        ready = [claim for claim in claims if claim.ready_at_s]
        taken = self.spent.get(pool_name, 0)
        return allowed(pool, reason, len(ready), disrupted(ready, self.snapshot) + taken, self.snapshot.now_s)

    def deadline_s(self, claim: Claim) -> float:
        """Until when the drain may take, by the pool's termination grace period."""
        pool = self.fleet.node_pools.get(claim.node_pool)
        grace_s = pool.spec.template.termination_grace_period if pool else math.inf
        return self.snapshot.now_s + grace_s
