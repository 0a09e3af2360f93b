"""Machines and pods as consolidation sees them, and what would become of the pods without some of the machines.

The what-if is a purchase (`bench.reference.karpenter.buy`) of everything that would have to move, on what stays
(Karpenter `SimulateScheduling`, reference 4.4).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from bench.reference.karpenter.buy import (
    KarpenterNode,
    PoolTemplate,
    ProvisionerSettings,
    Resident,
    SchedulingResults,
    WaitingPod,
    solve,
)
from bench.reference.karpenter.disrupt.cheaper import offer_labels
from bench.reference.karpenter.disrupt.eligibility import CandidateNode, CandidatePod
from fleet.disruption.evaluation import disruption_cost, savings_ratio
from model import labels
from model.kinds import NodePool
from model.requirements import Requirement, Requirements

UNSETTLED: Final = "muster.dev/unsettled"
"""A label that only nodes of a what-if carry: something has come or gone there lately, and others stay away."""
_SETTLED: Final = Requirements({UNSETTLED: Requirement(frozenset(("true",)), complement=True)})
EVERY_TYPE: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class DisruptionCandidate:
    """A machine with what runs on it."""

    node: KarpenterNode
    """`free` is what is left beside all of its pods; `labels` say its type, zone, capacity type and reservation."""
    pool: str = ""
    """Name of its pool; empty = nobody here bought it."""
    pods: tuple[WaitingPod, ...] = ()
    """Those that somebody would make anew elsewhere: neither daemons nor static pods."""
    evictions: tuple[float, ...] = ()
    """What it costs to evict each of them (`savings.eviction_cost`)."""
    post: CandidateNode = field(default_factory=CandidateNode)
    settled: bool = True
    """Nothing has come or gone for its pool's quiet time."""
    drifted_at_s: float = 0.0
    """Since when it is not what its pool declares; 0 = it is."""
    held: tuple[str, ...] = ()
    """Names of the pods that nobody may evict: they are not counted on to move."""

    @property
    def name(self) -> str:
        """Name of its node."""
        return self.node.name

    @property
    def empty(self) -> bool:
        """Whether nothing would have to move."""
        return not self.pods

    @property
    def disruption(self) -> float:
        """What it costs to move what runs on it."""
        return disruption_cost(self.evictions)


@dataclass(frozen=True)
class DisruptionWorld:
    """Everything a round of disruption looks at. Names of machines and of pods are unique each."""

    pools: Mapping[str, NodePool]
    templates: tuple[PoolTemplate, ...]
    machines: tuple[DisruptionCandidate, ...]
    pending: tuple[WaitingPod, ...] = ()
    rules: ProvisionerSettings = field(default_factory=ProvisionerSettings)
    spot_to_spot: frozenset[str] = frozenset()
    """Pools whose spot machines may give way to cheaper spot machines."""
    now_s: float = 0.0

    @cached_property
    def by_name(self) -> Mapping[str, DisruptionCandidate]:
        """Machines by name."""
        return {machine.name: machine for machine in self.machines}

    def price_usd_h(self, machine: DisruptionCandidate) -> float | None:
        """What a machine costs by the offer it was bought from, sold or not; None where there is none any more."""
        carried = machine.node.labels
        keys = (labels.ZONE, labels.CAPACITY_TYPE, labels.CAPACITY_RESERVATION_ID)
        mine = {key: carried[key] for key in keys if key in carried}
        for template in self.templates:
            for kind in template.machines:
                if template.name == machine.pool and kind.name == carried.get(labels.INSTANCE_TYPE):
                    told = (offer for offer in kind.offerings if mine.items() <= offer_labels(offer).items())
                    return min((offer.price_usd_h for offer in told), default=None)
        return None

    def ratio(self, machine: DisruptionCandidate) -> float:
        """USD an hour a machine brings for each unit of disruption."""
        return savings_ratio(self.price_usd_h(machine), machine.disruption)


@dataclass(frozen=True, slots=True)
class NoCommand:
    """Nothing is done with some machines, and why."""

    message: str


def without(ground: DisruptionWorld, going: Collection[str]) -> SchedulingResults | NoCommand:
    """Where everything on the machines `going` ends up when they are gone; refused where it does not all fit.

    Pods that wait, and those of machines that leave anyhow, want a place as well, and may fail to find one.
    """
    leaving = [machine for machine in ground.machines if machine.post.leaving and machine.name not in going]
    staying = [m for m in ground.machines if m.name not in going and not m.post.leaving]
    moving = [_settled(pod) for name in sorted(going) for pod in _movable(ground.by_name[name])]
    others = [*ground.pending, *(pod for machine in leaving for pod in _movable(machine))]
    rules = replace(ground.rules, strict_reservations=False, best_effort_min_values=False, most_types=EVERY_TYPE)
    outcome = solve([*moving, *others], ground.templates, [_place(machine) for machine in staying], rules)
    return _missing(ground, outcome, {pod.name for pod in moving}, {pod.name for pod in others}) or outcome


def _movable(machine: DisruptionCandidate) -> list[WaitingPod]:
    return [pod for pod in machine.pods if pod.name not in machine.held]


def _settled(pod: WaitingPod) -> WaitingPod:
    return replace(pod, ask=replace(pod.ask, selector=pod.ask.selector & _SETTLED))


def _place(machine: DisruptionCandidate) -> KarpenterNode:
    found = {**machine.node.labels} if machine.settled else {**machine.node.labels, UNSETTLED: "true"}
    return replace(machine.node, labels=found, residents=(*machine.node.residents, *_residents(machine.pods)))


def _residents(pods: Iterable[WaitingPod]) -> list[Resident]:
    return [Resident(pod.ask.labels, pod.ask.namespace, 1, pod.ask.anti_affinity, pod.ask.host_ports) for pod in pods]


def _missing(
    ground: DisruptionWorld, outcome: SchedulingResults, moving: Collection[str], others: Collection[str]
) -> NoCommand | None:
    why = {name: each.message for each in outcome.unplaced for name in each.pods if name in moving}
    for node, pods in outcome.seats.items():
        if not ground.by_name[node].node.initialized:
            told = f"would schedule against uninitialized nodeclaim on {node}"
            why |= {name: told for name in pods if name not in others}
    if not why:
        return None
    first = "; ".join(f"{name}: {why[name]}" for name in sorted(why)[:3])
    return NoCommand(f"Not all pods would schedule, {first}")


def reschedulable(pod: CandidatePod) -> bool:
    """Whether a pod would have to run somewhere else if its machine went.

    A pod of a StatefulSet that is being deleted comes back under its name; others that are have a successor already.
    """
    if pod.ended or pod.mirror or pod.owner == "DaemonSet":
        return False
    return not pod.leaving or pod.owner == "StatefulSet"
