"""A row as what the agent reads: the declarations of a repository, and the cluster as it stands.

The two dialects (`kai`, `volcano`) fill a `RowCluster` in; `snapshot_of` makes of it what an observer would see. Every
group is a group of pods held one by one, whose controller makes lost pods anew.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fleet.gangs.lifecycle import new_gang
from fleet.snapshot import (
    ANY_NUMBER,
    NO_QUOTAS,
    Gang,
    GangState,
    GroupMember,
    Hold,
    Job,
    JobRef,
    NamespaceQuotas,
    Node,
    Pin,
    Pod,
    PodSet,
    Snapshot,
    SubGroupPolicy,
    Terms,
)
from fleet.snapshot.constraints import UNCONSTRAINED, PodConstraints
from fleet.snapshot.core_sizes import with_cores
from fleet.snapshot.elastic_parts import core_of
from fleet.snapshot.sub_groups import SubGroup, chosen
from fleet.snapshot.volumes import NO_VOLUMES, Volumes
from fleet.snapshot.works import group_job
from model.fleet import Fleet
from tests.support.fleets import NOW

ROW_POD: Final = "row/pod"
"""Label that keeps the name a pod has in its row, whatever its controller calls it when it makes it anew."""
LOST: Final = "lost"
"""Node that is gone: where the pods of a gang were that has fewer than it needs."""
RAN_S: Final = 3600.0
LONG_S: Final = 10 * 365 * 86_400.0
GRACE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RowPod:
    """A pod of a group: the role it has, where it runs (empty = it waits), and what it asks beside amounts."""

    name: str
    shape: PodSet
    node: str = ""
    leaving_s: float | None = None
    """Seconds until it is gone, for one that was told to go."""
    returns: bool = True
    """Whether its controller makes it anew once it is gone."""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A group of pods: its queue, its class, and how many of its pods start together."""

    name: str
    namespace: str
    queue: str
    priority_class: str
    order: int
    """Place by age, the oldest first."""
    pods: Sequence[RowPod]
    together: int
    roles: Mapping[str, int] = field(default_factory=dict)
    policies: Sequence[SubGroupPolicy] = ()
    choice: SubGroup | None = None
    """Its sub-groups, where it has any of which some suffice."""
    broken_for_s: float = 0.0
    """For how long it has had fewer pods than it needs."""
    priority: int = 0
    """Value of its class."""
    later: bool = False
    """Whether its pods are still to be created, by a job that is suspended."""
    active: bool = True
    sla_waiting_s: float | None = None

    @property
    def uid(self) -> str:
        """Returns the uid of the job behind the group."""
        return f"uid-{self.namespace}-{self.name}"


@dataclass(frozen=True, slots=True)
class RowCluster:
    """All that a row says."""

    fleet: Fleet
    nodes: Sequence[Node]
    groups: Sequence[RowGroup]
    flavor: str
    volumes: Volumes = NO_VOLUMES
    quotas: NamespaceQuotas = NO_QUOTAS


def snapshot_of(row: RowCluster) -> Snapshot:
    """Returns the cluster of a row as the agent would observe it."""
    jobs: dict[str, Job] = {}
    gangs: dict[str, Gang] = {}
    pods: dict[str, tuple[Pod, ...]] = {}
    nodes = {node.name: node for node in row.nodes}
    bare = Snapshot(NOW, nodes=nodes, volumes=row.volumes, namespace_quotas=row.quotas)
    for group in row.groups:
        if group.later:
            jobs[group.uid] = job = _suspended(group)
            gangs[group.uid] = replace(new_gang(row.fleet, bare, job), active=group.active)
            continue
        seen = [_pod(group, pod) for pod in group.pods if pod.leaving_s is None or pod.returns]
        foreign = [_pod(group, pod) for pod in group.pods if pod.leaving_s is not None and not pod.returns]
        if foreign:
            pods[f"{group.uid}-leaving"] = tuple(replace(pod, job_uid="", member=None) for pod in foreign)
        if not seen:
            continue
        seen = _one_alone(seen)
        job = _job(group, seen)
        jobs[group.uid] = job
        gangs[group.uid] = _gang(row, group, job, new_gang(row.fleet, bare, job))
        pods[group.uid] = tuple(_taken_in(pod, gangs[group.uid]) for pod in seen)
    return replace(bare, jobs=jobs, gangs=gangs, job_pods=pods)


def _suspended(group: RowGroup) -> Job:
    """Returns a job that makes the pods of a group once it is let go."""
    counts = Counter(pod.shape.name for pod in group.pods)
    shapes = {pod.shape.name: pod.shape for pod in group.pods}
    ref = JobRef("batch/v1", "Job", group.namespace, group.name, group.uid)
    sets = tuple(replace(shapes[name], count=count) for name, count in sorted(counts.items()))
    created_s = NOW - RAN_S - 600 + group.order
    return Job(*(ref, "1", group.queue, group.priority_class, True, sets, created_s), sla_waiting_s=group.sla_waiting_s)


def _one_alone(pods: list[Pod]) -> list[Pod]:
    """Returns pods of one role only without the name of the group of roles that shares a domain."""
    if len({pod.pod_set for pod in pods}) > 1:
        return pods
    shapes = [replace(pod.member.shape, group="") for pod in pods if pod.member is not None]
    members = [replace(pod.member, shape=form) for pod, form in zip(pods, shapes, strict=True) if pod.member]
    return [replace(pod, member=member) for pod, member in zip(pods, members, strict=True)]


def _job(group: RowGroup, pods: Sequence[Pod]) -> Job:
    terms = Terms(group.namespace, group.name, group.together, group.roles, tuple(group.policies))
    alive = [replace(pod, deleting=False) for pod in pods]
    found = group_job(group.uid, alive, terms)
    if group.choice is not None:
        found = replace(found, choice=group.choice, pod_sets=with_cores(found.pod_sets, group.choice))
    ref = replace(found.ref, api_version="apps/v1", kind="ReplicaSet")
    runs = any(pod.node and not pod.deleting for pod in pods)
    restarts = {pods.name: ANY_NUMBER for pods in found.pod_sets}
    sets = found.pod_sets
    if (
        len(sets) == 1 and group.choice is None and sets[0].count < group.together
    ):  # pods that it needs are not there at all
        sets = (replace(sets[0], count=group.together, core=None),)
    facts = {
        "sla_waiting_s": group.sla_waiting_s,
        "ref": ref,
        "queue": group.queue,
        "suspended": not runs,
        "hold": Hold.PODS,
        "restarts": restarts,
    }
    return replace(found, pod_sets=sets, **facts)  # type: ignore[arg-type]


def _pod(group: RowGroup, pod: RowPod) -> Pod:
    name = pod.name.rpartition("/")[2]
    waits, leaves = not pod.node, pod.leaving_s is not None
    created_s = NOW - RAN_S - 600 + group.order
    return Pod(
        f"uid-{group.namespace}-{name}", group.namespace, name, pod.node, "Pending" if waits else "Running",
        pod.shape.requests, "", pod.shape.name,
        gated=waits, ready=not waits, deleting=leaves, started_at_s=0.0 if waits else NOW - RAN_S,
        priority=pod.priority, deletion_grace_s=GRACE_S,
        deletion_at_s=NOW + pod.leaving_s if pod.leaving_s is not None else 0.0,
        job_uid=group.uid, labels=(*pod.shape.labels, (ROW_POD, pod.name)), constraints=pod.shape.constraints,
        member=GroupMember(group.name, 0, pod.shape, group.queue, created_s, group.priority_class),
    )  # fmt: skip


def _taken_in(pod: Pod, gang: Gang) -> Pod:
    return replace(pod, workload=gang.workload) if pod.node and not pod.deleting else pod


def _gang(row: RowCluster, group: RowGroup, job: Job, gang: Gang) -> Gang:
    """Returns the gang as it waits or, with any pod that runs, as it was admitted with the pods it has."""
    counts: dict[tuple[str, str], int] = {}
    for pod in group.pods:
        if pod.node and pod.leaving_s is None:
            counts[pod.shape.name, pod.node] = counts.get((pod.shape.name, pod.node), 0) + 1
    gang = gang.joined(job)
    if not counts:
        return gang
    pins = tuple(sorted(Pin(name, node, "", count) for (name, node), count in counts.items()))
    sets = tuple(_held(pods, pins) for pods in _chosen_sets(job, pins))
    missing = [Pin(pods.name, LOST, "", pods.count - _running(pods, pins)) for pods in sets]
    whole = not any(pin.count for pin in missing)
    pins = tuple(sorted((*pins, *(pin for pin in missing if pin.count))))
    admitted_s = NOW - RAN_S + group.order
    return replace(
        gang,
        state=GangState.ADMITTED,
        reason="PodsReady" if whole else "NotReady",
        flavors={pods.name: (row.flavor,) for pods in sets},
        pod_sets=sets,
        pins=pins,
        quota_reserved_at_s=admitted_s,
        admitted_at_s=admitted_s,
        since_s=admitted_s,
        pods_ready=whole,
        not_ready_since_s=0.0 if whole else NOW - group.broken_for_s,
    )


def _chosen_sets(job: Job, pins: Sequence[Pin]) -> tuple[PodSet, ...]:
    """Returns the sets with the core that the gang was admitted with: what runs of it is of the core first."""
    if job.choice is None:
        return job.pod_sets
    running = {pods.name: _running(pods, pins) for pods in job.pod_sets}
    whole = chosen(job.choice, lambda counts: all(count <= running[name] for name, count in counts.items()))
    return (
        with_cores(job.pod_sets, _running_first(job.choice, running))
        if whole is None
        else tuple(replace(pods, core=whole.get(pods.name, 0)) for pods in job.pod_sets)
    )


def _running_first(group: SubGroup, running: Mapping[str, int]) -> SubGroup:
    def idle(part: SubGroup) -> int:
        return -sum(running[role.pod_set] for leaf in part.leaves() for role in leaf.roles)

    roles = sorted(group.roles, key=lambda role: -running[role.pod_set])
    parts = sorted((_running_first(part, running) for part in group.parts), key=idle)
    return replace(group, roles=tuple(roles), parts=tuple(parts))


def _held(pods: PodSet, pins: Sequence[Pin]) -> PodSet:
    """Returns a set with as many pods as were let in: those that run, and its core at least."""
    return replace(pods, count=max(_running(pods, pins), core_of(pods).count))


def _running(pods: PodSet, pins: Sequence[Pin]) -> int:
    return sum(pin.count for pin in pins if pin.pod_set == pods.name)


def shape(
    name: str,
    requests: Mapping[str, int],
    *,
    namespace: str,
    constraints: PodConstraints = UNCONSTRAINED,
    **more: object,
) -> PodSet:
    """Returns what one pod asks, under the name of its role."""
    asked = {resource: amount for resource, amount in requests.items() if amount}
    return PodSet(name, 1, asked, namespace=namespace, constraints=constraints, **more)  # type: ignore[arg-type]
