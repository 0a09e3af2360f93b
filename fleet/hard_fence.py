"""Hard fences: a ResourceQuota in each namespace of a team that says `hardFence`, so that nothing passes the queues.

It bounds what pods request, whoever makes them, by the most that the queues of the team could ever give: what its node
of the quota tree may use while nobody else uses anything. Kubernetes counts per namespace, so each namespace of a team
gets the whole of it. A resource is bounded only where every flavor that the queues of the team give is counted in it:
of what some flavor gives without a quota the queues know no most.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from fleet.actions import Action, KeepHardFence, LiftHardFence, namespace_subject
from fleet.fence import Decided, each
from fleet.offerings.offerings import Offerings, offerings_now
from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.quota.build_tree import quota_specs
from fleet.quota.specs import PODS, FlavorResource
from fleet.quota.tree import QuotaTree
from fleet.snapshot import HardFence, Hold, Node, Snapshot
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import Team
from model.labels import GPU_EQUIVALENT, NODE_POOL
from model.quantity import CPU, MAX_AMOUNT, Resources

HARD_FENCE: Final = "muster-hard-fence"
"""Name of the ResourceQuota in each namespace."""
_EVERY_MACHINE = frozenset({CPU, "memory", "ephemeral-storage", PODS})


def decide(fleet: Fleet, snapshot: Snapshot) -> Iterable[Decided]:
    """Yields a write for each namespace whose ResourceQuota is not as declared, and takes ours away elsewhere."""
    known = snapshot.hard_fences
    if known is None:
        return
    teams = _fenced(fleet.index, fleet)
    names = sorted((teams.keys() & snapshot.namespaces.keys()) | known.keys())
    idle = ((subject, name) for name in names if (subject := namespace_subject(name)) not in snapshot.busy)
    yield from each(snapshot, idle, partial(_of_namespace, fleet, snapshot, teams, known))


def fences(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, Resources]:
    """Returns team -> resource -> the most that its queues could give of it, canonical, of what its fence bounds."""
    left_out = _uncounted(snapshot.index, fleet, offerings_now(fleet, snapshot), snapshot.nodes)
    return _fences(fleet.index, fleet, left_out)


def unfenced(fleet: Fleet, snapshot: Snapshot) -> Iterator[str]:
    """Yields a sentence for each resource that a team's quotas name and its hard fence leaves out."""
    left_out = _uncounted(snapshot.index, fleet, offerings_now(fleet, snapshot), snapshot.nodes)
    for (team, resource), flavors in sorted(left_out.items()):
        where = f"flavor{'' if len(flavors) == 1 else 's'} {', '.join(flavors)}"
        why = f"no quota counts it on {where}, so that its queues know no most of it"
        yield f"team/{team}: hardFence leaves {resource} out: {why}"


def waiting_in_new_fences(before: Fleet, after: Fleet, snapshot: Snapshot) -> Iterator[str]:
    """Yields a sentence for each team that a revision fences while work in its namespaces is held pod by pod.

    Such pods count in a ResourceQuota while they wait behind their gate.
    """
    teams = dict(_fenced(after.index, after).items() - _fenced(before.index, before).items())
    held = (job for job in snapshot.jobs.values() if job.hold is Hold.PODS and job.managed)
    waiting = Counter(teams[job.ref.namespace] for job in held if job.ref.namespace in teams)
    for team, jobs in sorted(waiting.items()):
        yield (
            f"team/{team}: hardFence counts pods from their creation, and {jobs} job{'' if jobs == 1 else 's'} of its "
            "namespaces are held pod by pod: those that wait fill it as well"
        )


def _of_namespace(
    fleet: Fleet, snapshot: Snapshot, teams: Mapping[str, str], known: Mapping[str, HardFence], name: str
) -> Iterator[Action]:
    fence = known.get(name)
    wanted = fences(fleet, snapshot)[teams[name]] if name in teams else {}
    ours = fence is not None and fence.ours
    if wanted and (fence is None or not ours or fence.hard != wanted):
        yield KeepHardFence(name, wanted, takes_back=ours)
    elif not wanted and fence is not None and ours:
        yield LiftHardFence(fence)


@derived()
def _fenced(_index: Index, fleet: Fleet) -> Mapping[str, str]:
    """Returns namespace -> its team, where that has a hard fence."""
    return {name: team.name for team in _teams(fleet) for name in team.spec.namespaces}


def _teams(fleet: Fleet) -> Iterator[Team]:
    yield from (team for _, team in sorted(fleet.teams.items()) if team.spec.hard_fence)


@derived()
def _tree(_index: Index, fleet: Fleet) -> QuotaTree:
    """Returns the tree without usage, which nobody here charges."""
    return quota_specs(fleet).tree()


@derived()
def _flavors(_index: Index, fleet: Fleet) -> Mapping[str, frozenset[str]]:
    """Returns team -> the flavors that its queues give, and those that it has quotas of."""
    found = {name: set(team.spec.quotas) for name, team in fleet.teams.items()}
    for queue in fleet.queues.values():
        found[queue.spec.team].update(queue.spec.flavors)
    return {name: frozenset(flavors) for name, flavors in found.items()}


def _named(team: Team) -> list[str]:
    return sorted({name for quota in team.spec.quotas.values() for name in quota.guaranteed} - {GPU_EQUIVALENT})


@derived(2)
def _fences(_index: Index, fleet: Fleet, left_out: Collection[tuple[str, str]]) -> Mapping[str, Resources]:
    return {
        team.name: {
            resource: _most(fleet, team, resource) for resource in _named(team) if (team.name, resource) not in left_out
        }
        for team in _teams(fleet)
    }


def _most(fleet: Fleet, team: Team, resource: str) -> int:
    tree = _tree(fleet.index, fleet)
    node = tree.cohorts[team.name]
    cells = (tree.index.get(FlavorResource(flavor, resource)) for flavor in _flavors(fleet.index, fleet)[team.name])
    return min(MAX_AMOUNT, sum(node.potential[cell] for cell in cells if cell is not None))


@derived(2, steady=True)
def _uncounted(
    _index: Index, fleet: Fleet, offerings: Offerings, nodes: Mapping[str, Node]
) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Returns (team, resource) -> the flavors that give it without that a quota of the tree counts it on them.

    The number of pods is counted by no Queue.
    """
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for team in _teams(fleet):
        counts = partial(_tree(fleet.index, fleet).counts, _tree(fleet.index, fleet).cohorts[team.name])
        for resource in _named(team):
            some = (it for it in _flavors(fleet.index, fleet)[team.name] if not counts(FlavorResource(it, resource)))
            free = _flavors(fleet.index, fleet)[team.name] if resource == PODS else some
            if given := tuple(sorted(it for it in free if _gives(fleet, offerings, nodes, it, resource))):
                found[team.name, resource] = given
    return found


def _gives(fleet: Fleet, offerings: Offerings, nodes: Mapping[str, Node], flavor: str, resource: str) -> bool:
    """Returns whether a machine of a flavor has a resource, or one that could be bought for it."""
    known = nodes_of_flavor(fleet, flavor)
    if resource in _EVERY_MACHINE or known is None:
        return True
    if any(resource in it.allocatable for pool in known.pools for it in offerings.of(pool)):
        return True
    pools, wanted = {pool.name for pool in known.pools}, known.node_labels.items()
    there = (node for node in nodes.values() if resource in node.allocatable)
    return any(it.labels.get(NODE_POOL) in pools or (wanted and wanted <= it.labels.items()) for it in there)
