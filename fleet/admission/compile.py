"""From declared Teams and Queues to the quota tree: a Team is a cohort with its own quota, a Queue a leaf below it."""

from fleet.admission.tree import FlavorResource, Quota, QuotaTree, Usage
from fleet.snapshot import Gang
from model.fleet import Fleet
from model.kinds import Team


def compile_tree(fleet: Fleet) -> QuotaTree:
    """The quota tree of a fleet, without usage. The fleet's references resolve and teams have no cycle."""
    tree = QuotaTree()
    for team in sorted(fleet.teams.values(), key=lambda team: (_depth(fleet, team), team.name)):
        tree.add(team.name, team.spec.parent, _quotas(team), weight=team.spec.weight)
    for queue in sorted(fleet.queues.values(), key=lambda queue: queue.name):
        tree.add(queue.name, queue.spec.team, {}, is_queue=True)
    tree.seal()
    return tree


def _depth(fleet: Fleet, team: Team) -> int:
    depth = 0
    while team.spec.parent:
        team = fleet.teams[team.spec.parent]
        depth += 1
    return depth


def _quotas(team: Team) -> dict[FlavorResource, Quota]:
    cells = {}
    for flavor, quota in team.spec.quotas.items():
        for resource, nominal in quota.guaranteed.items():
            cells[FlavorResource(flavor, resource)] = Quota(
                nominal, (quota.borrowing_limit or {}).get(resource), (quota.lending_limit or {}).get(resource)
            )
    return cells


def usage_of(tree: QuotaTree, gang: Gang, flavors: dict[str, str] | None = None) -> Usage:
    """What a gang takes of the counted cells, with its own flavors or with `flavors` (pod set -> flavor)."""
    chosen = gang.flavors if flavors is None else flavors
    usage: dict[FlavorResource, int] = {}
    if gang.queue not in tree.queues:
        return usage
    for pod_set in gang.pod_sets:
        flavor = chosen.get(pod_set.name)
        if flavor is None:
            continue
        for resource, amount in pod_set.requests.items():
            cell = FlavorResource(flavor, resource)
            if tree.counts(gang.queue, cell):
                usage[cell] = usage.get(cell, 0) + amount * pod_set.count
    return {cell: amount for cell, amount in usage.items() if amount}
