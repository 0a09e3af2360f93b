"""Verdicts of what asks nobody: a notice of the cloud, and a node that stays silent."""

from fleet.capacity.disrupt.verdict import Obstacle, Outcome, Verdict
from fleet.capacity.lifecycle import REPAIR_AFTER_S, REPAIR_MOST_PERCENT
from fleet.reasons import Reason
from fleet.snapshot import Claim, Snapshot


def interruption(claim: Claim) -> Verdict:
    """Whether the cloud has announced the machine's end."""
    leaving = claim.disruption
    if leaving is not None and leaving.reason == Reason.INTERRUPTED:
        return Verdict("interruption", Outcome.GOES, Obstacle.NONE, leaving.message, leaving.deadline_s)
    return Verdict("interruption", Outcome.KEEPS, Obstacle.NOT_DUE, "the cloud has announced nothing")


def repair(snapshot: Snapshot, claim: Claim) -> Verdict:
    """Whether the node behind the machine has been silent for too long (`fleet.capacity.lifecycle`)."""
    leaving, node = claim.disruption, snapshot.nodes.get(claim.node)
    if leaving is not None and leaving.reason == Reason.NODE_FAILURE:
        return Verdict("repair", Outcome.GOES, Obstacle.NONE, leaving.message)
    if node is None:
        return Verdict("repair", Outcome.KEEPS, Obstacle.NOT_READY, "it has no node")
    if node.ready:
        return Verdict("repair", Outcome.KEEPS, Obstacle.NOT_DUE, "its node is ready")
    until_s = node.ready_changed_at_s + REPAIR_AFTER_S
    if snapshot.now_s < until_s:
        return Verdict("repair", Outcome.WAITS, Obstacle.QUIET_TIME, "its node is not ready", until_s)
    silent, members = _silent(snapshot, claim.node_pool)
    if silent > max(1, members * REPAIR_MOST_PERCENT // 100):
        words = f"{silent} of {members} nodes of {claim.node_pool} are not ready: the fault is likely somewhere else"
        return Verdict("repair", Outcome.WAITS, Obstacle.POOL_SILENT, words)
    return Verdict("repair", Outcome.GOES, Obstacle.NONE, f"its node has not been ready since {REPAIR_AFTER_S:.0f} s")


def _silent(snapshot: Snapshot, pool: str) -> tuple[int, int]:
    """Nodes of a pool that are not ready, and all of them."""
    members = [claim for claim in snapshot.claims.values() if claim.node_pool == pool and claim.node]
    nodes = [snapshot.nodes.get(claim.node) for claim in members]
    return sum(1 for node in nodes if node is not None and not node.ready), len(members)
