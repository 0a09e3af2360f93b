"""Divides the pods of each StatefulSet on a queue into those of its gang and those that are gangs of their own.

The gang of a set has as many pods as the set had replicas when it was admitted. Of the numbers that come with more
replicas each is a gang of its own, which asks for quota and a place for itself, until the gang starts anew: then it
asks for all. So do the pods of a set that names no queue while its template does.

Source: Kueue `pkg/controller/jobs/statefulset` makes a group of the pods, of which none has to be there at admission.
"""

from collections.abc import Mapping, Sequence
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
    concerned = {uid: job for uid, job in sets.items() if job.queue or uid in job_pods}
    if not concerned:
        return NumberedPods(sets, job_pods)
    jobs, divided = dict(sets), dict(job_pods)
    for uid, job in concerned.items():
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
    numbering, workload = job.numbering or Numbering(), workload_name(job.ref)
    numbers = range(numbering.first, numbering.first + sum(asked.count for asked in job.pod_sets))
    inside = {number: pod for pod in pods if (number := _number(pod)) in numbers}
    taken = frozenset(pod.uid for pod in pods if pod.workload == workload)
    alone = frozenset(pod.uid for pod in pods if pod.uid in holding) - taken
    first = inside.get(numbering.first)
    if not job.queue or (not taken and first is not None and first.uid in alone):  # they were admitted one by one
        own, count, asks = taken, len(taken), False
        single = frozenset(pod.uid for pod in pods) - taken
    else:
        admitted = holding.get(job.ref.uid, _ANY)
        beyond = _beyond(numbering.first, inside, taken, alone, admitted) if admitted != _ANY else frozenset()
        single = alone | beyond
        own = taken | ({pod.uid for pod in inside.values()} - single)
        count = len(numbers) - sum(pod.uid in alone for pod in inside.values())
        count = count if admitted == _ANY else min(count, admitted)
        asks = bool(count) and (bool(own) or job.ref.uid in holding)
    going = sum(pod.uid in taken and pod.active and _number(pod) not in numbers for pod in pods)
    job = _with(job, count, going, asks=asks)
    return _Division(
        job,
        _of(job, [pod for pod in pods if pod.uid in own]),
        tuple(replace(pod, job_uid=pod.uid) for pod in pods if pod.uid in single),
    )


def _beyond(
    first: int, inside: Mapping[int, Pod], taken: frozenset[str], alone: frozenset[str], admitted: int
) -> frozenset[str]:
    """Returns the pods that wait and have no seat in a gang of so many: it has one for those taken, then for the first.

    A number whose pod is not there now keeps its seat.
    """
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


def _with(job: Job, count: int, going: int, *, asks: bool) -> Job:
    """Returns the set as a job that asks for so many pods, and only where it has any that wait or run on a queue."""
    pod_sets = tuple(replace(asked, count=count) for asked in job.pod_sets)
    numbering = replace(job.numbering, going=going) if job.numbering is not None else None
    return replace(job, pod_sets=pod_sets, numbering=numbering, queue=job.queue if asks else "")


def _of(job: Job, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Returns pods as those of the set's one pod set; how many there are to be is said by the set, not by them."""
    name = job.pod_sets[0].name
    return tuple(
        replace(pod, pod_set=name, member=replace(pod.member, total=0) if pod.member is not None else None)
        for pod in pods
    )
