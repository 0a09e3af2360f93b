"""One scheduling cycle's filters: prepared for a pod, run in the order of the default profile, and put into words."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from providers.sim.controllers.filters.device_claims import device_claims
from providers.sim.controllers.filters.inter_pod_affinity import inter_pod_affinity
from providers.sim.controllers.filters.node_rules import (
    NOT_NAMED,
    cordons,
    named_nodes,
    node_affinity,
    ports,
    resources,
    taints,
)
from providers.sim.controllers.filters.state import (
    Filter,
    NodeCheck,
    NodeRefusal,
    SchedulingState,
    UnschedulablePodError,
)
from providers.sim.controllers.filters.topology_spread import topology_spread
from providers.sim.controllers.filters.volume_rules import (
    exclusive_claims,
    volume_binding,
    volume_limits,
    volume_zone,
)
from providers.sim.controllers.objects import Obj
from providers.sim.controllers.scheduling import SchedulableNode

_VOLUMES: tuple[Filter, ...] = (exclusive_claims, volume_limits, volume_binding, volume_zone)
_PODS: tuple[Filter, ...] = (topology_spread, inter_pod_affinity)
ALL: tuple[Filter, ...] = (cordons, taints, node_affinity, ports, resources, *_VOLUMES, *_PODS, device_claims)
"""Every filter, in the order in which the first that refuses tells."""
SHARED: tuple[Filter, ...] = (ports, *_VOLUMES, *_PODS, device_claims)
"""Those that ask for more than a node and what is left on it."""


def prepared(pod: Obj, state: SchedulingState, filters: Sequence[Filter] = ALL) -> list[NodeCheck]:
    """The filters that have something to say about a pod. UnschedulablePodError where no node will do."""
    return [check for each in filters if (check := each(pod, state)) is not None]


def first_refusal(checks: Iterable[NodeCheck], node: SchedulableNode) -> NodeRefusal | None:
    """What the first filter says that refuses a node, if one does."""
    for check in checks:
        refusal = check(node)
        if refusal is not None:
            return refusal
    return None


@dataclass(frozen=True, slots=True)
class SchedulingDiagnosis:
    """Which nodes are feasible for a pod, and why each other is not."""

    feasible: tuple[str, ...] = ()
    refusals: Mapping[str, NodeRefusal] = field(default_factory=dict)
    said_of_all: str = ""
    """Why no node will do, where that was clear before any was looked at."""

    def message(self, *, preempts: bool = True, claims: bool = False) -> str:
        """The message of PodScheduled=False. Nothing is preempted: no pod that stands is of lower priority to it.

        `claims`: the pod has claims of devices, of which none could be given back.
        """
        total = len(self.refusals)
        if not total:
            return "no nodes available to schedule pods"
        none = f"0/{total} nodes are available:"
        if self.said_of_all:
            return f"{none} {self.said_of_all}. not found"
        listed = _listed(reason for refusal in self.refusals.values() for reason in refusal.reasons)
        helped = _listed(
            "Preemption is not helpful for scheduling"
            if refusal.final
            else "No preemption victims found for incoming pod"
            for refusal in self.refusals.values()
        )
        tried = f"{none} {helped}." if preempts else "not eligible due to preemptionPolicy=Never."
        given_back = "still not schedulable" if claims else "no new claims to deallocate"
        return f"{none} {listed}. {given_back}, preemption: {tried}"


def _listed(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in Counter(reasons).items()))


def diagnosed(pod: Obj, state: SchedulingState) -> SchedulingDiagnosis:
    """Ask every filter about every node."""
    try:
        checks = prepared(pod, state)
    except UnschedulablePodError as error:
        said = NodeRefusal((str(error),))
        return SchedulingDiagnosis((), dict.fromkeys(state.nodes, said), str(error))
    names = named_nodes(pod["spec"])
    refusals = {}
    for name, node in state.nodes.items():
        refusal = NOT_NAMED if names is not None and name not in names else first_refusal(checks, node)
        if refusal is not None:
            refusals[name] = refusal
    return SchedulingDiagnosis(tuple(sorted(state.nodes.keys() - refusals.keys())), refusals)
