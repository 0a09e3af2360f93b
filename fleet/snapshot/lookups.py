"""Looks up what every room asks of a snapshot: claims by node and pool, gangs that hold capacity, what stands where."""

from collections.abc import Mapping, Sequence

from fleet.snapshot import Claim, Gang, Instance, Node, Pod, PodVerdict, Snapshot
from fleet.snapshot.constraints import PodAffinityTerm
from fleet.snapshot.ordinary_pods import tenants_of_nodes
from model import labels
from model.index import Index, derived


def claims_by_node(snapshot: Snapshot) -> Mapping[str, Claim]:
    """Returns node name -> the claim whose machine it is."""
    return _claims_by_node(snapshot.index, snapshot.claims)


@derived()
def _claims_by_node(_index: Index, claims: Mapping[str, Claim]) -> Mapping[str, Claim]:
    return {claim.node: claim for claim in claims.values() if claim.node}


def nodes_by_instance(snapshot: Snapshot) -> Mapping[str, Node]:
    """Returns instance id -> the node that it became."""
    return _nodes_by_instance(snapshot.index, snapshot.nodes)


@derived()
def _nodes_by_instance(_index: Index, nodes: Mapping[str, Node]) -> Mapping[str, Node]:
    return {instance_id: node for node in nodes.values() if (instance_id := node.instance_id)}


def anti_affinity_terms(snapshot: Snapshot) -> Sequence[PodAffinityTerm]:
    """Returns the required anti-affinity of all pods that stand and of all gangs: whom it means is kept away."""
    return _anti_affinity_terms(snapshot.index, snapshot.gangs, snapshot.repelling_pods)


@derived(steady=True)
def _anti_affinity_terms(
    _index: Index, gangs: Mapping[str, Gang], repelling: Mapping[str, tuple[Pod, ...]]
) -> Sequence[PodAffinityTerm]:
    stated = (pod_set.constraints for gang in gangs.values() for pod_set in gang.pod_sets)
    found = {it for it in stated if it.anti_affinity}
    found |= {pod.constraints for pods in repelling.values() for pod in pods}
    return tuple({term: None for constraints in found for term in constraints.anti_affinity})


def node_of(snapshot: Snapshot, claim: Claim) -> Node | None:
    """Returns the node of a machine: the one its claim names, else the one with the machine's provider id."""
    return snapshot.nodes.get(claim.node) or nodes_by_instance(snapshot).get(claim.instance_id)


def claims_by_pool(snapshot: Snapshot) -> Mapping[str, Sequence[Claim]]:
    """Returns pool name -> its claims, each in order of name."""
    return _claims_by_pool(snapshot.index, snapshot.claims)


@derived()
def _claims_by_pool(_index: Index, claims: Mapping[str, Claim]) -> Mapping[str, Sequence[Claim]]:
    members: dict[str, list[Claim]] = {}
    for claim in sorted(claims.values(), key=lambda claim: claim.name):
        members.setdefault(claim.node_pool, []).append(claim)
    return dict(sorted(members.items()))


def unclaimed(snapshot: Snapshot) -> Sequence[Instance]:
    """Returns the machines of this cluster, by id, that bill and that no claim answers for, nor may yet.

    A claim of its launch group that has no instance may: the answer of the launch is still on its way.
    """
    return _unclaimed(snapshot.index, snapshot.instances, snapshot.claims, snapshot.cluster)


@derived()
def _unclaimed(
    _index: Index, instances: Mapping[str, Instance], claims: Mapping[str, Claim], cluster: str
) -> Sequence[Instance]:
    owned = {claim.instance_id for claim in claims.values()}
    awaited = {claim.launch.group for claim in claims.values() if not claim.instance_id}
    ours = (found for _, found in sorted(instances.items()) if found.tags.get(labels.CLUSTER) == cluster)
    strays = [found for found in ours if not found.gone and found.id not in owned]
    return [found for found in strays if found.tags.get(labels.LAUNCH_GROUP) not in awaited]


def holders(snapshot: Snapshot) -> Sequence[Gang]:
    """Returns the gangs that hold capacity, by uid."""
    return _holders(snapshot.index, snapshot.gangs)


@derived(steady=True)
def _holders(_index: Index, gangs: Mapping[str, Gang]) -> Sequence[Gang]:
    return tuple(gang for _, gang in sorted(gangs.items()) if gang.holds_capacity)


def awaited(snapshot: Snapshot) -> frozenset[str]:
    """Returns the claims whose machines have room for ordinary pods that wait."""
    return _awaited(snapshot.index, snapshot.waiting_pods, snapshot.pod_verdicts)


@derived()
def _awaited(_index: Index, waiting: Mapping[str, Pod], verdicts: Mapping[str, PodVerdict]) -> frozenset[str]:
    found = (verdicts.get(pod.uid) for pod in waiting.values())
    return frozenset(verdict.claim for verdict in found if verdict is not None and verdict.claim)


def ordinary_tenants(snapshot: Snapshot) -> Mapping[str, tuple[Gang, tuple[Pod, ...]]]:
    """Returns uid -> the ordinary pods of a node that are alike, as a gang that is in no queue, and the pods."""
    owners = _owners(snapshot.index, claims_by_node(snapshot))
    return _ordinary_tenants(snapshot.index, snapshot.ordinary_pods, owners)


@derived(1, steady=True)
def _owners(_index: Index, claims: Mapping[str, Claim]) -> Mapping[str, str]:
    """Returns node -> name of its claim; another mapping only where one is added or goes."""
    return {node: claim.name for node, claim in claims.items()}


@derived(1)
def _ordinary_tenants(
    index: Index, pods: Mapping[str, tuple[Pod, ...]], owners: Mapping[str, str]
) -> Mapping[str, tuple[Gang, tuple[Pod, ...]]]:
    return tenants_of_nodes(index, pods, owners)


def tenants(snapshot: Snapshot) -> Mapping[str, Sequence[Gang]]:
    """Returns claim -> all whom it concerns that its machine goes: gangs, and ordinary pods as gangs in no queue."""
    return _tenants(snapshot.index, machines_held(snapshot), ordinary_tenants(snapshot))


@derived(1)
def _tenants(
    index: Index, held: Mapping[str, Sequence[Gang]], ordinary: Mapping[str, tuple[Gang, tuple[Pod, ...]]]
) -> Mapping[str, Sequence[Gang]]:
    if not ordinary:
        return held
    on_machine = _ordinary_by_claim(index, ordinary)
    both = on_machine.keys() & held.keys()
    return {**held, **on_machine, **{name: (*held[name], *on_machine[name]) for name in both}}


@derived(1)
def _ordinary_by_claim(
    _index: Index, ordinary: Mapping[str, tuple[Gang, tuple[Pod, ...]]]
) -> Mapping[str, tuple[Gang, ...]]:
    found: dict[str, tuple[Gang, ...]] = {}
    for gang, _ in ordinary.values():
        [pin] = gang.pins
        if pin.claim:
            found[pin.claim] = (*found.get(pin.claim, ()), gang)
    return found


def machines_held(snapshot: Snapshot) -> Mapping[str, Sequence[Gang]]:
    """Returns name -> gangs with pods pinned there: the claim's name, or the node's where nobody claims it."""
    return _machines_held(snapshot.index, holders(snapshot))


@derived()
def _machines_held(_index: Index, gangs: Sequence[Gang]) -> Mapping[str, Sequence[Gang]]:
    held: dict[str, list[Gang]] = {}
    for gang in gangs:
        for name in sorted({pin.claim or pin.node for pin in gang.pins}):
            held.setdefault(name, []).append(gang)
    return held
