"""Unhealthy nodes: how long each condition is tolerated, when too many are unhealthy to replace any, and if any join.

Karpenter `pkg/controllers/node/health` with the provider's policies (reference 3.3). Repair is involuntary: budgets and
do-not-disrupt do not hold it back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Final

from fleet.nodeclaims.gpu_faults import fault_words
from fleet.reasons import Reason
from fleet.snapshot import Claim, MachineEvent, Node, NodeCondition, NodeDisruption, RegistrationOutcome, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.fleet import Fleet
from model.index import Index, derived, followed_each
from model.kinds import REPAIRS, Repair
from model.kinds.node_pool import GPU_FAILED, GPU_NEEDS_RESET
from model.pools import pool_hashes

MOST_PERCENT: Final = 20
"""When more of a pool are not well, machines are not what is wrong."""
READY: Final = "Ready"
GATE_AGAIN_S: Final = 5 * 60.0


def node_failure(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> NodeDisruption | None:
    """Returns why an unhealthy machine is replaced; None while it is tolerated, or too many of its pool are unhealthy.

    Its drain has no time: its pods may never end.
    """
    policies, conditions = repair_policies(fleet, claim.node_pool), conditions_of(node)
    found = overdue(policies, conditions, snapshot.now_s)
    if found is None or too_many(*unwell_in_pool(snapshot, claim.node_pool, policies)):
        return None
    return _failed(snapshot, node, found)


def fell_silent(fleet: Fleet, snapshot: Snapshot, claim: Claim, node: Node) -> NodeDisruption | None:
    """Returns why a machine is replaced whose kubelet has joined and gone silent before it was ready.

    One that says what it still lacks has until its initialisation times out. Nothing runs on it: however many of its
    pool are unhealthy, nobody is disturbed.
    """
    found = overdue(repair_policies(fleet, claim.node_pool), conditions_of(node), snapshot.now_s)
    silent = found is not None and conditions_of(node)[found.condition].status == "Unknown"
    return _failed(snapshot, node, found) if found is not None and silent else None


def _failed(snapshot: Snapshot, node: Node, found: Repair) -> NodeDisruption:
    condition = conditions_of(node)[found.condition]
    message = (
        f"condition {found.condition} of node {node.name} has been {condition.status} for {found.after / 60:.0f} min"
    )
    message += f": {condition.message}" if condition.message else ""
    return NodeDisruption(Reason.NODE_FAILURE, message, snapshot.now_s, snapshot.now_s)


def repair_policies(fleet: Fleet, pool: str) -> Sequence[Repair]:
    """Returns the pool's repair policies; the defaults for a pool that is not declared any more."""
    declared = fleet.node_pools.get(pool)
    return declared.spec.repair if declared else REPAIRS


def unwell_in_pool(snapshot: Snapshot, pool: str, policies: Sequence[Repair]) -> tuple[int, int]:
    """Returns (unhealthy nodes of a pool, machines of it that have joined)."""
    members = [claim for claim in claims_by_pool(snapshot).get(pool, ()) if claim.node]
    nodes = [node for claim in members if (node := snapshot.nodes.get(claim.node)) is not None]
    return sum(1 for node in nodes if unwell(policies, conditions_of(node))), len(members)


def conditions_of(node: Node) -> Mapping[str, NodeCondition]:
    """Returns the node's conditions by type; `Ready` is always among them."""
    if node.ready:
        return {**node.conditions, READY: NodeCondition("True", node.ready_changed_at_s)}
    told = node.conditions.get(READY)
    unknown = told is not None and told.status == "Unknown"
    return {**node.conditions, READY: NodeCondition("Unknown" if unknown else "False", node.ready_changed_at_s)}


def unwell(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition]) -> bool:
    """Returns whether any policy applies to the conditions, however short they have lasted."""
    return bool(_ends(policies, conditions))


def overdue(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition], now_s: float) -> Repair | None:
    """Returns the policy whose toleration ended first; None while all conditions are tolerated."""
    found = _ends(policies, conditions)
    ends = sorted((end_s, policy.condition, policy) for policy, end_s in found if end_s <= now_s) if found else ()
    return ends[0][2] if ends else None


def look_again_s(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition], now_s: float) -> float:
    """Returns seconds until the next condition is overdue; infinite when there is none."""
    return min((end_s - now_s for _, end_s in _ends(policies, conditions) if end_s > now_s), default=inf)


def _ends(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition]) -> list[tuple[Repair, float]]:
    return [
        (policy, found.since_s + policy.after)
        for policy in policies
        if (found := conditions.get(policy.condition)) is not None and found.status in policy.statuses
    ]


ONCE_IN_S: Final = 24 * 3600.0
"""What happens again within this time is not told again: faults are found anew when the agent starts."""


def unrecorded(claim: Claim, node: Node, policies: Iterable[Repair]) -> tuple[MachineEvent, ...]:
    """Returns what has happened to a machine and is not in its history: faults of GPUs, conditions it is repaired for.

    `Ready` is told of where the claim's own condition changes.
    """
    if not node.gpu_faults and not node.conditions:
        return ()
    watched = {(it.condition, status) for it in policies for status in it.statuses if it.condition not in _TOLD_ELSE}
    found = [MachineEvent(it.since_s, "GpuFault", fault_words(it.complaint)) for it in node.gpu_faults]
    found += [
        MachineEvent(it.since_s, condition, f"{it.status}: {it.message}" if it.message else it.status)
        for condition, it in node.conditions.items()
        if (condition, it.status) in watched
    ]
    latest = {(it.what, it.message): it.at_s for it in claim.history}
    return tuple(it for it in sorted(found) if it.at_s - latest.get((it.what, it.message), -inf) > ONCE_IN_S)


def told_of_gpus(claim: Claim, node: Node) -> Claim:
    """Returns the claim with the conditions of its GPUs as they are now; itself where it says so."""
    if not node.conditions and not claim.gpu_conditions:
        return claim
    found = ((name, node.conditions.get(name)) for name in (GPU_FAILED, GPU_NEEDS_RESET))
    held = ((name, it) for name, it in found if it is not None and it.status == "True")
    told = tuple(MachineEvent(it.since_s, name, it.message) for name, it in held)
    same = [it[1:] for it in told] == [it[1:] for it in claim.gpu_conditions]
    return claim if same else replace(claim, gpu_conditions=told)


_TOLD_ELSE: Final = frozenset({READY, GPU_FAILED, GPU_NEEDS_RESET})


def too_many(complaining: int, machines: int) -> bool:
    """Returns whether so many of a pool's machines are unhealthy that none is replaced."""
    return complaining > ceil(machines * MOST_PERCENT / 100)


# -- whether the machines of a pool join at all ----------------------------------------------------------------------
#
# An image or a user data that no machine joins with costs money by the quarter of an hour. It is told by the last
# launches, and decides nothing. Source: Karpenter `NodeRegistrationHealthy` (`pkg/state/nodepoolhealth`). Everything is
# read off the claims, so that an agent that starts anew counts nothing twice.

REMEMBERED: Final = 4
"""Launches of a pool that count: the last ones of its present template."""
TOO_MANY_FAILURES: Final = REMEMBERED // 2
_FAILED: Final = frozenset({Reason.LAUNCH_TIMEOUT, Reason.REGISTRATION_TIMEOUT})

Registrations = Mapping[str, Sequence[RegistrationOutcome]]
"""Pool -> how its last launches ended, the oldest first."""


def registrations(before: Registrations, fleet: Fleet, snapshot: Snapshot) -> Registrations:
    """Returns how launches ended, with what claims tell since; `before` itself where nothing is new.

    A pool with another template begins anew.
    """
    index = snapshot.index
    hashes, told = pool_hashes(fleet.index, fleet.node_pools), _told(index, _outcomes(index, snapshot.claims))
    found: dict[str, Sequence[RegistrationOutcome]] = {}
    for pool in sorted(hashes.keys() & (before.keys() | told.keys())):
        known = {*before.get(pool, ()), *told.get(pool, ())}
        if mine := sorted(it for it in known if it.pool_hash == hashes[pool])[-REMEMBERED:]:
            found[pool] = tuple(mine)
    return before if found == before else found


@followed_each()
def _outcomes(claim: Claim) -> tuple[str, RegistrationOutcome] | None:
    """Returns the pool of a claim and how its launch ended; None while that is open."""
    why = claim.disruption
    if claim.registered_at_s:
        outcome = RegistrationOutcome(claim.registered_at_s, claim.name, claim.pool_hash, registered=True)
    elif why is not None and why.reason in _FAILED:
        outcome = RegistrationOutcome(why.at_s, claim.name, claim.pool_hash, registered=False)
    else:
        return None
    return claim.node_pool, outcome


@derived(1)
def _told(_index: Index, outcomes: Mapping[str, tuple[str, RegistrationOutcome]]) -> Registrations:
    """Returns how the last launches of each template ended of which claims tell still: more of them never count."""
    by_template: dict[tuple[str, str], list[RegistrationOutcome]] = {}
    for pool, outcome in outcomes.values():
        by_template.setdefault((pool, outcome.pool_hash), []).append(outcome)
    found: dict[str, list[RegistrationOutcome]] = {}
    for (pool, _), told in by_template.items():
        found.setdefault(pool, []).extend(sorted(told)[-REMEMBERED:])
    return found


def registers(outcomes: Sequence[RegistrationOutcome]) -> bool | None:
    """Returns whether machines of a pool join, by its last launches; None where nothing is known."""
    recent = outcomes[-REMEMBERED:]
    if not recent:
        return None
    return sum(not it.registered for it in recent) < TOO_MANY_FAILURES
