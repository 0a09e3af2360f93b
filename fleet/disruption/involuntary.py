"""Verdicts of what asks nobody: a notice of the cloud, and a node that stays unwell."""

from fleet.disruption.verdict import Obstacle, Outcome, Verdict
from fleet.nodeclaims.repair import (
    conditions_of,
    look_again_s,
    overdue,
    repair_policies,
    too_many,
    unwell,
    unwell_in_pool,
)
from fleet.reasons import Reason
from fleet.snapshot import Claim, Snapshot
from model.fleet import Fleet


def interruption(claim: Claim) -> Verdict:
    """Whether the cloud has announced the machine's end."""
    leaving = claim.disruption
    if leaving is not None and leaving.reason == Reason.INTERRUPTED:
        return Verdict("interruption", Outcome.GOES, Obstacle.NONE, leaving.message, leaving.deadline_s)
    return Verdict("interruption", Outcome.KEEPS, Obstacle.NOT_DUE, "the cloud has announced nothing")


def repair(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Verdict:
    """Whether the node behind the machine has been unwell for too long (`fleet.nodeclaims.repair`)."""
    leaving, node = claim.disruption, snapshot.nodes.get(claim.node)
    if leaving is not None and leaving.reason == Reason.NODE_FAILURE:
        return Verdict("repair", Outcome.GOES, Obstacle.NONE, leaving.message)
    if node is None:
        return Verdict("repair", Outcome.KEEPS, Obstacle.NOT_READY, "it has no node")
    policies, conditions = repair_policies(fleet, claim.node_pool), conditions_of(node)
    if not unwell(policies, conditions):
        return Verdict("repair", Outcome.KEEPS, Obstacle.NOT_DUE, "its node is well")
    found = overdue(policies, conditions, snapshot.now_s)
    if found is None:
        until_s = snapshot.now_s + look_again_s(policies, conditions, snapshot.now_s)
        return Verdict("repair", Outcome.WAITS, Obstacle.QUIET_TIME, "its node is unwell", until_s)
    sick, members = unwell_in_pool(snapshot, claim.node_pool, policies)
    if too_many(sick, members):
        words = f"{sick} of {members} nodes of {claim.node_pool} are unwell: the fault is likely somewhere else"
        return Verdict("repair", Outcome.WAITS, Obstacle.POOL_UNWELL, words)
    words = f"condition {found.condition} of its node was {conditions[found.condition].status} for too long"
    return Verdict("repair", Outcome.GOES, Obstacle.NONE, words)
