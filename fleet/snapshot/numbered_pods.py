"""Divides the pods of each StatefulSet on a queue into those of its gang and those that are gangs of their own.

The gang of a set has as many pods as the set had replicas when it was admitted. Of the numbers that come with more
replicas each is a gang of its own, which asks for quota and a place for itself, until the gang starts anew: then it
asks for all. So do the pods of a set that names no queue while its template does.

Where a set makes claims for its pods each number is a pod set of the gang, with the claims of that number: their
volumes may be in different zones.

Source: Kueue `pkg/controller/jobs/statefulset` makes a group of the pods, of which none has to be there at admission.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NamedTuple

from fleet.snapshot.gangs import POD, STATEFUL_SET, Gang, GangState, Job, Numbering, PodSet, workload_name
from fleet.snapshot.nodes import Pod
from model.index import Index, derived

_ANY: Final = -1
"""Stands for a gang whose number of pods is not settled yet, or is that of the only pod it has."""
MOST_WITH_CLAIMS: Final = 100
"""Pods of a set with claims of their own that are one gang; with more replicas each is a gang of its own."""


class _Held(NamedTuple):
    """What a gang that holds capacity was admitted with: pods (`_ANY`: not settled), and the names of its pod sets."""

    pods: int
    names: tuple[str, ...] = ()


_NOT_SETTLED: Final = _Held(_ANY)


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
def _holding(_index: Index, gangs: Mapping[str, Gang]) -> Mapping[str, _Held]:
    """Returns uid -> what the gang of a set was admitted with; of others that hold capacity it is not settled."""
    kinds = {POD, STATEFUL_SET}
    return {gang.uid: _admitted(gang) for gang in gangs.values() if gang.job.kind in kinds and gang.holds_capacity}


def _admitted(gang: Gang) -> _Held:
    if gang.job.kind != STATEFUL_SET or gang.state is not GangState.ADMITTED:
        return _NOT_SETTLED
    return _Held(sum(pods.count for pods in gang.pod_sets), tuple(pods.name for pods in gang.pod_sets if pods.count))


@derived(1, steady=True)
def _numbered(
    index: Index, sets: Mapping[str, Job], job_pods: Mapping[str, tuple[Pod, ...]], holding: Mapping[str, _Held]
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
def _divided(_index: Index, job: Job, pods: tuple[Pod, ...], holding: Mapping[str, _Held]) -> _Division:
    first = job.numbering.first if job.numbering is not None else 0
    numbers = range(first, first + sum(asked.count for asked in job.pod_sets))
    inside = {_number(pod): pod for pod in pods if _number(pod) in numbers}
    taken = _taken(job, pods)
    alone = (_uids(pods) & holding.keys()) - taken
    if not job.queue or _were_admitted_singly(inside.get(first), taken, alone):
        return _parted(job, pods, taken, _uids(pods) - taken, numbers)
    held, waiting = holding.get(job.ref.uid, _NOT_SETTLED), _uids(inside.values())
    if job.numbering is not None and job.numbering.claims:
        return _with_claims(job, pods, taken, alone, numbers, held, gang=job.ref.uid in holding)
    single = alone | _beyond(first, inside, taken, alone, held.pods)
    own, count = taken | (waiting - single), len(numbers) - len(alone & waiting)
    if held.pods != _ANY:
        count = min(count, held.pods)
    asks = bool(count) and (bool(own) or job.ref.uid in holding)
    sized = replace(job, pod_sets=tuple(replace(asked, count=count) for asked in job.pod_sets))
    return _parted(sized, pods, own, single, numbers, asks=asks)


def _with_claims(
    job: Job,
    pods: tuple[Pod, ...],
    taken: frozenset[str],
    alone: frozenset[str],
    numbers: range,
    held: _Held,
    *,
    gang: bool,
) -> _Division:
    """Returns the division of a set whose pods have claims of their own; `gang`: whether its gang holds capacity."""
    named = {_name_of(job, _number(pod)): pod for pod in pods if _number(pod) in numbers}
    if held.pods == _ANY and len(numbers) > MOST_WITH_CLAIMS:
        return _parted(job, pods, taken, _uids(pods) - taken, numbers)
    by_themselves = {name for name, pod in named.items() if pod.uid in alone}
    wanted = numbers if held.pods == _ANY else _numbers_of(held, numbers)
    seats = {name: it for it in wanted if (name := _name_of(job, it)) not in by_themselves}
    own = taken | frozenset(pod.uid for name, pod in named.items() if name in seats)
    asked = tuple(_of_number(job, number) for number in seats.values())
    most = max(job.restarts.values(), default=0)
    return _parted(
        replace(job, pod_sets=asked, restarts=dict.fromkeys(seats, most)),
        pods,
        own,
        (_uids(named.values()) | alone) - own,
        numbers,
        asks=bool(asked) and (bool(own) or gang),
        seat=lambda pod: _name_of(job, _number(pod)),
    )


def _numbers_of(held: _Held, numbers: range) -> list[int]:
    """Returns the numbers, of those that are asked for, that a gang was admitted with."""
    found = (int(text) for name in held.names if (text := name.rpartition("-")[2]).isdecimal())
    return [number for number in found if number in numbers]


def _name_of(job: Job, number: int) -> str:
    return f"{job.pod_sets[0].name}-{number}"


def _of_number(job: Job, number: int) -> PodSet:
    """Returns the pod of a number as a set of one, with the claims that are made for it."""
    pods, made = job.pod_sets[0], job.numbering.claims if job.numbering is not None else ()
    own = tuple(it._replace(claim=f"{it.volume}-{job.ref.name}-{number}") for it in made)
    constraints = replace(pods.constraints, ephemeral=tuple(sorted((*pods.constraints.ephemeral, *own))))
    return replace(pods, name=_name_of(job, number), count=1, constraints=constraints)


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
    seat: Callable[[Pod], str] | None = None,
) -> _Division:
    """Returns the division into those pods; `seat` names the pod set of a pod where the set has more than one."""
    numbering = replace(job.numbering or Numbering(), going=_going(job, pods, numbers))
    return _Division(
        replace(job, numbering=numbering, queue=job.queue if asks else ""),
        tuple(_of(seat(pod) if seat else job.pod_sets[0].name, pod) for pod in pods if pod.uid in own),
        tuple(replace(pod, job_uid=pod.uid) for pod in pods if pod.uid in single),
    )


def _going(job: Job, pods: Sequence[Pod], numbers: range) -> int:
    taken = _taken(job, pods)
    return sum(pod.uid in taken and pod.active and _number(pod) not in numbers for pod in pods)


def _of(pod_set: str, pod: Pod) -> Pod:
    """Returns a pod as one of a pod set; how many there are to be is said by the StatefulSet, not by its pods."""
    member = replace(pod.member, total=0) if pod.member is not None else None
    return replace(pod, pod_set=pod_set, member=member)


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
