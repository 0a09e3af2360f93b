"""Roll-outs pool by pool (`FleetPolicy.spec.rollout`): machines of a pool drift when the pools before it are done.

Whose turn it is follows from the machines there are, so that a restart changes nothing. Only when the roll-out began
and what it stopped at are remembered (`RolloutProgress`): a machine that failed is soon gone. What was begun is ended
also in a pool whose turn is over: its machines are replaced already, and wait for the move alone.
"""

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fleet.disruption.context import DisruptionContext
from fleet.disruption.replacement import coming
from fleet.fence import claims_set_aside
from fleet.nodeclaims.drift import drifted_claims
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, RolloutProgress, Snapshot
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import NodePool
from model.plain_text import counted
from model.pools import pool_hashes

_FAILURES: Final = frozenset(
    {
        Reason.LAUNCH_REFUSED, Reason.LAUNCH_TIMEOUT, Reason.REGISTRATION_TIMEOUT,
        Reason.INITIALIZATION_TIMEOUT, Reason.LAYOUT_FAILED, Reason.NODE_FAILURE,
    }
)  # fmt: skip
"""Ends of a machine that tell of what it was born with; a shortage and an interruption do not."""
_REPLACED_BY: Final = {
    "template", "placement", "sharing", "requirements", "gpu", "reservations",
    "instance_types", "instance_families", "zones", "capacity_types",
}  # fmt: skip
"""Fields of a pool that machines can drift from."""


def rollout_pools(fleet: Fleet) -> Sequence[str]:
    """Returns the pools that take over changes one after the other, in their order; empty where none do."""
    rollout = fleet.policy.spec.rollout
    return [name for name in rollout.pools if name in fleet.node_pools] if rollout else []


def rollout_progress(before: RolloutProgress | None, fleet: Fleet, snapshot: Snapshot) -> RolloutProgress | None:
    """Returns what is to be remembered of the roll-out from now on; `before` itself where nothing is new.

    A pause ends with pools that declare something else, with `pauseOnFailure: false`, and when no machine is left to be
    replaced.
    """
    rollout, pools = fleet.policy.spec.rollout, rollout_pools(fleet)
    begun = rollout_begun(before, fleet, snapshot.now_s)
    if rollout is None or before is None or begun is not before:
        return begun
    if not rollout.pause_on_failure or not _under_way(fleet, snapshot, pools):
        return replace(before, pool="", failure="") if before.paused else before
    if before.paused:
        return before
    failed = _failed(fleet, snapshot, pools, before.began_s)
    if failed is None or failed.disruption is None:
        return before
    told = f"{failed.name} ({failed.disruption.reason}: {failed.disruption.message})"
    return replace(before, pool=failed.node_pool, failure=told)


def rollout_begun(before: RolloutProgress | None, fleet: Fleet, now_s: float) -> RolloutProgress | None:
    """Returns the roll-out that begins now where the pools declare something else than before; else `before`."""
    if fleet.policy.spec.rollout is None:
        return None
    templates = _templates(fleet.index, fleet.node_pools, tuple(rollout_pools(fleet)))
    return before if before is not None and before.templates == templates else RolloutProgress(templates, now_s)


def paused_words(found: RolloutProgress) -> str:
    """Returns what a roll-out stopped at, and what goes on with it."""
    remedy = "revert or mend what the pools declare, or say pauseOnFailure: false"
    return f"the roll-out has stopped at node pool {found.pool}: {found.failure}; to go on, {remedy}"


def rollout_order(before: Fleet, after: Fleet) -> tuple[str, ...]:
    """Returns the pools of the roll-out that declare something else after a revision, in their order."""
    both = [name for name in rollout_pools(after) if name in before.node_pools]
    return tuple(name for name in both if _declares(before.node_pools[name]) != _declares(after.node_pools[name]))


def held_pools(context: DisruptionContext, whys: Mapping[str, str]) -> Mapping[str, str]:
    """Returns pool -> why no machine of it begins to be replaced now; `whys` are the machines that have drifted."""
    pools, now = rollout_pools(context.fleet), context.snapshot
    if not pools:
        return {}
    progress = rollout_progress(now.rollout, context.fleet, now)
    if progress is not None and progress.paused:
        return dict.fromkeys(pools, paused_words(progress))
    left = {name: _left(context, name, whys) for name in pools}
    first = next((name for name in pools if left[name]), "")
    held: dict[str, str] = {}
    for name in pools[pools.index(first) + 1 :] if first else ():
        held[name] = f"node pool {first} comes first in the roll-out: {left[first]}"
        if _begun(context, name, whys):
            held.setdefault(first, f"what has begun in node pool {name} ends first")
    return held


def begun(context: DisruptionContext, claim: Claim) -> bool:
    """Returns whether another machine was bought in place of this one, or is being told to go."""
    return claim.disruption is not None or bool(coming(context, [claim.name]))


def _begun(context: DisruptionContext, pool: str, whys: Container[str]) -> bool:
    members = context.members.get(pool, ())
    return any(_drifting(claim) or (claim.name in whys and begun(context, claim)) for claim in members)


def _drifting(claim: Claim) -> bool:
    return claim.disruption is not None and claim.disruption.reason == Reason.DRIFTED


def _left(context: DisruptionContext, name: str, whys: Container[str]) -> str:
    """Returns what a pool still has to do before the next one may begin, in words; empty where nothing is left."""
    pool, members = context.fleet.node_pools[name], context.members.get(name, ())
    if differ := sum(claim.name in whys or _drifting(claim) for claim in members):
        return f"{counted(differ, 'machine')} of it {'differs' if differ == 1 else 'differ'} still"
    if aside := claims_set_aside(context.snapshot).intersection(claim.name for claim in members):
        return f"nothing can be decided about {min(aside)}"
    staying = [claim for claim in members if claim.disruption is None and not claim.deleting]
    ready = [claim for claim in staying if claim.state is ClaimState.READY]
    if pool.spec.replicas is not None and len(ready) < pool.spec.replicas:
        return f"{len(ready)} of its {counted(pool.spec.replicas, 'machine')} are ready"
    present = pool_hashes(context.fleet.index, context.fleet.node_pools)[name]
    proven = any(claim.pool_hash == present for claim in ready)
    late = [it for it in staying if it not in ready and (it.replaces or it.pool_hash != present or not proven)]
    return f"{late[0].name} is not ready" if late else ""


def _under_way(fleet: Fleet, snapshot: Snapshot, pools: Container[str]) -> bool:
    names = drifted_claims(fleet, snapshot).keys() | claims_set_aside(snapshot)
    return any(snapshot.claims[name].node_pool in pools for name in names if name in snapshot.claims)


def _failed(fleet: Fleet, snapshot: Snapshot, pools: Container[str], since_s: float) -> Claim | None:
    """Returns the machine that failed first of those bought since an instant by what pools declare now."""
    hashes = pool_hashes(fleet.index, fleet.node_pools)
    new = (it for it in snapshot.claims.values() if it.node_pool in pools and it.created_at_s >= since_s)
    ended = ((it, it.disruption) for it in new if it.pool_hash == hashes[it.node_pool])
    found = [(why.at_s, it.name) for it, why in ended if why is not None and why.reason in _FAILURES]
    return snapshot.claims[min(found)[1]] if found else None


@derived()
def _templates(_index: Index, pools: Mapping[str, NodePool], names: tuple[str, ...]) -> str:
    """Returns a hash of all that machines of these pools can drift from."""
    told = [(name, _declares(pools[name])) for name in names]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _declares(pool: NodePool) -> Mapping[str, Any]:
    return pool.spec.model_dump(mode="json", include=_REPLACED_BY)
