"""Views of the mirror's tables as deciders want them; each is worked out anew where its tables are others."""

from collections.abc import Mapping

from fleet.snapshot import (
    DaemonOverhead,
    Gang,
    Job,
    LimitRange,
    Namespace,
    NamespaceQuota,
    NamespaceQuotas,
    Pod,
    PodPriority,
    RuntimeClass,
    Terms,
    Volumes,
)
from fleet.snapshot.device_claims import ClaimableDevices, ClaimTemplate, DeviceClass
from fleet.snapshot.shared_claims import SharedClaims
from fleet.snapshot.surroundings import by_name_or_default
from fleet.snapshot.volumes import AttachLimits, PersistentVolume, StorageClass, VolumeClaim
from fleet.snapshot.works import works
from model.index import Index, derived, derived_each


@derived(1, steady=True)
def all_works(
    index: Index,
    job_pods: Mapping[str, tuple[Pod, ...]],
    terms: Mapping[str, Terms],
    runtimes: Mapping[str, RuntimeClass],
    limits: Mapping[str, tuple[LimitRange, ...]],
    claimable: ClaimableDevices,
    shared: SharedClaims,
    *tables: Mapping[str, Job],
) -> Mapping[str, Job]:
    """Jobs of all kinds by uid, as their pods, terms and what their namespaces and classes add make them."""
    jobs = {uid: job for table in tables for uid, job in table.items()}
    return works(index, jobs, job_pods, terms, runtimes, limits, claimable, shared)


@derived(1)
def claimable_devices(
    _index: Index, templates: Mapping[str, ClaimTemplate], classes: Mapping[str, DeviceClass]
) -> ClaimableDevices:
    """What templates and classes say of claims, as one value."""
    return ClaimableDevices(templates, classes)


@derived(1, steady=True)
def limit_ranges(index: Index, found: Mapping[str, LimitRange]) -> Mapping[str, tuple[LimitRange, ...]]:
    """By namespace, sorted by name. Where none has changed, the tuple is the one before: its jobs are not read anew."""
    by_namespace: dict[str, list[LimitRange]] = {}
    for key in sorted(found):
        by_namespace.setdefault(found[key].namespace, []).append(found[key])
    return {namespace: _together(index, *ranges) for namespace, ranges in by_namespace.items()}


@derived(16384)
def _together(_index: Index, *ranges: LimitRange) -> tuple[LimitRange, ...]:
    return ranges


@derived(1, steady=True)
def volumes_seen(
    _index: Index,
    claims: Mapping[str, VolumeClaim],
    volumes: Mapping[str, PersistentVolume],
    classes: Mapping[str, StorageClass],
    limits: Mapping[str, AttachLimits],
) -> Volumes:
    """All that decides about the places of pods with volumes."""
    return Volumes(claims, volumes, classes, {name: node.limits for name, node in limits.items()})


@derived(1)
def daemon_overheads(_index: Index, daemonsets: Mapping[str, DaemonOverhead]) -> tuple[DaemonOverhead, ...]:
    """What DaemonSets take of new nodes, in the order of their names."""
    return tuple(daemonsets[name] for name in sorted(daemonsets))


@derived(1, steady=True)
def namespace_labels(_index: Index, namespaces: Mapping[str, Namespace]) -> Mapping[str, Mapping[str, str]]:
    """Namespace -> its labels."""
    return {name: namespace.labels for name, namespace in namespaces.items()}


@derived(1, steady=True)
def priority_values(_index: Index, found: Mapping[str, PodPriority]) -> Mapping[str, int]:
    """PriorityClass -> its value; that of pods which name none is under the empty name."""
    return {name: priority.value for name, priority in by_name_or_default(found).items()}


@derived(1, steady=True)
def meek_priorities(_index: Index, found: Mapping[str, PodPriority]) -> frozenset[str]:
    """The PriorityClasses whose pods preempt nobody."""
    return frozenset(name for name, priority in by_name_or_default(found).items() if not priority.preempts)


@derived(1, steady=True)
def quotas_of_pods(
    _index: Index, found: Mapping[str, NamespaceQuota], priorities: Mapping[str, PodPriority]
) -> NamespaceQuotas:
    """Those that bound pods, by namespace and sorted by name."""
    by_namespace: dict[str, tuple[NamespaceQuota, ...]] = {}
    for _, quota in sorted(found.items()):
        if quota.hard:
            by_namespace[quota.namespace] = (*by_namespace.get(quota.namespace, ()), quota)
    default = by_name_or_default(priorities).get("")
    return NamespaceQuotas(by_namespace, default.name if default else "")


@derived(1, steady=True)
def gangs_joined(index: Index, gangs: Mapping[str, Gang], jobs: Mapping[str, Job]) -> Mapping[str, Gang]:
    """The gangs by the uid of their jobs. One of which nothing has changed is the object that it was before."""
    return {gang.uid: _with_job(index, jobs.get(gang.uid), gangs, key) for key, gang in gangs.items()}


@derived_each
def _with_job(job: Job | None, gang: Gang) -> Gang:
    return gang.joined(job)
