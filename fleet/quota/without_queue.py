"""Jobs that name no queue, in namespaces that say what becomes of them.

A Team takes them into its `defaultQueue`, or holds them (`manageJobsWithoutQueueName`, as Kueue's configuration for the
namespaces of its selector). A LocalQueue called `default` takes them in its namespace, as in Kueue (Local Queue
Defaulting).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleet.snapshot import Gang, Job, Snapshot
from model.fleet import Fleet
from model.index import Index, derived

DEFAULT = "default"
"""A LocalQueue of this name is for all jobs of its namespace that name no queue."""
HELD = ""
"""In place of a queue: jobs of the namespace wait until they name one."""


def with_default_queues(fleet: Fleet, snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot as the deciders are to see it: jobs without a queue in that of their namespace, or held.

    A job with a ready pod that nobody has queued before is left: a push stops no work that runs.
    """
    index = snapshot.index
    queues = _default_queues(fleet.index, fleet)
    if not queues:
        return snapshot
    queued = _queued(index, queues, _unnamed(index, snapshot.jobs), snapshot.gangs)
    return replace(snapshot, jobs=_merged(index, snapshot.jobs, queued)) if queued else snapshot


def left_without_queue(snapshot: Snapshot, name: str) -> list[Job]:
    """Returns the jobs of this name, or `namespace/name`, that are in no queue and have no gang."""
    return [job for job in left_jobs(snapshot) if name in {job.ref.name, f"{job.ref.namespace}/{job.ref.name}"}]


def left_jobs(snapshot: Snapshot) -> Sequence[Job]:
    """Returns the jobs that are in no queue, have no gang, and are not over: kube-scheduler runs them. By uid."""
    return _left(snapshot.index, snapshot.jobs, snapshot.gangs)


@derived(1, steady=True)
def _left(_index: Index, jobs: Mapping[str, Job], gangs: Mapping[str, Gang]) -> Sequence[Job]:
    found = (job for job in jobs.values() if job.may_be_queued and not job.managed and not job.result)
    return tuple(sorted((job for job in found if job.ref.uid not in gangs), key=lambda job: job.ref.uid))


def left_in_teams(fleet: Fleet, snapshot: Snapshot) -> Sequence[Job]:
    """Returns those of them in namespaces of teams, whose pods the team pays for and no quota counts."""
    homes = _namespaces_of_teams(fleet.index, fleet)
    return [job for job in left_jobs(snapshot) if job.ref.namespace in homes and not job.deleting]


def misread_jobs(snapshot: Snapshot) -> Sequence[Job]:
    """Returns the jobs in no queue, whoever their namespace is of, that say of themselves what nothing reads. By uid.

    Perhaps the queue: as an annotation, or on their pods. Those that other jobs have made are left to these.
    """
    return _misread(snapshot.index, snapshot.jobs, snapshot.gangs)


@derived(1, steady=True)
def _misread(_index: Index, jobs: Mapping[str, Job], gangs: Mapping[str, Gang]) -> Sequence[Job]:
    found = (job for job in jobs.values() if job.unread and not job.managed and not job.owner_uid)
    return tuple(
        sorted(
            (job for job in found if job.ref.uid not in gangs and not job.result and not job.deleting),
            key=lambda job: job.ref.uid,
        )
    )


@derived()
def _namespaces_of_teams(_index: Index, fleet: Fleet) -> frozenset[str]:
    return frozenset(namespace for team in fleet.teams.values() for namespace in team.spec.namespaces)


@derived()
def _default_queues(_index: Index, fleet: Fleet) -> Mapping[str, str]:
    """Returns namespace -> the queue of jobs that name none, or `HELD`; without namespaces that leave them."""
    queues = {it.metadata.namespace: DEFAULT for it in fleet.local_queues.values() if it.name == DEFAULT}
    for team in fleet.teams.values():
        if team.spec.default_queue or team.spec.manage_jobs_without_queue_name:
            queues |= dict.fromkeys(team.spec.namespaces, team.spec.default_queue or HELD)
    return queues


@derived(1, steady=True)
def _unnamed(_index: Index, jobs: Mapping[str, Job]) -> Sequence[Job]:
    return tuple(job for job in jobs.values() if job.may_be_queued)


@derived(1, steady=True)
def _queued(
    _index: Index, queues: Mapping[str, str], unnamed: Sequence[Job], gangs: Mapping[str, Gang]
) -> Mapping[str, Job]:
    """Returns uid -> job that is queued or held for its namespace's sake."""
    found = {}
    for job in unnamed:
        queue = queues.get(job.ref.namespace)
        if queue is not None and (job.suspended or not job.ready_pods or job.ref.uid in gangs):
            found[job.ref.uid] = replace(job, queue=queue, waits_for_queue=queue == HELD)
    return found


@derived(1, steady=True)
def _merged(_index: Index, jobs: Mapping[str, Job], queued: Mapping[str, Job]) -> Mapping[str, Job]:
    return {**jobs, **queued}
