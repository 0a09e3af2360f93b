"""Divides the pods of each StatefulSet on a queue into those of its gang and those that are gangs of their own.

The gang of a set has as many pods as the set had replicas when it was admitted. Of the numbers that come with more
replicas each is a gang of its own, which asks for quota and a place for itself, until the gang starts anew: then it
asks for all. So do the pods of a set that names no queue while its template does.

Source: Kueue `pkg/controller/jobs/statefulset` makes a group of the pods, of which none has to be there at admission.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple

from fleet.snapshot.gangs import POD, STATEFUL_SET, Gang, GangState, Job, Numbering, workload_name
from fleet.snapshot.nodes import Pod
from model.index import Index, derived

_ANY: Final = -1
"""Stands for a gang whose number of pods is not settled yet, or is that of the only pod it has."""


class NumberedPods(NamedTuple):
    """`NumberedPods` are StatefulSets as jobs of the pods they have now, and all pods by the gang that they are of."""

    jobs: Mapping[str, Job]
    """uid -> StatefulSet."""
    job_pods: Mapping[str, tuple[Pod, ...]]
    """uid of a job, or of a pod that is a gang of its own -> its pods."""


class _Division(NamedTuple):
    job: Job
    own: tuple[Pod, ...]
    """Of the gang of the set."""
    single: tuple[Pod, ...]


def numbered_pods(
    index: Index, sets: Mapping[str, Job], job_pods: Mapping[str, tuple[Pod, ...]], gangs: Mapping[str, Gang]
) -> NumberedPods:
    """Returns StatefulSets, and all pods, as the deciders see them.

    `sets` are as they were read, by uid; `job_pods` has all pods of a set under its uid.
    """
    if not any(job.queue or uid in job_pods for uid, job in sets.items()):
        return NumberedPods(sets, job_pods)
    return _numbered(index, sets, job_pods, _holding(index, gangs))


@derived(1, steady=True)
def _holding(_index: Index, gangs: Mapping[str, Gang]) -> Mapping[str, int]:
    """Returns uid -> pods that the gang of a set was admitted with; those of others that hold capacity are `_ANY`."""
    kinds = {POD, STATEFUL_SET}
    return {gang.uid: _admitted(gang) for gang in gangs.values() if gang.job.kind in kinds and gang.holds_capacity}


def _admitted(gang: Gang) -> int:
    settled = gang.job.kind == STATEFUL_SET and gang.state is GangState.ADMITTED
    return sum(pods.count for pods in gang.pod_sets) if settled else _ANY


@derived(1, steady=True)
def _numbered(
    index: Index, sets: Mapping[str, Job], job_pods: Mapping[str, tuple[Pod, ...]], holding: Mapping[str, int]
) -> NumberedPods:
    jobs, divided = dict(sets), dict(job_pods)
    for uid, job in sets.items():
        if not job.queue and uid not in job_pods:
            continue
        found = _divided(index, job, job_pods.get(uid, ()), holding)
        jobs[uid] = found.job
        divided.pop(uid, None)
        if found.own:
            divided[uid] = found.own
        for pod in found.single:
            divided[pod.uid] = (pod,)
    return NumberedPods(jobs, divided)


@derived(4096)
def _divided(_index: Index, job: Job, pods: tuple[Pod, ...], holding: Mapping[str, int]) -> _Division:
    first = job.numbering.first if job.numbering is not None else 0
    numbers = range(first, first + sum(asked.count for asked in job.pod_sets))
    inside = {_number(pod): pod for pod in pods if _number(pod) in numbers}
    taken = _taken(job, pods)
    alone = (_uids(pods) & holding.keys()) - taken
    if not job.queue or _were_admitted_singly(inside.get(first), taken, alone):
        return _parted(job, pods, taken, _uids(pods) - taken, numbers)
    single = alone | _beyond(first, inside, taken, alone, holding.get(job.ref.uid, _ANY))
    waiting = _uids(inside.values())
    own, count = taken | (waiting - single), len(numbers) - len(alone & waiting)
    if (admitted := holding.get(job.ref.uid, _ANY)) != _ANY:
        count = min(count, admitted)
    asks = bool(count) and (bool(own) or job.ref.uid in holding)
    sized = replace(job, pod_sets=tuple(replace(asked, count=count) for asked in job.pod_sets))
    return _parted(sized, pods, own, single, numbers, asks=asks)


def _taken(job: Job, pods: Iterable[Pod]) -> frozenset[str]:
    """Returns the pods that the gang of the set was admitted with, by uid."""
    workload = workload_name(job.ref)
    return frozenset(pod.uid for pod in pods if pod.workload == workload)


def _uids(pods: Iterable[Pod]) -> frozenset[str]:
    return frozenset(pod.uid for pod in pods)


def _were_admitted_singly(first: Pod | None, taken: frozenset[str], alone: frozenset[str]) -> bool:
    """Returns whether the pods run as gangs of their own from a time when they could not be one."""
    return not taken and first is not None and first.uid in alone


def _parted(
    job: Job,
    pods: Sequence[Pod],
    own: AbstractSet[str],
    single: AbstractSet[str],
    numbers: range,
    *,
    asks: bool = False,
) -> _Division:
    taken = _taken(job, pods)
    going = sum(pod.uid in taken and pod.active and _number(pod) not in numbers for pod in pods)
    return _Division(
        replace(job, numbering=replace(job.numbering or Numbering(), going=going), queue=job.queue if asks else ""),
        tuple(_of(job, pod) for pod in pods if pod.uid in own),
        tuple(replace(pod, job_uid=pod.uid) for pod in pods if pod.uid in single),
    )


def _of(job: Job, pod: Pod) -> Pod:
    """Returns a pod as one of the set's one pod set; how many there are to be is said by the set, not by its pods."""
    member = replace(pod.member, total=0) if pod.member is not None else None
    return replace(pod, pod_set=job.pod_sets[0].name, member=member)


def _beyond(
    first: int, inside: Mapping[int, Pod], taken: frozenset[str], alone: frozenset[str], admitted: int
) -> frozenset[str]:
    """Returns the pods that wait and have no seat in a gang of so many: it has one for those taken, then for the first.

    A number whose pod is not there now keeps its seat. Where the number of pods is not settled all have one.
    """
    if admitted == _ANY:
        return frozenset()
    left, settled, found = admitted - sum(pod.uid in taken for pod in inside.values()), 0, set[str]()
    for number, pod in sorted(inside.items()):
        if pod.uid in taken or pod.uid in alone:
            settled += 1
        elif number - first - settled >= left:
            found.add(pod.uid)
    return frozenset(found)


def _number(pod: Pod) -> int:
    """Returns the number at the end of a pod's name; -1 without one."""
    text = pod.name.rpartition("-")[2]
    return int(text) if text.isdecimal() and text.isascii() else -1
