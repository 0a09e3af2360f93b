"""Rolling a changed layout out: idle machines whose cut the pool no longer allows are cut anew in place."""

from dataclasses import replace

from fleet.actions import Action, SaveClaim, claim_subject
from fleet.capacity.stock import build_supply
from fleet.mig.layouts import pool_layouts, with_gpus
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
    for recut in build_supply(fleet, snapshot).recuts:
        claim = snapshot.claims[recut.claim]
        if recut.claim not in stale or claim_subject(recut.claim) in snapshot.busy:
            continue
        stale.discard(recut.claim)
        resources = with_gpus(claim.resources, recut.gpus)
        actions.append(SaveClaim(replace(claim, layout=recut.layout, resources=resources, recut_at_s=snapshot.now_s)))
    return actions
