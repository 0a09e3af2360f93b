"""Finds the queue behind the name that a job gives, and the priority by which its gang is ordered.

That queue is a Queue of ours, a queue of Volcano, or a ClusterQueue of Kueue behind a LocalQueue. Here they look alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.snapshot import Gang, GangState, Job, Snapshot
from fleet.snapshot.elastic_parts import PREEMPTABLE
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import PriorityClass, Team
from model.kinds.tenancy import IDLE_AFTER_S
from model.upstream.selectors import LabelSelector
from model.upstream.volcano import ROOT

if TYPE_CHECKING:  # most fleets hold none of them
    from model.upstream.cluster_queue import ClusterQueue

DEFAULT_CLASS: Final = "default"
"""The declared PriorityClass of gangs that name none."""


@dataclass(frozen=True, slots=True)
class QueueBinding:
    """A `QueueBinding` is a queue as jobs are bound to it; the quota engine knows it by `name`."""

    name: str
    stop_policy: str = "None"
    protected_run_s: float = 0.0
    reserve_after_s: float | None = None
    """Seconds its gangs wait before capacity is reserved for them; None = as long as each gang says."""
    team: Team | None = None
    """The team whose quota it uses; None for a ClusterQueue, which has its own."""
    on_node_failure: str = "Replace"
    """`Replace` (as in Kueue) or `Evict`: what happens to gangs that lose a node, unless they say so themselves."""
    idle_after_s: float = IDLE_AFTER_S
    """Seconds for which its gangs may hold GPUs idle before it is said of them; infinite = it never is."""
    idle_action: str = "Warn"
    """`Warn`, or `Stop`: a gang that has done nothing with any of its GPUs for so long is deactivated."""
    namespaces: LabelSelector | None = None
    """Selector of namespaces whose work a ClusterQueue takes; None = none, or the team decides."""

    @property
    def payer(self) -> str:
        """Returns who pays for its gangs: the team, or the ClusterQueue itself."""
        return self.team.name if self.team is not None else self.name


def binding_of(fleet: Fleet, namespace: str, queue: str) -> QueueBinding | None:
    """Returns the queue behind a name that a job gives: our Queue of that name, or a ClusterQueue by its LocalQueue.

    None when neither is declared.
    """
    bindings = _bindings(fleet.index, fleet)
    return bindings.get(("", queue)) or bindings.get((namespace, queue))


def payer_of(fleet: Fleet, namespace: str, queue: str) -> str | None:
    """Returns who pays for work of this queue, a team or a ClusterQueue.

    For work in none, or in one that is not declared or not for its namespace, it is the team of its namespace: a
    Workload into which another queue was written costs its team what it cost before. None where neither is declared.
    """
    binding, home = binding_of(fleet, namespace, queue) if queue else None, _homes(fleet.index, fleet).get(namespace)
    if binding is None:
        return home
    foreign = binding.team is not None and namespace not in binding.team.spec.namespaces
    return home or binding.payer if foreign else binding.payer


@derived()
def _homes(_index: Index, fleet: Fleet) -> Mapping[str, str]:
    """Returns namespace -> the team it belongs to."""
    return {namespace: team.name for team in fleet.teams.values() for namespace in team.spec.namespaces}


def known_queues(fleet: Fleet, namespace: str) -> list[str]:
    """Returns the names of queues that jobs of a namespace may use."""
    return sorted(queue for of, queue in _bindings(fleet.index, fleet) if of in {"", namespace})


@derived()
def _bindings(_index: Index, fleet: Fleet) -> Mapping[tuple[str, str], QueueBinding]:
    """Returns (namespace, queue) -> its binding; the namespace is empty for queues that are known in all of them."""
    bindings = {}
    for local in fleet.local_queues.values():
        behind = fleet.cluster_queues[local.spec.cluster_queue]
        bindings[local.metadata.namespace, local.name] = _behind(behind, local.spec.stop_policy)
    parents = {queue.parent for queue in fleet.volcano_queues.values()}
    for name in fleet.volcano_queues.keys() - parents - {ROOT}:
        stop_policy = fleet.volcano_queues[name].stop_policy
        bindings["", name] = QueueBinding(name, stop_policy, namespaces=LabelSelector())
    for queue in fleet.queues.values():
        spec = queue.spec
        bindings["", queue.name] = QueueBinding(
            queue.name,
            spec.stop_policy,
            spec.protected_run_time,
            spec.reserve_after,
            fleet.teams[spec.team],
            spec.on_node_failure,
            spec.idle_gpus.after,
            spec.idle_gpus.action,
        )
    return bindings


_STRICTEST = ("HoldAndDrain", "Hold", "None")


def _behind(queue: "ClusterQueue", local_stop: str) -> QueueBinding:
    """Returns the binding of a ClusterQueue through a LocalQueue: the stricter stop policy of the two holds."""
    stops = {local_stop, queue.spec.stop_policy}
    return QueueBinding(
        queue.name,
        next(stop for stop in _STRICTEST if stop in stops),
        namespaces=queue.spec.namespace_selector,
    )


class Priority(NamedTuple):
    """The priority of a gang, and whether it may evict others."""

    value: int = 0
    preempts: bool = True


def class_of(fleet: Fleet, priority_class: str) -> PriorityClass | None:
    """Returns the PriorityClass of this name, the default one for an empty name; None when it is not declared."""
    return fleet.priority_classes.get(priority_class or DEFAULT_CLASS)


def priority_of(fleet: Fleet, snapshot: Snapshot, job: Job) -> Priority:
    """Returns the priority of the class the job names, else of the default class, else of its pods' class, else 0.

    As with Kueue, the class of the job wins over that of its pods, and a later change of the class changes nothing.
    """
    declared = class_of(fleet, job.priority_class)
    if declared is not None:
        return Priority(declared.spec.value, declared.spec.preempts)
    if job.priority_class:
        return Priority()
    name = job.pod_priority_class
    return Priority(snapshot.pod_priorities.get(name, 0), name not in snapshot.meek_pod_priorities)


def why_non_preemptible(fleet: Fleet, gang: Gang) -> str:
    """Returns why nobody may have a gang evicted, or its machine, as words; empty where it may be.

    Its PriorityClass says so, or, below a queue of Volcano, the label `volcano.sh/preemptable` of its pods.
    """
    declared = class_of(fleet, gang.priority_class)
    if declared is not None and not declared.spec.preemptible:
        return f"non-preemptible (priority class {declared.name})"
    if gang.queue in fleet.volcano_queues and any((PREEMPTABLE, "false") in pods.labels for pods in gang.pod_sets):
        return f"non-preemptible (label {PREEMPTABLE})"
    return ""


def why_protected(fleet: Fleet, gang: Gang, binding: QueueBinding, now_s: float) -> str:
    """Returns why a gang may not be evicted for others: it is non-preemptible, or has run too shortly; empty = it may.

    How long it runs undisturbed is `protectedRunTime` of its queue.
    """
    if words := why_non_preemptible(fleet, gang):
        return f"it is {words}"
    young = gang.state is GangState.ADMITTED and now_s - gang.admitted_at_s < binding.protected_run_s
    return "it has not run for its protected time yet" if young else ""


def within_guarantee(fleet: Fleet, gang: Gang) -> bool:
    """Returns whether a gang may use no more than what is guaranteed: its PriorityClass is not preemptible."""
    declared = class_of(fleet, gang.priority_class)
    return declared is not None and not declared.spec.preemptible


def boosted_priority(fleet: Fleet, gang: Gang) -> int:
    """Returns the priority that a gang is ordered and preempted by: its own with its boost.

    Whoever writes the job writes the boost, so it lifts nobody above the highest class that the team may use.
    """
    if gang.priority_boost <= 0:
        return gang.effective_priority
    binding = binding_of(fleet, gang.namespace, gang.queue)
    allowed = binding.team.spec.priority_classes if binding is not None and binding.team is not None else ()
    values = [each.spec.value for name, each in fleet.priority_classes.items() if not allowed or name in allowed]
    return min(gang.effective_priority, max(gang.priority, *values)) if values else gang.effective_priority
