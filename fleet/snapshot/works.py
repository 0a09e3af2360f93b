"""Joins jobs of every kind with what belongs to them (child jobs, plain groups of pods), as the deciders see them.

- A job that only names a recipe (TrainJob) has the pod sets of the job it makes.
- A job whose pods are held one by one has started when one of its pods has.
- A plain group has no object of its own: it is its pods. A pod on a queue that names no group is a gang of its own.
- Pods of a namespace with LimitRanges ask their defaults, too. Those of a plain group show them already.
- A StatefulSet may have a template that its gang was not admitted with.
- Pods of a RuntimeClass ask what it adds, too. Those of a plain group show it already.
- Pods with claims of devices ask what the templates of their claims say.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from fleet.snapshot.constraints import PodLabels, UnsupportedConstraint
from fleet.snapshot.core_sizes import Minimum, choice_of, core_sizes, with_cores
from fleet.snapshot.device_claims import NO_CLAIMS, ClaimableDevices, pods_with_claims
from fleet.snapshot.elastic_parts import PREEMPTABLE
from fleet.snapshot.gangs import POD, Gang, Hold, Job, JobRef, JobResult, PodSet, workload_name
from fleet.snapshot.limit_ranges import LimitRange, admitted, with_defaults
from fleet.snapshot.nodes import GroupMember, Pod, SubGroupPolicy, Terms
from fleet.snapshot.shared_claims import NONE_SHARED, SharedClaims, jobs_that_share, shared_ref
from fleet.snapshot.sub_groups import RolePods, SubGroup
from fleet.snapshot.surroundings import RuntimeClass
from model.index import Index, derived, derived_each
from model.labels import POD_SET
from model.upstream.do_not_disrupt import longest

POD_GROUP = "PodGroup"
"""Kind, in `v1`, of references to a plain group; no such object exists, and nothing has it as owner."""
PLAIN = frozenset({POD_GROUP, POD})
"""Kinds of what has no job: it is there as long as its pods are."""
REVISION: Final = "controller-revision-hash"
"""Label of the pods of a StatefulSet: which template they were made of."""


def group_uid(namespace: str, group: str) -> str:
    """Returns the uid of a plain group: a hash of its name, short enough for a label's value."""
    return blake2b(f"{namespace}/{group}".encode(), digest_size=16).hexdigest()


def works(
    index: Index,
    jobs: Mapping[str, Job],
    job_pods: Mapping[str, Sequence[Pod]],
    terms: Mapping[str, Terms] = MappingProxyType({}),
    runtimes: Mapping[str, RuntimeClass] = MappingProxyType({}),
    limits: Mapping[str, tuple[LimitRange, ...]] = MappingProxyType({}),
    claimable: ClaimableDevices = NO_CLAIMS,
    shared: SharedClaims = NONE_SHARED,
) -> Mapping[str, Job]:
    """Returns all jobs by uid: the observed objects, completed, and plain groups.

    `terms` are by `namespace/group`, `runtimes` by name: what a RuntimeClass adds to pods their templates do not show.
    `limits` are the LimitRanges by namespace, sorted by name; a job is read anew when it or these are other objects.
    """
    found = dict(jobs)
    special = [job for job in jobs.values() if job.shaped_below or job.hold is Hold.PODS]
    below = {job.owner_uid: job for job in jobs.values() if job.owner_uid} if special else {}
    for job in special:
        found[job.ref.uid] = _completed(job, below.get(job.ref.uid), job_pods.get(job.ref.uid, ()))
    for uid, pods in job_pods.items():
        member = pods[0].member if uid not in found else None
        if member is not None and not _of_another(uid, pods[0], member):
            found[uid] = _group_job(index, uid, pods, terms.get(f"{pods[0].namespace}/{member.group}"))
    if limits:
        bounded = [uid for uid, job in found.items() if job.ref.namespace in limits]
        found |= {uid: _limited(index, limits[found[uid].ref.namespace], found, uid) for uid in bounded}
    for uid, job in found.items():
        if any(pods.runtime_class for pods in job.pod_sets):
            found[uid] = replace(job, pod_sets=tuple(_with_runtime(pods, runtimes) for pods in job.pod_sets))
    claiming = [uid for uid, job in found.items() if any(pods.resource_claims for pods in job.pod_sets)]
    if not claiming:
        return found
    joined = {uid: _claiming(index, claimable, found, uid) for uid in claiming}
    return {**found, **joined, **jobs_that_share(index, joined, claimable, shared)}


@derived_each
def _claiming(claimable: ClaimableDevices, job: Job) -> Job:
    """Returns a job whose pods ask for the devices that they claim."""
    return replace(job, pod_sets=tuple(pods_with_claims(it, claimable, shared_ref(it)) for it in job.pod_sets))


@derived_each
def _limited(ranges: tuple[LimitRange, ...], job: Job) -> Job:
    """Returns a job whose pods ask what the LimitRanges of its namespace give them, and are forbidden what these do."""
    return replace(job, pod_sets=tuple(_with_limits(pods, ranges) for pods in job.pod_sets))


def _with_limits(pods: PodSet, ranges: tuple[LimitRange, ...]) -> PodSet:
    if pods.amounts is None:
        return pods
    found = admitted(pods.amounts, ranges)
    amounts = with_defaults(pods.amounts, ranges)
    return replace(pods, requests=found.requests, forbidden=found.forbidden, amounts=amounts)


def _of_another(uid: str, pod: Pod, member: GroupMember) -> bool:
    """Returns whether a pod that names no group is nevertheless not a gang of its own.

    Its StatefulSet is not known yet, or it has the marks of another gang, whose job let go of it.
    """
    if member.group:
        return False
    single = workload_name(JobRef("v1", POD, pod.namespace, pod.name, pod.uid))
    return uid == pod.owner_job or pod.workload not in {"", single}


def _with_runtime(pods: PodSet, runtimes: Mapping[str, RuntimeClass]) -> PodSet:
    """Returns the pods as the API server makes them with their RuntimeClass (Kueue `AdjustResources`).

    Source: `plugin/pkg/admission/runtimeclass`. It refuses pods whose class is not there, or selects other nodes.
    """
    runtime = runtimes.get(pods.runtime_class)
    if runtime is None:
        return pods
    both = pods.node_selector.keys() & runtime.node_selector.keys()
    against = sorted(key for key in both if pods.node_selector[key] != runtime.node_selector[key])
    words = f"RuntimeClass {runtime.name} selects other nodes by it; select none that it does not"
    requests = {name: pods.requests.get(name, 0) + amount for name, amount in runtime.overhead.items()}
    return replace(
        pods,
        requests={**pods.requests, **requests},
        node_selector={**pods.node_selector, **runtime.node_selector},
        tolerations=tuple(dict.fromkeys((*pods.tolerations, *runtime.tolerations))),
        unsupported=(
            *pods.unsupported,
            *(UnsupportedConstraint(f"spec.nodeSelector[{key}]", words) for key in against),
        ),
    )


def _completed(job: Job, below: Job | None, pods: Sequence[Pod]) -> Job:
    if job.hold is Hold.PODS:
        return replace(job, suspended=not any(map(has_started, pods)))
    if not job.shaped_below:
        return job
    if below is None:  # its pod sets are not known yet, so it is not in a queue
        return replace(job, queue="", may_be_queued=False)
    return replace(
        job,
        pod_sets=below.pod_sets,
        ready_pods=below.ready_pods,
        active_pods=below.active_pods,
        do_not_disrupt=longest((job.do_not_disrupt, below.do_not_disrupt)),
        pod_priority_class=below.pod_priority_class,
        restarts=below.restarts,
    )


def has_started(pod: Pod) -> bool:
    """Returns whether a pod runs or may run: released with its gang, or never gated."""
    return pod.active and not pod.deleting and (bool(pod.workload) or not pod.gated)


def outgrown(gang: Gang, job: Job | None, pods: Iterable[Pod]) -> str:
    """Returns the revision of a StatefulSet whose pods ask for something else than its gang holds; empty where none do.

    There have to be pods of another revision beside them: where all are of one, it is not they who have changed, but
    how templates are read (by a newer agent), or a RuntimeClass.
    """
    if job is None or job.numbering is None or not asks_anew(gang, job):
        return ""
    found = {revision_of(pod) for pod in pods if pod.active and not pod.deleting}
    revision = job.numbering.revision
    return revision if revision in found and len(found) > 1 else ""


def asks_anew(gang: Gang, job: Job) -> bool:
    """Returns whether the pods that a job would make now differ from the gang's, in more than number and labels."""
    asked, held = ([replace(it, count=0, labels=()) for it in one.pod_sets] for one in (job, gang))
    if job.numbering is not None and job.numbering.claims:  # a pod set a number: there may be fewer by now
        known = {it.name: it for it in held}
        return any(known.get(it.name, it) != it for it in asked)
    return asked != held


def revision_of(pod: Pod) -> str:
    """Returns which template of its StatefulSet a pod was made of; empty where it does not say."""
    return dict(pod.labels).get(REVISION, "")


def excess(pods: Sequence[Pod]) -> list[Pod]:
    """Returns the pods of a plain group beyond its total that have not started, youngest first (Kueue's rule)."""
    if not any(pod.held for pod in pods):
        return []
    members = _members(pods)
    total = members[0][1].total if members else 0
    beyond = sum(_counts(pod) for pod, _ in members) - total if total else 0
    waiting = [pod for pod, _ in reversed(members) if pod.held]
    return waiting[: max(0, beyond)]


def group_job(uid: str, pods: Sequence[Pod], terms: Terms | None = None) -> Job:
    """Returns a plain group as a job, with an empty queue while it is incomplete and none of its pods has started.

    Its size is the total that its pods state, else the number of pods there are, but at least what `terms` require. A
    group with neither is never complete. The job has ended when so many pods have ended and none is left, and has
    succeeded if so many have.
    """
    members = _members(pods)
    pod, first = members[0]
    present, described = [one for one, _ in members], [member for _, member in members]
    surplus = {extra.uid for extra in excess(pods)}
    wanted = [member for one, member in members if _counts(one) and one.uid not in surplus]
    started = any(map(has_started, present))
    total = first.total or (max(len(wanted), terms.together) if terms else 0)
    result = _result(present, total) if total else None
    complete = bool(total) and len(wanted) >= total
    pod_sets, choice = _roles(wanted, terms)
    return Job(
        ref=JobRef("v1", POD_GROUP if first.group else POD, pod.namespace, first.group or pod.name, uid),
        resource_version="",
        queue=first.queue if started or result or complete else "",
        priority_class=first.priority_class,
        suspended=not started,
        pod_sets=pod_sets,
        created_at_s=first.created_at_s,
        result=result,
        last_checkpoint_s=max(
            (it.last_checkpoint_s for it in described if it.last_checkpoint_s is not None), default=None
        ),
        checkpoint_interval_s=first.checkpoint_interval_s,
        do_not_disrupt=longest(one.do_not_disrupt for one in present),
        hold=Hold.PODS,
        pod_priority_class=next(filter(None, (it.pod_priority_class for it in described)), ""),
        expected_run_s=first.expected_run_s,
        max_run_s=first.max_run_s,
        sla_waiting_s=first.sla_waiting_s,
        priority_boost=first.priority_boost,
        on_node_failure=first.on_node_failure,
        unread=first.unread,
        choice=choice,
    )


@derived(4096)
def _group_job(_index: Index, uid: str, pods: Sequence[Pod], terms: Terms | None) -> Job:
    """Returns a plain group as a job; kept, because most groups do not change from one pass to the next."""
    return group_job(uid, pods, terms)


def _members(pods: Sequence[Pod]) -> list[tuple[Pod, GroupMember]]:
    """Returns the pods of a plain group, oldest first."""
    found = [(pod, pod.member) for pod in pods if pod.member is not None]
    return sorted(found, key=lambda each: (each[1].created_at_s, each[0].name, each[0].uid))


def _counts(pod: Pod) -> bool:
    """Returns whether a pod fills a place of its group; one that failed or is being deleted may be replaced."""
    return pod.phase == "Succeeded" or (pod.active and not pod.deleting)


def _roles(members: Sequence[GroupMember], terms: Terms | None) -> tuple[tuple[PodSet, ...], SubGroup | None]:
    """Returns the roles of a group as pod sets, and which pods may be its core, where there is a choice."""
    counts = Counter(member.shape.name for member in members)
    shapes = {member.shape.name: member.shape for member in reversed(members)}
    labels = _common_labels(members)
    names = sorted(shapes, key=lambda name: ((PREEMPTABLE, "false") not in labels[name], name))
    minima = {name: Minimum(counts[name], terms.roles.get(name) if terms else None) for name in names}
    core = core_sizes([*minima.values()], terms.together if terms else None)
    pod_sets = tuple(
        replace(shapes[name], count=counts[name], core=some, labels=labels[name])
        for name, some in sorted(zip(names, core, strict=True), key=itemgetter(0))
    )
    if terms is not None and terms.policies:
        return _in_sub_groups(pod_sets, members, terms)
    choice = choice_of(terms.group, minima, terms.together) if terms else None
    return (pod_sets if choice is None else with_cores(pod_sets, choice)), choice


def _in_sub_groups(
    pod_sets: Sequence[PodSet], members: Sequence[GroupMember], terms: Terms
) -> tuple[tuple[PodSet, ...], SubGroup]:
    """Returns the roles and the sub-groups they form: of each policy as many as it says, and pods of others to fill up.

    A role belongs to one sub-group as a whole: pods of one role are alike, and none is told from another.
    """
    parts = tuple(_sub_groups(policy, pod_sets) for policy in terms.policies)
    every = tuple(RolePods(pods.name, pods.count) for pods in pod_sets)
    choice = SubGroup(terms.group, every, max(1, terms.together), parts, len(parts))
    refused = {pods.name: tuple(_against(terms.policies, pods, members)) for pods in pod_sets}
    marked = (replace(it, unsupported=(*it.unsupported, *refused[it.name])) for it in pod_sets)
    return with_cores(marked, choice), choice


def _sub_groups(policy: SubGroupPolicy, pod_sets: Sequence[PodSet]) -> SubGroup:
    found: dict[tuple[str, ...], list[RolePods]] = {}
    for pods in pod_sets:
        labels = _seen(pods)
        if _is_for(policy, labels):
            found.setdefault(tuple(labels[key] for key in policy.labels), []).append(RolePods(pods.name, pods.count))
    leaves = (SubGroup("/".join(key), tuple(roles), policy.size) for key, roles in sorted(found.items()))
    return SubGroup(policy.name, parts=tuple(leaves), least=policy.least)


def _seen(pods: PodSet) -> Mapping[str, str]:
    """Returns the labels that policies look at: those of pods, and the one that names their role, said or not."""
    return {POD_SET: pods.name, **dict(pods.labels)}


def _is_for(policy: SubGroupPolicy, labels: Mapping[str, str]) -> bool:
    return all(key in labels for key in policy.labels) and all(it.matches(labels) for it in policy.selector)


def _against(
    policies: Sequence[SubGroupPolicy], pods: PodSet, members: Sequence[GroupMember]
) -> Iterator[UnsupportedConstraint]:
    """Yields what the policies ask of a role and is not honoured."""
    own = [_seen(member.shape) for member in members if member.shape.name == pods.name]
    for number, policy in enumerate(policies):
        where = f"PodGroup spec.subGroupPolicy[{number}]"
        keys = {tuple(labels[key] for key in policy.labels) for labels in own if _is_for(policy, labels)}
        if len(keys) > 1 or (keys and not all(_is_for(policy, labels) for labels in own)):
            words = (
                f"pods of role {pods.name} are of several sub-groups: name their roles by the label muster.dev/pod-set"
            )
            yield UnsupportedConstraint(f"{where}.matchLabelKeys", words)
        if keys:
            yield from (it._replace(path=f"{where}.{it.path}") for it in policy.unsupported)


def _common_labels(members: Sequence[GroupMember]) -> Mapping[str, PodLabels]:
    """Returns role -> the labels that all of its pods have: many programs number their pods by a label."""
    found: dict[str, PodLabels] = {}
    for member in members:
        role, labels = member.shape.name, member.shape.labels
        if (known := found.setdefault(role, labels)) is not labels and known != labels:
            found[role] = tuple(sorted({*known} & {*labels}))
    return found


def _result(pods: Sequence[Pod], total: int) -> JobResult | None:
    ended = [pod for pod in pods if not pod.active]
    if len(ended) < total or len(ended) < len(pods):
        return None
    succeeded = sum(pod.phase == "Succeeded" for pod in ended)
    return JobResult.SUCCEEDED if succeeded >= total else JobResult.FAILED
