"""Looks up what every room asks of a snapshot: claims by node and pool, gangs that hold capacity, what stands where."""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from fleet.snapshot import Claim, Gang, Instance, Node, Pod, PodVerdict, Snapshot
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints
from fleet.snapshot.ordinary_pods import tenants_of_nodes
from model import labels
from model.changed import changed
from model.index import Index, LoggedTable, TableChanges, derived, followed, followed_each

LISTING_LAG_S: Final = 60.0
"""The cloud's listing may lag behind a launch by this much; a machine missing from it earlier is not taken for gone."""
_NO_CLAIMS: Final = frozenset[str]()


def claims_by_node(snapshot: Snapshot) -> Mapping[str, Claim]:
    """Returns node name -> the claim whose machine it is, as `claims_whatever_runs` has it."""
    return _claims_by_node(snapshot.index, claims_whatever_runs(snapshot))[0]


@followed(lambda: (dict[str, Claim](), 0))
def _claims_by_node(before: tuple[dict[str, Claim], int], changes: TableChanges[Claim]) -> tuple[dict[str, Claim], int]:
    """Returns node name -> claim, and how many claims name a node: of several that name one the last counts."""
    old = [it for _, it in changes.gone() if it.node]
    new = [it for _, it in changes.came() if it.node]
    naming = before[1] + len(new) - len(old)
    if not old and not new:
        return before
    news: dict[str, Claim | None] = {**{it.node: None for it in old}, **{it.node: it for it in new}}
    found: dict[str, Claim] = LoggedTable.after(before[0], news)
    if len(before[0]) != before[1] or len(found) != naming:
        found = {it.node: it for it in changes.now.values() if it.node}
    return found, naming


def claims_whatever_runs(snapshot: Snapshot) -> Mapping[str, Claim]:
    """Returns the claims without since when they are empty: the same objects whatever gangs come to them and leave.

    For views that do not ask what runs there: most changes of claims are no others.
    """
    return _claims_whatever_runs(snapshot.index, snapshot.claims)


@followed(dict[str, Claim])
def _claims_whatever_runs(before: dict[str, Claim], changes: TableChanges[Claim]) -> dict[str, Claim]:
    news: dict[str, Claim | None] = {name: None for name, _ in changes.gone() if name not in changes.now}
    for name, claim in changes.came():
        known = before.get(name)
        if known is None or claim.differs_but_in_use(known):
            news[name] = changed(claim, emptied_at_s=0.0) if claim.emptied_at_s else claim
    return LoggedTable.after(before, news) if news else before


def node_names(snapshot: Snapshot) -> Mapping[str, bool]:
    """Returns the names of all nodes: the same object as long as none comes or goes."""
    return _node_names(snapshot.index, snapshot.nodes)


@followed_each()
def _node_names(_node: Node) -> bool:
    return True


def claim_names(snapshot: Snapshot) -> Mapping[str, bool]:
    """Returns the names of all claims: the same object as long as none comes or goes."""
    return _claim_names(snapshot.index, claims_whatever_runs(snapshot))


@followed_each()
def _claim_names(_claim: Claim) -> bool:
    return True


def nodes_by_instance(snapshot: Snapshot) -> Mapping[str, Node]:
    """Returns instance id -> the node that it became."""
    return _nodes_by_instance(snapshot.index, snapshot.nodes)[0]


@followed(lambda: (dict[str, Node](), 0))
def _nodes_by_instance(before: tuple[dict[str, Node], int], changes: TableChanges[Node]) -> tuple[dict[str, Node], int]:
    """Returns instance id -> node, and how many nodes name an instance: of several that name one the last counts."""
    old = [it for _, node in changes.gone() if (it := node.instance_id)]
    new = [(it, node) for _, node in changes.came() if (it := node.instance_id)]
    found, naming = before[0].copy(), before[1] + len(new) - len(old)
    for instance_id in old:
        found.pop(instance_id, None)
    found |= dict(new)
    if len(before[0]) != before[1] or len(found) != naming:
        found = {it: node for node in changes.now.values() if (it := node.instance_id)}
    return found, naming


def anti_affinity_terms(snapshot: Snapshot) -> Sequence[PodAffinityTerm]:
    """Returns the required anti-affinity of all pods that stand and of all gangs: whom it means is kept away."""
    return _anti_affinity_terms(snapshot.index, _keeping_apart(snapshot.index, snapshot.gangs), snapshot.repelling_pods)


@followed_each()
def _keeping_apart(gang: Gang) -> tuple[PodConstraints, ...] | None:
    """Returns what keeps others away from pods of a gang: of hardly any."""
    return tuple(it.constraints for it in gang.pod_sets if it.constraints.anti_affinity) or None


@derived(steady=True)
def _anti_affinity_terms(
    _index: Index, apart: Mapping[str, tuple[PodConstraints, ...]], repelling: Mapping[str, tuple[Pod, ...]]
) -> Sequence[PodAffinityTerm]:
    found = {it for stated in apart.values() for it in stated}
    found |= {pod.constraints for pods in repelling.values() for pod in pods}
    return tuple({term: None for constraints in found for term in constraints.anti_affinity})


def node_of(snapshot: Snapshot, claim: Claim) -> Node | None:
    """Returns the node of a machine: the one its claim names, else the one with the machine's provider id."""
    return snapshot.nodes.get(claim.node) or nodes_by_instance(snapshot).get(claim.instance_id)


def unlisted(snapshot: Snapshot, claim: Claim) -> bool:
    """Returns whether the cloud lists a machine no more, nor says that it has ended: it has forgotten it."""
    there = claim.instance_id in snapshot.instances
    return not there and snapshot.instances_at_s > claim.launched_at_s + LISTING_LAG_S


def forgotten(snapshot: Snapshot) -> frozenset[str]:
    """Returns the names of the claims whose machines were launched and are `unlisted`."""
    missing = _not_listed(snapshot.index, snapshot.claims, snapshot.instances)
    return frozenset([it.name for it in missing if unlisted(snapshot, it)]) if missing else _NO_CLAIMS


@derived(1)
def _not_listed(_index: Index, claims: Mapping[str, Claim], instances: Mapping[str, Instance]) -> Sequence[Claim]:
    return [it for it in claims.values() if it.launched_at_s and it.instance_id not in instances]


def claims_by_pool(snapshot: Snapshot) -> Mapping[str, Sequence[Claim]]:
    """Returns pool name -> its claims, each in order of name."""
    return _claims_by_pool(snapshot.index, snapshot.claims)


def claims_by_pool_whatever_runs(snapshot: Snapshot) -> Mapping[str, Sequence[Claim]]:
    """Returns what `claims_by_pool` does, of `claims_whatever_runs`: for limits, which ask what machines cost."""
    return _lasting_by_pool(snapshot.index, claims_whatever_runs(snapshot))


def _by_pool(before: dict[str, Sequence[Claim]], changes: TableChanges[Claim]) -> dict[str, Sequence[Claim]]:
    names = {it.node_pool for _, it in (*changes.gone(), *changes.came())}
    others = {pool: list(before.get(pool, ())) for pool in names}
    for name in changes.keys:
        old, new = changes.before.get(name), changes.now.get(name)
        members = others[old.node_pool] if old is not None else []
        at = bisect_left(members, name, key=_name)
        if old is not None and new is not None and old.node_pool == new.node_pool:
            members[at] = new
            continue
        del members[at : at + 1]
        if new is not None:
            insort(others[new.node_pool], new, key=_name)
    return {pool: members for pool, members in sorted({**before, **others}.items()) if members}


_name: Final[Callable[[Claim], str]] = attrgetter("name")
_claims_by_pool = followed(dict[str, Sequence[Claim]])(_by_pool)
_lasting_by_pool = followed(dict[str, Sequence[Claim]])(_by_pool)


def unclaimed(snapshot: Snapshot) -> Sequence[Instance]:
    """Returns the machines of this cluster, by id, that bill and that no claim answers for, nor may yet.

    A claim of its launch group that has no instance may: the answer of the launch is still on its way.
    """
    return _unclaimed(snapshot.index, snapshot.instances, claims_whatever_runs(snapshot), snapshot.cluster)


@derived()
def _unclaimed(
    index: Index, instances: Mapping[str, Instance], claims: Mapping[str, Claim], cluster: str
) -> Sequence[Instance]:
    strays = _strays(index, instances, _owned(index, claims), cluster)
    if not strays:
        return ()
    awaited = {claim.launch.group for claim in claims.values() if not claim.instance_id}
    return [found for found in strays.values() if found.tags.get(labels.LAUNCH_GROUP) not in awaited]


@followed_each(2)
def _strays(machine: Instance, owners: int | None, cluster: str) -> Instance | None:
    """Returns a machine of a cluster that bills and that no claim answers for."""
    return machine if not owners and not machine.gone and machine.tags.get(labels.CLUSTER) == cluster else None


@followed(dict[str, int])
def _owned(before: dict[str, int], changes: TableChanges[Claim]) -> dict[str, int]:
    """Returns instance id -> how many claims answer for it."""
    old = [claim.instance_id for _, claim in changes.gone()]
    new = [claim.instance_id for _, claim in changes.came()]
    if old == new:
        return before
    counts = {each: before.get(each, 0) for each in (*old, *new)}
    for count, ids in ((-1, old), (1, new)):
        for each in ids:
            counts[each] += count
    return LoggedTable.after(before, {each: count or None for each, count in counts.items()})


def holders(snapshot: Snapshot) -> Sequence[Gang]:
    """Returns the gangs that hold capacity, by uid."""
    return _in_a_row(snapshot.index, _holders(snapshot.index, snapshot.gangs))


@followed_each()
def _holders(gang: Gang) -> Gang | None:
    return gang if gang.holds_capacity else None


@derived(1)
def _in_a_row(_index: Index, gangs: Mapping[str, Gang]) -> Sequence[Gang]:
    return tuple(gangs.values())


def awaited(snapshot: Snapshot) -> frozenset[str]:
    """Returns the claims whose machines have room for ordinary pods that wait."""
    return _awaited(snapshot.index, snapshot.waiting_pods, snapshot.pod_verdicts)


@derived()
def _awaited(_index: Index, waiting: Mapping[str, Pod], verdicts: Mapping[str, PodVerdict]) -> frozenset[str]:
    found = (verdicts.get(pod.uid) for pod in waiting.values())
    return frozenset(verdict.claim for verdict in found if verdict is not None and verdict.claim)


def ordinary_tenants(snapshot: Snapshot) -> Mapping[str, tuple[Gang, tuple[Pod, ...]]]:
    """Returns uid -> the ordinary pods of a node that are alike, as a gang that is in no queue, and the pods."""
    return _ordinary_tenants(snapshot.index, _ordinary_by_node(snapshot))


def _ordinary_by_node(snapshot: Snapshot) -> Mapping[str, Sequence[tuple[Gang, tuple[Pod, ...]]]]:
    owners = _owners(snapshot.index, claims_by_node(snapshot))
    return tenants_of_nodes(snapshot.index, snapshot.ordinary_pods, owners)


@followed_each()
def _owners(claim: Claim) -> str:
    """Returns the name of a node's claim; another mapping only where one is added or goes."""
    return claim.name


@derived(1)
def _ordinary_tenants(
    _index: Index, by_node: Mapping[str, Sequence[tuple[Gang, tuple[Pod, ...]]]]
) -> Mapping[str, tuple[Gang, tuple[Pod, ...]]]:
    return {gang.uid: (gang, members) for found in by_node.values() for gang, members in found}


def tenants(snapshot: Snapshot) -> Mapping[str, Sequence[Gang]]:
    """Returns claim -> all whom it concerns that its machine goes: gangs, and ordinary pods as gangs in no queue."""
    return _tenants(
        snapshot.index, machines_held(snapshot), _ordinary_by_claim(snapshot.index, _ordinary_by_node(snapshot))
    )


@derived(1)
def _tenants(
    _index: Index, held: Mapping[str, Sequence[Gang]], on_machine: Mapping[str, tuple[Gang, ...]]
) -> Mapping[str, Sequence[Gang]]:
    if not on_machine:
        return held
    both = on_machine.keys() & held.keys()
    return {**held, **on_machine, **{name: (*held[name], *on_machine[name]) for name in both}}


@followed(dict[str, tuple[Gang, ...]])
def _ordinary_by_claim(
    before: dict[str, tuple[Gang, ...]], changes: TableChanges[Sequence[tuple[Gang, tuple[Pod, ...]]]]
) -> dict[str, tuple[Gang, ...]]:
    """Returns claim -> the ordinary pods on its node; a claim has one."""
    found = before.copy()
    for _, tenants_there in changes.gone():
        for gang, _ in tenants_there:
            found.pop(gang.pins[0].claim, None)
    for _, tenants_there in changes.came():
        if tenants_there and (claim := tenants_there[0][0].pins[0].claim):
            found[claim] = tuple(gang for gang, _ in tenants_there)
    return found


def machines_held(snapshot: Snapshot) -> Mapping[str, Sequence[Gang]]:
    """Returns name -> gangs with pods pinned there: the claim's name, or the node's where nobody claims it."""
    return _machines_held(snapshot.index, snapshot.gangs)


@followed(dict[str, Sequence[Gang]])
def _machines_held(before: dict[str, Sequence[Gang]], changes: TableChanges[Gang]) -> dict[str, Sequence[Gang]]:
    going = {id(gang): gang for _, gang in changes.gone() if gang.holds_capacity}
    came: dict[str, list[Gang]] = {pin.claim or pin.node: [] for gang in going.values() for pin in gang.pins}
    for gang in (it for _, it in changes.came() if it.holds_capacity):
        for name in {pin.claim or pin.node for pin in gang.pins}:
            came.setdefault(name, []).append(gang)
    if not came:
        return before
    found = before.copy()
    for name, gangs in came.items():
        members = [it for it in before.get(name, ()) if id(it) not in going] + gangs
        if members:
            found[name] = members if len(members) == 1 else sorted(members, key=lambda gang: gang.uid)
        else:
            found.pop(name, None)
    return found
