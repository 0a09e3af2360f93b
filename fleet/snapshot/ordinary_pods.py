"""Holds the pods that belong to no gang: how those that wait are told apart, and what was last found for each.

Such pods are bound by kube-scheduler wherever it finds a place; the agent only buys machines for those that it finds
none for (Karpenter `pkg/utils/pod/scheduling.go`, IsProvisionable).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, TopologySpreadConstraint
from fleet.snapshot.gangs import POD, Gang, GangState, Job, JobRef, Pin, PodSet
from fleet.snapshot.nodes import Pod
from model.index import Index, derived, followed_each


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """A `PodVerdict` is what the last pass found for a waiting pod: a machine (Karpenter nominates it), or why none."""

    claim: str = ""
    """The claim whose machine has room for the pod; empty for a node that nobody claims."""
    node: str = ""
    """The node with room for it; empty while its machine has not joined."""
    reason: str = ""
    """Why no machine is found or bought for it; empty where there is one."""
    message: str = ""
    since_s: float = 0.0
    """Since when this is so (epoch seconds)."""
    unbound: int = 0
    """How often kube-scheduler has not bound it where there seemed to be room."""

    @property
    def nominated(self) -> bool:
        """Returns whether there is a machine with room for the pod."""
        return bool(self.claim or self.node)

    def same_as(self, other: "PodVerdict | None") -> bool:
        """Returns whether both say the same, whenever they were found."""
        return other is not None and replace(self, since_s=other.since_s, unbound=other.unbound) == other


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """`WaitingPods` are pods of no gang that wait and ask for the same: any may have the place of any other."""

    shape: PodSet
    """What they ask for; `count` is how many they are."""
    pods: tuple[Pod, ...]
    """By name."""

    @property
    def uid(self) -> str:
        """Returns what names the class among what a pass places: that of its first pod."""
        return f"pods/{self.pods[0].uid}"


@derived(1, steady=True)
def pods_that_wait(_index: Index, waiting: Mapping[str, Pod], jobs: Mapping[str, Job]) -> Sequence[Pod]:
    """Returns the waiting pods, by key, that no job in a queue has made; `waiting` has them by key, `jobs` by uid.

    The pods of a job that asks to be managed are its gang's affair from the start. A pod whose job is not known yet
    waits until it is.
    """
    return tuple(pod for _, pod in sorted(waiting.items()) if not pod.owner_job or _unmanaged(jobs, pod.owner_job))


def _unmanaged(jobs: Mapping[str, Job], uid: str) -> bool:
    """Returns whether neither a job nor any that has made it asks to be managed; not where one is unknown."""
    found = (jobs.get(each) for each in makers(jobs, uid))
    return not any(job is None or job.managed for job in found)


def makers(jobs: Mapping[str, Job], uid: str) -> Iterator[str]:
    """Yields the uid of a job, of the one that has made it, and so on, as far as they are known."""
    seen: set[str] = set()
    while uid and uid not in seen:
        seen.add(uid)
        yield uid
        job = jobs.get(uid)
        uid = job.owner_uid if job is not None else ""


@derived(2)
def pod_classes(_index: Index, pods: Sequence[Pod], others: Sequence[PodAffinityTerm]) -> Sequence[WaitingPods]:
    """Returns the pods in classes, in order of their first pod. `others` is the anti-affinity of pods that stand.

    Of their labels only those tell pods apart that somebody's constraints look at: controllers number their pods.
    """
    shapes = [pod.shape for pod in pods if pod.shape is not None]
    looked_at = frozenset(
        requirement.key
        for term in (*others, *(term for asked in {it.constraints for it in shapes} for term in _selecting(asked)))
        for requirement in term.selector or ()
    )
    classes: dict[object, list[Pod]] = {}
    for pod in pods:
        if pod.shape is not None:
            classes.setdefault(_asks(pod.shape, looked_at), []).append(pod)
    return [
        WaitingPods(replace(members[0].shape, name=members[0].name, count=len(members)), tuple(members))
        for members in classes.values()
        if members[0].shape is not None
    ]


@followed_each(2)
def _tenants_of(pods: Sequence[Pod], claim: str | None) -> Sequence[tuple[Gang, tuple[Pod, ...]]]:
    """Returns the ordinary pods of one node in classes, each as a gang that runs there and is in no queue."""
    classes: dict[object, list[Pod]] = {}
    for pod in pods:
        if pod.shape is not None and not pod.deleting:
            classes.setdefault((pod.priority, pod.deletion_cost, _asks(pod.shape, None)), []).append(pod)
    return [(_as_gang(claim or "", tuple(members)), tuple(members)) for members in classes.values()]


def _as_gang(claim: str, pods: tuple[Pod, ...]) -> Gang:
    first = pods[0]
    shape = replace(first.shape, name="pods", count=len(pods)) if first.shape is not None else None
    return Gang(
        uid=f"pods/{first.uid}",
        namespace=first.namespace,
        workload="",
        job=JobRef("v1", POD, first.namespace, first.name, first.uid),
        queue="",
        priority_class="",
        priority=first.priority,
        pod_sets=(shape,) if shape is not None else (),
        created_at_s=first.started_at_s,
        state=GangState.ADMITTED,
        pins=(Pin("pods", first.node, claim, len(pods)),),
        admitted_at_s=max(pod.started_at_s for pod in pods),
        deletion_cost=first.deletion_cost,
    )


def tenants_of_nodes(
    index: Index, pods: Mapping[str, Sequence[Pod]], claims: Mapping[str, str]
) -> Mapping[str, Sequence[tuple[Gang, tuple[Pod, ...]]]]:
    """Returns node -> its ordinary pods as gangs that are in no queue, with the pods: who moves work moves both alike.

    `pods` are by node; `claims` says whose machine a node is. Equal pods on a node are one, as they leave together.
    """
    return _tenants_of(index, pods, claims)


def _selecting(asked: PodConstraints) -> Iterator[PodAffinityTerm | TopologySpreadConstraint]:
    """Yields all of the constraints that select pods by their labels."""
    yield from asked.affinity
    yield from asked.anti_affinity
    yield from asked.spread
    yield from (it.term for it in asked.preferred_pods)


def _asks(shape: PodSet, looked_at: frozenset[str] | None) -> object:
    """Returns what is equal for pods that ask the same and have those labels in common; None = all labels."""
    return (
        shape.namespace,
        tuple(sorted(shape.requests.items())),
        tuple(sorted(shape.node_selector.items())),
        shape.required_affinity,
        shape.tolerations,
        shape.constraints,
        shape.unsupported,
        tuple((key, value) for key, value in shape.labels if looked_at is None or key in looked_at),
    )
