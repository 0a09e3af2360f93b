"""The quota that ordinary pods take, where their team names a queue for them (`ordinaryPodsQueue`).

kube-scheduler binds such pods without asking for quota, so what they take may exceed it: it then keeps gangs out as any
use does. It is charged as a whole to the queue, and nobody is evicted for it. Machines are bought for them within it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.quota.build_tree import QueueUsage, charge_others, equivalents
from fleet.quota.specs import FlavorResource, with_equivalents
from fleet.quota.tree import Cell, QuotaTree, available, charge
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Node, Pod, PodSet, Snapshot
from fleet.snapshot.lookups import claims_by_node
from model.fleet import Fleet
from model.index import Index, derived, derived_each
from model.quantity import Resources, format_amount

_NOTHING: Final[QueueUsage] = {}
ANY_FLAVOR: Final = ("",)
"""For pods that take no quota: machines of every flavor, and of none, will do."""


@dataclass(frozen=True, slots=True)
class PodQuota:
    """A `PodQuota` is the quota of one pass, of which ordinary pods take what gangs have left, and gangs what they do.

    What is taken stays taken for the pass.
    """

    fleet: Fleet
    tree: QuotaTree

    @classmethod
    def start(cls, fleet: Fleet, snapshot: Snapshot, tree: QuotaTree) -> "PodQuota":
        """Charges what ordinary pods that stand take."""
        charge_others(tree, ordinary_usage(fleet, snapshot))
        return cls(fleet, tree)

    def queue(self, namespace: str) -> str:
        """Returns the queue whose quota pods of a namespace take; empty where they take none."""
        return _queues(self.fleet.index, self.fleet).get(namespace, "")

    def flavors(self, namespace: str) -> Sequence[str]:
        """Returns the flavors to try for pods of a namespace, in order."""
        queue = self.queue(namespace)
        return self.fleet.queues[queue].spec.flavors if queue else ANY_FLAVOR

    def room(self, pods: PodSet, flavor: str) -> int | Refusal:
        """Returns for how many pods like these there is quota of a flavor now, or which quota is missing for one."""
        asked = self._asked(pods, flavor)
        if not asked:
            return pods.count
        node = self.tree.queues[self.queue(pods.namespace)]
        for cell, amount in asked.items():
            if amount > (free := available(node, cell)):
                return self._missing(cell, amount, free, node.potential[cell])
        return min(pods.count, *(available(node, cell) // amount for cell, amount in asked.items()))

    def take(self, pods: PodSet, flavor: str, count: int) -> None:
        """Charges so many of the pods."""
        if asked := self._asked(pods, flavor):
            node = self.tree.queues[self.queue(pods.namespace)]
            charge(node, {cell: amount * count for cell, amount in asked.items()})

    def _asked(self, pods: PodSet, flavor: str) -> Mapping[Cell, int]:
        """Returns what one of the pods takes of the quota that is declared; nothing where they take none."""
        if not flavor:
            return {}
        node = self.tree.queues[self.queue(pods.namespace)]
        asked = with_equivalents(pods.requests, equivalents(self.fleet))
        named = ((FlavorResource(flavor, resource), amount) for resource, amount in asked.items() if amount)
        return {self.tree.cell(each): amount for each, amount in named if self.tree.counts(node, each)}

    def _missing(self, cell: Cell, amount: int, free: int, most: int) -> Refusal:
        flavor, resource = self.tree.cells[cell]
        asked, left = format_amount(resource, amount), format_amount(resource, free)
        if amount > most:
            words = f"asks {asked} {resource} of {flavor}; with everybody else idle there would be"
            return Refusal(Reason.EXCEEDS_MAX_QUOTA, f"{words} {format_amount(resource, most)}")
        missing = format_amount(resource, amount - free)
        words = f"needs {missing} more {resource} of {flavor}: asks {asked}, {left} available"
        return Refusal(Reason.WAITING_FOR_QUOTA, words)


def pods_queue(fleet: Fleet, namespace: str) -> str:
    """Returns the queue whose quota the ordinary pods of a namespace take; empty where they take none."""
    return _queues(fleet.index, fleet).get(namespace, "")


def ordinary_usage(fleet: Fleet, snapshot: Snapshot) -> QueueUsage:
    """Returns what ordinary pods that stand take of their queues' flavors.

    A machine counts for the first flavor of the queue that it belongs to; one of none of them costs no quota.
    """
    queues = _queues(fleet.index, fleet)
    if not queues:
        return _NOTHING
    index = snapshot.index
    return _usage(index, fleet, queues, snapshot.ordinary_pods, snapshot.nodes, claims_by_node(snapshot))


@derived()
def _queues(_index: Index, fleet: Fleet) -> Mapping[str, str]:
    teams = [team.spec for team in fleet.teams.values() if team.spec.ordinary_pods_queue]
    return {namespace: spec.ordinary_pods_queue or "" for spec in teams for namespace in spec.namespaces}


@derived_each
def _by_queue(queues: Mapping[str, str], pods: Sequence[Pod]) -> Mapping[str, Resources]:
    """Returns queue -> what the pods of one node take."""
    found: dict[str, dict[str, int]] = {}
    for pod in pods:
        if queue := queues.get(pod.namespace):
            taken = found.setdefault(queue, {})
            for resource, amount in pod.requests.items():
                taken[resource] = taken.get(resource, 0) + amount
    return found


@derived(2, steady=True)
def _usage(
    index: Index,
    fleet: Fleet,
    queues: Mapping[str, str],
    pods: Mapping[str, tuple[Pod, ...]],
    nodes: Mapping[str, Node],
    claims: Mapping[str, Claim],
) -> QueueUsage:
    found: dict[str, dict[FlavorResource, int]] = {}
    for name in pods:
        for queue, taken in _by_queue(index, queues, pods, name).items():
            if not (flavor := _flavor_of(fleet, queue, nodes.get(name), claims.get(name))):
                continue
            usage = found.setdefault(queue, {})
            for resource, amount in with_equivalents(taken, equivalents(fleet)).items():
                named = FlavorResource(flavor, resource)
                usage[named] = usage.get(named, 0) + amount
    return found


def _flavor_of(fleet: Fleet, queue: str, node: Node | None, claim: Claim | None) -> str:
    """Returns the first flavor of the queue that a node belongs to; empty where there is none."""
    if node is None:
        return ""
    pool = claim.node_pool if claim is not None else ""
    of_queue = ((flavor, nodes_of_flavor(fleet, flavor)) for flavor in fleet.queues[queue].spec.flavors)
    owning = (flavor for flavor, nodes in of_queue if nodes is not None and nodes.stands_for(node.labels, pool))
    return next(owning, "")
