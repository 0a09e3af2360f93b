"""Whether any machine could ever hold the pods of a gang: asked before quota, with limits and shortages left aside.

Each pod set is held against every offer of every flavor of its queue, and where none will do against the nodes that
stand. A gang that asks for what nobody has would else be told to wait for quota, and then for machines.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleet.mig.layouts import gpu_part
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import room_in
from fleet.placement.flavor_nodes import FlavorNodes, need_of_flavors, nodes_of_flavor
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import Need
from fleet.quota.build_tree import current_quota_specs
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang, PodSet, Snapshot
from fleet.snapshot.affinity import admits, selects_any, tolerates
from model import labels
from model.fleet import Fleet
from model.hints import near
from model.kinds import Taint
from model.quantity import Resources, format_amount

_KNOWN = frozenset({labels.GPU_RESOURCE, labels.SHARED_GPU_RESOURCE, "cpu", "memory", "ephemeral-storage", "pods"})

BEFORE_MACHINES: Final = frozenset(
    {Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_MAX_QUOTA, Reason.BEHIND_HEAD, Reason.NO_MATCHING_FLAVOR}
)
"""Reasons of gangs for which no machine was looked for yet."""
_MEANT: Final = "did you mean"


def foremost(answer: Refusal, never: Refusal | None) -> Refusal:
    """Returns what is said of a gang that got an answer before machines were looked at, and may never fit any.

    That no flavor offers a resource says as much already; which one may be meant is added.
    """
    if never is None or answer.reason is not Reason.NO_MATCHING_FLAVOR:
        return never or answer
    hint = meant_in(never.message)
    return replace(answer, message=f"{answer.message}; {_MEANT} {hint}?") if hint else answer


def meant_in(message: str) -> str:
    """Returns the resource that a message says may be meant; empty where it names none."""
    return message.partition(f"{_MEANT} ")[2].partition("?")[0]


def never_fits(fleet: Fleet, snapshot: Snapshot, gang: Gang, capacity: BuyableCapacity | None = None) -> Refusal | None:
    """Returns why no machine could ever hold a pod of the gang; None where one could, or it cannot be told.

    `capacity`: that of a pass, whose candidates are known from pass to pass; None = it is built for this question.
    """
    names = flavors_of_queue(fleet, snapshot, gang)
    if not names:
        return None
    if capacity is None:
        capacity = build_capacity(fleet, snapshot, may_buy=False)
    for pods in gang.pod_sets:
        if pods.count and (words := _never(fleet, snapshot, pods, names, capacity)):
            return Refusal(Reason.NO_OFFER, f"no machine can ever hold a pod of {pods.name!r}: {words}")
    return None


def flavors_of_queue(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Sequence[str]:
    """Returns the declared flavors of a gang's queue in their order; nothing for a queue that is not declared."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    spec = current_quota_specs(fleet, snapshot).queues.get(binding.name) if binding is not None else None
    named = dict.fromkeys(name for group in spec.groups for name in group.flavors) if spec is not None else {}
    return [name for name in named if nodes_of_flavor(fleet, name) is not None]


def _never(fleet: Fleet, snapshot: Snapshot, pods: PodSet, names: Sequence[str], capacity: BuyableCapacity) -> str:
    needs = [need_of_flavors(fleet, pods, (name,)) for name in names]
    fixed = any(pool.spec.replicas is not None for need in needs for pool in need.pools)
    if fixed or any(found for need in needs for _, found in capacity.candidates(need, "").pools):
        return ""
    flavors = [nodes for name in names if (nodes := nodes_of_flavor(fleet, name)) is not None]
    if any(_stands(snapshot, need, nodes) for need, nodes in zip(needs, flavors, strict=True)):
        return ""
    return _words(snapshot, pods, needs, capacity)


def _stands(snapshot: Snapshot, need: Need, nodes: FlavorNodes) -> bool:
    """Returns whether a node of a flavor would hold a pod if it were empty."""
    return any(
        nodes.stands_for(node.labels, node.labels.get(labels.NODE_POOL, ""))
        and admits(need.pod_set, need.tolerations, node.labels, node.taints)
        and room_in({**node.allocatable, "pods": node.allocatable.get("pods", 1)}, need.pod_set.requests)
        for node in snapshot.nodes.values()
    )


def _words(snapshot: Snapshot, pods: PodSet, needs: Sequence[Need], capacity: BuyableCapacity) -> str:
    """Says what no machine has, by the one that comes nearest."""
    offered = [(need, it) for need in needs for pool in need.pools for it in capacity.offerings.of(pool)]
    there = {name for _, it in offered for name in it.allocatable}
    there.update(*(node.allocatable for node in snapshot.nodes.values()))
    strange = sorted(name for name, amount in pods.requests.items() if amount and name not in there)
    if strange:
        return misspelt(strange[0], there)
    unmet = [capacity.unmet_claims(need) for need in needs] if pods.constraints.devices else []
    if unmet and all(unmet):
        return min(filter(None, unmet), key=lambda it: it.reason == Reason.NO_MATCHING_FLAVOR).message
    able = [it for need, it in offered if not against_labels(need, it.labels, it.taints)]
    if able:
        return lacking_resource(pods, max((it.allocatable for it in able), key=lambda it: _fullness(it, pods)))
    found = sorted({words for need, it in offered if (words := against_labels(need, it.labels, it.taints))})
    return found[0] if found else "no pool of its flavors sells a machine"


def misspelt(resource: str, there: Iterable[str]) -> str:
    """Says that no machine has a resource, and which one may be meant."""
    meant = near(resource, {*there, *_KNOWN})
    hint = f"; {_MEANT} {meant}?" if meant else ""
    return f"it asks for {resource}, which no machine has{hint}"


def _fullness(has: Resources, pods: PodSet) -> tuple[float, float]:
    """Orders machines by how near they come: the least part of what one pod asks that they have."""
    parts = sorted(min(1.0, has.get(name, 0) / amount) for name, amount in pods.requests.items() if amount)
    return (parts[0] if parts else 1.0, sum(parts))


def lacking_resource(pods: PodSet, has: Resources) -> str:
    """Says of which resource a machine has too little for one pod, GPUs first."""
    gpus = gpu_part(pods.requests)
    for name in (*sorted(gpus), *sorted(pods.requests.keys() - gpus.keys())):
        asked, there = pods.requests[name], has.get(name, 0)
        if asked > there:
            return f"one pod asks {format_amount(name, asked)} {name}, one machine has {format_amount(name, there)}"
    return "one machine has too little for a pod"


def _against_selector(selector: Mapping[str, str], carried: Mapping[str, str]) -> str:
    for key, value in sorted(selector.items()):
        if carried.get(key) != value:
            has = f"it has {carried[key]}" if key in carried else "it has no such label"
            return f"selector {key}={value}: {has}"
    return ""


def against_labels(need: Need, carried: Mapping[str, str], taints: tuple[Taint, ...]) -> str:
    """Says which taint or selector keeps the pods from a machine; empty where none does (`admits`)."""
    pods = need.pod_set
    tolerations = (*pods.tolerations, *need.tolerations)
    if taints and not tolerates(taints, tolerations):
        taint = next(it for it in taints if not tolerates((it,), tolerations))
        return f"taint {taint.key}:{taint.effect} is not tolerated"
    if wrong := _against_selector(pods.node_selector, carried):
        return wrong
    if not selects_any(pods.required_affinity, carried):
        return "required node affinity holds on none of its labels"
    return ""
