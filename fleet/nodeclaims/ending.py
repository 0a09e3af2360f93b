"""Capacity blocks that end: the last moment at which work leaves machines that EC2 is about to terminate.

Before it, replacements are looked for (`fleet.disruption.ending`). From then on the machines go whatever budgets,
freeze windows and annotations say, with a deadline, as EC2 asks nobody either (EC2 User Guide, "Capacity Blocks for
ML": it begins to terminate machines 30 minutes before the end).
"""

from fleet.actions import Action, SaveClaim, claim_subject
from fleet.nodeclaims.lifecycle import leaving
from fleet.offerings.reservations import closes_s, reservation_of, terminates_s
from fleet.reasons import Reason
from fleet.snapshot import Claim, Reservation, Snapshot
from model.fleet import Fleet
from model.kinds import NodePool


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Action]:
    """Every claim of a block whose work must stop now; a repeat changes nothing."""
    if not any(known.kind == "capacity-block" for known in snapshot.reservations.values()):
        return []
    return [
        SaveClaim(leaving(claim, Reason.BLOCK_ENDS, sentence(known), snapshot.now_s, terminates_s(known)))
        for name, claim in sorted(snapshot.claims.items())
        if claim.disruption is None and not claim.deleting and claim_subject(name) not in snapshot.busy
        if (known := reservation_of(snapshot, claim)) is not None
        if snapshot.now_s >= last_call_s(fleet.node_pools.get(claim.node_pool), known)
    ]


def last_call_s(pool: NodePool | None, reservation: Reservation) -> float:
    """Half of the pool's lead time is for replacements, half for the work to stop."""
    return (closes_s(pool, reservation) + terminates_s(reservation)) / 2


def closing(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Reservation | None:
    """The capacity block of a machine that work should be leaving by now."""
    known = reservation_of(snapshot, claim)
    if known is None or snapshot.now_s < closes_s(fleet.node_pools.get(claim.node_pool), known):
        return None
    return known


def sentence(reservation: Reservation) -> str:
    """Why such a machine leaves."""
    return f"capacity block {reservation.id} ends, and EC2 terminates its machines"
