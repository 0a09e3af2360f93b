"""Joins claims that several pods share: of each the first pod asks for the devices, and the others go where it goes.

Devices are of one machine, so who shares a claim shares a machine. What the claim asks counts once. Where the claim
has its devices for other pods, all go there and ask for none.

- Of pods of no gang the first by name asks for all; the others are not looked at until the claim is allocated.
- Of a gang one pod set of one pod asks, the first that shares the claim; where none has one pod, one pod of the first
  is made a set by itself (`PodSet.part_of`). All of them keep near each other, by a label that they get here.
- Of several gangs the first asks; the others wait until the claim is allocated.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from types import MappingProxyType
from typing import Final, NamedTuple

from fleet.snapshot.constraints import PodAffinityTerm, UnsupportedConstraint
from fleet.snapshot.device_claims import AllocatedClaim, ClaimableDevices, ClaimTemplate, claim_of, pods_with_claims
from fleet.snapshot.devices import ClusterDevices, DeviceClaim
from fleet.snapshot.gangs import LABEL_VALUE_MAX, ClaimRef, Gang, Job, PodSet, workload_name
from fleet.snapshot.nodes import Node, Pod
from model.index import Index, derived, derived_each
from model.labels import HOSTNAME, SHARED_CLAIM
from model.upstream.selectors import LabelSelectorRequirement


class SharedClaim(NamedTuple):
    """A `SharedClaim` is a ResourceClaim that pods may share: what it asks, and where it has that."""

    asks: ClaimTemplate
    host: str = ""
    """Label `kubernetes.io/hostname` of the machine where its devices are; empty = it has none."""
    holder: str = ""
    """`namespace/workload` of the gang of the first pod it is reserved for, or that pod; empty = that is not there."""


SharedClaims = Mapping[str, SharedClaim]
"""By `namespace/name`."""
NONE_SHARED: Final[SharedClaims] = MappingProxyType({})


def shared_claims(
    index: Index,
    claims: Mapping[str, AllocatedClaim],
    devices: ClusterDevices,
    pods: Mapping[str, Pod],
    nodes: Mapping[str, Node],
) -> SharedClaims:
    """Returns the claims that pods may share. `pods` are all, by `namespace/name`."""
    named = _shareable(index, claims)
    if not named:
        return NONE_SHARED
    hosts = {key: _host(name, nodes.get(name)) for key, name in _nodes_of_claims(index, devices).items()}
    return _settled(
        index,
        {key: SharedClaim(asks, hosts.get(key, ""), _holder(pods.get(pod))) for key, (asks, pod) in named.items()},
    )


def _host(name: str, node: Node | None) -> str:
    return node.labels.get(HOSTNAME, name) if node is not None else name


@derived(1)
def _shareable(_index: Index, claims: Mapping[str, AllocatedClaim]) -> Mapping[str, tuple[ClaimTemplate, str]]:
    return {key: (it.asks, it.pod_key) for key, it in claims.items() if it.asks is not None}


@derived(1)
def _nodes_of_claims(_index: Index, devices: ClusterDevices) -> Mapping[str, str]:
    return {it.claim: node for node, allocations in devices.allocated.items() for it in allocations}


@derived(1, steady=True)
def _settled(_index: Index, found: SharedClaims) -> SharedClaims:
    return found


def _holder(pod: Pod | None) -> str:
    if pod is None or not pod.active:
        return ""
    return f"{pod.namespace}/{pod.workload}" if pod.workload else pod.key


def shared_ref(pods: PodSet | None) -> ClaimRef | None:
    """Returns the one claim that pods share with others; None where there is none, or more."""
    refs = [ref for ref in pods.resource_claims if ref.claim] if pods is not None else []
    return refs[0] if len(refs) == 1 else None


def _held_to(pods: PodSet, host: str) -> PodSet:
    """Returns pods whose shared claim has devices of a node: they go there, and ask for none of their own."""
    return replace(pods, node_selector={**pods.node_selector, HOSTNAME: host})


def _refused(pods: PodSet, *problems: UnsupportedConstraint) -> PodSet:
    return replace(pods, unsupported=(*pods.unsupported, *problems))


def _not_there(ref: ClaimRef, namespace: str) -> UnsupportedConstraint:
    words = f"there is no ResourceClaim {ref.claim} in namespace {namespace} that pods may share"
    return UnsupportedConstraint(f"{ref.path}.resourceClaimName", words)


def _carrying(pods: PodSet, claim: DeviceClaim) -> PodSet:
    """Returns pods that ask for what a shared claim asks."""
    requests = Counter(pods.requests)
    requests.update(claim.amounts)
    devices = (*pods.constraints.devices, claim)
    return replace(pods, requests=dict(requests), constraints=replace(pods.constraints, devices=devices))


# -- pods of no gang --------------------------------------------------------------------------------------------------


def waiting_with_claims(
    index: Index, waiting: Mapping[str, Pod], known: ClaimableDevices, shared: SharedClaims, jobs: Mapping[str, Job]
) -> Mapping[str, Pod]:
    """Returns the pods of no gang that wait, those with claims asking for what they claim. `jobs` are by uid.

    Of pods that share a claim the first asks for its devices, and for the amounts of the others, who go where it goes:
    they are not among those returned until the claim is allocated, and then they are held to that machine. Nor are any
    of them while a gang asks for the claim.
    """
    claiming = {key: pod for key, pod in waiting.items() if pod.shape is not None and pod.shape.resource_claims}
    if not claiming:
        return waiting
    joined = _claiming_pods(index, claiming, known)
    if not any(shared_ref(pod.shape) for pod in claiming.values()):
        return {**waiting, **joined}
    sharing = _sharing_pods(index, joined, known, shared, _asked_by_jobs(index, jobs))
    return {**{key: pod for key, pod in waiting.items() if key not in claiming}, **sharing}


@derived(1, steady=True)
def _claiming_pods(_index: Index, waiting: Mapping[str, Pod], known: ClaimableDevices) -> Mapping[str, Pod]:
    found = {}
    for key, pod in waiting.items():
        shape = pods_with_claims(pod.shape, known, shared_ref(pod.shape)) if pod.shape is not None else None
        requests = shape.requests if shape is not None else pod.requests
        found[key] = replace(pod, shape=shape, requests=requests)
    return found


class _Sharer(NamedTuple):
    """A pod of no gang that waits and shares one claim."""

    key: str
    pod: Pod
    shape: PodSet
    ref: ClaimRef

    def asking(self, shape: PodSet) -> Pod:
        """Returns the pod with another shape."""
        return replace(self.pod, shape=shape, requests=shape.requests)


@derived(1, steady=True)
def _sharing_pods(
    _index: Index, pods: Mapping[str, Pod], known: ClaimableDevices, shared: SharedClaims, of_gangs: frozenset[str]
) -> Mapping[str, Pod]:
    found = dict(pods)
    for name, sharers in _sharers(pods).items():
        claim, (first, *others) = shared.get(name), sharers
        if claim is None:
            found |= {it.key: it.asking(_refused(it.shape, _not_there(it.ref, it.pod.namespace))) for it in sharers}
        elif claim.host:
            found |= {it.key: it.asking(_held_to(it.shape, claim.host)) for it in sharers}
        else:
            found[first.key] = _first_of_claim(first, claim.asks, known, others)
            for it in sharers if name in of_gangs else others:
                del found[it.key]
    return found


def _sharers(pods: Mapping[str, Pod]) -> Mapping[str, Sequence[_Sharer]]:
    """Returns each claim (`namespace/name`) that pods share -> these, in order."""
    found: dict[str, list[_Sharer]] = {}
    for key, pod in sorted(pods.items()):
        if pod.shape is not None and (ref := shared_ref(pod.shape)) is not None:
            found.setdefault(f"{pod.namespace}/{ref.claim}", []).append(_Sharer(key, pod, pod.shape, ref))
    return found


def _first_of_claim(it: _Sharer, asks: ClaimTemplate, known: ClaimableDevices, others: Sequence[_Sharer]) -> Pod:
    """Returns a pod that asks for what its shared claim asks, and for the amounts of those who share it."""
    claim, problems = claim_of(it.ref, asks, known)
    if problems:
        return it.asking(_refused(it.shape, *problems))
    requests = Counter(it.shape.requests)
    for other in others:
        requests.update(other.shape.requests)
    return it.asking(_carrying(replace(it.shape, requests=dict(requests)), claim))


@derived(1, steady=True)
def _asked_by_jobs(_index: Index, jobs: Mapping[str, Job]) -> frozenset[str]:
    return frozenset(name for job in jobs.values() if job.managed and job.result is None for name in _names(job))


# -- gangs ------------------------------------------------------------------------------------------------------------


def jobs_that_share(
    index: Index, jobs: Mapping[str, Job], known: ClaimableDevices, shared: SharedClaims
) -> Mapping[str, Job]:
    """Returns the jobs, of those given, whose pods share claims; these were left out of what they ask so far."""
    sharing = {uid: job for uid, job in jobs.items() if any(map(shared_ref, job.pod_sets))}
    if not sharing:
        return {}
    first = _first_asking(index, sharing, shared)
    return {uid: _sharing(index, job, known, shared, first) for uid, job in sharing.items()}


@derived(1, steady=True)
def _first_asking(_index: Index, jobs: Mapping[str, Job], shared: SharedClaims) -> Mapping[str, tuple[str, str]]:
    """Returns each claim -> name and uid of the job that asks for it: who has it, else the oldest."""
    found: dict[str, tuple[bool, float, str, str]] = {}
    for uid, job in jobs.items():
        for name in _names(job) if job.managed and job.result is None else ():
            others = not _holds(job, shared.get(name))
            turn = others, job.created_at_s, f"{job.ref.namespace}/{job.ref.name}", uid
            found[name] = min(turn, found.get(name, turn))
    return {name: turn[2:] for name, turn in sorted(found.items())}


def _names(job: Job) -> list[str]:
    """Returns the claims (`namespace/name`) that pods of a job share, in order."""
    refs = ((pods.namespace, ref) for pods in job.pod_sets if (ref := shared_ref(pods)) is not None and pods.count)
    return list(dict.fromkeys(f"{namespace}/{ref.claim}" for namespace, ref in refs))


def _holds(job: Job, claim: SharedClaim | None) -> bool:
    return claim is not None and claim.holder == f"{job.ref.namespace}/{workload_name(job.ref)}"


@derived(1024)
def _sharing(
    _index: Index, job: Job, known: ClaimableDevices, shared: SharedClaims, first: Mapping[str, tuple[str, str]]
) -> Job:
    for name in _names(job):
        job = _with_shared_claim(job, name, known, shared.get(name), first.get(name, ("", job.ref.uid)))
    return job


def _with_shared_claim(
    job: Job, name: str, known: ClaimableDevices, claim: SharedClaim | None, first: tuple[str, str]
) -> Job:
    """Returns a job of which those pods that share a claim ask for it, are held to its machine, or are refused."""
    sharers = [
        it for it in job.pod_sets if (ref := shared_ref(it)) and f"{it.namespace}/{ref.claim}" == name and it.count
    ]
    ref = next(filter(None, map(shared_ref, sharers)))
    if claim is not None and claim.host and claim.holder and not _holds(job, claim):
        return _each_changed(job, sharers, partial(_held_to, host=claim.host))
    problems: Sequence[UnsupportedConstraint] = _against_sharing(job, sharers, ref, claim, first)
    if claim is not None and not problems:
        asked, problems = claim_of(ref, claim.asks, known)
        if not problems:
            return _carried(job, sharers, asked, ref.claim)
    return _each_changed(job, sharers, lambda pods: _refused(pods, *problems))


def _each_changed(job: Job, sharers: Sequence[PodSet], change: Callable[[PodSet], PodSet]) -> Job:
    return replace(job, pod_sets=tuple(change(it) if it in sharers else it for it in job.pod_sets))


def _against_sharing(
    job: Job, sharers: Sequence[PodSet], ref: ClaimRef, claim: SharedClaim | None, first: tuple[str, str]
) -> list[UnsupportedConstraint]:
    """Returns why a job does not ask for a claim that its pods share; empty where it does."""
    where, words = f"{ref.path}.resourceClaimName", ""
    if claim is None:
        return [_not_there(ref, job.ref.namespace)]
    if first[1] != job.ref.uid:
        words = (
            f"not before job {first[0]} has the devices of ResourceClaim {ref.claim}; this one goes where they are then"
        )
    elif job.choice is not None or any(it.min_count is not None or it.core not in {None, it.count} for it in sharers):
        words = "pods that share a claim start together: ask for all of them (no smaller minimum, no elastic part)"
    return [UnsupportedConstraint(where, words)] if words else []


def _carried(job: Job, sharers: Sequence[PodSet], claim: DeviceClaim, name: str) -> Job:
    """Returns a job of which one pod asks for a claim, and those who share it keep near that."""
    carrier = next((it for it in sharers if it.count == 1), sharers[0])
    found: list[PodSet] = []
    split: PodSet | None = None
    for pods in job.pod_sets:
        if pods not in sharers:
            found.append(pods)
        elif pods is not carrier:
            found.append(_near(pods, name))
        elif pods.count == 1:
            found.append(_near(_carrying(pods, claim), name))
        else:
            split = replace(_sized(pods, 1), name=_part_name(job, pods), part_of=pods.name)
            found += [_near(_carrying(split, claim), name), _near(_sized(pods, pods.count - 1), name)]
    if split is not None:
        job = _counted_apart(job, split)
    return replace(job, pod_sets=tuple(found))


def _sized(pods: PodSet, count: int) -> PodSet:
    return replace(pods, count=count, core=None if pods.core is None else count)


def _part_name(job: Job, pods: PodSet) -> str:
    name, taken = f"{pods.name}-claim", {it.name for it in job.pod_sets}
    while name in taken:
        name += "-claim"
    return name


def _counted_apart(job: Job, part: PodSet) -> Job:
    """Returns a job that says of a pod that has become a set of its own what it says of those it was of."""
    remaining, restarts = dict(job.remaining), dict(job.restarts)
    if (left := remaining.get(part.part_of)) is not None:
        remaining |= {part.part_of: max(0, left - 1), part.name: min(1, left)}
    if part.part_of in restarts:
        restarts[part.name] = restarts[part.part_of]
    return replace(job, remaining=remaining, restarts=restarts)


def _near(pods: PodSet, claim: str) -> PodSet:
    """Returns pods that have to be on one machine with those of their gang that share a claim with them."""
    value = claim if len(claim) <= LABEL_VALUE_MAX else blake2b(claim.encode(), digest_size=16).hexdigest()
    label = LabelSelectorRequirement(key=SHARED_CLAIM, operator="In", values=(value,))
    term = PodAffinityTerm(HOSTNAME, (label,), frozenset({pods.namespace}))
    constraints = replace(pods.constraints, affinity=(*pods.constraints.affinity, term))
    labels = {**dict(pods.labels), SHARED_CLAIM: value}
    return replace(pods, labels=tuple(sorted(labels.items())), constraints=constraints)


# -- pods of a set that is in two parts -------------------------------------------------------------------------------


def whole_sets(pod_sets: Sequence[PodSet]) -> tuple[PodSet, ...]:
    """Returns pod sets as the job has them: those made a set by themselves are counted where they belong."""
    parts = Counter({it.part_of: it.count for it in pod_sets if it.part_of})
    whole = (it for it in pod_sets if not it.part_of)
    return tuple(replace(it, count=it.count + parts[it.name]) if parts[it.name] else it for it in whole)


@derived(2)
def pods_in_parts(
    index: Index, pods: Mapping[str, tuple[Pod, ...]], owners: Mapping[str, Gang] | Mapping[str, Job]
) -> Mapping[str, tuple[Pod, ...]]:
    """Returns the pods of gangs, or jobs, under the same keys, one of each pod set with a part as of that part.

    Any pod of the set will do, for both are on one machine: it is the first that has not ended.
    """
    parted = {key: it.pod_sets for key, it in owners.items() if key in pods and any(one.part_of for one in it.pod_sets)}
    return {**pods, **{key: _in_parts(index, sets, pods, key) for key, sets in parted.items()}} if parted else pods


@derived_each
def _in_parts(pod_sets: Sequence[PodSet], pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    found = list(pods)
    for part in (it for it in pod_sets if it.part_of):
        turn = [n for n, pod in enumerate(found) if pod.pod_set == part.part_of and pod.active]
        for n in turn[: part.count]:
            found[n] = replace(found[n], pod_set=part.name)
    return tuple(found)
