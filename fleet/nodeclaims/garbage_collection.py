"""What belongs to nobody: machines without a claim and nodes of claims that are no more.

A machine that a person asks to adopt is none of these, however it looks: it is adopted, or left alone
(`fleet.nodeclaims.adoption`).
"""

from collections.abc import Iterator, Mapping, Sequence

from fleet.actions import Action, RemoveNode, TerminateMachines, instance_subject, node_subject
from fleet.fence import Decided, each
from fleet.nodeclaims.adoption import claimed_instances
from fleet.nodeclaims.adoption_checks import asks
from fleet.reasons import Reason
from fleet.snapshot import Instance, Node, Snapshot
from fleet.snapshot.lookups import claim_names, unclaimed
from model import labels
from model.index import Index, derived, followed_each

ORPHAN_AGE_S = 30.0
"""An instance or node of this cluster without a claim is left alone this long: its claim may not be visible yet."""
MASS_ORPHANS = 8
"""More orphans than this, and more than half of all machines, are not collected: see `mass_orphaned`."""


def collect(snapshot: Snapshot) -> Iterator[Decided]:
    """Removes machines and nodes of this cluster that no claim answers for."""
    orphans = orphaned(snapshot)
    if mass_orphaned(snapshot, orphans):
        orphans = [found for found in orphans if found.id in snapshot.bought]
    if orphans:
        machines = ((instance_subject(instance.id), instance.id) for instance in orphans)
        free = ((subject, found) for subject, found in machines if subject not in snapshot.busy)
        yield from each(snapshot, free, lambda found: [TerminateMachines((found,), Reason.ORPHANED)])
    nodes = ((node_subject(name), node) for name, node in _unclaimed_nodes(snapshot))
    there = ((subject, node) for subject, node in nodes if subject not in snapshot.busy)
    yield from each(snapshot, there, lambda node: _removal(snapshot, node))


def _removal(snapshot: Snapshot, node: Node) -> Iterator[Action]:
    if node.deleting and not node.has_finalizer:
        return  # what others hold it for is theirs
    behind = snapshot.instances.get(node.instance_id)
    if (behind is None or behind.gone) and snapshot.now_s - node.created_at_s >= ORPHAN_AGE_S:
        yield RemoveNode(node.name)


def orphaned(snapshot: Snapshot) -> list[Instance]:
    """Returns running machines of this cluster, by id, that have no claim and are old enough to have one."""
    old_s = snapshot.now_s - ORPHAN_AGE_S
    return [found for found in unclaimed(snapshot) if found.launched_at_s <= old_s and not asks(found)]


def _unclaimed_nodes(snapshot: Snapshot) -> Sequence[tuple[str, Node]]:
    """Returns the nodes, by name, whose claims are no more."""
    index, nodes = snapshot.index, snapshot.nodes
    return [(name, nodes[name]) for name in _without_claim(index, _claim_of(index, nodes), claim_names(snapshot))]


@followed_each()
def _claim_of(node: Node) -> str | None:
    """Returns the claim that a node says it is of."""
    return node.labels.get(labels.NODE_CLAIM) or None


@derived()
def _without_claim(_index: Index, named: Mapping[str, str], claims: Mapping[str, bool]) -> Sequence[str]:
    return [node for node, claim in named.items() if claim not in claims]


def mass_orphaned(snapshot: Snapshot, orphans: Sequence[Instance]) -> bool:
    """Returns whether so many machines lack a claim that the claims are likelier to be lost than the machines stray.

    Somebody may have deleted the CRD, or restored the API server from an old backup: the machines keep running, the
    agent reports it, and an operator decides. Those that this process has bought itself are known to be its own.
    """
    if len(orphans) <= MASS_ORPHANS:
        return False
    owned = claimed_instances(snapshot.index, snapshot.claims)
    living = [found for found in snapshot.instances.values() if not found.gone]
    return len(orphans) * 2 > sum(1 for found in living if found.id in owned or not asks(found))
