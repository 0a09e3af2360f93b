"""What people ask about a waiting gang: how its quota stands in the tree, and what if it were otherwise."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.actions import Action, NominatePods, SaveGang
from fleet.fence import together
from fleet.mig.layouts import gpu_part
from fleet.placement.pod_quota import ordinary_usage
from fleet.quota.build_tree import charged_tree, current_quota_specs
from fleet.quota.queue_binding import binding_of, class_of
from fleet.quota.specs import UNLIMITED, FlavorResource, QuotaQueueSpec
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, available
from fleet.reasons import Refusal
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, Pod, PodSet, PodVerdict, Snapshot
from model import labels
from model.fleet import Fleet
from model.index import Index


def verdict_of(fleet: Fleet, snapshot: Snapshot, pod: Pod) -> PodVerdict | None:
    """Returns what a pass finds now for a waiting pod of no gang; None where it does not look at it.

    A pass tells what differs from what is known: where it tells nothing, that stands.
    """
    told = (action.verdicts for action in cycle.decide(fleet, _apart(snapshot)) if isinstance(action, NominatePods))
    return next(told, snapshot.pod_verdicts).get(pod.uid)


def why_no_room(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, Refusal]:
    """Returns CapacityBuffer (`namespace/name`) -> why a pass buys no machine now for some of its pods.

    Gangs about which nothing can be decided are left out, as they are when the agent decides.
    """
    refused: Mapping[str, Refusal] = {}

    def run(world: Snapshot) -> Sequence[Action]:
        nonlocal refused
        started = cycle.AdmissionPass.start(fleet, world)
        actions = started.run()
        refused = started.ordinary.spare.refused
        return actions

    together(_apart(snapshot), run)
    return refused


def _apart(snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot with views of its own: a pass takes from them what the agent's next pass begins with."""
    return replace(snapshot, index=Index())


@dataclass(frozen=True, slots=True)
class QuotaLevel:
    """Quota at one node on the way from a queue to the root, for one (flavor, resource); amounts are canonical."""

    flavor: str
    resource: str
    node: str
    """Its path from the root."""
    quota: int
    """Own quota and what those below lend."""
    used: int
    """Of what is shared: private quota that is in use below does not count here."""
    most: int | None
    """Most it could use with everybody else idle; None = no bound."""

    @property
    def borrowed(self) -> int:
        """Returns how much is used above its own quota."""
        return max(0, self.used - self.quota)


@dataclass(frozen=True, slots=True)
class QuotaStanding:
    """How much of one (flavor, resource) a gang asks and could have, with every node on the way up its tree."""

    asked: int
    free: int
    levels: tuple[QuotaLevel, ...]
    """The queue first, the root last."""


def standings(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> list[QuotaStanding]:
    """Returns the quota that is free for a gang, for each resource it asks in each flavor of its queue."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    if binding is None:
        return []
    others = (it for it in snapshot.gangs.values() if it.uid != gang.uid)
    tree = charged_tree(fleet, snapshot, others, ordinary_usage(fleet, snapshot))
    node = tree.queues[binding.name]
    asked = _asked(current_quota_specs(fleet, snapshot).queues[binding.name], tree, node, gang)
    return [
        QuotaStanding(amount, available(node, cell), tuple(_up(tree, node, cell))) for cell, amount in asked.items()
    ]


def _asked(spec: QuotaQueueSpec, tree: QuotaTree, node: QuotaNode, gang: Gang) -> Mapping[Cell, int]:
    asked: Counter[Cell] = Counter()
    for pod_set in gang.needed:
        for resource, amount in spec.asked_of(pod_set).items():
            if amount:
                for cell in _cells(spec, tree, node, resource):
                    asked[cell] += amount * pod_set.count
    return asked


def _cells(spec: QuotaQueueSpec, tree: QuotaTree, node: QuotaNode, resource: str) -> Iterator[Cell]:
    """Yields the cells of a resource, over the flavors of the queue, that some quota of its tree counts."""
    group = spec.group_of(resource)
    for flavor in group.flavors if group is not None else ():
        cell = tree.index.get(FlavorResource(flavor, resource))
        if cell is not None and cell in node.root.declared:
            yield cell


def _up(tree: QuotaTree, queue: QuotaNode, cell: Cell) -> Iterator[QuotaLevel]:
    for node in (queue, *queue.ancestors()):
        most = node.potential[cell]
        bound = most if most < UNLIMITED else None
        yield QuotaLevel(*tree.cells[cell], node.path, node.subtree[cell], node.usage[cell], bound)


@dataclass(frozen=True, slots=True)
class WhatIfDecision:
    """The next decision as it would be if the gang were otherwise."""

    state: GangState
    reason: str
    message: str
    evicted: tuple[str, ...]
    """Names of gangs that would have to leave for it."""


def otherwise(
    fleet: Fleet,
    snapshot: Snapshot,
    gang: Gang,
    *,
    priority_class: str = "",
    queue: str = "",
    gpus: int | None = None,
) -> WhatIfDecision:
    """Returns the decision for the gang alone, all other waiting gangs left out, with these changes to it.

    `gpus`: so many GPUs for every pod that asks for any. What-ifs are about quota and place: nothing is kept.
    """
    asks = replace(of_class(fleet, gang, priority_class), queue=queue or gang.queue, requeue_at_s=0.0)
    asks = replace(asks, reason="Queued", message="")
    if gpus is not None:
        asks = replace(asks, pod_sets=tuple(with_gpus(pods, gpus) for pods in gang.pod_sets))
    others = {uid: it for uid, it in snapshot.gangs.items() if it.state is not GangState.PENDING}
    imagined = replace(_apart(snapshot), gangs=others | {gang.uid: asks}, busy=frozenset())
    saved = [action.gang for action in cycle.decide(fleet, imagined) if isinstance(action, SaveGang)]
    own = next((it for it in saved if it.uid == gang.uid), asks)
    evicted = sorted(it.name for it in saved if it.uid != gang.uid)
    return WhatIfDecision(own.state, own.reason, own.message, tuple(evicted))


def of_class(fleet: Fleet, gang: Gang, priority_class: str) -> Gang:
    """Returns the gang with this priority class; as it is where none is given."""
    if not priority_class:
        return gang
    declared = class_of(fleet, priority_class)
    if declared is None:
        return replace(gang, priority_class=priority_class)
    spec = declared.spec
    return replace(gang, priority_class=priority_class, priority=spec.value, preempts=spec.preempts)


def with_gpus(pods: PodSet, gpus: int) -> PodSet:
    """Returns the pod set with so many GPUs a pod, where it asks for any."""
    if not gpu_part(pods.requests):
        return pods
    kept = {name: amount for name, amount in pods.requests.items() if name not in gpu_part(pods.requests)}
    return replace(pods, requests={**kept, labels.GPU_RESOURCE: gpus})
