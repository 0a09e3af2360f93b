"""Rolling a changed layout out: idle machines whose cut the pool no longer allows are cut anew in place."""

from fleet.actions import Action, SaveClaim, claim_subject
from fleet.mig.layouts import cut_anew, pool_layouts
from fleet.placement.inventory import build_capacity
from fleet.snapshot import Snapshot
from model.fleet import Fleet


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Action]:
    """Re-cut idle machines to their pool's first layout; machines with work keep theirs until they are idle."""
    stale = {
        claim.name
        for claim in snapshot.claims.values()
        if (pool := fleet.node_pools.get(claim.node_pool))
        and claim.layout
        and (allowed := pool_layouts(fleet, pool))
        and claim.layout not in allowed
    }
    if not stale:
        return []
    actions: list[Action] = []
    for recut in build_capacity(fleet, snapshot).recuts:
        if recut.claim not in stale or claim_subject(recut.claim) in snapshot.busy:
            continue
        stale.discard(recut.claim)
        claim = snapshot.claims[recut.claim]
        actions.append(SaveClaim(cut_anew(claim, recut.layout, recut.gpus, snapshot.now_s)))
    return actions
