"""Rolling a changed layout out: idle machines whose cut the pool no longer allows are cut anew in place."""

from collections.abc import Iterable, Iterator, Sequence

from fleet.actions import Action, SaveClaim, claim_subject
from fleet.fence import Decided, DecisionFailed, each
from fleet.mig.layouts import cut_anew, pool_layouts
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import Recut
from fleet.snapshot import Claim, Snapshot
from model.fleet import Fleet


def decide(fleet: Fleet, snapshot: Snapshot) -> Sequence[Decided]:
    """Re-cuts idle machines to their pool's first layout; machines with work keep theirs until they are idle."""
    cut = ((claim_subject(name), claim) for name, claim in snapshot.claims.items() if claim.layout)
    looked = list(each(snapshot, cut, lambda claim: _if_stale(fleet, claim)))
    stale = {it.name for it in looked if isinstance(it, Claim)}
    failed = [it for it in looked if isinstance(it, DecisionFailed)]
    return [*_recut(fleet, snapshot, stale), *failed] if stale else failed


def _if_stale(fleet: Fleet, claim: Claim) -> Iterable[Claim]:
    pool = fleet.node_pools.get(claim.node_pool)
    allowed = pool_layouts(fleet, pool) if pool else ()
    return [claim] if allowed and claim.layout not in allowed else ()


def _recut(fleet: Fleet, snapshot: Snapshot, stale: set[str]) -> Iterator[Decided]:
    """Re-cuts each machine to the first layout that it could have, in the pool's order."""
    first: dict[str, Recut] = {}
    for recut in build_capacity(fleet, snapshot).recuts:
        if recut.claim in stale and claim_subject(recut.claim) not in snapshot.busy:
            first.setdefault(recut.claim, recut)
    subjects = ((claim_subject(name), recut) for name, recut in first.items())
    yield from each(snapshot, subjects, lambda recut: [_cut_to(snapshot, recut)])


def _cut_to(snapshot: Snapshot, recut: Recut) -> Action:
    return SaveClaim(cut_anew(snapshot.claims[recut.claim], recut.layout, recut.gpus, snapshot.now_s))
